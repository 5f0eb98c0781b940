//! Translates results.
//!
//! A modern result has a type, caching members and `serverInfo`; a session's result has none of these. All other bytes
//! pass unchanged in both directions, except `execution` in lists of tools.

use std::sync::LazyLock;

use crate::error::RpcError;
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::json::prefilter::Prefilter;
use crate::keys::{RELATED_TASK, SERVER};
use crate::method::{Method, is_cacheable, may_ask};
use crate::revision::Revision;
use crate::translate::codes::fault_of_server;
use crate::translate::downgrade::{self, Execution, OutputSchemas};

/// The kind of a modern server's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultKind {
    /// The final answer.
    Complete,
    /// Questions; the request has to be sent again with the answers.
    InputRequired,
    /// A task that will have the answer.
    Task,
}

/// The kind of a modern server's result; without a type it is the final answer.
///
/// # Errors
/// When the type is unknown, or is not allowed in answers to this method.
pub fn kind(method: &Method, result: &RawJson) -> Result<ResultKind, RpcError> {
    let Some(object) = Object::read(object::text(result)) else {
        return Err(fault_of_server("The server's result is not an object".to_owned()));
    };
    let Some(named) = object.get("resultType") else {
        return Ok(ResultKind::Complete);
    };
    let kind = object::unquoted(named);
    match kind.as_deref() {
        Some("complete") => Ok(ResultKind::Complete),
        Some("input_required") if may_ask(method) => Ok(ResultKind::InputRequired),
        Some("task") if *method == Method::ToolsCall => Ok(ResultKind::Task),
        Some("input_required" | "task") => {
            let kind = kind.unwrap_or_default();
            Err(fault_of_server(format!("The server answered {method} with a result of type {kind}")))
        }
        _ => {
            let named: String = named.chars().take(64).collect();
            Err(fault_of_server(format!("The server's result is of an unknown type: {named}")))
        }
    }
}

/// A modern server's complete result, for a session of a revision.
pub fn to_legacy(method: &Method, result: &RawJson, revision: Revision) -> RawJson {
    let Some(mut object) = Object::read(object::text(result)) else {
        return result.clone();
    };
    object.remove("resultType");
    if is_cacheable(method) {
        object.remove("ttlMs");
        object.remove("cacheScope");
    }
    object.within("_meta", |meta| meta.remove(SERVER));
    // A call in the way of sessions cannot create a task of a modern server, whatever the revision.
    downgrade::rewrite(method, &mut object, revision, Execution::Goes);
    object::kept(result, object.write())
}

/// A session's result, for a modern client. The members that every modern result needs are added later. Members that a
/// modern client would misread are removed here: one with the name of the result type, caching members of a server that
/// does not know modern caching, and tasks of sessions.
pub fn to_modern(method: &Method, result: &RawJson) -> RawJson {
    static READ: LazyLock<[Prefilter; 5]> =
        LazyLock::new(|| ["resultType", "ttlMs", "cacheScope", "execution", RELATED_TASK].map(Prefilter::of));
    // Nearly every result returns here.
    if !READ.iter().any(|name| name.may_be_in(result.bytes())) {
        return result.clone();
    }
    let Some(mut object) = Object::read(object::text(result)) else {
        return result.clone();
    };
    if object.get("resultType") != Some(r#""complete""#) {
        object.remove("resultType");
    }
    if is_cacheable(method) {
        object.remove("ttlMs");
        object.remove("cacheScope");
    }
    object.within("_meta", |meta| meta.remove(RELATED_TASK));
    if *method == Method::ToolsList {
        downgrade::tools(&mut object, Execution::Goes, OutputSchemas::Any);
    }
    object::kept(result, object.write())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &'static str) -> RawJson {
        RawJson::trusted(text)
    }

    #[test]
    fn the_types_of_results() {
        let (call, list, read) = (Method::ToolsCall, Method::ToolsList, Method::ResourcesRead);
        let table = [
            (&call, "{}", Ok(ResultKind::Complete)),
            (&call, r#"{"resultType":"complete"}"#, Ok(ResultKind::Complete)),
            (&call, r#"{"resultType":"input_required"}"#, Ok(ResultKind::InputRequired)),
            (&read, r#"{"resultType":"input_required"}"#, Ok(ResultKind::InputRequired)),
            (&call, r#"{"resultType":"task"}"#, Ok(ResultKind::Task)),
            (
                &list,
                r#"{"resultType":"input_required"}"#,
                Err("The server answered tools/list with a result of type input_required"),
            ),
            (
                &read,
                r#"{"resultType":"task"}"#,
                Err("The server answered resources/read with a result of type task"),
            ),
            (&call, r#"{"resultType":"later"}"#, Err("The server's result is of an unknown type: \"later\"")),
            (&call, r#"{"resultType":7}"#, Err("The server's result is of an unknown type: 7")),
            (&call, "[]", Err("The server's result is not an object")),
        ];
        for (method, result, expected) in table {
            let found = kind(method, &json(result));
            assert_eq!(found.map_err(|error| error.message()), expected.map_err(str::to_owned));
        }
        assert_eq!(kind(&call, &json(r#"{"resultType":7}"#)).unwrap_err().code(), -32603);
    }

    #[test]
    fn a_modern_result_in_a_session() {
        let (call, list, read) = (Method::ToolsCall, Method::ToolsList, Method::ResourcesRead);
        let discover = Method::new("server/discover");
        let table = [
            (&call, r#"{"resultType":"complete"}"#, "{}"),
            (
                &call,
                r#"{"content":[ ], "resultType":"complete", "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
                r#"{"content":[ ]}"#,
            ),
            (
                &call,
                r#"{"resultType":"complete","content":[],"_meta":{"x":1,"io.modelcontextprotocol/serverInfo":{}},"ttlMs":5}"#,
                r#"{"content":[],"_meta":{"x":1},"ttlMs":5}"#,
            ),
            (
                &read,
                r#"{"resultType":"complete","contents":[],"ttlMs":0,"cacheScope":"private"}"#,
                r#"{"contents":[]}"#,
            ),
            (
                &list,
                r#"{"tools":[{"name":"t","execution":{},"outputSchema":{"type":"string"}}],"ttlMs":0,"cacheScope":"public","nextCursor":"","resultType":"complete"}"#,
                r#"{"tools":[{"name":"t"}],"nextCursor":""}"#,
            ),
            (&discover, r#"{"ttlMs":0,"cacheScope":"public","x":1}"#, r#"{"x":1}"#),
            (&call, r#"{"structuredContent":7,"content":[]}"#, r#"{"content":[{"type":"text","text":"7"}]}"#),
        ];
        for (method, modern, legacy) in table {
            assert_eq!(object::text(&to_legacy(method, &json(modern), Revision::LATEST)), legacy);
        }
    }

    #[test]
    fn a_sessions_result_for_a_modern_client() {
        let (call, list, read) = (Method::ToolsCall, Method::ToolsList, Method::ResourcesRead);
        let table = [
            (&call, r#"{"content":[ {"type":"text","text":"\u00e9"}]}"#, "="),
            (&call, r#"{"content":[],"structuredContent":{"a":1.50},"ttlMs":1}"#, "="),
            (&call, r#"{"content":[],"resultType":"complete"}"#, "="),
            // Has no meaning in a session, but would have one for a modern client.
            (&call, r#"{"content":[],"resultType":"input_required"}"#, r#"{"content":[]}"#),
            (&call, r#"{"content":[],"result\u0054ype":"task"}"#, r#"{"content":[]}"#),
            (
                &call,
                r#"{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#,
                r#"{"content":[]}"#,
            ),
            (&read, r#"{"contents":[],"ttlMs":9,"cacheScope":"public"}"#, r#"{"contents":[]}"#),
            (
                &list,
                r#"{"tools":[{"name":"t","execution":{"taskSupport":"required"},"outputSchema":{"type":"string"}}]}"#,
                r#"{"tools":[{"name":"t","outputSchema":{"type":"string"}}]}"#,
            ),
        ];
        for (method, legacy, modern) in table {
            let given = json(legacy);
            let result = to_modern(method, &given);
            assert_eq!(object::text(&result), if modern == "=" { legacy } else { modern });
            if modern == "=" {
                assert_eq!(result.bytes().as_ptr(), given.bytes().as_ptr(), "copied for nothing");
            }
        }
    }
}
