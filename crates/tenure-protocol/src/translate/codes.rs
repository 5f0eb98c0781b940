//! Translates error codes between the eras.
//!
//! In: the error object of a server. Out: the error object for a client of the other era. From 2026-07-28 on the
//! codes -32020 to -32099 are reserved for the specification, which uses three of them, and -32002 (resource not
//! found) and -32042 (a URL must be visited) are not allowed any more. In the legacy era -32002 was usual, and -32020
//! to -32022 had no meaning. HTTP statuses are not translated: inside a session, an error that came with a modern
//! status is an ordinary error.
//!
//! An error whose code has no meaning in the other era becomes -32603. `data.original` keeps the original error, so
//! that the server's own text is not lost.

use crate::error::{Reason, RpcError};
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::method::Method;

/// Headers and body of a request contradict each other; modern.
pub const HEADER_MISMATCH: i64 = -32020;
/// The client of the request did not declare a needed capability; modern.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The version is not served; modern.
pub const VERSION_NOT_SERVED: i64 = -32022;
/// The resource was not found; legacy.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// The user has to visit a URL first; 2025-11-25 only.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;

const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;

/// A modern server's error, for a client in a session.
///
/// | modern | legacy |
/// |---|---|
/// | -32602 with `data.uri`, of `resources/read` | -32002 |
/// | -32021 | -32602, `data` as it was |
/// | any other of -32020 to -32099 | -32603 with the original |
/// | no code at all | -32603 with the original |
/// | everything else | as it was |
pub fn to_legacy(method: &Method, error: &RpcError) -> RpcError {
    match code(error) {
        Some(INVALID_PARAMS) if *method == Method::ResourcesRead && names_resource(error) => {
            with_code(error, RESOURCE_NOT_FOUND)
        }
        Some(MISSING_CAPABILITY) => with_code(error, INVALID_PARAMS),
        Some(code) if !is_reserved(code) => error.clone(),
        Some(_) | None => wrapped(error),
    }
}

/// An error of a session's server, for a modern client; `params` are those of the request.
///
/// | legacy | modern |
/// |---|---|
/// | -32002 | -32602 with `data.uri`, which is the request's where the server names none |
/// | -32021 with `data.requiredCapabilities`, from handlers that are written for both eras | as it was |
/// | any other of -32020 to -32099, so also -32042 | -32603 with the original |
/// | no code at all | -32603 with the original |
/// | everything else | as it was |
///
/// Callers read -32042 with [`url_elicitations`](crate::translate::questions::url_elicitations) first.
pub fn to_modern(params: Option<&RawJson>, error: &RpcError) -> RpcError {
    match code(error) {
        Some(RESOURCE_NOT_FOUND) => missing_resource(params, error),
        Some(MISSING_CAPABILITY) if names_capabilities(error) => error.clone(),
        Some(code) if !is_reserved(code) => error.clone(),
        Some(_) | None => wrapped(error),
    }
}

/// The error for a modern client that lacks capabilities; `required` is the object that it would have to declare.
pub fn missing_capability(message: &str, required: &RawJson) -> RpcError {
    RpcError::from_raw(RawJson::trusted(format!(
        r#"{{"code":{MISSING_CAPABILITY},"message":{},"data":{{"requiredCapabilities":{}}}}}"#,
        object::quoted(message),
        object::text(required),
    )))
}

/// The error for a server's answer that breaks the protocol, in either era.
pub(crate) fn fault_of_server(message: String) -> RpcError {
    RpcError::of(Reason::Internal, message)
}

fn is_reserved(code: i64) -> bool {
    (-32099..=-32020).contains(&code)
}

/// The code, if the error has one.
pub(crate) fn code(error: &RpcError) -> Option<i64> {
    serde_json::from_str(Object::read(object::text(error.raw()))?.get("code")?).ok()
}

/// The error's `data`, if it is an object.
pub(crate) fn data(error: &RpcError) -> Option<Object<'_>> {
    Object::read(Object::read(object::text(error.raw()))?.get("data")?)
}

fn names_resource(error: &RpcError) -> bool {
    data(error).and_then(|data| data.get("uri")).is_some_and(|uri| uri.starts_with('"'))
}

fn names_capabilities(error: &RpcError) -> bool {
    data(error).and_then(|data| data.get("requiredCapabilities")).is_some_and(object::is_object)
}

fn with_code(error: &RpcError, code: i64) -> RpcError {
    changed(error, |object| object.set("code", code.to_string()))
}

fn missing_resource(params: Option<&RawJson>, error: &RpcError) -> RpcError {
    if names_resource(error) {
        return with_code(error, INVALID_PARAMS);
    }
    let uri =
        params.and_then(|params| Object::read(object::text(params))).and_then(|params| params.get("uri"));
    changed(error, |object| {
        object.set("code", INVALID_PARAMS.to_string());
        let Some(uri) = uri else {
            return;
        };
        let data = match object.get("data") {
            Some(data) => match Object::read(data) {
                Some(mut data) => {
                    data.set("uri", uri);
                    data.write().into_owned()
                }
                None => format!(r#"{{"uri":{uri},"original":{data}}}"#),
            },
            None => format!(r#"{{"uri":{uri}}}"#),
        };
        object.set("data", data);
    })
}

fn changed(error: &RpcError, change: impl FnOnce(&mut Object<'_>)) -> RpcError {
    let Some(mut object) = Object::read(object::text(error.raw())) else {
        return wrapped(error);
    };
    change(&mut object);
    RpcError::from_raw(object::kept(error.raw(), object.write()))
}

fn wrapped(error: &RpcError) -> RpcError {
    let message = match error.message() {
        said if said.is_empty() => "The server answered with an error that cannot be passed on".to_owned(),
        said => format!("The server answered with an error that cannot be passed on: {said}"),
    };
    RpcError::from_raw(RawJson::trusted(format!(
        r#"{{"code":{INTERNAL},"message":{},"data":{{"reason":"{}","original":{}}}}}"#,
        object::quoted(&message),
        Reason::Internal.as_str(),
        object::text(error.raw()),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &'static str) -> RpcError {
        RpcError::from_raw(RawJson::trusted(text))
    }

    fn text(error: &RpcError) -> &str {
        object::text(error.raw())
    }

    #[test]
    fn a_modern_servers_codes_for_a_session() {
        let read = Method::ResourcesRead;
        let call = Method::ToolsCall;
        let table = [
            (
                &read,
                r#"{"code": -32602, "message":"no \u00e9","data":{"uri":"a:b"}}"#,
                r#"{"code": -32002, "message":"no \u00e9","data":{"uri":"a:b"}}"#,
            ),
            // Without `data.uri` the params were wrong, not the resource.
            (&read, r#"{"code":-32602,"message":"m"}"#, r#"{"code":-32602,"message":"m"}"#),
            (
                &call,
                r#"{"code":-32602,"message":"m","data":{"uri":"a:b"}}"#,
                r#"{"code":-32602,"message":"m","data":{"uri":"a:b"}}"#,
            ),
            (
                &call,
                r#"{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}"#,
                r#"{"code":-32602,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}"#,
            ),
            (
                &call,
                r#"{"code":-32020,"message":"m","data":1.50}"#,
                r#"{"code":-32603,"message":"The server answered with an error that cannot be passed on: m","data":{"reason":"internal","original":{"code":-32020,"message":"m","data":1.50}}}"#,
            ),
            (
                &call,
                r#"{"code":-32022,"message":"m"}"#,
                r#"{"code":-32603,"message":"The server answered with an error that cannot be passed on: m","data":{"reason":"internal","original":{"code":-32022,"message":"m"}}}"#,
            ),
            (
                &call,
                r#"{"code":-32042,"message":"m"}"#,
                r#"{"code":-32603,"message":"The server answered with an error that cannot be passed on: m","data":{"reason":"internal","original":{"code":-32042,"message":"m"}}}"#,
            ),
            (
                &call,
                r#"{"message":7}"#,
                r#"{"code":-32603,"message":"The server answered with an error that cannot be passed on","data":{"reason":"internal","original":{"message":7}}}"#,
            ),
            (&call, r#"{"code":-32601,"message":"m"}"#, r#"{"code":-32601,"message":"m"}"#),
            (&call, r#"{"code":-32000,"message":"m"}"#, r#"{"code":-32000,"message":"m"}"#),
            (&call, r#"{"code":7,"message":"m","data":[1]}"#, r#"{"code":7,"message":"m","data":[1]}"#),
        ];
        for (method, modern, legacy) in table {
            assert_eq!(text(&to_legacy(method, &error(modern))), legacy);
        }
    }

    #[test]
    fn a_sessions_codes_for_a_modern_client() {
        let params = RawJson::trusted(r#"{"uri":"a:\u00e9"}"#);
        let table = [
            (
                r#"{"code":-32002,"message":"m"}"#,
                r#"{"code":-32602,"message":"m","data":{"uri":"a:\u00e9"}}"#,
            ),
            (
                r#"{"code":-32002,"message":"m","data":{"uri":"x:y","n":1.0}}"#,
                r#"{"code":-32602,"message":"m","data":{"uri":"x:y","n":1.0}}"#,
            ),
            (
                r#"{"code":-32002,"message":"m","data":{"n":1.0}}"#,
                r#"{"code":-32602,"message":"m","data":{"n":1.0,"uri":"a:\u00e9"}}"#,
            ),
            (
                r#"{"code":-32002,"message":"m","data":"gone"}"#,
                r#"{"code":-32602,"message":"m","data":{"uri":"a:\u00e9","original":"gone"}}"#,
            ),
            (
                r#"{"code":-32042,"message":"m"}"#,
                r#"{"code":-32603,"message":"The server answered with an error that cannot be passed on: m","data":{"reason":"internal","original":{"code":-32042,"message":"m"}}}"#,
            ),
            (
                r#"{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}"#,
                r#"{"code":-32021,"message":"m","data":{"requiredCapabilities":{"sampling":{}}}}"#,
            ),
            // Without `requiredCapabilities` the code has another meaning.
            (
                r#"{"code":-32021,"message":"m"}"#,
                r#"{"code":-32603,"message":"The server answered with an error that cannot be passed on: m","data":{"reason":"internal","original":{"code":-32021,"message":"m"}}}"#,
            ),
            (r#"{"code":-32601,"message":"m"}"#, r#"{"code":-32601,"message":"m"}"#),
            (r#"{"code":-32001,"message":"m"}"#, r#"{"code":-32001,"message":"m"}"#),
            (r#"{"code":-32100,"message":"m"}"#, r#"{"code":-32100,"message":"m"}"#),
        ];
        for (legacy, modern) in table {
            assert_eq!(text(&to_modern(Some(&params), &error(legacy))), modern);
        }
        let nameless = to_modern(None, &error(r#"{"code":-32002,"message":"m"}"#));
        assert_eq!(text(&nameless), r#"{"code":-32602,"message":"m"}"#);
    }

    #[test]
    fn no_code_of_the_specifications_own_range_reaches_a_modern_client() {
        for code in -32110..=-31990 {
            let raw = RawJson::trusted(format!(r#"{{"code":{code},"message":"m"}}"#));
            let modern = to_modern(None, &RpcError::from_raw(raw)).code();
            let kept = !(-32099..=-32020).contains(&code) && code != RESOURCE_NOT_FOUND;
            let expected = if code == RESOURCE_NOT_FOUND { INVALID_PARAMS } else { INTERNAL };
            assert_eq!(modern, if kept { code } else { expected });
        }
    }

    #[test]
    fn a_missing_capability_is_named_as_it_would_be_declared() {
        let error = missing_capability("Needs \"sampling\"", &RawJson::trusted(r#"{"sampling":{}}"#));
        assert_eq!(
            text(&error),
            r#"{"code":-32021,"message":"Needs \"sampling\"","data":{"requiredCapabilities":{"sampling":{}}}}"#
        );
    }
}
