//! Checks the promises of the server from the client's side; pure, so that tests can feed it faulty histories.
//!
//! In: events in the order of receipt, and their [`Circumstances`]. Out: the meaning of an event, or a [`CheckFault`].
//! `stream` checks ids and their order, `script` the messages of each tool, `session` that no two streams of a
//! session share a number or a question, `order` that answers of several nodes fit one order and nothing runs twice, `late`
//! how long a client waits.

mod stream;
mod script;
mod session;
mod order;
mod late;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use late::Patience;
pub(crate) use order::{CounterCheck, Interval, LinkCheck, notes};
pub(crate) use script::{Ending, EventMeaning, Script};
pub(crate) use session::SessionCheck;
pub(crate) use stream::StreamCheck;

/// What has happened to the server since a request was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// It was killed, so that work may have been interrupted.
    pub(crate) crashed: bool,
    /// The end of its journal was cut off, so that received events may be gone from the log.
    pub(crate) torn: bool,
    /// The session may have moved to another node, so that even a request that is safe to repeat may have been given up.
    pub(crate) moved: bool,
}

/// Kinds of broken promises.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum FaultKind {
    /// A message never arrived.
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
    /// An event after the final response.
    AfterAnswer,
    /// A wrong final response.
    WrongAnswer,
    /// A message without an id: it was not logged.
    Unlogged,
    /// The server itself reports missing events.
    Gap,
    /// The server refuses to resume after an id that it sent.
    IdRefused,
    /// No final response in time.
    Hangs,
    /// A session that was opened and not deleted is not found.
    SessionLost,
    /// The server forgot what it acknowledged: `initialized`, a subscription.
    StateLost,
    /// A deleted session answers.
    Resurrected,
    /// An answer by a node that does not know the session as it is: it is not the owner any more, or reads something old.
    Stale,
    /// A call that is not safe to repeat was run twice.
    TwoRuns,
    /// A client waited too long for a sign of life.
    Late,
    /// A status or message for which there is no good reason.
    Unexpected,
    /// The server did not start, ended by itself, or panicked.
    ServerFailed,
}

impl FaultKind {
    /// Whether this shows that acknowledged data is gone. An id that goes back shows it too: the server no longer knows
    /// what the client has received.
    pub(crate) fn is_loss(self) -> bool {
        match self {
            FaultKind::Lost | FaultKind::WrongOrder | FaultKind::Gap | FaultKind::IdRefused => true,
            FaultKind::SessionLost | FaultKind::StateLost | FaultKind::Resurrected => true,
            FaultKind::Repeated | FaultKind::WrongStream | FaultKind::IdReused | FaultKind::DoubleAnswer => {
                false
            }
            FaultKind::AfterAnswer | FaultKind::WrongAnswer | FaultKind::Unlogged | FaultKind::Hangs => false,
            FaultKind::Stale | FaultKind::TwoRuns | FaultKind::Late => false,
            FaultKind::Unexpected | FaultKind::ServerFailed => false,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FaultKind::Lost => "message lost",
            FaultKind::Repeated => "event repeated",
            FaultKind::WrongStream => "wrong stream",
            FaultKind::WrongOrder => "wrong order",
            FaultKind::IdReused => "id reused",
            FaultKind::DoubleAnswer => "two answers",
            FaultKind::AfterAnswer => "event after the answer",
            FaultKind::WrongAnswer => "wrong answer",
            FaultKind::Unlogged => "event without an id",
            FaultKind::Gap => "gap reported",
            FaultKind::IdRefused => "event id refused",
            FaultKind::Hangs => "request hangs",
            FaultKind::SessionLost => "session lost",
            FaultKind::StateLost => "acknowledged state lost",
            FaultKind::Resurrected => "deleted session answers",
            FaultKind::Stale => "stale answer",
            FaultKind::TwoRuns => "run twice",
            FaultKind::Late => "late answer",
            FaultKind::Unexpected => "unexpected answer",
            FaultKind::ServerFailed => "server failed",
        })
    }
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CheckFault {
    pub(crate) kind: FaultKind,
    pub(crate) detail: String,
}

impl CheckFault {
    pub(crate) fn new(kind: FaultKind, detail: impl Into<String>) -> CheckFault {
        CheckFault { kind, detail: detail.into() }
    }
}

/// An event id taken apart: `<stream>-<place>-<tag of the session>`, all in hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct EventId {
    pub(crate) stream: u32,
    /// Different for every event; its order says nothing about which event is newer.
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
