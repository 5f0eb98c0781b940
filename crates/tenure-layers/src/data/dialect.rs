//! The dialects of data sessions: their names, shapes and error codes. Only this file decides them.
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
use tenure_protocol::data_session::{draft, extension, strawman};
use tenure_protocol::{Error, RawJson, Reason, RpcError};
use tenure_session::state::{Date, Lost, State};

use crate::data::policy::Policy;

/// A protocol for data sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// `session/create`, `mcp/session`.
    Strawman,
    /// `sessions/create`, `io.modelcontextprotocol/session`.
    Draft,
    /// `dev.tenure/session/create`, `dev.tenure/session`.
    Own,
}

/// An operation on data sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    Create,
    Resume,
    Delete,
    List,
    Recover,
    Fork,
}

impl Verb {
    /// Its name among the features, and the last word of its method.
    pub(super) const fn feature(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Resume => "resume",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Recover => "recover",
            Self::Fork => "fork",
        }
    }
}

/// The draft's code for a session that was not found. The other codes are configurable, because released clients act on
/// different ones.
const DRAFT_NOT_FOUND: i32 = -32043;

/// The text in a cookie in front of the carried state.
const BEFORE_CARRIED: &str = r#"","state":""#;

const SENTENCE_REQUIRED: &str = "Session required. Call session/create or session/resume first.";
const SENTENCE_REQUIRED_DRAFT: &str = "Session required. Send sessions/create first.";
const SENTENCE_REQUIRED_OWN: &str = "Session required. Send dev.tenure/session/create first.";

/// The prefix of the methods of our own dialect.
const OWN_METHODS: &str = "dev.tenure/session/";

impl Dialect {
    /// The operation that a method of our own dialect asks for.
    pub(super) fn own_method(name: &str) -> Option<Verb> {
        Some(match name.strip_prefix(OWN_METHODS)? {
            "create" => Verb::Create,
            "resume" => Verb::Resume,
            "delete" => Verb::Delete,
            "list" => Verb::List,
            "recover" => Verb::Recover,
            "fork" => Verb::Fork,
            _ => return None,
        })
    }

    /// The operation that a method asks for, and which of the two session dialects it is of.
    pub(super) fn of_method(name: &str) -> Option<(Self, Verb)> {
        let verb = match name {
            "session/create" => Verb::Create,
            "session/resume" => Verb::Resume,
            "session/delete" => Verb::Delete,
            "session/list" => Verb::List,
            "session/recover" => Verb::Recover,
            "session/fork" => Verb::Fork,
            "sessions/create" => return Some((Self::Draft, Verb::Create)),
            "sessions/delete" => return Some((Self::Draft, Verb::Delete)),
            _ => return None,
        };
        Some((Self::Strawman, verb))
    }

    /// The key of the cookie in `_meta`.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Strawman => strawman::KEY,
            Self::Draft => draft::KEY,
            Self::Own => extension::KEY,
        }
    }

    /// The names of the id and the expiry.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Strawman => ("id", "expiry"),
            Self::Draft | Self::Own => ("sessionId", "expiresAt"),
        }
    }

    /// The cookie of a state, as its client echoes it, in parts: every answer writes them directly into its buffer.
    /// Ids, dates and sealed states need no JSON escapes.
    pub(super) fn cookie<'a>(
        self,
        id: &'a str,
        expiry: Option<&'a Date>,
        carried: Option<&'a str>,
    ) -> [&'a str; 7] {
        let (before_id, before_expiry) = match self {
            Self::Strawman => (r#"{"id":""#, r#"","expiry":""#),
            Self::Draft | Self::Own => (r#"{"sessionId":""#, r#"","expiresAt":""#),
        };
        let [before_expiry, expiry] = expiry.map_or([""; 2], |expiry| [before_expiry, expiry.as_str()]);
        let [before_carried, carried] = carried.map_or([""; 2], |carried| [BEFORE_CARRIED, carried]);
        [before_id, id, before_expiry, expiry, before_carried, carried, "\"}"]
    }

    /// The sealed state for the client to carry in its cookie, if it fits.
    pub(super) fn carried(self, id: &str, state: &State, policy: &Policy) -> Option<String> {
        let seal = policy.seal.as_ref()?;
        let expiry = state.expiry().map(Date::of);
        let cookie = self.cookie(id, expiry.as_ref(), Some(""));
        let taken: usize = cookie.iter().map(|part| part.len()).sum();
        state.carried(seal.as_ref(), policy.max_cookie_bytes.saturating_sub(taken))
    }

    /// The error when a request needs a data session and names none.
    pub(super) fn required(self, policy: &Policy, hint: Option<&str>) -> RpcError {
        let (code, reason, sentence) = match self {
            Self::Strawman => (policy.strawman_code, Reason::SessionRequired, SENTENCE_REQUIRED),
            Self::Draft => (policy.draft_required_code, Reason::SessionRequired, SENTENCE_REQUIRED_DRAFT),
            Self::Own => (Reason::StateRequired.code(), Reason::StateRequired, SENTENCE_REQUIRED_OWN),
        };
        let sentence = hint.map_or_else(|| sentence.to_owned(), |hint| format!("{sentence} {hint}"));
        RpcError::with_data(code, &sentence, &json!({ "reason": reason.as_str() }))
    }

    /// The error when the data session that a request names does not exist.
    pub(super) fn lost(self, policy: &Policy, id: &str, lost: Lost) -> RpcError {
        let (code, reason) = match self {
            Self::Strawman => (policy.strawman_code, lost.reason()),
            Self::Draft => (DRAFT_NOT_FOUND, lost.reason()),
            Self::Own => (Reason::StateNotFound.code(), own_reason(lost)),
        };
        let why = match lost {
            Lost::NotFound => "Session not found.",
            Lost::Expired => "Session not found: it has expired.",
            Lost::Deleted => "Session not found: it was deleted.",
            Lost::Revoked => "Session not found: it was revoked.",
        };
        let again = match self {
            Self::Strawman => "Session required: send session/create to begin another.",
            Self::Draft => "Send sessions/create to begin another.",
            Self::Own => "Send dev.tenure/session/create to begin another.",
        };
        let data = json!({ "reason": reason.as_str(), "sessionId": id });
        RpcError::with_data(code, &format!("{why} {again}"), &data)
    }

    /// The result of `create`, `resume`, `recover` and `fork`.
    pub(super) fn session(self, state: &State, policy: &Policy, recovered: Option<bool>) -> RawJson {
        let (id, expiry) = (state.id().cookie(), state.expiry().map(Date::of));
        let carried = self.carried(&id, state, policy);
        let cookie = self.cookie(&id, expiry.as_ref(), carried.as_deref()).concat();
        let about = state.about();
        match self {
            Self::Draft => RawJson::trusted(format!(r#"{{"session":{cookie}}}"#)),
            Self::Strawman | Self::Own => RawJson::of(&Body {
                shown: Shown {
                    dialect: self,
                    id: &id,
                    expiry: expiry.map(|date| date.as_str().to_owned()),
                    data: about.data.as_deref(),
                },
                recovered,
                meta: BTreeMap::from([(self.key(), raw(&cookie))]),
            }),
        }
    }

    /// The result of `delete`.
    pub(super) fn deleted(self) -> RawJson {
        match self {
            Self::Strawman => RawJson::trusted(r#"{"deleted":true,"_meta":{"mcp/session":null}}"#),
            Self::Draft => RawJson::EMPTY_OBJECT,
            Self::Own => RawJson::trusted(r#"{"deleted":true,"_meta":{"dev.tenure/session":null}}"#),
        }
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
        let (id, expiry) = self.dialect.names();
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

/// The error for invalid params.
pub(super) fn invalid(what: impl Into<std::borrow::Cow<'static, str>>) -> RpcError {
    Error::new(Reason::InvalidParams, what).to_rpc()
}
