//! One record of the audit log, and its one form as a line.
//!
//! The members of a line stand in the order of their names, without spaces, so that there is one way to write a record.
//! Texts of others are cut: a client cannot make a record large.

use std::time::Duration;

use serde::Serialize;
use tenure_session::Principal;
use tenure_session::port::clock::Time;

/// The version of the form.
const VERSION: u8 = 1;

/// The longest text of others in a record: a name, an address, a client.
const LONGEST: usize = 256;

/// The longest arguments in a record.
pub(super) const LONGEST_ARGUMENTS: usize = 4 << 10;

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// The log was opened by a process.
    AuditOpened,
    /// The process closed the log.
    AuditClosed,
    /// The file is full, or was asked to end: the log goes on in another one.
    AuditRotated,
    /// The first record of a file that goes on with the log.
    AuditContinued,
    /// Records were lost: the disk or the queue was full.
    AuditLost,
    /// The chain so far, signed.
    Head,
    /// A call is about to go to a server; only where records are required.
    CallBegun,
    /// A call has ended.
    CallFinished,
    /// A caller was refused: no good credentials, no scope, a limit.
    Refused,
    /// A session began.
    SessionCreated,
    /// A session goes on at this node of a cluster.
    SessionMoved,
    /// A session ended.
    SessionEnded,
    /// A server asked the user of a client something.
    ElicitationSent,
    /// The user answered, or did not.
    ElicitationAnswered,
    /// A call became a task.
    TaskBegun,
    /// A task ended.
    TaskEnded,
    /// An operator did something.
    AdminAction,
    /// The file of static keys has a key that it did not have.
    KeyAdded,
    /// The file of static keys lacks a key that it had.
    KeyRemoved,
    /// The token of a caller was exchanged for one for a server behind, or could not be.
    TokenExchanged,
}

/// A record. The fields stand in the order in which they are written.
#[derive(Clone, Serialize, Debug)]
pub(crate) struct Record {
    /// The arguments of a call, if they are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<Box<str>>,
    /// HMAC-SHA-256 of the arguments as they were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) args_digest: Option<Box<str>>,
    /// The endpoint, if it has a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_in: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes_out: Option<u64>,
    /// The change of an operator: the old and the new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) change: Option<Box<str>>,
    /// The name that the client gave itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<Box<str>>,
    /// The code of an error, or the status of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<i64>,
    /// How many events this record stands for, if it is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
    pub(crate) event: Event,
    /// Written last, over everything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<Box<str>>,
    /// The public key of a head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<Box<str>>,
    /// The method of MCP, or the operation of an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<Box<str>>,
    /// The tool, prompt, resource, file or key that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<Box<str>>,
    pub(super) node: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'static str>,
    /// The hash of the record before.
    pub(super) prev: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) principal: Option<PrincipalRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<Box<str>>,
    /// The correlation id: the same in the access log, and in both records of one call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<Box<str>>,
    pub(super) seq: u64,
    /// The name of the session in logs; never its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session: Option<Box<str>>,
    /// The signature of a head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sig: Option<Box<str>>,
    pub(super) time: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<Box<str>>,
    pub(super) v: u8,
}

/// The actor.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Debug)]
pub(crate) struct PrincipalRecord {
    /// The client that acts for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<Box<str>>,
    /// The name of the issuer.
    #[serde(skip_serializing_if = "Option::is_none")]
    iss: Option<Box<str>>,
    /// The kind of its credentials.
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<Box<str>>,
}

impl PrincipalRecord {
    pub(crate) fn of(principal: &Principal) -> Self {
        let client_id = principal.client().map(cut);
        let Some(name) = principal.name() else {
            return Self { client_id, iss: None, kind: "anonymous", sub: None };
        };
        let (iss, sub) = match name.split_once(':') {
            Some((iss, sub)) => (Some(iss), sub),
            None => (None, name),
        };
        let kind = match iss {
            Some("key") => "key",
            Some("cert") => "certificate",
            _ => "token",
        };
        Self { client_id, iss: iss.map(cut), kind, sub: Some(cut(sub)) }
    }

    /// Whether the caller has a name.
    pub(super) fn has_name(&self) -> bool {
        self.sub.is_some()
    }

    /// The person at the control socket, by the number of the user.
    pub(crate) fn operator(uid: Option<u32>) -> Self {
        let sub = uid.map(|uid| format!("uid-{uid}").into());
        Self { client_id: None, iss: None, kind: "operator", sub }
    }
}

impl Record {
    /// A record of an event at this time.
    pub(crate) fn new(event: Event, now: Time) -> Self {
        Self {
            args: None,
            args_digest: None,
            backend: None,
            bytes_in: None,
            bytes_out: None,
            change: None,
            client: None,
            code: None,
            count: None,
            duration_ms: None,
            event,
            hash: None,
            key: None,
            method: None,
            name: None,
            node: Box::default(),
            outcome: None,
            prev: Box::default(),
            principal: None,
            reason: None,
            remote: None,
            request_id: None,
            seq: 0,
            session: None,
            sig: None,
            time: crate::time_text::stamp(now).into(),
            trace_id: None,
            v: VERSION,
        }
    }

    /// Appends the record as a line without its line break.
    pub(super) fn write(&self, lines: &mut Vec<u8>) {
        serde_json::to_writer(lines, self).expect("a record has a JSON form");
    }
}

/// The start of a text of others.
pub(crate) fn cut(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(LONGEST)].into()
}

/// A text that is not whole if it is longer than arguments may be.
pub(super) fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_ARGUMENTS {
        text.truncate(text.floor_char_boundary(LONGEST_ARGUMENTS));
        text.push('…');
    }
    text
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn hex(bytes: &[u8]) -> Box<str> {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half & 15)]);
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(*byte));
    }
    text.into()
}

pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let digits = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.bytes().all(digits).then_some(())?;
    (0..text.len()).step_by(2).map(|place| u8::from_str_radix(&text[place..place + 2], 16).ok()).collect()
}
