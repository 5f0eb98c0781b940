//! What operators are shown of data sessions, and what they say when they make one.
//!
//! Times are milliseconds since 1970. What is not known, or no more, is left out.

use serde::{Deserialize, Serialize};
use tenure_protocol::Reason;
use tenure_session::SessionKey;
use tenure_session::port::store::{RecordKey, Space};
use tenure_session::record::End;
use tenure_session::state::Listed;

use crate::operator::key::key_text;

/// Where a data session stands.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DataState {
    /// It can be used.
    Active,
    /// Nobody used it for long; it can be resumed while it is still kept.
    Expired,
    /// Over for good.
    Ended,
    /// There is a record, and it makes no sense.
    Unreadable,
}

/// One data session in a list.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct DataRow {
    /// The hashed id, all of it.
    pub(crate) key: String,
    /// The name in logs.
    pub(crate) name: String,
    pub(crate) state: DataState,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
    /// Whose it is; nobody's in particular if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// What its maker called it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<u64>,
    /// When it was last used, as far as that was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_used: Option<u64>,
    /// Until when it can be counted on, if nobody uses it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
    /// When it expired or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<u64>,
    /// When it is forgotten, if it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forgotten: Option<u64>,
    /// How much it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// How often what it holds was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) edition: Option<u64>,
}

/// Some rows.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct DataPage {
    pub(crate) rows: Vec<DataRow>,
    /// Where the next page begins: after this key. Nothing if this was the last.
    #[serde(default)]
    pub(crate) next: Option<String>,
}

/// Everything that is known of one data session.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct DataDetail {
    #[serde(flatten)]
    pub(crate) row: DataRow,
    /// It expires if nobody uses it for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle_ttl_ms: Option<u64>,
    /// When it expires, used or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ends: Option<u64>,
    /// What its client said of it when it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hints: Option<serde_json::Value>,
    /// What it holds, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) contents: Option<Contents>,
}

/// What a data session holds.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Contents {
    Text(String),
    /// Bytes that are no text, in hex.
    Hex(String),
}

/// A data session to be made.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub(crate) struct NewData {
    /// Whose it will be; nobody's in particular if it is left out.
    #[serde(default)]
    pub(crate) owner: Option<String>,
    /// What sort it will be, if not the one that the server's data sessions are.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) label: Option<String>,
    /// What it will hold, if not what such a one begins with.
    #[serde(default)]
    pub(crate) data: Option<String>,
    /// How long it lives unused, in ms, if not as long as its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idle_ms: Option<u64>,
    /// The key of another whose owner, kind and contents it will have.
    #[serde(default)]
    pub(crate) copy_of: Option<String>,
}

/// A data session with the names by which clients use it, which are secrets.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct Named {
    #[serde(flatten)]
    pub(crate) row: DataRow,
    /// What a client puts into its cookie.
    pub(crate) id: String,
    /// What a model passes to tools.
    pub(crate) handle: String,
    /// The argument of tools that takes the handle.
    pub(crate) argument: String,
    /// The kinds that tools of the server work on, if this one's is not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kinds: Vec<String>,
}

/// What came of resuming a data session.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub(crate) struct ResumedData {
    #[serde(flatten)]
    pub(crate) row: DataRow,
    /// It had expired, and is back.
    pub(crate) is_recovered: bool,
}

impl DataRow {
    pub(super) fn of(listed: &Listed) -> Self {
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
            // The tombstone of one that ended says when that was instead.
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
            state: DataState::Unreadable,
            end: None,
            owner: None,
            kind: None,
            label: None,
            created: None,
            last_used: None,
            expires: None,
            ended: None,
            forgotten: None,
            bytes: None,
            edition: None,
        }
    }
}

fn end(reason: Reason) -> Option<End> {
    [End::Deleted, End::Expired, End::Revoked].into_iter().find(|end| end.reason() == reason)
}

impl Contents {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Hex(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        }
    }
}
