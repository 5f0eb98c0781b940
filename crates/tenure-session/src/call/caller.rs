//! The sender of a message, and the transport of the message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// What its credentials grant.
    pub scopes: Granted,
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
    /// Where a limit of ours notes that it has refused the request, if a layer in front wants to know.
    pub refusal: Option<RefusalMark>,
}

/// Whether a limit of ours has refused a request. A server behind can write an answer that looks like such a refusal, and cannot
/// set this.
#[derive(Clone, Default, Debug)]
pub struct RefusalMark(Arc<AtomicBool>);

impl RefusalMark {
    /// Whether a limit has refused it.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Scopes of credentials, sorted.
pub type Scopes = Arc<[Box<str>]>;

/// What the sender of a request may do. The three are apart so that a request whose scopes were lost is not taken for one
/// that may do everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Granted {
    /// No credentials were asked for. Where there are rules about scopes, this grants nothing.
    #[default]
    Unasked,
    /// The request is our own, and no client sees its result as it is.
    Ours,
    /// The scopes of verified credentials.
    Scopes(Scopes),
}

impl Granted {
    /// The scopes, if credentials were verified.
    pub fn scopes(&self) -> Option<&Scopes> {
        match self {
            Self::Scopes(scopes) => Some(scopes),
            Self::Unasked | Self::Ours => None,
        }
    }

    /// As it is kept with a request: the scopes, if there are any. A request of our own is never kept.
    pub(crate) fn recorded(&self) -> Option<Vec<Box<str>>> {
        self.scopes().map(|scopes| scopes.to_vec())
    }

    /// As it was kept with a request.
    pub(crate) fn of_record(scopes: Option<Vec<Box<str>>>) -> Self {
        scopes.map_or(Self::Unasked, |scopes| Self::Scopes(scopes.into()))
    }
}

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
            scopes: Granted::Unasked,
            traceparent: None,
            tracestate: None,
            correlation: None,
            collect: Collect::default(),
            held: None,
            refusal: None,
        }
    }

    /// Notes that a limit of ours refuses the request.
    pub fn note_refusal(&self) {
        if let Some(RefusalMark(mark)) = &self.refusal {
            mark.store(true, Ordering::Relaxed);
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
