//! Answers and errors in the dialects of data sessions. Their names are those of [`tenure_protocol::data_session`].
//!
//! Released clients speak two of them in sessions.
//! The strawman came first: `session/create`, cookies under `mcp/session` that come back with every result, one
//! code for everything. The draft that followed has `sessions/create`, cookies under
//! `io.modelcontextprotocol/session` that come back only when something changed, and two codes. Each has its own error
//! texts, since some clients search them for words.
//!
//! The third is our own, for requests without a session: an extension of the modern revision. Its cookie has the
//! draft's shape, and comes back with every result.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;
use tenure_protocol::data_session::{DRAFT_NOT_FOUND, Dialect};
use tenure_protocol::{Error, RawJson, Reason, RpcError};
use tenure_session::state::{Date, Lost, State};

use crate::data::handle_kinds::KindOfState;
use crate::data::policy::Policy;

/// The text in a cookie in front of the carried state.
const BEFORE_CARRIED: &str = r#"","state":""#;

const SENTENCE_REQUIRED: &str = "Session required. Call session/create or session/resume first.";
const SENTENCE_REQUIRED_DRAFT: &str = "Session required. Send sessions/create first.";
const SENTENCE_REQUIRED_EXTENSION: &str = "Session required. Send dev.tenure/session/create first.";

/// The cookie of a state, as its client echoes it, in parts: every answer writes them directly into its buffer.
/// Ids, dates and sealed states need no JSON escapes.
pub(super) fn cookie<'a>(
    dialect: Dialect,
    id: &'a str,
    expiry: Option<&'a Date>,
    carried: Option<&'a str>,
) -> [&'a str; 7] {
    let (before_id, before_expiry) = match dialect {
        Dialect::Strawman => (r#"{"id":""#, r#"","expiry":""#),
        Dialect::Draft | Dialect::Extension => (r#"{"sessionId":""#, r#"","expiresAt":""#),
    };
    let [before_expiry, expiry] = expiry.map_or([""; 2], |expiry| [before_expiry, expiry.as_str()]);
    let [before_carried, carried] = carried.map_or([""; 2], |carried| [BEFORE_CARRIED, carried]);
    [before_id, id, before_expiry, expiry, before_carried, carried, "\"}"]
}

/// The sealed state for the client to carry in its cookie, if it fits.
pub(super) fn carried(dialect: Dialect, id: &str, state: &State, policy: &Policy) -> Option<String> {
    let seal = policy.seal.as_ref()?;
    let expiry = state.expiry().map(Date::of);
    let cookie = cookie(dialect, id, expiry.as_ref(), Some(""));
    let taken: usize = cookie.iter().map(|part| part.len()).sum();
    state.carried(seal.as_ref(), policy.max_cookie_bytes.saturating_sub(taken))
}

/// The error when a request needs a data session and names none.
pub(super) fn required(dialect: Dialect, policy: &Policy, hint: Option<&str>) -> RpcError {
    let (code, reason, sentence) = match dialect {
        Dialect::Strawman => (policy.strawman_code, Reason::SessionRequired, SENTENCE_REQUIRED),
        Dialect::Draft => (policy.draft_required_code, Reason::SessionRequired, SENTENCE_REQUIRED_DRAFT),
        Dialect::Extension => {
            (Reason::StateRequired.code(), Reason::StateRequired, SENTENCE_REQUIRED_EXTENSION)
        }
    };
    let sentence = hint.map_or_else(|| sentence.to_owned(), |hint| format!("{sentence} {hint}"));
    RpcError::with_data(code, &sentence, &json!({ "reason": reason.as_str() }))
}

/// The error when the data session that a request names does not exist.
pub(super) fn lost(dialect: Dialect, policy: &Policy, id: &str, lost: Lost) -> RpcError {
    let (code, reason) = match dialect {
        Dialect::Strawman => (policy.strawman_code, lost.reason()),
        Dialect::Draft => (DRAFT_NOT_FOUND, lost.reason()),
        Dialect::Extension => (Reason::StateNotFound.code(), own_reason(lost)),
    };
    let why = match lost {
        Lost::NotFound => "Session not found.",
        Lost::Expired => "Session not found: it has expired.",
        Lost::Deleted => "Session not found: it was deleted.",
        Lost::Revoked => "Session not found: it was revoked.",
    };
    let again = match dialect {
        Dialect::Strawman => "Session required: send session/create to begin another.",
        Dialect::Draft => "Send sessions/create to begin another.",
        Dialect::Extension => "Send dev.tenure/session/create to begin another.",
    };
    let data = json!({ "reason": reason.as_str(), "sessionId": id });
    RpcError::with_data(code, &format!("{why} {again}"), &data)
}

/// The result of `create`, `resume`, `recover` and `fork`.
pub(super) fn session(dialect: Dialect, state: &State, policy: &Policy, recovered: Option<bool>) -> RawJson {
    let (id, expiry) = (state.id().cookie(), state.expiry().map(Date::of));
    let carried = carried(dialect, &id, state, policy);
    let cookie = cookie(dialect, &id, expiry.as_ref(), carried.as_deref()).concat();
    let about = state.about();
    match dialect {
        Dialect::Draft => RawJson::trusted(format!(r#"{{"session":{cookie}}}"#)),
        Dialect::Strawman | Dialect::Extension => RawJson::of(&Body {
            shown: Shown {
                dialect,
                id: &id,
                expiry: expiry.map(|date| date.as_str().to_owned()),
                data: about.data.as_deref(),
            },
            recovered,
            meta: BTreeMap::from([(dialect.key(), raw(&cookie))]),
        }),
    }
}

/// The result of `delete`.
pub(super) fn deleted(dialect: Dialect) -> RawJson {
    match dialect {
        Dialect::Strawman => RawJson::trusted(r#"{"deleted":true,"_meta":{"mcp/session":null}}"#),
        Dialect::Draft => RawJson::EMPTY_OBJECT,
        Dialect::Extension => RawJson::trusted(r#"{"deleted":true,"_meta":{"dev.tenure/session":null}}"#),
    }
}

/// Our own dialect's reason for a missing data session. The reason of the other dialects is also used for sessions of
/// the transport.
pub(super) fn own_reason(lost: Lost) -> Reason {
    match lost {
        Lost::NotFound => Reason::StateNotFound,
        Lost::Expired => Reason::StateExpired,
        Lost::Deleted => Reason::StateDeleted,
        Lost::Revoked => Reason::StateRevoked,
    }
}

/// A data session as its owner sees it.
pub(super) struct Shown<'a> {
    pub(super) dialect: Dialect,
    pub(super) id: &'a str,
    pub(super) expiry: Option<String>,
    pub(super) data: Option<&'a RawValue>,
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (id, expiry) = (self.dialect.id_field(), self.dialect.expiry_field());
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry(id, self.id)?;
        if let Some(at) = &self.expiry {
            members.serialize_entry(expiry, at)?;
        }
        if let Some(data) = self.data {
            members.serialize_entry("data", data)?;
        }
        members.end()
    }
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(flatten)]
    shown: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<bool>,
    #[serde(rename = "_meta")]
    meta: BTreeMap<&'static str, &'a RawValue>,
}

fn raw(json: &str) -> &RawValue {
    serde_json::from_str(json).expect("the cookie was just written as JSON")
}

/// The error for params that servers may read differently.
pub(super) fn unreadable() -> RpcError {
    invalid("the params make no sense")
}

/// How a model gets a state of this kind.
pub(super) fn hint(kind: &KindOfState) -> String {
    format!("Or call {} and pass its {}.", kind.create_tool(), kind.argument())
}

/// The text for the model of a client that does not know data sessions, when a tool needs a state of this kind.
pub(super) fn advice(dialect: Dialect, kind: &KindOfState) -> String {
    match dialect {
        Dialect::Strawman | Dialect::Draft => format!("{SENTENCE_REQUIRED} {}", hint(kind)),
        Dialect::Extension => {
            let (name, create, argument) = (kind.kind().as_str(), kind.create_tool(), kind.argument());
            format!(
                "This tool works on a {name}. Call {create} first, and pass the {argument} that it returns."
            )
        }
    }
}

/// The error for invalid params.
pub(super) fn invalid(what: impl Into<std::borrow::Cow<'static, str>>) -> RpcError {
    Error::new(Reason::InvalidParams, what).to_rpc()
}
