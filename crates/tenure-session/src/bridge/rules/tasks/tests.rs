//! The tables of tasks between their two kinds.

use super::*;

fn json(text: &'static str) -> RawJson {
    RawJson::trusted(text)
}

#[test]
fn tools_that_can_be_called_as_tasks() {
    let list = json(
        r#"{"tools":[{"name":"a","execution":{"taskSupport":"required"}},{"name":"b","execution":{"taskSupport":"optional"}},{"name":"c","execution":{"taskSupport":"forbidden"}},{"name":"d"},{"name":"e","execution":{}},7]}"#,
    );
    let expected = [("a".to_owned(), Support::Required), ("b".to_owned(), Support::Optional)];
    assert_eq!(supported(&list), expected);
    assert_eq!(supported(&json("{}")), []);
}

#[test]
fn a_call_becomes_a_task_in_the_words_of_a_session() {
    let params = json(r#"{"name":"t", "arguments":{ }}"#);
    let text = |ttl| edit::text(&augmented(&params, ttl).unwrap()).to_owned();
    assert_eq!(text(None), r#"{"name":"t", "arguments":{ },"task":{}}"#);
    assert_eq!(text(Some(5)), r#"{"name":"t", "arguments":{ },"task":{"ttl":5}}"#);
    assert!(augmented(&json("[]"), None).unwrap_err().is(Reason::InvalidParams));
}

#[test]
fn a_sessions_wish_for_a_task() {
    let table = [
        (r#"{"name":"t"}"#, None),
        (r#"{"task":null}"#, None),
        (r#"{"task":{}}"#, Some(Wish { ttl_ms: None })),
        (r#"{"task":{"ttl":60000}}"#, Some(Wish { ttl_ms: Some(60000) })),
        (r#"{"task":{"ttl":-1}}"#, Some(Wish { ttl_ms: None })),
        (r#"{"task":{"ttl":"x"}}"#, Some(Wish { ttl_ms: None })),
    ];
    for (params, expected) in table {
        assert_eq!(wish(Some(&json(params))), expected, "{params}");
    }
    assert_eq!(wish(None), None);
}

#[test]
fn a_created_task_both_ways() {
    let legacy = json(
        r#"{"task":{"taskId":"t-1","status":"working","createdAt":"2026-01-01T00:00:00.50Z","lastUpdatedAt":"b","ttl":60000,"pollInterval":10},"_meta":{"x":1,"io.modelcontextprotocol/related-task":{"taskId":"t-1"}}}"#,
    );
    let modern = created_to_modern(&legacy).unwrap();
    assert_eq!(
        edit::text(&modern),
        r#"{"taskId":"t-1","status":"working","createdAt":"2026-01-01T00:00:00.50Z","lastUpdatedAt":"b","ttlMs":60000,"pollIntervalMs":10,"resultType":"task","_meta":{"x":1}}"#
    );
    assert_eq!(
        edit::text(&created_to_legacy(&modern).unwrap()),
        r#"{"task":{"taskId":"t-1","status":"working","createdAt":"2026-01-01T00:00:00.50Z","lastUpdatedAt":"b","ttl":60000,"pollInterval":10},"_meta":{"x":1}}"#
    );
    let without = created_to_modern(&json(r#"{"task":{"taskId":"t","status":"working"}}"#)).unwrap();
    assert_eq!(edit::text(&without), r#"{"taskId":"t","status":"working","ttlMs":null,"resultType":"task"}"#);
    for broken in ["{}", r#"{"task":{}}"#, r#"{"task":{"taskId":"t","status":"later"}}"#, "7"] {
        assert_eq!(created_to_modern(&json(broken)).unwrap_err().code(), -32603, "{broken}");
        assert_eq!(created_to_legacy(&json(broken)).unwrap_err().code(), -32603, "{broken}");
    }
}

#[test]
fn a_sessions_task_for_a_modern_client() {
    let failed = Ok(json(
        r#"{"content":[],"isError":true,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#,
    ));
    let error = Err(RpcError::new(-32042, "m"));
    let questions = [Question { key: "q1".to_owned(), method: Method::RootsList, params: None }];
    let table = [
        ("working", Holds::Nothing, r#""status":"working","ttlMs":1"#),
        (
            "completed",
            Holds::Outcome(&failed),
            r#""status":"completed","ttlMs":1,"result":{"content":[],"isError":true}"#,
        ),
        (
            "failed",
            Holds::Outcome(&failed),
            r#""status":"completed","ttlMs":1,"result":{"content":[],"isError":true}"#,
        ),
        (
            "failed",
            Holds::Outcome(&error),
            r#""status":"failed","ttlMs":1,"error":{"code":-32603,"message":"The server answered with an error that cannot be passed on: m","data":{"reason":"internal","original":{"code":-32042,"message":"m"}}}"#,
        ),
        ("cancelled", Holds::Nothing, r#""status":"cancelled","ttlMs":1"#),
        ("cancelled", Holds::Outcome(&error), r#""status":"cancelled","ttlMs":1"#),
        ("input_required", Holds::Nothing, r#""status":"working","ttlMs":1"#),
        ("input_required", Holds::Questions(&[]), r#""status":"working","ttlMs":1"#),
        (
            "input_required",
            Holds::Questions(&questions),
            r#""status":"input_required","ttlMs":1,"inputRequests":{"q1":{"method":"roots/list","params":{}}}"#,
        ),
        (
            "working",
            Holds::Questions(&questions),
            r#""status":"input_required","ttlMs":1,"inputRequests":{"q1":{"method":"roots/list","params":{}}}"#,
        ),
    ];
    for (status, holds, expected) in table {
        let task = RawJson::trusted(format!(r#"{{"taskId":"t","status":"{status}","ttl":1}}"#));
        let modern = got_to_modern(&task, holds).unwrap();
        assert_eq!(edit::text(&modern), format!(r#"{{"taskId":"t",{expected}}}"#), "{status}");
    }
    for unknown in ["completed", "failed"] {
        let task = RawJson::trusted(format!(r#"{{"taskId":"t","status":"{unknown}"}}"#));
        assert_eq!(got_to_modern(&task, Holds::Nothing).unwrap_err().code(), -32603);
    }
}

#[test]
fn a_modern_task_for_a_session() {
    let table = [
        (
            r#"{"resultType":"complete","taskId":"t","status":"working","ttlMs":null,"pollIntervalMs":5,"_meta":{"io.modelcontextprotocol/serverInfo":{},"io.modelcontextprotocol/subscriptionId":1}}"#,
            r#"{"taskId":"t","status":"working","ttl":null,"pollInterval":5}"#,
        ),
        (
            r#"{"taskId":"t","status":"completed","ttlMs":1,"result":{"content":[],"isError":false}}"#,
            r#"{"taskId":"t","status":"completed","ttl":1}"#,
        ),
        (
            r#"{"taskId":"t","status":"completed","ttlMs":1,"result":{"content":[],"isError":true}}"#,
            r#"{"taskId":"t","status":"failed","ttl":1}"#,
        ),
        (
            r#"{"taskId":"t","status":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"s"}"#,
            r#"{"taskId":"t","status":"input_required","ttl":null}"#,
        ),
        (
            r#"{"taskId":"t","status":"failed","statusMessage":"m","error":{"code":1,"message":"m"}}"#,
            r#"{"taskId":"t","status":"failed","statusMessage":"m","ttl":null}"#,
        ),
    ];
    for (modern, legacy) in table {
        assert_eq!(edit::text(&got_to_legacy(&json(modern)).unwrap()), legacy);
    }
    assert_eq!(got_to_legacy(&json("{}")).unwrap_err().code(), -32603);
}

#[test]
fn what_a_modern_task_came_to() {
    let outcome = |text| outcome(&json(text), Revision::LATEST);
    assert_eq!(outcome(r#"{"taskId":"t","status":"working"}"#), None);
    assert_eq!(outcome(r#"{"taskId":"t","status":"input_required"}"#), None);
    assert_eq!(
        outcome(r#"{"taskId":"t","status":"completed","result":{"resultType":"complete","content":[ ]}}"#),
        Some(Ok(json(r#"{"content":[ ],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#)))
    );
    let failed = outcome(r#"{"taskId":"t","status":"failed","error":{"code":-32021,"message":"m"}}"#);
    assert_eq!(failed, Some(Err(RpcError::from_raw(json(r#"{"code":-32602,"message":"m"}"#)))));
    let cancelled = outcome(r#"{"taskId":"t","status":"cancelled"}"#).unwrap().unwrap_err();
    assert!(cancelled.is(Reason::Cancelled));
    for broken in [r#"{"taskId":"t","status":"completed"}"#, r#"{"taskId":"t","status":"failed","error":7}"#]
    {
        assert_eq!(outcome(broken).unwrap().unwrap_err().code(), -32603, "{broken}");
    }
}

#[test]
fn what_a_modern_task_waits_for_and_how_it_is_answered() {
    let task = r#"{"taskId":"t","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m","_meta":{"x":1}}}}}"#;
    let questions = asked(&json(task));
    assert_eq!(questions.len(), 1);
    assert_eq!(
        edit::text(&related(questions[0].params.as_ref(), "t")),
        r#"{"message":"m","_meta":{"x":1,"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#
    );
    assert_eq!(
        edit::text(&related(None, "t")),
        r#"{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#
    );
    assert_eq!(
        edit::text(&update("t\"", &[("k".to_owned(), json(r#"{"action":"accept"}"#))])),
        r#"{"taskId":"t\"","inputResponses":{"k":{"action":"accept"}}}"#
    );
    let over = r#"{"taskId":"t","status":"working","inputRequests":{"k":{"method":"roots/list"}}}"#;
    assert_eq!(asked(&json(over)), []);
}
