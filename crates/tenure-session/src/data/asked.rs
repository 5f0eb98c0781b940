//! What a request says of data sessions: its cookie, its tool, its handle.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::dialect::{Dialect, invalid};
use crate::error::RpcError;
use crate::message::RawJson;

/// The members of params that the layer looks at.
#[derive(Deserialize, Default)]
pub(super) struct Asked<'a> {
    /// The tool of a `tools/call`.
    #[serde(borrow, default)]
    pub(super) name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(rename = "_meta", borrow, default)]
    meta: Option<Meta<'a>>,
    /// Some clients of the strawman spell it so in all requests but `tools/call`.
    #[serde(rename = "meta", borrow, default)]
    misspelt: Option<&'a RawValue>,
}

#[derive(Deserialize, Clone, Copy)]
struct Meta<'a> {
    #[serde(rename = "mcp/session", borrow, default)]
    strawman: Option<&'a RawValue>,
    #[serde(rename = "io.modelcontextprotocol/session", borrow, default)]
    draft: Option<&'a RawValue>,
}

/// A cookie that came with a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cookie {
    pub(super) dialect: Dialect,
    pub(super) id: String,
    /// What the client carries for us.
    pub(super) state: Option<String>,
}

impl<'a> Asked<'a> {
    /// Reads params; `None` if they make no sense, so that nobody can tell what a server will make of them.
    pub(super) fn read(params: Option<&'a RawJson>) -> Option<Self> {
        match params {
            Some(params) => params.read().ok(),
            None => Some(Self::default()),
        }
    }

    /// The cookie as it stands, if there is just one and it stands where it belongs. It is mostly the same as the
    /// last time.
    pub(super) fn raw_cookie(&self) -> Option<&'a str> {
        match self.meta? {
            Meta { strawman: Some(cookie), draft: None } | Meta { strawman: None, draft: Some(cookie) } => {
                Some(cookie.get())
            }
            Meta { .. } => None,
        }
    }

    /// The cookie, if there is one. Clients send back the whole of it, or only its id.
    pub(super) fn cookie(&self, max_bytes: usize) -> Result<Option<Cookie>, RpcError> {
        #[derive(Deserialize)]
        struct Strawman {
            id: String,
            #[serde(default)]
            state: Option<String>,
        }
        #[derive(Deserialize)]
        struct Draft {
            #[serde(rename = "sessionId")]
            id: String,
            #[serde(default)]
            state: Option<String>,
        }
        // Under the other name it may be anything, and is none of our business then.
        let misspelt = || self.misspelt.and_then(|meta| serde_json::from_str::<Meta<'_>>(meta.get()).ok());
        let meta = match &self.meta {
            Some(meta) => Some(*meta),
            None => misspelt(),
        };
        let Some(meta) = meta else { return Ok(None) };
        for cookie in [meta.strawman, meta.draft].into_iter().flatten() {
            if cookie.get().len() > max_bytes {
                return Err(invalid(format!("a session cookie may have {max_bytes} bytes")));
            }
        }
        let bad = |_| invalid("a session cookie without an id");
        let strawman = meta.strawman.map(|cookie| serde_json::from_str::<Strawman>(cookie.get()));
        let draft = meta.draft.map(|cookie| serde_json::from_str::<Draft>(cookie.get()));
        let strawman = strawman.transpose().map_err(bad)?.map(|cookie| Cookie {
            dialect: Dialect::Strawman,
            id: cookie.id,
            state: cookie.state,
        });
        let draft = draft.transpose().map_err(bad)?.map(|cookie| Cookie {
            dialect: Dialect::Draft,
            id: cookie.id,
            state: cookie.state,
        });
        match (strawman, draft) {
            (Some(one), Some(other)) if one.id != other.id => Err(invalid("two session cookies that differ")),
            (strawman, draft) => Ok(strawman.or(draft)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(params: &'static str) -> Result<Option<(Dialect, String)>, String> {
        let params = RawJson::trusted(params);
        let asked = Asked::read(Some(&params)).ok_or("unreadable")?;
        let cookie = asked.cookie(100).map_err(|error| error.message())?;
        Ok(cookie.map(|cookie| (cookie.dialect, cookie.id)))
    }

    #[test]
    fn cookies_as_clients_send_them() {
        let found = |dialect, id: &str| Ok(Some((dialect, id.to_owned())));
        let table = [
            (r#"{"name":"x"}"#, Ok(None)),
            (r#"{"_meta":{"progressToken":5}}"#, Ok(None)),
            (r#"{"_meta":{"mcp/session":null}}"#, Ok(None)),
            (r#"{"_meta":{"mcp/session":{"id":"a"}}}"#, found(Dialect::Strawman, "a")),
            (
                r#"{"_meta":{"mcp\/session":{"id":"a","expiry":"x","data":{}}}}"#,
                found(Dialect::Strawman, "a"),
            ),
            (
                r#"{"_meta":{"io.modelcontextprotocol/session":{"sessionId":"b","state":"s"}}}"#,
                found(Dialect::Draft, "b"),
            ),
            (
                r#"{"_meta":{"mcp/session":{"id":"a"},"io.modelcontextprotocol/session":{"sessionId":"a"}}}"#,
                found(Dialect::Strawman, "a"),
            ),
            (
                r#"{"_meta":{"mcp/session":{"id":"a"},"io.modelcontextprotocol/session":{"sessionId":"b"}}}"#,
                Err("two session cookies that differ".to_owned()),
            ),
            (r#"{"meta":{"mcp/session":{"id":"a"}}}"#, found(Dialect::Strawman, "a")),
            (r#"{"_meta":{"mcp/session":{}}}"#, Err("a session cookie without an id".to_owned())),
            (r#"{"_meta":{"mcp/session":"a"}}"#, Err("a session cookie without an id".to_owned())),
            (r#"{"meta":1}"#, Ok(None)),
            (r#"{"_meta":1}"#, Err("unreadable".to_owned())),
            (r#"{"name":"x","name":"x"}"#, Err("unreadable".to_owned())),
        ];
        for (params, expected) in table {
            assert_eq!(cookie(params), expected, "{params}");
        }
    }

    #[test]
    fn a_cookie_has_a_largest_size() {
        let long = format!(r#"{{"_meta":{{"mcp/session":{{"id":"{}"}}}}}}"#, "x".repeat(100));
        let params = RawJson::trusted(long);
        let error = Asked::read(Some(&params)).unwrap().cookie(100).unwrap_err();
        assert_eq!((error.code(), error.message().as_str()), (-32602, "a session cookie may have 100 bytes"));
    }
}
