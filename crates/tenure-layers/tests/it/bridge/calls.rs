//! Requests of modern clients: what their server gets, and what comes back.

use serde_json::json;
use tenure_protocol::{Method, RawJson, RpcError};
use tenure_session::call::CallContext;
use tenure_testkit::fake_client::FakeClient;

use crate::bridge::support::{World, params, tool, value};

#[tokio::test]
async fn a_server_sees_our_name_the_latest_revision_and_what_the_client_can_do() {
    let mut world = World::new();
    let client = FakeClient::new(json!({
        "elicitation": { "form": {} }, "roots": { "listChanged": true }, "extensions": { "x/y": {} },
    }));
    let answer = world.start(tool(&client, "t"));
    let (call, opened) = world.asked().await;
    let said: serde_json::Value = opened.unwrap().params.read().unwrap();
    assert_eq!(said["clientInfo"]["name"], "tenure");
    assert_eq!(said["protocolVersion"], "2025-11-25");
    assert_eq!(said["capabilities"], json!({ "elicitation": {}, "roots": {} }));
    call.answer(&json!({ "content": [] }));
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_loses_what_it_says_of_its_client_and_its_result_what_would_be_misread() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let meta = json!({ "x/own": 1, "io.modelcontextprotocol/logLevel": "info" });
    let request = json!({
        "name": "t", "arguments": {}, "task": { "ttl": 1 }, "inputResponses": {}, "_meta": meta,
    });
    let answer = world.start(client.call(7, "tools/call", request));
    let (level, _) = world.asked().await;
    assert_eq!(level.request.method, Method::LoggingSetLevel);
    level.answer(&json!({}));
    let (call, _) = world.asked().await;
    assert_eq!(params(&call), json!({ "name": "t", "arguments": {}, "_meta": { "x/own": 1 } }));
    call.answer(&json!({ "content": [], "resultType": "odd", "structuredContent": { "b": 2 } }));
    let answer = value(answer.await.unwrap());
    assert_eq!(answer, json!({ "content": [], "structuredContent": { "b": 2 } }));
}

#[tokio::test]
async fn tools_lose_what_only_sessions_can_use() {
    let mut world = World::new();
    let answer = world.start(FakeClient::new(json!({})).call(1, "tools/list", json!({})));
    let (call, _) = world.asked().await;
    let tool = json!({ "name": "t", "inputSchema": {}, "execution": { "taskSupport": "optional" } });
    call.answer(&json!({ "tools": [tool] }));
    assert_eq!(value(answer.await.unwrap()), json!({ "tools": [{ "name": "t", "inputSchema": {} }] }));
}

#[tokio::test]
async fn discovery_says_what_the_server_said_to_initialize() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let answer = world.start(client.call(1, "server/discover", json!({})));
    world.script.opened().await;
    let answer = value(answer.await.unwrap());
    assert_eq!(answer["supportedVersions"][0], "2026-07-28");
    assert_eq!(answer["supportedVersions"].as_array().unwrap().len(), 5);
    let expected = json!({ "tools": {}, "resources": { "subscribe": true }, "logging": {} });
    assert_eq!(answer["capabilities"], expected);
    assert_eq!(answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "fake");
    // The session is there for the next request, also for another discovery while it is in use.
    let call = world.start(tool(&client, "t"));
    let (held, opened) = world.asked().await;
    assert!(opened.is_none(), "opened another session");
    let again = world.start(client.call(2, "server/discover", json!({})));
    assert_eq!(value(again.await.unwrap()), answer);
    held.answer(&json!({}));
    call.await.unwrap().unwrap();
    use tenure_session::backend::Responder;
    assert_eq!(world.bridge.server_info(), Some(RawJson::trusted(r#"{"name":"fake","version":"1"}"#)));
}

#[tokio::test]
async fn methods_that_are_gone_reach_no_server() {
    let world = World::new();
    for method in
        ["initialize", "ping", "logging/setLevel", "resources/subscribe", "tasks/list", "tasks/result"]
    {
        let answer = world.start(FakeClient::new(json!({})).call(1, method, json!({}))).await.unwrap();
        assert_eq!(value(answer)["error"]["code"], -32601, "{method}");
    }
    assert_eq!(world.bridge.sessions(), 0);
}

#[tokio::test]
async fn what_a_server_does_not_know_it_says_itself() {
    let mut world = World::new();
    let answer = world.start(FakeClient::new(json!({})).call(1, "x/own", json!({ "a": 1 })));
    let (call, _) = world.asked().await;
    assert_eq!((call.request.method.as_str(), params(&call)), ("x/own", json!({ "a": 1 })));
    call.fail(-32601, "no such thing");
    assert_eq!(value(answer.await.unwrap())["error"]["code"], -32601);
}

#[tokio::test]
async fn errors_have_the_codes_of_the_modern_era() {
    let mut world = World::new();
    let table = [
        (
            json!({ "code": -32002, "message": "m" }),
            json!({ "code": -32602, "message": "m", "data": { "uri": "a:b" } }),
        ),
        (json!({ "code": -32603, "message": "m" }), json!({ "code": -32603, "message": "m" })),
        (json!({ "code": 7, "message": "m", "data": 1 }), json!({ "code": 7, "message": "m", "data": 1 })),
    ];
    for (said, expected) in table {
        let answer =
            world.start(FakeClient::new(json!({})).call(1, "resources/read", json!({ "uri": "a:b" })));
        world.asked().await.0.end(Err(RpcError::from_raw(RawJson::of(&said))));
        assert_eq!(value(answer.await.unwrap())["error"], expected);
    }
    // A code that the modern era gave another meaning.
    let answer = world.start(FakeClient::new(json!({})).call(1, "resources/read", json!({ "uri": "a:b" })));
    world.asked().await.0.fail(-32021, "my own");
    let error = value(answer.await.unwrap())["error"].clone();
    assert_eq!((&error["code"], &error["data"]["original"]["code"]), (&json!(-32603), &json!(-32021)));
}

#[tokio::test]
async fn progress_comes_under_the_clients_token_and_only_rises() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let answer = world.start(client.call(
        1,
        "tools/call",
        json!({ "name": "t", "_meta": { "progressToken": "mine" } }),
    ));
    let (call, opened) = world.asked().await;
    let token = params(&call)["_meta"]["progressToken"].clone();
    assert_ne!(token, "mine", "tokens have to be unique in a session");
    assert_eq!(call.context.progress_token(), Some(RawJson::of(&token)));
    let tell = async |progress: i32| {
        let params = RawJson::of(&json!({ "progressToken": token, "progress": progress, "message": "m" }));
        call.context.notify(&Method::Progress, Some(&params)).await.unwrap();
    };
    tell(1).await;
    tell(1).await;
    tell(2).await;
    // Progress outside of any request counts too, if its token is that of the request.
    let stray = |token| RawJson::of(&json!({ "progressToken": token, "progress": 3 }));
    let outlet = opened.unwrap().outlet;
    outlet.notify(&Method::Progress, Some(&stray(token.clone()))).await.unwrap();
    outlet.notify(&Method::Progress, Some(&stray(json!("other")))).await.unwrap();
    let told: Vec<_> = client.heard().into_iter().map(|(_, params)| params).collect();
    assert_eq!(
        told,
        [
            json!({ "progressToken": "mine", "progress": 1, "message": "m" }),
            json!({ "progressToken": "mine", "progress": 2, "message": "m" }),
            json!({ "progressToken": "mine", "progress": 3 }),
        ]
    );
    call.answer(&json!({}));
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn without_a_token_there_is_no_progress() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let answer = world.start(tool(&client, "t"));
    let (call, _) = world.asked().await;
    assert_eq!(params(&call)["_meta"], json!(null));
    call.context.progress(1.0, None, None).await.unwrap();
    let params = RawJson::of(&json!({ "progressToken": 1, "progress": 1 }));
    call.context.notify(&Method::Progress, Some(&params)).await.unwrap();
    assert_eq!(client.heard(), []);
    call.answer(&json!({}));
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn log_messages_are_asked_for_once_and_belong_to_the_request_in_flight() {
    let mut world = World::new();
    let client = FakeClient::new(json!({}));
    let request = json!({ "name": "t", "_meta": { "io.modelcontextprotocol/logLevel": "error" } });
    let answer = world.start(client.call(1, "tools/call", request.clone()));
    let (level, opened) = world.asked().await;
    assert_eq!(
        (&level.request.method, params(&level)),
        (&Method::LoggingSetLevel, json!({ "level": "debug" }))
    );
    assert!(level.context.is_our_own());
    level.answer(&json!({}));
    let (call, _) = world.asked().await;
    let log = |word: &str| RawJson::of(&json!({ "level": "info", "data": word }));
    call.context.notify(&Method::LogMessage, Some(&log("here"))).await.unwrap();
    let outlet = opened.unwrap().outlet;
    outlet.notify(&Method::LogMessage, Some(&log("beside"))).await.unwrap();
    call.answer(&json!({}));
    answer.await.unwrap().unwrap();
    let words: Vec<_> = client.heard().into_iter().map(|(_, params)| params["data"].clone()).collect();
    assert_eq!(words, ["here", "beside"], "all of them: who runs the exchange knows the level");
    // Between requests, log messages are dropped.
    outlet.notify(&Method::LogMessage, Some(&log("nowhere"))).await.unwrap();
    assert_eq!(client.heard(), []);
    let answer = world.start(client.call(2, "tools/call", request));
    let (call, _) = world.asked().await;
    assert_eq!(call.request.method, Method::ToolsCall, "the level is told once");
    call.answer(&json!({}));
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_log_is_told_no_level() {
    let mut world = World::new();
    world.backend.set_capabilities(json!({ "tools": {} }));
    let request = json!({ "name": "t", "_meta": { "io.modelcontextprotocol/logLevel": "debug" } });
    let answer = world.start(FakeClient::new(json!({})).call(1, "tools/call", request));
    let (call, _) = world.asked().await;
    assert_eq!(call.request.method, Method::ToolsCall);
    call.answer(&json!({}));
    answer.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_server_sees_a_session_of_its_own_revision() {
    let mut world = World::new();
    let answer = world.call("t");
    let (call, _) = world.asked().await;
    let context: &CallContext = &call.context;
    assert_eq!((context.protocol(), context.client_name().as_deref()), ("2025-11-25", Some("tenure")));
    assert!(!context.is_our_own());
    call.answer(&json!({}));
    answer.await.unwrap().unwrap();
}
