//! What operators see of data sessions, and what they specify for a new one.
//!
//! Times are milliseconds since 1970. Values that are unknown or no longer kept are left out.

use serde::{Deserialize, Serialize};
use tenure_protocol::Reason;
use tenure_session::SessionKey;
use tenure_session::port::store::{RecordKey, Space};
use tenure_session::record::EndCause;
use tenure_session::state::StateInfo;

use crate::operator::key::key_text;

/// Where a data session stands.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DataState {
    /// It can be used.
    Active,
    /// It was unused for too long; it can be resumed while its record is kept.
    Expired,
    /// Over for good.
    Ended,
    /// Its record cannot be decoded.
    #[default]
    Unreadable,
}

/// One data session in a list.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct DataRow {
    /// The hashed id, all of it.
    pub(crate) key: String,
    /// The name in logs.
    pub(crate) name: String,
    pub(crate) state: DataState,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<EndCause>,
    /// The principal that owns it; left out for an anonymous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The label that its maker gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<u64>,
    /// When it was last used, as far as that was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_used: Option<u64>,
    /// When it expires if it is not used again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
    /// When it expired or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<u64>,
    /// When its record is removed, if it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forgotten: Option<u64>,
    /// The size of its contents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// How often its contents were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) edition: Option<u64>,
}

/// Everything that is known of one data session.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct DataDetail {
    #[serde(flatten)]
    pub(crate) row: DataRow,
    /// It expires if it is unused for this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle_ttl_ms: Option<u64>,
    /// When it expires, used or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ends: Option<u64>,
    /// The hints that its client gave when it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hints: Option<serde_json::Value>,
    /// Its contents, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) contents: Option<Contents>,
}

/// The contents of a data session.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Contents {
    Text(String),
    /// Bytes that are not UTF-8, in hex.
    Hex(String),
}

/// A data session to be made.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct NewData {
    /// The principal that will own it; anonymous if left out.
    #[serde(default)]
    pub(crate) owner: Option<String>,
    /// Its kind, if not the server's default.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) label: Option<String>,
    /// Its contents, if not those that its kind begins with.
    #[serde(default)]
    pub(crate) data: Option<String>,
    /// How long it lives unused, in ms, if not the time of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle_ms: Option<u64>,
    /// The key of another data session, from which it takes owner, kind and contents.
    #[serde(default)]
    pub(crate) copy_of: Option<String>,
}

/// A data session with the names by which clients use it, which are secrets.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct NamedData {
    #[serde(flatten)]
    pub(crate) row: DataRow,
    /// The id that a client puts into its cookie.
    pub(crate) id: String,
    /// The handle that a model passes to tools.
    pub(crate) handle: String,
    /// The argument of tools that takes the handle.
    pub(crate) argument: String,
    /// The kinds that the server's tools work on, if the kind of this one is not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kinds: Vec<String>,
}

/// The result of resuming a data session.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct ResumedData {
    #[serde(flatten)]
    pub(crate) row: DataRow,
    /// It had expired, and is back.
    pub(crate) is_recovered: bool,
}

impl DataRow {
    pub(super) fn of(listed: &StateInfo) -> Self {
        let (state, end) = match listed.end {
            None => (DataState::Active, None),
            Some(_) if listed.is_recoverable => (DataState::Expired, None),
            Some(reason) => (DataState::Ended, end(reason)),
        };
        let is_over = state != DataState::Active;
        Self {
            key: key_text(&listed.key),
            name: listed.label(),
            state,
            end,
            owner: listed.owner.clone(),
            kind: Some(listed.kind.to_string()),
            label: listed.about.label.clone(),
            created: Some(listed.created.0),
            // The tombstone of an ended one has the time of the end instead.
            last_used: (state != DataState::Ended).then_some(listed.used.0),
            expires: listed.expiry.filter(|_| !is_over).map(|at| at.0),
            ended: listed.ended.map(|at| at.0),
            forgotten: listed.due.filter(|_| is_over).map(|at| at.0),
            bytes: (state != DataState::Ended).then_some(listed.bytes as u64),
            edition: Some(listed.edition.0),
        }
    }

    pub(super) fn unreadable(key: &SessionKey) -> Self {
        Self {
            key: key_text(key),
            name: RecordKey { space: Space::State, key: *key }.label(),
            ..Self::default()
        }
    }
}

fn end(reason: Reason) -> Option<EndCause> {
    [EndCause::Deleted, EndCause::Expired, EndCause::Revoked].into_iter().find(|end| end.reason() == reason)
}

impl DataState {
    /// The word for it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Ended => "ended",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Contents {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }
}
