//! Who sent a message, and how it reached us.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::budget::{Peer, Share, Taken};
use crate::id::Principal;

/// Who sent a message, and how it reached us.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `http`, `https`, `stdio` or `websocket`.
    pub transport: &'static str,
    /// The other end, as far as known.
    pub remote: Option<SocketAddr>,
    /// Who it is.
    pub principal: Principal,
    /// The W3C `traceparent` of the message, if it has one.
    pub traceparent: Option<Box<str>>,
    /// How it gets an answer whose connection closed.
    pub collect: Collect,
    /// The memory that the message takes, counted until nothing needs the message any more.
    pub held: Option<Arc<Taken>>,
}

/// How a client gets an answer if the connection that waits for it closes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Collect {
    /// It resumes the stream that the answer comes on.
    #[default]
    Resumes,
    /// Not at all: it has to be answered here.
    Here,
}

impl Caller {
    /// A caller about whom nothing is known but the transport.
    pub fn anonymous(transport: &'static str) -> Self {
        Self {
            transport,
            remote: None,
            principal: Principal::ANONYMOUS,
            traceparent: None,
            collect: Collect::default(),
            held: None,
        }
    }

    /// Whose share it comes from what it makes us keep.
    pub fn peer(&self) -> Peer {
        self.remote.map_or(Peer::UNKNOWN, |remote| Peer::at(remote.ip()))
    }

    /// What it may make us hold, if that is counted.
    pub fn share(&self) -> Option<Share> {
        self.held.as_ref().map(|held| held.share())
    }
}
