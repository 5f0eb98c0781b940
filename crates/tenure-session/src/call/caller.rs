//! The sender of a message, and the transport of the message.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::budget::{Peer, Share, Taken};
use crate::id::Principal;

/// The sender of a message, and the transport of the message.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `http`, `https`, `stdio` or `websocket`.
    pub transport: &'static str,
    /// The remote address, if it is known.
    pub remote: Option<SocketAddr>,
    /// The principal.
    pub principal: Principal,
    /// The scopes of its credentials, sorted. `None` if no credentials were needed, and for requests of our own.
    pub scopes: Option<Scopes>,
    /// The W3C `traceparent` of the message, if it has one.
    pub traceparent: Option<Box<str>>,
    /// The `tracestate` beside it.
    pub tracestate: Option<Box<str>>,
    /// The id by which logs of several processes are put together: short, and safe in any log. Given by the client or a
    /// proxy, and otherwise made only if something logs it.
    pub correlation: Option<Arc<str>>,
    /// How it gets an answer after its connection closed.
    pub collect: Collect,
    /// The memory of the message, counted until the message is no longer needed.
    pub held: Option<Arc<Taken>>,
}

/// Scopes of credentials, sorted.
pub type Scopes = Arc<[Box<str>]>;

/// How a client gets an answer after the connection that waited for it has closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Collect {
    /// It resumes the stream of the answer.
    #[default]
    Resumes,
    /// It cannot: the answer has to go to this connection.
    Here,
}

impl Caller {
    /// An anonymous caller: only the transport is known.
    pub fn anonymous(transport: &'static str) -> Self {
        Self {
            transport,
            remote: None,
            principal: Principal::ANONYMOUS,
            scopes: None,
            traceparent: None,
            tracestate: None,
            correlation: None,
            collect: Collect::default(),
            held: None,
        }
    }

    /// The peer whose share the caller uses.
    pub fn peer(&self) -> Peer {
        self.remote.map_or(Peer::UNKNOWN, |remote| Peer::at(remote.ip()))
    }

    /// The caller's share, if its memory is counted.
    pub fn share(&self) -> Option<Share> {
        self.held.as_ref().map(|held| held.share())
    }
}
