//! Reads what a request says of data sessions: its cookie, its tool and the tool's arguments.

use std::borrow::Cow;

use serde::Deserialize;
use tenure_protocol::json::scan::Cursor;
use tenure_protocol::{RawJson, RpcError};

use crate::data::dialect::{Dialect, invalid};

/// The members of params that the layer looks at.
#[derive(Default)]
pub(super) struct DataRequest<'a> {
    /// The tool of a `tools/call`.
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) arguments: Option<&'a [u8]>,
    /// `_meta`, an object.
    pub(super) meta: Option<&'a [u8]>,
    /// `meta`: some clients of the strawman spell `_meta` so, in all requests but `tools/call`.
    misspelt: Option<&'a [u8]>,
}

/// The cookies of a request, as raw JSON.
#[derive(Clone, Copy, Default)]
pub(super) struct Cookies<'a> {
    strawman: Option<&'a [u8]>,
    draft: Option<&'a [u8]>,
}

impl<'a> Cookies<'a> {
    /// Finds the cookies in `_meta`; `None` if it cannot be read.
    fn find(meta: &'a [u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut cursor = Cursor::at_object(meta)?;
        while let Some(name) = cursor.name()? {
            let value = cursor.value()?;
            let place = match &*name {
                b"mcp/session" => &mut found.strawman,
                b"io.modelcontextprotocol/session" => &mut found.draft,
                _ => continue,
            };
            // Refuse a cookie that occurs twice: the server may read the other one.
            if place.replace(value).is_some() {
                return None;
            }
        }
        let Self { strawman, draft } = found;
        let found = Self { strawman: strawman.filter(is_there), draft: draft.filter(is_there) };
        cursor.is_at_end().then_some(found)
    }

    /// The raw cookie, if there is exactly one. It is mostly the same as in the request before.
    pub(super) fn only(&self) -> Option<(Dialect, &'a [u8])> {
        match (self.strawman, self.draft) {
            (Some(cookie), None) => Some((Dialect::Strawman, cookie)),
            (None, Some(cookie)) => Some((Dialect::Draft, cookie)),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }
}

/// A null member counts as absent.
fn is_there(value: &&[u8]) -> bool {
    *value != b"null"
}

/// A cookie that came with a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RequestCookie {
    pub(super) dialect: Dialect,
    pub(super) id: String,
    /// The sealed state that the client carries for us.
    pub(super) state: Option<String>,
}

impl<'a> DataRequest<'a> {
    /// Reads params; `None` if they are ambiguous or malformed, since a server may read them differently.
    pub(super) fn read(params: Option<&'a RawJson>) -> Option<Self> {
        let Some(params) = params else { return Some(Self::default()) };
        let found = params.outline()?;
        let name = found.tool()?;
        let meta = found.meta.filter(is_there);
        if meta.is_some_and(|meta| !meta.starts_with(b"{")) {
            return None;
        }
        Some(Self { name, arguments: found.arguments.filter(is_there), meta, misspelt: found.misspelt })
    }

    /// The cookies of the request; `None` if `_meta` cannot be read. A `meta` that cannot be read is ignored, since it
    /// may be anything.
    pub(super) fn cookies(&self) -> Option<Cookies<'a>> {
        match self.meta {
            Some(meta) => Cookies::find(meta),
            None => Some(self.misspelt.and_then(Cookies::find).unwrap_or_default()),
        }
    }
}

impl Cookies<'_> {
    /// The cookie, if there is one. Clients send back the whole of it, or only its id.
    pub(super) fn read(&self, max_bytes: usize) -> Result<Option<RequestCookie>, RpcError> {
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
        for cookie in [self.strawman, self.draft].into_iter().flatten() {
            if cookie.len() > max_bytes {
                return Err(invalid(format!("a session cookie may have {max_bytes} bytes")));
            }
            // The derived reader below would accept an array too.
            if !cookie.starts_with(b"{") {
                return Err(invalid("a session cookie without an id"));
            }
        }
        let bad = |_| invalid("a session cookie without an id");
        let strawman = self.strawman.map(serde_json::from_slice::<Strawman>);
        let draft = self.draft.map(serde_json::from_slice::<Draft>);
        let strawman = strawman.transpose().map_err(bad)?.map(|cookie| RequestCookie {
            dialect: Dialect::Strawman,
            id: cookie.id,
            state: cookie.state,
        });
        let draft = draft.transpose().map_err(bad)?.map(|cookie| RequestCookie {
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
        let cookies = DataRequest::read(Some(&params))
            .and_then(|data_request| data_request.cookies())
            .ok_or("unreadable")?;
        let cookie = cookies.read(100).map_err(|error| error.message())?;
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
            (r#"{"_meta":{"mcp/session":["a"]}}"#, Err("a session cookie without an id".to_owned())),
            (r#"{"meta":1}"#, Ok(None)),
            (r#"{"_meta":1}"#, Err("unreadable".to_owned())),
            (r#"{"name":"x","name":"x"}"#, Err("unreadable".to_owned())),
            (r#"{"name":null,"n\u0061me":"x"}"#, Err("unreadable".to_owned())),
            (r#"{"\ud800":1}"#, Err("unreadable".to_owned())),
            (r#"{"name":1}"#, Err("unreadable".to_owned())),
            (r#"{"name":null,"arguments":null,"_meta":null}"#, Ok(None)),
            (r#"{"_meta":{"mcp/session":null,"mcp\/session":{"id":"a"}}}"#, Err("unreadable".to_owned())),
        ];
        for (params, expected) in table {
            assert_eq!(cookie(params), expected, "{params}");
        }
    }

    #[test]
    fn a_cookie_has_a_largest_size() {
        let long = format!(r#"{{"_meta":{{"mcp/session":{{"id":"{}"}}}}}}"#, "x".repeat(100));
        let params = RawJson::trusted(long);
        let error = DataRequest::read(Some(&params)).unwrap().cookies().unwrap().read(100).unwrap_err();
        assert_eq!((error.code(), error.message().as_str()), (-32602, "a session cookie may have 100 bytes"));
    }
}
