//! What must hold, from the client's side; pure, so that faulty histories can be fed to it.
//!
//! In: events in the order they were received, and under which [`Circumstances`]. Out: what an event
//! means, or a [`Fault`]. `script` knows what each tool may say, `stream` numbers and order, `session`
//! what no two streams of a session may share.

mod script;
mod session;
mod stream;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use script::{Ending, Heard, Script};
pub(crate) use session::SessionCheck;
pub(crate) use stream::StreamCheck;

/// What has happened to the server since a request was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// It was killed, so that work may have been interrupted.
    pub(crate) crashed: bool,
    /// The end of its journal was cut off, so that what was received may be gone from the log.
    pub(crate) torn: bool,
}

/// Kinds of broken promises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// Something that was said never arrived.
    Lost,
    /// An event came twice.
    Repeated,
    /// A message of another request or session.
    WrongStream,
    /// An id that goes back.
    WrongOrder,
    /// One id for two different things.
    IdReused,
    /// A second final response.
    DoubleAnswer,
    /// Something after the final response.
    AfterAnswer,
    /// A final response that is not the right one.
    WrongAnswer,
    /// A message without an id: it was not logged.
    Unlogged,
    /// The server itself says that events are missing.
    Gap,
    /// An id that was received is not accepted for resumption.
    IdRefused,
    /// No final response in time.
    Hangs,
    /// A session that was opened and not deleted is not found.
    SessionLost,
    /// What the server acknowledged is forgotten: `initialized`, a subscription.
    StateLost,
    /// A deleted session answers.
    Resurrected,
    /// A status or message that nothing accounts for.
    Unexpected,
    /// The server did not start, ended by itself, or panicked.
    ServerFailed,
}

impl Kind {
    /// Whether something is gone that was acknowledged. A client that is sent back shows it too: the server does
    /// not know any more what that client has received.
    pub(crate) fn is_loss(self) -> bool {
        match self {
            Kind::Lost | Kind::WrongOrder | Kind::Gap | Kind::IdRefused => true,
            Kind::SessionLost | Kind::StateLost | Kind::Resurrected => true,
            Kind::Repeated | Kind::WrongStream | Kind::IdReused | Kind::DoubleAnswer => false,
            Kind::AfterAnswer | Kind::WrongAnswer | Kind::Unlogged | Kind::Hangs => false,
            Kind::Unexpected | Kind::ServerFailed => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Lost => "message lost",
            Kind::Repeated => "event repeated",
            Kind::WrongStream => "wrong stream",
            Kind::WrongOrder => "wrong order",
            Kind::IdReused => "id reused",
            Kind::DoubleAnswer => "two answers",
            Kind::AfterAnswer => "event after the answer",
            Kind::WrongAnswer => "wrong answer",
            Kind::Unlogged => "event without an id",
            Kind::Gap => "gap reported",
            Kind::IdRefused => "event id refused",
            Kind::Hangs => "request hangs",
            Kind::SessionLost => "session lost",
            Kind::StateLost => "acknowledged state lost",
            Kind::Resurrected => "deleted session answers",
            Kind::Unexpected => "unexpected answer",
            Kind::ServerFailed => "server failed",
        })
    }
}

/// A promise was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
}

impl Fault {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Fault {
        Fault { kind, detail: detail.into() }
    }
}

/// An event id taken apart: `<stream>-<place>-<tag of the session>`, all in hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct EventId {
    pub(crate) stream: u32,
    /// Differs from event to event, and does not tell which is the newer one.
    pub(crate) place: u64,
    pub(crate) tag: u32,
}

impl EventId {
    pub(crate) fn parse(text: &str) -> Option<EventId> {
        let mut parts = text.split('-');
        let stream = u32::from_str_radix(parts.next()?, 16).ok()?;
        let place = u64::from_str_radix(parts.next()?, 16).ok()?;
        let tag = u32::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(EventId { stream, place, tag })
    }
}
