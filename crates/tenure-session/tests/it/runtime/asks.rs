//! Requests to the client, and news to many sessions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::{Message, Method, RawJson};
use tenure_session::call::News;
use tenure_session::record::EndCause;
use tenure_session::{Limits, Principal, Session};
use tenure_testkit::runtime::{self, event, json_of, reader_of, send};

use crate::runtime::support::{World, all, gist, next};

fn respond(session: &Arc<Session>, answer: &Value) {
    let Ok(Message::Response(response)) = Message::parse(&serde_json::to_vec(answer).unwrap().into()) else {
        panic!("a response")
    };
    session.response(response).unwrap();
}

#[tokio::test]
async fn a_question_goes_on_the_calls_stream_and_its_answer_comes_back() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let context = Arc::clone(&call.context);
    let params = RawJson::trusted(r#"{"message":"name?"}"#);
    let asking = tokio::spawn(async move { context.ask(&Method::ElicitationCreate, Some(&params)).await });
    let mut reader = reader_of(waiting.await.unwrap());
    let (_, question) = event(&mut reader).await.unwrap();
    assert_eq!(
        (&question["method"], &question["params"]["message"]),
        (&json!("elicitation/create"), &json!("name?"))
    );
    // An answer to nothing is dropped and does no harm.
    respond(&session, &json!({ "jsonrpc": "2.0", "id": 999, "result": {} }));
    respond(&session, &json!({ "jsonrpc": "2.0", "id": "x", "error": { "code": 1, "message": "" } }));
    respond(&session, &json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } }));
    assert_eq!(asking.await.unwrap().unwrap().bytes(), &r#"{"action":"accept"}"#);
    call.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["result 1"]);
}

#[tokio::test]
async fn the_clients_error_reaches_the_asker_unchanged() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let context = Arc::clone(&call.context);
    let asking = tokio::spawn(async move { context.ask(&Method::SamplingCreateMessage, None).await });
    let mut reader = reader_of(waiting.await.unwrap());
    let (_, question) = event(&mut reader).await.unwrap();
    respond(
        &session,
        &json!({ "jsonrpc": "2.0", "id": question["id"], "error": { "code": -1, "message": "User rejected" } }),
    );
    assert_eq!(asking.await.unwrap().unwrap_err().raw().bytes(), &r#"{"code":-1,"message":"User rejected"}"#);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_question_times_out_and_is_withdrawn() {
    let mut world = World::with(Limits { ask_timeout: Duration::from_secs(60), ..Limits::default() });
    let session = world.session().await;
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let context = Arc::clone(&call.context);
    let asking = tokio::spawn(async move { context.ask(&Method::RootsList, None).await });
    let mut reader = reader_of(waiting.await.unwrap());
    let (_, question) = event(&mut reader).await.unwrap();
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!(error.code(), -31012);
    let (_, withdrawn) = event(&mut reader).await.unwrap();
    assert_eq!(
        (&withdrawn["method"], &withdrawn["params"]["requestId"]),
        (&json!("notifications/cancelled"), &question["id"])
    );
    call.answer(&json!({}));
}

#[tokio::test]
async fn a_question_the_client_cannot_answer_is_not_asked() {
    let mut world = World::new();
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "1" } });
    let created =
        world.sessions.create(runtime::request(0, "initialize", &params), &Principal::ANONYMOUS).await;
    let session = created.unwrap().session.unwrap();
    session
        .notification(tenure_protocol::Notification { method: Method::Initialized, params: None })
        .unwrap();
    let waiting = send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    for method in [Method::ElicitationCreate, Method::SamplingCreateMessage, Method::RootsList] {
        assert_eq!(call.context.ask(&method, None).await.unwrap_err().code(), -32601);
    }
    call.answer(&json!({}));
    json_of(waiting.await.unwrap());
}

#[tokio::test]
async fn a_question_ends_with_its_session() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, _reader) = world.streaming_call(&session, 1).await;
    let context = Arc::clone(&call.context);
    let asking = tokio::spawn(async move { context.ask(&Method::RootsList, None).await });
    while session.info().events < 2 {
        tokio::task::yield_now().await;
    }
    world.sessions.end(&session, EndCause::Deleted).await.unwrap();
    let error = asking.await.unwrap().unwrap_err();
    assert!(error.raw().read::<Value>().unwrap()["data"]["reason"] == "session_deleted", "{error:?}");
}

#[tokio::test]
async fn an_update_reaches_all_subscribers_and_no_other_session() {
    let mut world = World::new();
    let (one, two, three) = (world.session().await, world.session().await, world.session().await);
    for session in [&one, &two, &three] {
        let waiting = send(session, runtime::request(1, "resources/subscribe", &json!({ "uri": "a://b" })));
        world.script.call().await.answer(&json!({}));
        json_of(waiting.await.unwrap());
    }
    let waiting = send(&three, runtime::request(2, "resources/unsubscribe", &json!({ "uri": "a://b" })));
    world.script.call().await.answer(&json!({}));
    json_of(waiting.await.unwrap());
    world.sessions.fanout().resource_updated("a://b");
    world.sessions.fanout().resource_updated("a://unwatched");
    for session in [&one, &two] {
        let mut reader = session.listen(None).await.unwrap();
        let (_, message) = event(&mut reader).await.unwrap();
        assert_eq!(message["params"], json!({ "uri": "a://b" }));
    }
    assert_eq!(three.info().events, 0);
    // A failed subscription does not count.
    let waiting = send(&three, runtime::request(3, "resources/subscribe", &json!({ "uri": "a://c" })));
    world.script.call().await.fail(-32002, "no such resource");
    json_of(waiting.await.unwrap());
    assert!(three.info().subscriptions.is_empty());
    // An ended session is no subscriber any more.
    world.sessions.end(&one, EndCause::Deleted).await.unwrap();
    world.sessions.fanout().resource_updated("a://b");
    assert_eq!(two.info().events, 2);
}

#[tokio::test]
async fn a_changed_list_is_told_to_every_session() {
    let world = World::new();
    let (one, two) = (world.session().await, world.session().await);
    for (news, method) in [
        (News::Tools, "notifications/tools/list_changed"),
        (News::Prompts, "notifications/prompts/list_changed"),
        (News::Resources, "notifications/resources/list_changed"),
    ] {
        world.sessions.fanout().list_changed(news);
        for session in [&one, &two] {
            let mut reader = session.listen(None).await.unwrap();
            assert_eq!(event(&mut reader).await.unwrap().1["method"], method);
        }
    }
}

#[tokio::test]
async fn what_belongs_to_no_request_comes_on_the_standalone_stream() {
    let mut world = World::new();
    let session = world.session().await;
    let link = world.script.opened().await;
    let (call, mut stream) = world.streaming_call(&session, 1).await;
    let params = RawJson::of(&json!({ "level": "info", "data": "unrelated" }));
    link.outlet.notify(&Method::LogMessage, Some(&params)).await.unwrap();
    let mut standalone = session.listen(None).await.unwrap();
    assert_eq!(next(&mut standalone).await.1, "unrelated");
    call.answer(&json!({}));
    assert_eq!(all(&mut stream).await, ["prime", "hello", "result 1"]);
    let question = tokio::spawn(async move { link.outlet.ask(&Method::Ping, None).await });
    let (_, ping) = event(&mut standalone).await.unwrap();
    assert_eq!(gist(&ping), ping.to_string());
    respond(&session, &json!({ "jsonrpc": "2.0", "id": ping["id"], "result": {} }));
    question.await.unwrap().unwrap();
}
