//! Tests of tasks of both kinds.

use crate::method::Method;
use crate::translate::tasks::*;

fn json(text: &'static str) -> RawJson {
    RawJson::trusted(text)
}

#[test]
fn servers_that_make_tasks_of_calls() {
    let table = [
        (r#"{"capabilities":{"tasks":{"requests":{"tools":{"call":{}}}}}}"#, true),
        (r#"{"capabilities":{"tasks":{"requests":{"tools":{}}}}}"#, false),
        (r#"{"capabilities":{"tasks":{"list":{},"cancel":{}}}}"#, false),
        (r#"{"capabilities":{"tasks":{"requests":{"tools":{"call":true}}}}}"#, false),
        (r#"{"capabilities":{}}"#, false),
        ("7", false),
    ];
    for (initialized, expected) in table {
        assert_eq!(served(&json(initialized)), expected, "{initialized}");
    }
    let table = [
        (r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{"x":1}}}}"#, true),
        (r#"{"capabilities":{"extensions":{"io.modelcontextprotocol/tasks":null}}}"#, false),
        (r#"{"capabilities":{"tasks":{}}}"#, false),
        ("[]", false),
    ];
    for (discovery, expected) in table {
        assert_eq!(advertised(&json(discovery)), expected, "{discovery}");
    }
}

#[test]
fn tools_and_how_they_want_to_be_called() {
    let list = json(
        r#"{"tools":[{"name":"a","execution":{"taskSupport":"required"}},{"name":"b","execution":{"taskSupport":"optional"}},{"name":"c","execution":{"taskSupport":"forbidden"}},{"name":"d"},{"name":"e","execution":{"taskSupport":"later"}},7],"nextCursor":"n"}"#,
    );
    let expected = [
        ("a".to_owned(), Support::Required),
        ("b".to_owned(), Support::Optional),
        ("c".to_owned(), Support::Forbidden),
        ("d".to_owned(), Support::Forbidden),
        ("e".to_owned(), Support::Forbidden),
    ];
    assert_eq!(listed(&list), (expected.to_vec(), Some("n".to_owned())));
    assert_eq!(listed(&json("{}")), (Vec::new(), None));
}

#[test]
fn a_call_becomes_a_task_in_the_words_of_a_session() {
    let params = json(r#"{"name":"t", "arguments":{ }}"#);
    let five = Duration::from_millis(5);
    let augmented_to = augmented(&params, five).unwrap();
    assert_eq!(object::text(&augmented_to), r#"{"name":"t", "arguments":{ },"task":{"ttl":5}}"#);
    assert!(augmented(&json("[]"), five).unwrap_err().is(Reason::InvalidParams));
}

#[test]
fn a_task_of_either_kind() {
    let expected = TaskSnapshot {
        id: "t-1".to_owned(),
        status: Status::Working,
        message: Some("soon".to_owned()),
        ttl: Some(Duration::from_secs(60)),
        poll: Some(Duration::from_millis(10)),
    };
    let legacy = json(
        r#"{"task":{"taskId":"t-1","status":"working","statusMessage":"soon","ttl":60000,"pollInterval":10.0},"_meta":{}}"#,
    );
    assert_eq!(created(&legacy), Some(expected.clone()));
    let modern = json(
        r#"{"resultType":"task","taskId":"t-1","status":"working","statusMessage":"soon","ttlMs":60000,"pollIntervalMs":10}"#,
    );
    assert_eq!(seen(&modern), Some(expected));
    assert_eq!(created(&modern), None, "no server of sessions says it like this");
    let bare = seen(&json(r#"{"taskId":"t","status":"failed","ttl":null,"pollInterval":-1}"#)).unwrap();
    assert_eq!((bare.status, bare.message, bare.ttl, bare.poll), (Status::Failed, None, None, None));
    for broken in
        ["{}", r#"{"task":{}}"#, r#"{"task":{"taskId":"t","status":"later"}}"#, "7", r#"{"content":[]}"#]
    {
        assert_eq!(created(&json(broken)), None, "{broken}");
    }
}

#[test]
fn what_a_modern_task_came_to() {
    let outcome = |text| outcome(&json(text));
    assert_eq!(outcome(r#"{"taskId":"t","status":"working"}"#), None);
    assert_eq!(outcome(r#"{"taskId":"t","status":"input_required"}"#), None);
    assert_eq!(
        outcome(r#"{"taskId":"t","status":"completed","result":{"content":[ ]}}"#),
        Some(Ok(json(r#"{"content":[ ]}"#)))
    );
    let failed = outcome(r#"{"taskId":"t","status":"failed","error":{"code":-32000,"message":"m"}}"#);
    assert_eq!(failed, Some(Err(RpcError::new(-32000, "m"))));
    let cancelled = outcome(r#"{"taskId":"t","status":"cancelled"}"#).unwrap().unwrap_err();
    assert!(cancelled.is(Reason::Cancelled));
    for broken in [r#"{"taskId":"t","status":"completed"}"#, r#"{"taskId":"t","status":"failed","error":7}"#]
    {
        assert_eq!(outcome(broken).unwrap().unwrap_err().code(), -32603, "{broken}");
    }
}

#[test]
fn what_a_modern_task_waits_for_and_how_it_is_answered() {
    let task = r#"{"taskId":"t","status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"m"}}}}"#;
    let questions = asked(&json(task)).unwrap();
    assert_eq!(questions.len(), 1);
    assert_eq!((&*questions[0].key, &questions[0].method), ("k", &Method::ElicitationCreate));
    assert_eq!(
        object::text(&update("t\"", "k", &json(r#"{"action":"accept"}"#))),
        r#"{"taskId":"t\"","inputResponses":{"k":{"action":"accept"}}}"#
    );
    let over = r#"{"taskId":"t","status":"working","inputRequests":{"k":{"method":"roots/list"}}}"#;
    assert_eq!(asked(&json(over)), Ok(Vec::new()));
    let strange = r#"{"taskId":"t","status":"input_required","inputRequests":{"k":{"method":"tools/call"}}}"#;
    assert_eq!(asked(&json(strange)).unwrap_err().code(), -32603);
}

#[test]
fn an_answer_belongs_to_the_task_of_its_question() {
    let question = json(r#"{"message":"m","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#);
    let answer = json(r#"{"action":"accept","_meta":{"x":1}}"#);
    assert_eq!(
        object::text(&related(&answer, Some(&question))),
        r#"{"action":"accept","_meta":{"x":1,"io.modelcontextprotocol/related-task":{"taskId":"t"}}}"#
    );
    assert_eq!(related(&answer, Some(&json(r#"{"_meta":{}}"#))), answer);
    assert_eq!(related(&answer, None), answer);
}

#[test]
fn a_client_declares_that_it_knows_tasks() {
    let table = [
        ("{}", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
        (r#"{"roots":{}}"#, r#"{"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
    ];
    for (capabilities, expected) in table {
        assert_eq!(object::text(&declared(&json(capabilities))), expected);
    }
}
