//! Reads what a request without a session says of data sessions: its cookie, its tool, and whether its client knows
//! them.

use std::borrow::Cow;

use serde::Deserialize;
use tenure_protocol::json::members::{self, MemberLookup};
use tenure_protocol::modern::{Capabilities, Capability};
use tenure_protocol::{Error, RawJson, Request, RpcError};
use tenure_session::call::CallContext;

use crate::data::dialect::{Dialect, invalid};
use crate::data::methods::{DataSessionHints, DataSessionParams};
use crate::data::request::RequestCookie;

pub(super) use tenure_protocol::data_session::extension::EXTENSION;

/// The members of params that the layer looks at.
#[derive(Debug, Default)]
pub(super) struct ModernDataRequest<'a> {
    /// The tool of a `tools/call`.
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) arguments: Option<&'a [u8]>,
    cookie: Option<&'a str>,
}

impl<'a> ModernDataRequest<'a> {
    /// Reads params; `None` if they are ambiguous or malformed, since a server may read them differently.
    pub(super) fn read(params: Option<&'a RawJson>) -> Option<Self> {
        let Some(params) = params else { return Some(Self::default()) };
        let found = params.outline()?;
        let is_there = |value: &&[u8]| *value != b"null";
        let cookie = match found.meta.filter(is_there) {
            Some(meta) if !meta.starts_with(b"{") => return None,
            Some(meta) => match members::find(meta, Dialect::Own.key()) {
                MemberLookup::Twice => return None,
                found => found.value().map(|cookie| cookie.get()),
            },
            None => None,
        };
        let name = found.tool()?;
        Some(Self { name, arguments: found.arguments.filter(is_there), cookie })
    }

    /// The cookie, if there is one. Clients send back the whole of it, or only its id.
    pub(super) fn cookie(&self, max_bytes: usize) -> Result<Option<RequestCookie>, RpcError> {
        #[derive(Deserialize)]
        struct ModernCookie {
            #[serde(rename = "sessionId")]
            id: String,
            #[serde(default)]
            state: Option<String>,
        }
        let Some(cookie) = self.cookie else { return Ok(None) };
        if cookie.len() > max_bytes {
            return Err(invalid(format!("a session cookie may have {max_bytes} bytes")));
        }
        let cookie = serde_json::from_str(cookie);
        let ModernCookie { id, state } =
            cookie.map_err(|_| invalid("a session cookie without a sessionId"))?;
        Ok(Some(RequestCookie { dialect: Dialect::Own, id, state }))
    }
}

/// The params of a method of the layer.
pub(super) fn params(request: &Request) -> Result<DataSessionParams, RpcError> {
    #[derive(Deserialize, Default)]
    struct ModernMethodParams {
        #[serde(rename = "sessionId", default)]
        id: Option<String>,
        #[serde(default)]
        cursor: Option<String>,
        #[serde(default)]
        hints: DataSessionHints,
    }
    let read = request.params.as_ref().map(RawJson::read::<ModernMethodParams>).transpose();
    let read = read.map_err(|error| invalid(format!("{}: {error}", request.method)))?;
    let ModernMethodParams { id, cursor, hints } = read.unwrap_or_default();
    Ok(DataSessionParams { id, cursor, hints })
}

/// Checks that the client of a request declares the extension for data sessions.
pub(super) fn require(context: &CallContext) -> Result<(), Error> {
    let needed = [Capability::Extension(EXTENSION.into())];
    match Capabilities::parse(context.capabilities()) {
        Some(declared) => declared.require(&needed),
        None => Err(tenure_protocol::modern::capability::missing(&needed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(params: &'static str) -> Result<Option<String>, String> {
        let params = RawJson::trusted(params);
        let data_request = ModernDataRequest::read(Some(&params)).ok_or("unreadable")?;
        let cookie = data_request.cookie(100).map_err(|error| error.message())?;
        Ok(cookie.map(|cookie| cookie.id))
    }

    #[test]
    fn cookies_as_clients_send_them() {
        let found = |id: &str| Ok(Some(id.to_owned()));
        let unreadable = || Err("unreadable".to_owned());
        let without_id = || Err("a session cookie without a sessionId".to_owned());
        let table = [
            (r#"{"name":"x"}"#, Ok(None)),
            (r#"{"_meta":{"progressToken":5}}"#, Ok(None)),
            (r#"{"_meta":{"dev.tenure/session":null}}"#, Ok(None)),
            (r#"{"_meta":{"dev.tenure/session":{"sessionId":"a"}}}"#, found("a")),
            (
                r#"{"_meta":{"dev.tenure\/session":{"sessionId":"a","expiresAt":"x","state":"s"}}}"#,
                found("a"),
            ),
            // The keys of the other dialects do not count here.
            (
                r#"{"_meta":{"mcp/session":{"id":"a"},"io.modelcontextprotocol/session":{"sessionId":"b"}}}"#,
                Ok(None),
            ),
            (r#"{"meta":{"dev.tenure/session":{"sessionId":"a"}}}"#, Ok(None)),
            (r#"{"_meta":{"dev.tenure/session":{}}}"#, without_id()),
            (r#"{"_meta":{"dev.tenure/session":"a"}}"#, without_id()),
            (r#"{"_meta":{"dev.tenure/session":{"id":"a"}}}"#, without_id()),
            (r#"{"_meta":{"dev.tenure/session":{"sessionId":"a","sessionId":"b"}}}"#, without_id()),
            (
                r#"{"_meta":{"dev.tenure/session":null,"dev.tenure\/session":{"sessionId":"a"}}}"#,
                unreadable(),
            ),
            (r#"{"_meta":1}"#, unreadable()),
            (r#"{"_meta":{},"_meta":{"dev.tenure/session":{"sessionId":"a"}}}"#, unreadable()),
            (r#"{"name":"x","name":"x"}"#, unreadable()),
            (r#"{"name":null,"n\u0061me":"x"}"#, unreadable()),
            (r#"{"arguments":{},"arguments":{}}"#, unreadable()),
            (r#"{"name":1}"#, unreadable()),
            (r#"{"name":null,"arguments":null,"_meta":null}"#, Ok(None)),
        ];
        for (params, expected) in table {
            assert_eq!(cookie(params), expected, "{params}");
        }
    }

    #[test]
    fn a_cookie_has_a_largest_size() {
        let long = format!(r#"{{"_meta":{{"dev.tenure/session":{{"sessionId":"{}"}}}}}}"#, "x".repeat(100));
        let params = RawJson::trusted(long);
        let error = ModernDataRequest::read(Some(&params)).unwrap().cookie(100).unwrap_err();
        assert_eq!((error.code(), error.message().as_str()), (-32602, "a session cookie may have 100 bytes"));
    }
}
