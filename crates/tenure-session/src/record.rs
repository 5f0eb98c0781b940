//! What a store keeps of a session: the record, and the tombstone that follows it.
//!
//! The encoding is JSON with a format number. A reader takes any record whose format it knows and
//! ignores members it does not know, so that an older process can read what a newer one wrote as long
//! as the number is the same.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_protocol::Reason;

use crate::fingerprint::Fingerprint;
use crate::port::clock::Time;

const FORMAT: u32 = 1;

/// What is kept under a session's key.
#[derive(Debug)]
pub enum Kept {
    /// A session.
    Session(Box<SessionRecord>),
    /// The end of one.
    Tombstone(Tombstone),
}

/// A session, as far as it must outlive the process.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct SessionRecord {
    /// The principal it answers to; `None` for anonymous.
    pub owner: Option<String>,
    /// The negotiated revision.
    pub revision: String,
    /// The phase.
    pub phase: String,
    /// When it was created, ms since 1970.
    pub created: u64,
    /// When it was last used.
    pub last_used: u64,
    /// The params of `initialize`, to be replayed when the session is woken.
    pub initialize: Box<RawValue>,
    /// What the server answered.
    pub initialize_result: Box<RawValue>,
    /// The log level the client asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// Resources the client subscribed to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<String>,
    /// The position of the last event of the standalone stream that some reader was given.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delivered: u64,
    /// No stream of this number or a higher one was begun when this was written; 0 if that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_stream: u64,
    /// The endpoint it was begun at; `None` for the one without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The server that it was last linked to; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Fingerprint>,
    /// The idle time in ms that the record's deadline was made with, 0 for none; missing if that is not known, or if the
    /// session has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// The idle time in ms of this session alone, 0 for none; missing if it follows the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// What operators, embedders and handlers attached.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// What positions in event ids are enciphered with; missing in sessions from before there was such a thing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_secret: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The memory of an ended session.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The principal it answered to; only that one is told why it ended.
    pub owner: Option<String>,
    /// How it ended.
    pub end: End,
    /// When.
    pub at: u64,
}

/// How a session ended.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By its client.
    Deleted,
    /// By time.
    Expired,
    /// By an operator.
    Revoked,
}

impl End {
    /// The word for it in errors.
    pub fn reason(self) -> Reason {
        match self {
            Self::Deleted => Reason::SessionDeleted,
            Self::Expired => Reason::SessionExpired,
            Self::Revoked => Reason::SessionRevoked,
        }
    }
}

impl Tombstone {
    /// A tombstone for a session of `owner` that ends now.
    pub fn new(owner: Option<&str>, end: End, now: Time) -> Self {
        Self { owner: owner.map(str::to_owned), end, at: now.0 }
    }
}

#[derive(Serialize)]
struct Written<'a> {
    format: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a SessionRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tombstone: Option<&'a Tombstone>,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Deserialize)]
struct Read {
    session: Option<Box<SessionRecord>>,
    tombstone: Option<Tombstone>,
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Written by a newer version of this program.
    #[error("record format {0} is newer than {FORMAT}, the newest this version reads")]
    Newer(u32),
    /// Not a record.
    #[error("not a session record")]
    Broken(#[source] Option<serde_json::Error>),
}

impl SessionRecord {
    /// The bytes to store.
    pub fn encode(&self) -> Bytes {
        encode(&Written { format: FORMAT, session: Some(self), tombstone: None })
    }
}

impl Tombstone {
    /// The bytes to store.
    pub fn encode(&self) -> Bytes {
        encode(&Written { format: FORMAT, session: None, tombstone: Some(self) })
    }
}

fn encode(written: &Written<'_>) -> Bytes {
    serde_json::to_vec(written).expect("a record has a JSON form").into()
}

impl Kept {
    /// Reads stored bytes.
    ///
    /// # Errors
    /// When they are not a record, or one of a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let format: Format = serde_json::from_slice(bytes).map_err(|e| Unreadable::Broken(Some(e)))?;
        if format.format > FORMAT {
            return Err(Unreadable::Newer(format.format));
        }
        let read: Read = serde_json::from_slice(bytes).map_err(|e| Unreadable::Broken(Some(e)))?;
        match (read.session, read.tombstone) {
            (Some(session), None) => Ok(Self::Session(session)),
            (None, Some(tombstone)) => Ok(Self::Tombstone(tombstone)),
            _ => Err(Unreadable::Broken(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_writer_with_the_same_format_may_add_members() {
        let bytes = br#"{"format":1,"tombstone":{"owner":null,"end":"expired","at":5,"added":1},"more":[]}"#;
        let Kept::Tombstone(read) = Kept::decode(bytes).unwrap() else { panic!("a tombstone") };
        assert_eq!(read, Tombstone { owner: None, end: End::Expired, at: 5 });
    }

    /// As the first release wrote it.
    const EARLIER: &str = r#"{"format":1,"session":{"owner":null,"revision":"2025-11-25","phase":"initialized","created":1,"last_used":2,"initialize":{},"initialize_result":{}}}"#;

    #[test]
    fn an_earlier_record_has_no_server_and_stays_as_it_is() {
        let Kept::Session(read) = Kept::decode(EARLIER.as_bytes()).unwrap() else { panic!("a session") };
        assert_eq!(read.server, None);
        assert_eq!(read.encode(), EARLIER);
    }

    #[test]
    fn an_earlier_reader_takes_a_record_with_a_server_and_drops_it_when_it_writes() {
        /// What the first release knew.
        #[derive(Serialize, Deserialize)]
        struct Earlier {
            owner: Option<String>,
            revision: String,
            phase: String,
            created: u64,
            last_used: u64,
            initialize: Box<RawValue>,
            initialize_result: Box<RawValue>,
        }
        #[derive(Serialize, Deserialize)]
        struct Whole {
            format: u32,
            session: Earlier,
        }
        let Kept::Session(mut record) = Kept::decode(EARLIER.as_bytes()).unwrap() else {
            panic!("a session")
        };
        record.server = Some(Fingerprint::of("npx", [&b"npx"[..]]));
        let written = record.encode();
        assert!(written.windows(8).any(|part| part == br#""server""#));
        let Kept::Session(read) = Kept::decode(&written).unwrap() else { panic!("a session") };
        assert_eq!(read.server, record.server);
        let earlier: Whole = serde_json::from_slice(&written).unwrap();
        assert_eq!(earlier.format, 1);
        let over = serde_json::to_vec(&earlier).unwrap();
        let Kept::Session(read) = Kept::decode(&over).unwrap() else { panic!("a session") };
        assert_eq!(read.server, None);
    }

    #[test]
    fn an_earlier_reader_goes_by_the_deadline_of_a_session_with_a_time_of_its_own() {
        /// What was known before sessions had times of their own.
        #[derive(Serialize, Deserialize)]
        struct Earlier {
            #[serde(default, skip_serializing_if = "Option::is_none")]
            idle_ms: Option<u64>,
            #[serde(default)]
            metadata: serde_json::Map<String, serde_json::Value>,
        }
        #[derive(Serialize, Deserialize)]
        struct Whole {
            session: Earlier,
        }
        let Kept::Session(mut record) = Kept::decode(EARLIER.as_bytes()).unwrap() else {
            panic!("a session")
        };
        assert_eq!(record.ttl_ms, None, "an earlier record follows the limits");
        record.ttl_ms = Some(7_200_000);
        record.metadata.insert("user_id".into(), "u1".into());
        let written = record.encode();
        let Kept::Session(read) = Kept::decode(&written).unwrap() else { panic!("a session") };
        assert_eq!((read.ttl_ms, &read.metadata), (Some(7_200_000), &record.metadata));
        // Without `idle_ms` it has nothing to compare with its own limits, and leaves the deadline as it is.
        let earlier: Whole = serde_json::from_slice(&written).unwrap();
        assert_eq!((earlier.session.idle_ms, earlier.session.metadata.len()), (None, 1));
        // An earlier writer drops it; the session then follows the limits of whoever reads it.
        record.ttl_ms = None;
        record.idle_ms = Some(1_800_000);
        let Kept::Session(read) = Kept::decode(&record.encode()).unwrap() else { panic!("a session") };
        assert_eq!((read.ttl_ms, read.idle_ms), (None, Some(1_800_000)));
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let error = Kept::decode(br#"{"format":2,"anything":{}}"#).unwrap_err();
        assert_eq!(error.to_string(), "record format 2 is newer than 1, the newest this version reads");
        assert!(Kept::decode(b"{}").is_err());
        assert!(Kept::decode(br#"{"format":1}"#).is_err());
    }
}
