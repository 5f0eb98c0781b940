//! The records of sessions in a store: the session, and after its end a tombstone.
//!
//! The encoding is JSON with a format number. A reader takes any record whose format it knows and
//! ignores members it does not know, so that an older process can read the records of a newer one as
//! long as the number is the same.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_protocol::Reason;

use crate::figures::SessionFigures;
use crate::fingerprint::Fingerprint;
use crate::id::{Principal, Route};
use crate::port::clock::Time;

const FORMAT: u32 = 1;

/// The content of a record under a session's key.
#[derive(Debug)]
pub enum StoredSession {
    /// A session.
    Session(Box<SessionRecord>),
    /// The end of one.
    Tombstone(Tombstone),
}

/// The data of a session that must outlive the process.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub struct SessionRecord {
    /// The principal that owns it; `None` for anonymous.
    pub owner: Option<String>,
    /// The client that opened it for its owner, if the owner's credentials named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
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
    /// The server's answer to `initialize`.
    pub initialize_result: Box<RawValue>,
    /// The log level the client asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// Resources the client subscribed to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscriptions: Vec<String>,
    /// The position of the last event of the standalone stream that was delivered to a reader.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delivered: u64,
    /// When this was written, no stream with this or a higher number had begun; 0 if that is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub next_stream: u64,
    /// The endpoint it was begun at; `None` for the one without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The server that it was last linked to; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Fingerprint>,
    /// The idle time of the limits, in ms, from which the record's deadline was computed; 0 for no limit. Missing if it
    /// is not known, or if the session has its own idle time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// The session's own idle time in ms, 0 for no limit; missing if the session follows the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Metadata from operators, embedders and handlers.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub metadata: serde_json::Map<String, serde_json::Value>,
    /// The key that encrypts positions in event ids; missing in sessions of versions that did not encrypt them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_secret: Option<String>,
    /// The epoch of the node that wrote this; missing if it was in no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The node of a cluster whose news of servers its client has heard; missing if it was in none, or if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<String>,
    /// What was counted of it; missing if nothing was, or if it cannot be read.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::figures::of_record"
    )]
    pub figures: Option<Box<SessionFigures>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde wants")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The record that remains of an ended session.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The principal that owned it. Only this principal learns how the session ended.
    pub owner: Option<String>,
    /// The client that had opened it, if its owner's credentials named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// How it ended.
    pub end: EndCause,
    /// When.
    pub at: u64,
}

/// How a session ended.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// By its client.
    Deleted,
    /// By time.
    Expired,
    /// By an operator.
    Revoked,
}

impl EndCause {
    /// The word for it in logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }

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
    pub(crate) fn new(owner: &Principal, end: EndCause, now: Time) -> Self {
        let client = owner.client().map(str::to_owned);
        Self { owner: owner.name().map(str::to_owned), client, end, at: now.0 }
    }

    /// The principal that owned the session.
    pub(crate) fn owner(&self) -> Principal {
        Principal::recorded(self.owner.as_deref(), self.client.as_deref())
    }
}

impl SessionRecord {
    /// The principal that owns the session.
    pub(crate) fn owner(&self) -> Principal {
        Principal::recorded(self.owner.as_deref(), self.client.as_deref())
    }
}

#[derive(Serialize)]
struct WrittenRecord<'a> {
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
struct ReadRecord {
    session: Option<Box<SessionRecord>>,
    tombstone: Option<Tombstone>,
}

/// What can be said of a record in a newer format.
#[derive(Deserialize, Debug)]
pub struct NewerRecord {
    format: u32,
    /// If it names its owner as this version does, only that one may learn that it exists.
    #[serde(default, deserialize_with = "if_readable")]
    session: Option<NewerOwner>,
    #[serde(default, deserialize_with = "if_readable")]
    tombstone: Option<NewerOwner>,
}

#[derive(Deserialize, Debug)]
struct NewerOwner {
    /// Must be present: a record without it is not an anonymous one.
    #[serde(deserialize_with = "Option::deserialize")]
    owner: Option<String>,
    client: Option<String>,
    route: Option<String>,
}

fn if_readable<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<NewerOwner>, D::Error> {
    let raw: Box<RawValue> = Deserialize::deserialize(from)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

impl NewerRecord {
    /// Whether it may belong to this principal at this endpoint.
    pub(crate) fn may_be_of(&self, principal: &Principal, route: &Route) -> bool {
        let of = |owner: &NewerOwner| {
            Principal::recorded(owner.owner.as_deref(), owner.client.as_deref()).is_same_client(principal)
        };
        match (&self.session, &self.tombstone) {
            (Some(session), _) => of(session) && session.route.as_deref() == route.name(),
            (None, Some(tombstone)) => of(tombstone),
            (None, None) => true,
        }
    }
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableRecord {
    /// Written by a newer version of this program. It is left as it is.
    #[error("record format {} is newer than {FORMAT}, the newest this version reads", .0.format)]
    Newer(Box<NewerRecord>),
    /// Not a record.
    #[error("not a session record")]
    Broken(#[source] Option<serde_json::Error>),
}

impl SessionRecord {
    /// The bytes to store.
    pub fn encode(&self) -> Bytes {
        encode(&WrittenRecord { format: FORMAT, session: Some(self), tombstone: None })
    }
}

impl Tombstone {
    /// The bytes to store.
    pub(crate) fn encode(&self) -> Bytes {
        encode(&WrittenRecord { format: FORMAT, session: None, tombstone: Some(self) })
    }
}

fn encode(written: &WrittenRecord<'_>) -> Bytes {
    serde_json::to_vec(written).expect("a record has a JSON form").into()
}

impl StoredSession {
    /// Reads stored bytes.
    ///
    /// # Errors
    /// When they are not a record, or one of a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Self, UnreadableRecord> {
        let format: Format = serde_json::from_slice(bytes).map_err(|e| UnreadableRecord::Broken(Some(e)))?;
        if format.format > FORMAT {
            return Err(match serde_json::from_slice(bytes) {
                Ok(newer) => UnreadableRecord::Newer(newer),
                Err(error) => UnreadableRecord::Broken(Some(error)),
            });
        }
        let read: ReadRecord =
            serde_json::from_slice(bytes).map_err(|e| UnreadableRecord::Broken(Some(e)))?;
        match (read.session, read.tombstone) {
            (Some(session), None) => Ok(Self::Session(session)),
            (None, Some(tombstone)) => Ok(Self::Tombstone(tombstone)),
            _ => Err(UnreadableRecord::Broken(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_writer_with_the_same_format_may_add_members() {
        let bytes = br#"{"format":1,"tombstone":{"owner":null,"end":"expired","at":5,"added":1},"more":[]}"#;
        let StoredSession::Tombstone(read) = StoredSession::decode(bytes).unwrap() else {
            panic!("a tombstone")
        };
        assert_eq!(read, Tombstone { owner: None, client: None, end: EndCause::Expired, at: 5 });
    }

    /// As the first release wrote it.
    const EARLIER: &str = r#"{"format":1,"session":{"owner":null,"revision":"2025-11-25","phase":"initialized","created":1,"last_used":2,"initialize":{},"initialize_result":{}}}"#;

    #[test]
    fn an_earlier_record_has_no_server_and_stays_as_it_is() {
        let StoredSession::Session(read) = StoredSession::decode(EARLIER.as_bytes()).unwrap() else {
            panic!("a session")
        };
        assert_eq!(read.server, None);
        assert_eq!(read.encode(), EARLIER);
    }

    #[test]
    fn an_earlier_reader_takes_a_record_with_a_server_and_drops_it_when_it_writes() {
        /// The members that the first release knew.
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
        let StoredSession::Session(mut record) = StoredSession::decode(EARLIER.as_bytes()).unwrap() else {
            panic!("a session")
        };
        record.server = Some(Fingerprint::of("npx", [&b"npx"[..]]));
        let written = record.encode();
        assert!(written.windows(8).any(|part| part == br#""server""#));
        let StoredSession::Session(read) = StoredSession::decode(&written).unwrap() else {
            panic!("a session")
        };
        assert_eq!(read.server, record.server);
        let earlier: Whole = serde_json::from_slice(&written).unwrap();
        assert_eq!(earlier.format, 1);
        let over = serde_json::to_vec(&earlier).unwrap();
        let StoredSession::Session(read) = StoredSession::decode(&over).unwrap() else { panic!("a session") };
        assert_eq!(read.server, None);
    }

    #[test]
    fn an_earlier_reader_goes_by_the_deadline_of_a_session_with_a_time_of_its_own() {
        /// The members of the version before sessions had their own idle times.
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
        let StoredSession::Session(mut record) = StoredSession::decode(EARLIER.as_bytes()).unwrap() else {
            panic!("a session")
        };
        assert_eq!(record.ttl_ms, None, "an earlier record follows the limits");
        record.ttl_ms = Some(7_200_000);
        record.metadata.insert("user_id".into(), "u1".into());
        let written = record.encode();
        let StoredSession::Session(read) = StoredSession::decode(&written).unwrap() else {
            panic!("a session")
        };
        assert_eq!((read.ttl_ms, &read.metadata), (Some(7_200_000), &record.metadata));
        // Without `idle_ms` an earlier reader cannot compare with its own limits, and does not change the deadline.
        let earlier: Whole = serde_json::from_slice(&written).unwrap();
        assert_eq!((earlier.session.idle_ms, earlier.session.metadata.len()), (None, 1));
        // An earlier writer drops `ttl_ms`; the session then follows the limits of its next reader.
        record.ttl_ms = None;
        record.idle_ms = Some(1_800_000);
        let StoredSession::Session(read) = StoredSession::decode(&record.encode()).unwrap() else {
            panic!("a session")
        };
        assert_eq!((read.ttl_ms, read.idle_ms), (None, Some(1_800_000)));
    }

    #[test]
    fn figures_that_cannot_be_read_do_not_cost_the_session() {
        let StoredSession::Session(mut record) = StoredSession::decode(EARLIER.as_bytes()).unwrap() else {
            panic!("a session")
        };
        assert_eq!(record.figures, None, "an earlier record has none");
        record.figures = Some(Box::new(SessionFigures { requests: 7, ..SessionFigures::default() }));
        let written = record.encode();
        let read = |bytes: &[u8]| match StoredSession::decode(bytes) {
            Ok(StoredSession::Session(record)) => record.figures,
            other => panic!("{other:?}"),
        };
        assert_eq!(read(&written).map(|figures| figures.requests), Some(7));
        let strange =
            String::from_utf8(written.to_vec()).unwrap().replace(r#"{"requests":7}"#, r#"["what"]"#);
        assert_eq!(read(strange.as_bytes()), None);
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let error = StoredSession::decode(br#"{"format":2,"anything":{}}"#).unwrap_err();
        assert_eq!(error.to_string(), "record format 2 is newer than 1, the newest this version reads");
        for strange in [&br#"{"format":2,"session":[],"tombstone":7}"#[..], br#"{"format":2}"#] {
            let Err(UnreadableRecord::Newer(newer)) = StoredSession::decode(strange) else {
                panic!("it is newer")
            };
            assert!(newer.may_be_of(&Principal::named("anybody"), &Route::MAIN));
        }
        assert!(StoredSession::decode(b"{}").is_err());
        assert!(StoredSession::decode(br#"{"format":1}"#).is_err());
    }
}
