//! What a request says of data sessions: its cookie, its tool, its handle.

use std::borrow::Cow;

use serde::Deserialize;

use super::dialect::{Dialect, invalid};
use crate::error::RpcError;
use crate::message::RawJson;
use crate::scan::{self, Cursor};

/// The members of params that the layer looks at.
#[derive(Default)]
pub(super) struct Asked<'a> {
    /// The tool of a `tools/call`.
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) arguments: Option<&'a str>,
    meta: Option<Meta<'a>>,
    /// Some clients of the strawman spell it so in all requests but `tools/call`.
    misspelt: Option<&'a str>,
}

/// The cookies in `_meta`, as they stand.
#[derive(Clone, Copy, Default)]
struct Meta<'a> {
    strawman: Option<&'a str>,
    draft: Option<&'a str>,
}

impl<'a> Meta<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let mut cursor = Cursor::at_object(text)?;
        let meta = Self::go_through(&mut cursor)?;
        cursor.is_at_end().then_some(meta)
    }

    /// Reads the object that was entered, to its end.
    fn go_through(cursor: &mut Cursor<'a>) -> Option<Self> {
        let mut meta = Self::default();
        while let Some(name) = cursor.name()? {
            let value = cursor.value()?;
            match &*name {
                "mcp/session" => once(&mut meta.strawman, value)?,
                "io.modelcontextprotocol/session" => once(&mut meta.draft, value)?,
                _ => {}
            }
        }
        let Self { strawman, draft } = meta;
        Some(Self { strawman: strawman.filter(is_there), draft: draft.filter(is_there) })
    }
}

/// Takes a member; `None` if it stands there twice, because a server may go by the other one.
fn once<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// What is null is not there.
fn is_there(value: &&str) -> bool {
    *value != "null"
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
        let Some(params) = params else { return Some(Self::default()) };
        let (mut tool, mut arguments, mut meta, mut misspelt) = (None, None, None, None);
        let mut cursor = Cursor::at_object(std::str::from_utf8(params.bytes()).ok()?)?;
        while let Some(name) = cursor.name()? {
            match &*name {
                "_meta" if cursor.enter()? => once(&mut meta, Some(Meta::go_through(&mut cursor)?))?,
                "_meta" if cursor.value()? == "null" => once(&mut meta, None)?,
                "_meta" => return None,
                "name" => once(&mut tool, cursor.value()?)?,
                "arguments" => once(&mut arguments, cursor.value()?)?,
                "meta" => once(&mut misspelt, cursor.value()?)?,
                _ => drop(cursor.value()?),
            }
        }
        if !cursor.is_at_end() {
            return None;
        }
        let name = match tool.filter(is_there) {
            Some(name) => Some(scan::unquoted(name)?),
            None => None,
        };
        let meta = meta.flatten();
        Some(Self { name, arguments: arguments.filter(is_there), meta, misspelt })
    }

    /// The cookie as it stands, if there is just one and it stands where it belongs. It is mostly the same as the
    /// last time.
    pub(super) fn raw_cookie(&self) -> Option<&'a str> {
        match self.meta? {
            Meta { strawman: Some(cookie), draft: None } | Meta { strawman: None, draft: Some(cookie) } => {
                Some(cookie)
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
        let misspelt = || self.misspelt.and_then(Meta::read);
        let meta = match &self.meta {
            Some(meta) => Some(*meta),
            None => misspelt(),
        };
        let Some(meta) = meta else { return Ok(None) };
        for cookie in [meta.strawman, meta.draft].into_iter().flatten() {
            if cookie.len() > max_bytes {
                return Err(invalid(format!("a session cookie may have {max_bytes} bytes")));
            }
        }
        let bad = |_| invalid("a session cookie without an id");
        let strawman = meta.strawman.map(serde_json::from_str::<Strawman>);
        let draft = meta.draft.map(serde_json::from_str::<Draft>);
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
        let error = Asked::read(Some(&params)).unwrap().cookie(100).unwrap_err();
        assert_eq!((error.code(), error.message().as_str()), (-32602, "a session cookie may have 100 bytes"));
    }
}
