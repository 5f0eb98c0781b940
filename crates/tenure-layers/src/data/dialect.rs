//! The dialects of data sessions: what things are called, how they look, which codes are known. The one place that
//! decides any of it.
//!
//! Two of them released clients speak in sessions.
//! The strawman came first: `session/create`, cookies under `mcp/session` that come back with every result, one
//! code for everything. The draft that followed has `sessions/create`, cookies under
//! `io.modelcontextprotocol/session` that come back only when something changed, and two codes. Clients of both
//! are told by their own text too, since some look for words in it.
//!
//! The third is our own, for requests without a session: an extension of the revision that has extensions. Its cookie
//! has the draft's shape, and comes back with every result.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::json;
use serde_json::value::RawValue;
use tenure_protocol::data_session::{draft, extension, strawman};
use tenure_protocol::{Error, RawJson, Reason, RpcError};
use tenure_session::state::{Date, Lost, State};

use crate::data::policy::Policy;

/// A way to speak of data sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// `session/create`, `mcp/session`.
    Strawman,
    /// `sessions/create`, `io.modelcontextprotocol/session`.
    Draft,
    /// `dev.tenure/session/create`, `dev.tenure/session`.
    Own,
}

/// What can be asked of data sessions.
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

/// The draft's code for a session that is not there. The other codes can be chosen, because clients in the field
/// differ in those they act on.
const DRAFT_NOT_FOUND: i32 = -32043;

/// What stands in a cookie before what its client carries.
const BEFORE_CARRIED: &str = r#"","state":""#;

const SENTENCE_REQUIRED: &str = "Session required. Call session/create or session/resume first.";
const SENTENCE_REQUIRED_DRAFT: &str = "Session required. Send sessions/create first.";
const SENTENCE_REQUIRED_OWN: &str = "Session required. Send dev.tenure/session/create first.";

/// What the methods of our own dialect begin with.
const OWN_METHODS: &str = "dev.tenure/session/";

impl Dialect {
    /// What a method of our own dialect asks for.
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

    /// What a method asks for, and in which dialect of sessions.
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

    /// What the id and the expiry are called.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Strawman => ("id", "expiry"),
            Self::Draft | Self::Own => ("sessionId", "expiresAt"),
        }
    }

    /// The cookie of a state, as its client echoes it, in parts: with every answer they are written to where they
    /// belong. Neither ids nor dates nor what is sealed need escapes.
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

    /// The state itself, for clients that carry it in their cookies, if there is room for it.
    pub(super) fn carried(self, id: &str, state: &State, policy: &Policy) -> Option<String> {
        let seal = policy.seal.as_ref()?;
        let expiry = state.expiry().map(Date::of);
        let cookie = self.cookie(id, expiry.as_ref(), Some(""));
        let taken: usize = cookie.iter().map(|part| part.len()).sum();
        state.carried(seal.as_ref(), policy.max_cookie_bytes.saturating_sub(taken))
    }

    /// What is answered when a request needs a data session and names none.
    pub(super) fn required(self, policy: &Policy, hint: Option<&str>) -> RpcError {
        let (code, reason, sentence) = match self {
            Self::Strawman => (policy.strawman_code, Reason::SessionRequired, SENTENCE_REQUIRED),
            Self::Draft => (policy.draft_required_code, Reason::SessionRequired, SENTENCE_REQUIRED_DRAFT),
            Self::Own => (Reason::StateRequired.code(), Reason::StateRequired, SENTENCE_REQUIRED_OWN),
        };
        let sentence = hint.map_or_else(|| sentence.to_owned(), |hint| format!("{sentence} {hint}"));
        RpcError::with_data(code, &sentence, &json!({ "reason": reason.as_str() }))
    }

    /// What is answered when the data session that a request names is not there.
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

    /// What `create`, `resume`, `recover` and `fork` are answered with.
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

    /// What `delete` is answered with.
    pub(super) fn deleted(self) -> RawJson {
        match self {
            Self::Strawman => RawJson::trusted(r#"{"deleted":true,"_meta":{"mcp/session":null}}"#),
            Self::Draft => RawJson::EMPTY_OBJECT,
            Self::Own => RawJson::trusted(r#"{"deleted":true,"_meta":{"dev.tenure/session":null}}"#),
        }
    }
}

/// Our own word for why a data session is not there. That of sessions is about the transport's too.
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
    serde_json::from_str(json).expect("what was just written is JSON")
}

/// A refusal for params that make no sense.
pub(super) fn invalid(what: impl Into<std::borrow::Cow<'static, str>>) -> RpcError {
    Error::new(Reason::InvalidParams, what).to_rpc()
}
