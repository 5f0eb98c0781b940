//! Requests of a session's client: what a modern server gets, and what comes back.

use serde_json::{Value, json};
use tenure_protocol::{Message, Method, Notification, RawJson, RpcError};
use tenure_session::Answer;
use tenure_testkit::runtime::{self, event, json_of, reader_of};

use crate::over_exchanges::support::{World, next, send};

#[tokio::test]
async fn a_request_says_of_its_client_what_the_session_knows() {
    let mut world = World::new();
    let session = world.session().await;
    let params = json!({
        "name": "t", "arguments": { "a": 1 }, "task": { "ttl": 1 }, "inputResponses": {}, "requestState": "x",
        "_meta": { "progressToken": "p", "io.modelcontextprotocol/protocolVersion": "1999", "own": true },
    });
    let waiting = send(&session, 7, "tools/call", &params);
    let asked = world.server.expect("tools/call").await;
    assert_eq!(
        asked.params(),
        json!({
            "name": "t", "arguments": { "a": 1 },
            "_meta": {
                "progressToken": "p", "own": true,
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities":
                    { "roots": {}, "sampling": {}, "elicitation": { "form": {}, "url": {} } },
                "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
            },
        })
    );
    assert_eq!(asked.context.caller().transport, "test");
    asked.answer(&json!({
        "resultType": "complete", "content": [],
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "s", "version": "1" } },
    }));
    assert_eq!(
        json_of(waiting.await.unwrap()),
        json!({ "jsonrpc": "2.0", "id": 7, "result": { "content": [] } })
    );
}

#[tokio::test]
async fn requests_with_one_id_in_two_sessions_have_two_upstream() {
    let mut world = World::new();
    let (one, other) = (world.session().await, world.session().await);
    let (_one, _other) = (send(&one, 1, "tools/list", &json!({})), send(&other, 1, "tools/list", &json!({})));
    let (first, second) = (world.server.next().await, world.server.next().await);
    assert_ne!(first.id(), second.id());
}

#[tokio::test]
async fn results_come_in_the_shape_of_the_sessions_revision() {
    let mut world = World::new();
    let session = world.session_of("2024-11-05").await;
    let waiting = send(&session, 1, "tools/list", &json!({}));
    world.server.expect("tools/list").await.answer(&json!({
        "resultType": "complete", "ttlMs": 5, "cacheScope": "public",
        "tools": [{ "name": "t", "inputSchema": {}, "outputSchema": { "type": "array" } }],
    }));
    assert_eq!(
        json_of(waiting.await.unwrap())["result"],
        json!({ "tools": [{ "name": "t", "inputSchema": {} }] })
    );
    let waiting = send(&session, 2, "tools/call", &json!({ "name": "t" }));
    let link = json!({ "type": "resource_link", "uri": "a:b", "name": "n" });
    world.server.expect("tools/call").await.answer(&json!({ "content": [link], "structuredContent": [1] }));
    assert_eq!(
        json_of(waiting.await.unwrap())["result"],
        json!({ "content": [{ "type": "text", "text": "n: a:b" }] })
    );
}

#[tokio::test]
async fn errors_come_in_the_words_of_sessions() {
    let mut world = World::new();
    let session = world.session().await;
    let error = |text: &'static str| RpcError::from_raw(RawJson::trusted(text));
    let table = [
        ("resources/read", error(r#"{"code":-32602,"message":"m","data":{"uri":"a:b"}}"#), -32002),
        ("tools/call", error(r#"{"code":-32602,"message":"m","data":{"uri":"a:b"}}"#), -32602),
        ("tools/call", error(r#"{"code":-32021,"message":"m","data":{"requiredCapabilities":{}}}"#), -32602),
        ("tools/call", error(r#"{"code":-32020,"message":"m"}"#), -32603),
        ("tools/call", error(r#"{"code":-32077,"message":"m"}"#), -32603),
        ("made/up", error(r#"{"code":-32601,"message":"m"}"#), -32601),
        ("tools/call", error(r#"{"code":17,"message":"m"}"#), 17),
    ];
    for (method, error, expected) in table {
        let waiting = send(&session, 1, method, &json!({}));
        world.server.expect(method).await.fail(error.clone());
        assert_eq!(json_of(waiting.await.unwrap())["error"]["code"], expected, "{method} {error:?}");
    }
}

#[tokio::test]
async fn results_that_make_no_sense_are_errors() {
    let mut world = World::new();
    let session = world.session().await;
    let table = [
        ("tools/call", json!({ "resultType": "later" })),
        ("tools/call", json!({ "resultType": "task", "taskId": "t" })),
        ("tools/call", json!([])),
        ("tools/list", json!({ "resultType": "input_required", "requestState": "s" })),
        ("tools/call", json!({ "resultType": "input_required" })),
    ];
    for (method, result) in table {
        let waiting = send(&session, 1, method, &json!({}));
        world.server.expect(method).await.answer(&result);
        assert_eq!(json_of(waiting.await.unwrap())["error"]["code"], -32603, "{method} {result}");
    }
}

#[tokio::test]
async fn the_level_of_log_messages_is_said_with_every_request_after_it_was_set() {
    let mut world = World::new();
    let session = world.session().await;
    let list = async |world: &mut World| {
        let waiting = send(&session, 1, "tools/list", &json!({}));
        let asked = world.server.expect("tools/list").await;
        let level = asked.meta("logLevel");
        asked.answer(&json!({ "tools": [] }));
        waiting.await.unwrap();
        level
    };
    assert_eq!(list(&mut world).await, Value::Null);
    let loud = send(&session, 2, "logging/setLevel", &json!({ "level": "loud" }));
    assert_eq!(json_of(loud.await.unwrap())["error"]["code"], -32602);
    let set = send(&session, 3, "logging/setLevel", &json!({ "level": "info" }));
    assert_eq!(json_of(set.await.unwrap())["result"], json!({}));
    assert_eq!(list(&mut world).await, "info");
    let waiting = send(&session, 4, "tools/call", &json!({ "name": "t" }));
    let asked = world.server.expect("tools/call").await;
    asked.say(&Method::LogMessage, &json!({ "level": "info", "data": "hello" })).await;
    // Messages that may not be sent on a request's stream are dropped.
    asked.say(&Method::ToolsListChanged, &json!({})).await;
    asked.answer(&json!({ "content": [] }));
    let said = runtime::events(&mut reader_of(waiting.await.unwrap())).await;
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[0]["params"]["data"], "hello");
    assert!(world.server.is_quiet());
}

#[tokio::test]
async fn what_only_the_other_era_has_is_not_passed_on() {
    let mut world = World::new();
    let session = world.session().await;
    for method in ["server/discover", "subscriptions/listen", "tasks/get", "tasks/list", "tasks/cancel"] {
        let answer = send(&session, 1, method, &json!({ "notifications": {} })).await.unwrap();
        assert_eq!(json_of(answer)["error"]["code"], -32601, "{method}");
    }
    // The server does not offer subscriptions.
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let answer = send(&session, 1, method, &json!({ "uri": "a:b" })).await.unwrap();
        assert_eq!(json_of(answer)["error"]["code"], -32601, "{method}");
    }
    assert_eq!(json_of(send(&session, 1, "ping", &json!({})).await.unwrap())["result"], json!({}));
    for method in [Method::RootsListChanged, Method::Initialized, Method::new("notifications/made/up")] {
        session.notification(Notification { method, params: None }).unwrap();
    }
    assert!(world.server.is_quiet());
}

#[tokio::test]
async fn a_request_that_is_withdrawn_is_dropped_upstream() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    let asked = world.server.expect("tools/call").await;
    assert!(!asked.is_dropped());
    let params = RawJson::trusted(r#"{"requestId":1}"#);
    session.notification(Notification { method: Method::Cancelled, params: Some(params) }).unwrap();
    assert!(matches!(waiting.await.unwrap(), Answer::Withdrawn));
    asked.dropped().await;
}

#[tokio::test]
async fn a_dropped_connection_cancels_nothing_and_its_client_finds_the_answer() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    let asked = world.server.expect("tools/call").await;
    asked.say(&Method::LogMessage, &json!({ "level": "info", "data": "one" })).await;
    let mut reader = reader_of(waiting.await.unwrap());
    let (id, _) = event(&mut reader).await.unwrap();
    drop(reader);
    asked.say(&Method::LogMessage, &json!({ "level": "info", "data": "two" })).await;
    assert!(!asked.is_dropped());
    asked.answer(&json!({ "resultType": "complete", "content": [] }));
    let mut resumed = session.listen(Some(id.unwrap().as_bytes())).await.unwrap();
    assert_eq!(next(&mut resumed).await["params"]["data"], "two");
    assert_eq!(next(&mut resumed).await["result"], json!({ "content": [] }));
}

#[tokio::test]
async fn a_session_that_ends_drops_what_it_asked() {
    let mut world = World::new();
    let session = world.session().await;
    let _waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    let asked = world.server.expect("tools/call").await;
    world.sessions.delete(session.id(), &tenure_session::Principal::ANONYMOUS).await.unwrap();
    asked.dropped().await;
}

#[tokio::test]
async fn a_batch_is_sent_request_by_request() {
    let mut world = World::new();
    let session = world.session_of("2025-03-26").await;
    let messages = [1, 2].map(|id| Message::Request(runtime::request(id, "tools/list", &json!({}))));
    let caller = tenure_session::call::Caller::anonymous("test");
    let answer = session.batch(messages.into(), &caller).unwrap().unwrap();
    for _ in 0..2 {
        world.server.expect("tools/list").await.answer(&json!({ "resultType": "complete", "tools": [] }));
    }
    let mut answers = runtime::events(&mut reader_of(answer)).await;
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let expected = [1, 2].map(|id| json!({ "jsonrpc": "2.0", "id": id, "result": { "tools": [] } }));
    assert_eq!(answers, expected);
}
