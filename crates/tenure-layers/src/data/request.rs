//! Reads what a request says of data sessions: its cookie, its tool and the tool's arguments.

use std::borrow::Cow;

use tenure_protocol::data_session::Dialect;
use tenure_protocol::json::members::{self, MemberLookup};
use tenure_protocol::json::scan::{self, Cursor};
use tenure_protocol::{Era, RawJson, RpcError};

use crate::data::dialect::invalid;

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

/// The cookies of a request, as raw JSON: at most one of each dialect of the request's era.
#[derive(Clone, Copy, Default)]
pub(super) struct Cookies<'a>([Option<(Dialect, &'a [u8])>; 2]);

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

    /// The cookies of a request of this era; `None` if `_meta` cannot be read. A `meta` that cannot be read is ignored,
    /// since it may be anything.
    pub(super) fn cookies(&self, era: Era) -> Option<Cookies<'a>> {
        match (self.meta, era) {
            (Some(meta), _) => Cookies::find(meta, era),
            (None, Era::Legacy) => {
                Some(self.misspelt.and_then(|meta| Cookies::find(meta, era)).unwrap_or_default())
            }
            (None, Era::Modern) => Some(Cookies::default()),
        }
    }
}

/// A null member counts as absent.
fn is_there(value: &&[u8]) -> bool {
    *value != b"null"
}

impl<'a> Cookies<'a> {
    /// Finds the cookies in `_meta`; `None` if it cannot be read.
    fn find(meta: &'a [u8], era: Era) -> Option<Self> {
        let dialects: &[Dialect] = match era {
            Era::Legacy => &[Dialect::Strawman, Dialect::Draft],
            Era::Modern => &[Dialect::Extension],
        };
        let mut found = [None; 2];
        let mut cursor = Cursor::at_object(meta)?;
        while let Some(name) = cursor.name()? {
            let value = cursor.value()?;
            let Some(at) = dialects.iter().position(|dialect| *name == *dialect.key().as_bytes()) else {
                continue;
            };
            // Refuse a cookie that occurs twice: the server may read the other one.
            if found[at].replace((dialects[at], value)).is_some() {
                return None;
            }
        }
        let found = found.map(|cookie| cookie.filter(|(_, value)| is_there(value)));
        cursor.is_at_end().then_some(Self(found))
    }

    /// The raw cookie, if there is exactly one. It is mostly the same as in the request before.
    pub(super) fn only(&self) -> Option<(Dialect, &'a [u8])> {
        match self.0 {
            [Some(cookie), None] | [None, Some(cookie)] => Some(cookie),
            [None, None] | [Some(_), Some(_)] => None,
        }
    }

    /// The cookie, if there is one.
    pub(super) fn read(&self, max_bytes: usize) -> Result<Option<RequestCookie>, RpcError> {
        let mut read: Option<RequestCookie> = None;
        for (dialect, text) in self.0.into_iter().flatten() {
            let cookie = RequestCookie::read(dialect, text, max_bytes)?;
            match &read {
                Some(other) if other.id != cookie.id => {
                    return Err(invalid("two session cookies that differ"));
                }
                Some(_) => {}
                None => read = Some(cookie),
            }
        }
        Ok(read)
    }
}

impl RequestCookie {
    /// Reads a cookie. Clients send back the whole of it, or only its id.
    fn read(dialect: Dialect, text: &[u8], max_bytes: usize) -> Result<Self, RpcError> {
        if text.len() > max_bytes {
            return Err(invalid(format!("a session cookie may have {max_bytes} bytes")));
        }
        let malformed = || {
            invalid(match dialect {
                Dialect::Strawman | Dialect::Draft => "a session cookie without an id",
                Dialect::Extension => "a session cookie without a sessionId",
            })
        };
        let member = |name| match members::find(text, name) {
            MemberLookup::Twice => Err(malformed()),
            found => match found.value().map(|value| scan::unquoted(value.get())) {
                None => Ok(None),
                Some(Some(text)) => Ok(Some(text.into_owned())),
                Some(None) => Err(malformed()),
            },
        };
        let id = member(dialect.id_field())?.ok_or_else(malformed)?;
        Ok(Self { dialect, id, state: member("state")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(era: Era, params: &str) -> Result<Option<(Dialect, String)>, String> {
        let params = RawJson::trusted(params.to_owned());
        let read = DataRequest::read(Some(&params)).and_then(|data_request| data_request.cookies(era));
        let cookie = read.ok_or("unreadable")?.read(100).map_err(|error| error.message())?;
        Ok(cookie.map(|cookie| (cookie.dialect, cookie.id)))
    }

    fn found(dialect: Dialect, id: &str) -> Result<Option<(Dialect, String)>, String> {
        Ok(Some((dialect, id.to_owned())))
    }

    #[test]
    fn params_that_are_read_alike_in_both_eras() {
        let unreadable = || Err("unreadable".to_owned());
        let table = [
            (r#"{"name":"x"}"#, Ok(None)),
            (r#"{"_meta":{"progressToken":5}}"#, Ok(None)),
            (r#"{"name":null,"arguments":null,"_meta":null}"#, Ok(None)),
            (r#"{"meta":1}"#, Ok(None)),
            (r#"{"_meta":1}"#, unreadable()),
            (r#"{"name":"x","name":"x"}"#, unreadable()),
            (r#"{"name":null,"n\u0061me":"x"}"#, unreadable()),
            (r#"{"arguments":{},"arguments":{}}"#, unreadable()),
            (r#"{"\ud800":1}"#, unreadable()),
            (r#"{"_meta":{"\ud800":1}}"#, unreadable()),
            (r#"{"name":1}"#, unreadable()),
        ];
        for (params, expected) in table {
            for era in [Era::Legacy, Era::Modern] {
                assert_eq!(cookie(era, params), expected, "{era:?} {params}");
            }
        }
    }

    #[test]
    fn cookies_that_are_read_alike_in_all_dialects() {
        for dialect in Dialect::ALL {
            let (key, id) = (dialect.key(), dialect.id_field());
            let without_id = || {
                Err(match dialect {
                    Dialect::Strawman | Dialect::Draft => "a session cookie without an id".to_owned(),
                    Dialect::Extension => "a session cookie without a sessionId".to_owned(),
                })
            };
            let unreadable = || Err("unreadable".to_owned());
            let escaped = key.replace('/', r"\/");
            let table = [
                (format!(r#"{{"_meta":{{"{key}":null}}}}"#), Ok(None)),
                (format!(r#"{{"_meta":{{"{key}":{{"{id}":"a"}}}}}}"#), found(dialect, "a")),
                (
                    format!(r#"{{"_meta":{{"{escaped}":{{"{id}":"a","expiry":"x","data":{{}}}}}}}}"#),
                    found(dialect, "a"),
                ),
                (format!(r#"{{"_meta":{{"{key}":{{"{id}":"\u0061","state":"s"}}}}}}"#), found(dialect, "a")),
                (format!(r#"{{"_meta":{{"{key}":{{"{id}":"a","state":null}}}}}}"#), found(dialect, "a")),
                (format!(r#"{{"_meta":{{"{key}":{{}}}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":{{"{id}":null}}}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":{{"{id}":7}}}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":{{"{id}":"a","state":7}}}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":{{"other":"a"}}}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":{{"{id}":"a","{id}":"b"}}}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":{{"{id}":"a","state":"s","state":"t"}}}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":"a"}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":["a"]}}}}"#), without_id()),
                (format!(r#"{{"_meta":{{"{key}":null,"{escaped}":{{"{id}":"a"}}}}}}"#), unreadable()),
                (format!(r#"{{"_meta":{{}},"_meta":{{"{key}":{{"{id}":"a"}}}}}}"#), unreadable()),
                (
                    format!(r#"{{"_meta":{{"{key}":{{"{id}":"{}"}}}}}}"#, "x".repeat(100)),
                    Err("a session cookie may have 100 bytes".to_owned()),
                ),
            ];
            for (params, expected) in table {
                assert_eq!(cookie(dialect.era(), &params), expected, "{params}");
            }
        }
    }

    #[test]
    fn each_era_has_dialects_of_its_own() {
        const STRAWMAN: &str = r#"{"_meta":{"mcp/session":{"id":"a"}}}"#;
        const BOTH: &str =
            r#"{"_meta":{"mcp/session":{"id":"a"},"io.modelcontextprotocol/session":{"sessionId":"a"}}}"#;
        const DIFFER: &str =
            r#"{"_meta":{"mcp/session":{"id":"a"},"io.modelcontextprotocol/session":{"sessionId":"b"}}}"#;
        const EXTENSION: &str = r#"{"_meta":{"dev.tenure/session":{"sessionId":"a"}}}"#;
        let table = [
            (Era::Legacy, STRAWMAN, found(Dialect::Strawman, "a")),
            (Era::Legacy, BOTH, found(Dialect::Strawman, "a")),
            (Era::Legacy, DIFFER, Err("two session cookies that differ".to_owned())),
            (Era::Modern, DIFFER, Ok(None)),
            (Era::Legacy, EXTENSION, Ok(None)),
            // Only clients of the strawman misspell `_meta`.
            (Era::Legacy, r#"{"meta":{"mcp/session":{"id":"a"}}}"#, found(Dialect::Strawman, "a")),
            (Era::Modern, r#"{"meta":{"dev.tenure/session":{"sessionId":"a"}}}"#, Ok(None)),
        ];
        for (era, params, expected) in table {
            assert_eq!(cookie(era, params), expected, "{era:?} {params}");
        }
    }
}
