//! Translates the params of requests.
//!
//! To a modern server: adds to `_meta` what a session's client sent only once (version, capabilities, client info,
//! log level) and the progress token. To a session's server: removes these members again, and returns them to the
//! caller together with the answers and the state of a retry. In both directions all other bytes pass unchanged,
//! other members of `_meta` included.

use std::borrow::Cow;

use crate::error::{Reason, RpcError};
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::keys::{CAPABILITIES, CLIENT, LEVEL, META_VERSION, TOKEN};
use crate::method::{Method, may_ask};
use crate::params::{self, LogLevel};

/// The `_meta` of a modern request: version, capabilities and wishes of its client.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// The version of the request.
    pub version: &'a str,
    /// The capabilities of the client, as an object.
    pub capabilities: &'a RawJson,
    /// The client's `clientInfo`.
    pub client: Option<&'a RawJson>,
    /// The lowest level of log messages that it wants; without it, no messages.
    pub level: Option<&'a str>,
    /// Its progress token.
    pub token: Option<&'a RawJson>,
}

/// The params of a session's request for a modern server.
///
/// Members of `_meta` that describe the sender are replaced by those of `sender`, and a token is removed if `sender`
/// has none: only the session decides them, not the client's request. A legacy `task` is removed too, and so are
/// `inputResponses` and `requestState`, which a session's client cannot have.
///
/// # Errors
/// When the params or their `_meta` are not objects.
pub fn to_modern(
    method: &Method,
    params: Option<&RawJson>,
    sender: &Sender<'_>,
) -> Result<RawJson, RpcError> {
    let given = params.map_or("{}", object::text);
    let mut object = Object::read(given).ok_or_else(|| malformed("The params are not an object"))?;
    if *method == Method::ToolsCall {
        object.remove("task");
    }
    if may_ask(method) {
        object.remove("inputResponses");
        object.remove("requestState");
    }
    let mut meta = match object.get("_meta") {
        None | Some("null") => Object::read("{}"),
        Some(meta) => Object::read(meta),
    }
    .ok_or_else(|| malformed("_meta is not an object"))?;
    let mut put = |name, value| match value {
        Some(value) => meta.set(name, value),
        None => meta.remove(name),
    };
    put(META_VERSION, Some(Cow::from(object::quoted(sender.version))));
    put(CAPABILITIES, Some(object::text(sender.capabilities).into()));
    put(CLIENT, sender.client.map(|client| object::text(client).into()));
    put(LEVEL, sender.level.map(|level| object::quoted(level).into()));
    put(TOKEN, sender.token.map(|token| object::text(token).into()));
    object.set("_meta", meta.write());
    Ok(RawJson::trusted(object.write().into_owned()))
}

/// The members that were removed from a modern request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestExtras {
    /// The client's progress token, for the notifications to the client.
    pub token: Option<RawJson>,
    /// The lowest level of log messages that it wants; without it, no messages.
    pub level: Option<String>,
    /// The answers of a retry, not parsed.
    pub responses: Option<RawJson>,
    /// The state of a retry.
    pub state: Option<String>,
}

/// The params of a modern request for a session's server, and the members that were removed. The server gets `token`
/// instead of the client's, because tokens must be unique in a session.
///
/// `task` is removed as well: it has a meaning for a server of 2025-11-25, but none for a modern client.
///
/// # Errors
/// When the params are not an object.
pub fn to_legacy(
    method: &Method,
    params: Option<&RawJson>,
    token: Option<&RawJson>,
) -> Result<(RawJson, RequestExtras), RpcError> {
    let Some(params) = params else {
        return Ok((RawJson::EMPTY_OBJECT, RequestExtras::default()));
    };
    let mut object =
        Object::read(object::text(params)).ok_or_else(|| malformed("The params are not an object"))?;
    let mut taken = RequestExtras::default();
    if *method == Method::ToolsCall {
        object.remove("task");
    }
    if may_ask(method) {
        taken.responses = object.get("inputResponses").map(|text| object::part(params, text));
        taken.state = object.get("requestState").and_then(object::unquoted).map(Cow::into_owned);
        object.remove("inputResponses");
        object.remove("requestState");
    }
    object.within("_meta", |meta| {
        taken.token = meta.get(TOKEN).map(|text| object::part(params, text));
        taken.level = meta.get(LEVEL).and_then(object::unquoted).map(Cow::into_owned);
        for name in [META_VERSION, CAPABILITIES, CLIENT, LEVEL] {
            meta.remove(name);
        }
        match token {
            Some(token) if taken.token.is_some() => meta.set(TOKEN, object::text(token).to_owned()),
            _ => meta.remove(TOKEN),
        }
    });
    Ok((object::kept(params, object.write()), taken))
}

/// The level in a session's `logging/setLevel`, which the bridge repeats in every later request.
///
/// # Errors
/// When there is no such level.
pub fn level(params: Option<&RawJson>) -> Result<&'static str, RpcError> {
    let level = params::log_level(params).map(LogLevel::as_str);
    level.ok_or_else(|| malformed("There is no such level of log messages"))
}

fn malformed(message: &'static str) -> RpcError {
    RpcError::of(Reason::InvalidParams, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &'static str) -> RawJson {
        RawJson::trusted(text)
    }

    #[test]
    fn a_request_of_a_session_says_who_sends_it() {
        let (capabilities, client, token) = (json(r#"{"roots":{}}"#), json(r#"{"name":"c"}"#), json("7"));
        let full = Sender {
            version: "V",
            capabilities: &capabilities,
            client: Some(&client),
            level: Some("info"),
            token: Some(&token),
        };
        let bare = Sender { client: None, level: None, token: None, ..full };
        const FULL: &str = r#""io.modelcontextprotocol/protocolVersion":"V","io.modelcontextprotocol/clientCapabilities":{"roots":{}},"io.modelcontextprotocol/clientInfo":{"name":"c"},"io.modelcontextprotocol/logLevel":"info","progressToken":7"#;
        const BARE: &str = r#""io.modelcontextprotocol/protocolVersion":"V","io.modelcontextprotocol/clientCapabilities":{"roots":{}}"#;
        let list = Method::ToolsList;
        let call = Method::ToolsCall;
        let table = [
            (&list, None, full, format!(r#"{{"_meta":{{{FULL}}}}}"#)),
            (&list, None, bare, format!(r#"{{"_meta":{{{BARE}}}}}"#)),
            (&list, Some(r#"{ "cursor": "" }"#), bare, format!(r#"{{ "cursor": "","_meta":{{{BARE}}} }}"#)),
            (
                &call,
                Some(r#"{"name":"t","arguments":{ "x": 1.50 }}"#),
                full,
                format!(r#"{{"name":"t","arguments":{{ "x": 1.50 }},"_meta":{{{FULL}}}}}"#),
            ),
            // The client's own token is removed, other members stay.
            (
                &call,
                Some(r#"{"name":"t","_meta":{"progressToken":"mine","traceparent":"00-1"}}"#),
                bare,
                format!(r#"{{"name":"t","_meta":{{"traceparent":"00-1",{BARE}}}}}"#),
            ),
            (&call, Some(r#"{"_meta":null}"#), bare, format!(r#"{{"_meta":{{{BARE}}}}}"#)),
            // A client in a session cannot set the modern members of `_meta`.
            (
                &call,
                Some(
                    r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"sampling":{}},"io.modelcontextprotocol/logLevel":"debug","x":1},"task":{"ttl":1},"inputResponses":{},"requestState":"s"}"#,
                ),
                bare,
                r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"roots":{}},"x":1,"io.modelcontextprotocol/protocolVersion":"V"}}"#.to_owned(),
            ),
            // With other methods these members have no meaning and stay.
            (
                &list,
                Some(r#"{"task":1,"requestState":2}"#),
                bare,
                format!(r#"{{"task":1,"requestState":2,"_meta":{{{BARE}}}}}"#),
            ),
        ];
        for (method, params, sender, expected) in table {
            let modern = to_modern(method, params.map(json).as_ref(), &sender).unwrap();
            assert_eq!(object::text(&modern), expected);
        }
        for params in ["[]", "7", r#"{"_meta":7}"#, r#"{"_meta":[]}"#] {
            let refused = to_modern(&call, Some(&json(params)), &bare).unwrap_err();
            assert!(refused.is(Reason::InvalidParams), "{params}");
        }
    }

    #[test]
    fn a_level_is_one_of_eight() {
        assert_eq!(level(Some(&json(r#"{"level":"not\u0069ce"}"#))), Ok("notice"));
        for params in [r#"{"level":"loud"}"#, r#"{"level":3}"#, "{}", "[]"] {
            assert!(level(Some(&json(params))).unwrap_err().is(Reason::InvalidParams), "{params}");
        }
        assert!(level(None).is_err());
    }

    #[test]
    fn a_modern_request_leaves_its_sender_behind() {
        let token = json(r#""ours""#);
        let meta = r#""io.modelcontextprotocol/protocolVersion":"V","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/logLevel":"info""#;
        let list = Method::ToolsList;
        let call = Method::ToolsCall;
        let level = || Some("info".to_owned());
        let table = [
            (
                &list,
                format!(r#"{{ "cursor": "", "_meta":{{{meta}}} }}"#),
                r#"{ "cursor": "" }"#,
                RequestExtras { level: level(), ..RequestExtras::default() },
            ),
            (
                &call,
                format!(r#"{{"_meta":{{{meta},"progressToken":3,"traceparent":"00-1"}},"name":"t"}}"#),
                r#"{"_meta":{"progressToken":"ours","traceparent":"00-1"},"name":"t"}"#,
                RequestExtras { level: level(), token: Some(json("3")), ..RequestExtras::default() },
            ),
            (
                &call,
                r#"{"name":"t","inputResponses":{"k":{"action":"accept"}},"requestState":"s\u00e9","task":{}}"#
                    .to_owned(),
                r#"{"name":"t"}"#,
                RequestExtras {
                    responses: Some(json(r#"{"k":{"action":"accept"}}"#)),
                    state: Some("sé".to_owned()),
                    ..RequestExtras::default()
                },
            ),
            // Older servers ignore members that they do not know.
            (
                &Method::CompletionComplete,
                r#"{"ref":{},"context":{"arguments":{ }}}"#.to_owned(),
                r#"{"ref":{},"context":{"arguments":{ }}}"#,
                RequestExtras::default(),
            ),
            // A state that is not a string is dropped.
            (&call, r#"{"requestState":7}"#.to_owned(), "{}", RequestExtras::default()),
            (&list, r#"{"task":1,"requestState":"s"}"#.to_owned(), r#"{"task":1,"requestState":"s"}"#, RequestExtras::default()),
        ];
        for (method, params, expected, expected_taken) in table {
            let params = RawJson::trusted(params);
            let (legacy, taken) = to_legacy(method, Some(&params), Some(&token)).unwrap();
            assert_eq!(object::text(&legacy), expected);
            assert_eq!(taken, expected_taken);
        }
        assert_eq!(to_legacy(&list, None, None).unwrap(), (json("{}"), RequestExtras::default()));
        assert!(to_legacy(&call, Some(&json("[]")), None).unwrap_err().is(Reason::InvalidParams));
    }
}
