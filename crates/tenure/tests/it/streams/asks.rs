//! Requests of the server to its client: out on a stream, back in a POST.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_protocol::Method;

use crate::support::client::Ask;
use crate::support::events::Events;
use crate::support::node::{Steered, demo};
use crate::support::session::{Session, initialize_params, notification, request};
use crate::support::wait::within;

/// Calls the demo's tool that asks for a name, and reads its question.
async fn asked_for_a_name(session: &Session) -> (Events, Value) {
    let call = session.request(1, "tools/call", &json!({ "name": "ask_name" }));
    let mut stream = call.open(session.server).await;
    let (_, question) = stream.message().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "What is your name?");
    (stream, question["id"].clone())
}

fn answer(id: &Value, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

#[tokio::test]
async fn an_elicitation_comes_on_the_stream_of_its_call_and_is_answered_by_a_post() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let (mut stream, id) = asked_for_a_name(&session).await;
    let reply = answer(&id, &json!({ "action": "accept", "content": { "name": "Ada" } }));
    let response = session.post(&reply).send(node.address()).await;
    assert_eq!((response.status(), response.body.len()), (202, 0));
    assert_eq!(response.header("content-length"), Some("0"));
    let (_, message) = stream.message().await.unwrap();
    assert_eq!(message["result"]["content"][0]["text"], "Hello, Ada!");
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_declined_elicitation_is_an_answer_too() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let (mut stream, id) = asked_for_a_name(&session).await;
    session.post(&answer(&id, &json!({ "action": "decline" }))).send(node.address()).await;
    let (_, message) = stream.message().await.unwrap();
    assert_eq!(message["result"]["content"][0]["text"], "Hello, stranger!");
}

#[tokio::test]
async fn an_error_of_the_client_reaches_the_server_that_asked() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let context = Arc::clone(&call.context);
    let asking = tokio::spawn(async move { context.ask(&Method::SamplingCreateMessage, None).await });
    let (_, question) = stream.message().await.unwrap();
    let refusal =
        json!({ "jsonrpc": "2.0", "id": question["id"], "error": { "code": -1, "message": "no model" } });
    assert_eq!(session.post(&refusal).send(session.server).await.status(), 202);
    let error = within("the answer", asking).await.unwrap().unwrap_err();
    assert_eq!((error.code(), error.message()), (-1, "no model".to_owned()));
}

#[tokio::test]
async fn a_question_survives_the_connection_it_was_asked_on() {
    let node = demo().await;
    let session = Session::start(node.address()).await;
    let (stream, id) = asked_for_a_name(&session).await;
    let last = stream.last_id();
    drop(stream);
    session
        .post(&answer(&id, &json!({ "action": "accept", "content": { "name": "Ada" } })))
        .send(node.address())
        .await;
    let (_, message) = session.resume(&last).await.message().await.unwrap();
    assert_eq!(message["result"]["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test]
async fn only_the_first_answer_counts_and_only_from_its_own_session() {
    let node = demo().await;
    let (session, other) = (Session::start(node.address()).await, Session::start(node.address()).await);
    let (mut stream, id) = asked_for_a_name(&session).await;
    let named = |name: &str| answer(&id, &json!({ "action": "accept", "content": { "name": name } }));
    assert_eq!(other.post(&named("Mallory")).send(node.address()).await.status(), 202, "dropped");
    assert_eq!(Ask::post(named("Nobody").to_string()).send(node.address()).await.status(), 400);
    for name in ["Ada", "Eve"] {
        assert_eq!(session.post(&named(name)).send(node.address()).await.status(), 202);
    }
    let (_, message) = stream.message().await.unwrap();
    assert_eq!(message["result"]["content"][0]["text"], "Hello, Ada!");
}

#[tokio::test]
async fn questions_of_the_server_have_ids_of_their_own() {
    let mut steered = Steered::start().await;
    let (session, _link) = steered.session().await;
    let mut ids = std::collections::HashSet::new();
    for n in 1..=3 {
        let (call, mut stream) = steered.streaming_call(&session, n).await;
        stream.heard().await;
        let context = Arc::clone(&call.context);
        let asking = tokio::spawn(async move { context.ask(&Method::RootsList, None).await });
        let (_, question) = stream.message().await.unwrap();
        assert_eq!(question["method"], "roots/list");
        assert!(ids.insert(question["id"].to_string()), "an id was used twice");
        // It may be the same number as the client's own request, which must not confuse either side.
        session.post(&answer(&question["id"], &json!({ "roots": [] }))).send(session.server).await;
        let roots: Value = within("the answer", asking).await.unwrap().unwrap().read().unwrap();
        assert_eq!(roots, json!({ "roots": [] }));
        call.answer(&json!({}));
        assert_eq!(stream.rest().await, [format!("result {n}")]);
    }
}

#[tokio::test]
async fn a_client_is_not_asked_what_it_cannot_answer() {
    let node = demo().await;
    let mut params = initialize_params("2025-11-25");
    params["capabilities"] = json!({});
    let response = Ask::post(request(0, "initialize", &params).to_string()).send(node.address()).await;
    let id = response.header("mcp-session-id").unwrap().to_owned();
    let session = Session { server: node.address(), id, path: "/mcp".to_owned() };
    session.post(&notification("notifications/initialized")).send(node.address()).await;
    let response = session.tool(1, "ask_name", &json!({})).await;
    assert_eq!(response.fault(), (200, -32601, "method_not_found".to_owned()));
}

#[tokio::test]
async fn an_unanswered_question_is_given_up_and_withdrawn() {
    let mut steered = Steered::with(&[("timeouts.client_answer", "50ms")]).await;
    let (session, _link) = steered.session().await;
    let (call, mut stream) = steered.streaming_call(&session, 1).await;
    stream.heard().await;
    let error = call.context.ask(&Method::ElicitationCreate, None).await.unwrap_err();
    assert!(error.message().contains("no answer within"), "{error}");
    let (_, question) = stream.message().await.unwrap();
    let (_, withdrawal) = stream.message().await.unwrap();
    assert_eq!(withdrawal["method"], "notifications/cancelled");
    assert_eq!(withdrawal["params"]["requestId"], question["id"]);
}

#[tokio::test]
async fn a_question_that_belongs_to_no_request_comes_on_the_standalone_stream() {
    let mut steered = Steered::start().await;
    let (session, link) = steered.session().await;
    let asking = tokio::spawn(async move { link.outlet.ask(&Method::Ping, None).await });
    let mut stream = session.listen().await;
    let (_, question) = stream.message().await.unwrap();
    assert_eq!(question["method"], "ping");
    session.post(&answer(&question["id"], &json!({}))).send(session.server).await;
    assert!(within("the answer", asking).await.unwrap().is_ok());
}
