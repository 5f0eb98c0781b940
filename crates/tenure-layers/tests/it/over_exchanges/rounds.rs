//! A server that wants more input, and a client that is asked for it in its session.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::{Method, Notification, RawJson, RpcError};
use tenure_session::call::input_required::drive;
use tenure_session::{Answer, Session};
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::runtime::{json_of, reader_of};

use crate::over_exchanges::support::{World, next, reply, respond, send};

fn form(message: &str) -> Value {
    json!({ "method": "elicitation/create", "params": {
        "mode": "form", "message": message, "requestedSchema": { "type": "object", "properties": {} },
    } })
}

fn wants(requests: &Value, state: &str) -> Value {
    json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state })
}

#[tokio::test]
async fn all_questions_of_a_round_are_asked_at_once_and_answered_together() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t", "arguments": { "a": 1 } }));
    let first = world.server.expect("tools/call").await;
    let (id, mut params) = (first.id().clone(), first.params());
    first.answer(&wants(
        &json!({
            "who": form("name?"),
            "what": { "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } },
            "where": { "method": "roots/list", "params": {} },
        }),
        "state \u{e9}",
    ));
    let mut reader = reader_of(waiting.await.unwrap());
    let mut questions = [next(&mut reader).await, next(&mut reader).await, next(&mut reader).await];
    questions.sort_by_key(|question| question["method"].as_str().unwrap().to_owned());
    let [who, where_, what] = questions;
    assert_eq!(who["params"]["message"], "name?");
    assert_eq!(what["params"], json!({ "messages": [], "maxTokens": 1 }));
    let sampled = json!({ "role": "assistant", "content": { "type": "text", "text": "x" }, "model": "m" });
    reply(&session, &where_, &json!({ "roots": [] }));
    reply(&session, &what, &sampled);
    reply(&session, &who, &json!({ "action": "accept", "content": { "name": "A" } }));
    let second = world.server.expect("tools/call").await;
    assert_ne!(*second.id(), id);
    params["inputResponses"] = json!({
        "who": { "action": "accept", "content": { "name": "A" } }, "what": sampled, "where": { "roots": [] },
    });
    params["requestState"] = json!("state \u{e9}");
    assert_eq!(second.params(), params);
    // Answers and states of one round are not those of the next.
    second.answer(&json!({ "resultType": "input_required", "inputRequests": { "more": form("more?") } }));
    let more = next(&mut reader).await;
    reply(&session, &more, &json!({ "action": "decline" }));
    let third = world.server.expect("tools/call").await;
    assert_eq!(third.params()["inputResponses"], json!({ "more": { "action": "decline" } }));
    assert_eq!(third.params()["requestState"], Value::Null);
    third.answer(&json!({ "resultType": "complete", "content": [] }));
    assert_eq!(next(&mut reader).await["result"], json!({ "content": [] }));
}

/// The answer to a request whose client answers a question with an error.
async fn refused(method: &str) -> Value {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, method, &json!({ "name": "t" }));
    let sampling =
        json!({ "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } });
    world.server.expect(method).await.answer(&wants(&json!({ "q": sampling, "r": form("?") }), "s"));
    let mut reader = reader_of(waiting.await.unwrap());
    let mut questions = [next(&mut reader).await, next(&mut reader).await];
    questions.sort_by_key(|question| question["method"].as_str().unwrap().to_owned());
    let error = json!({ "code": -1, "message": "User rejected" });
    respond(&session, &json!({ "jsonrpc": "2.0", "id": questions[1]["id"], "error": error }));
    // The question that is still open is withdrawn.
    let withdrawn = next(&mut reader).await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], questions[0]["id"]);
    let answer = next(&mut reader).await;
    assert!(world.server.is_quiet(), "the server is not told what the client did not say");
    answer
}

#[tokio::test]
async fn a_client_that_fails_ends_the_request() {
    let answer = refused("tools/call").await;
    assert_eq!(answer["result"]["isError"], true);
    let words = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(words.contains("sampling/createMessage") && words.contains("User rejected"), "{words}");
    assert_eq!(refused("prompts/get").await["error"]["code"], -32603);
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_not_asked_anything() {
    let mut world = World::new();
    let (session, _) = world
        .introduced("2025-11-25", &json!({ "elicitation": {} }), &crate::over_exchanges::support::quiet())
        .await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    let roots = json!({ "method": "roots/list", "params": {} });
    world.server.expect("tools/call").await.answer(&wants(&json!({ "a": form("?"), "b": roots }), "s"));
    let answer = json_of(waiting.await.unwrap());
    assert_eq!(answer["result"]["isError"], true, "{answer}");
}

#[tokio::test]
async fn an_elicitation_by_url_gets_an_id_where_the_revision_has_it() {
    let url = json!({ "method": "elicitation/create", "params": { "mode": "url", "message": "m", "url": "https://a" } });
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    world.server.expect("tools/call").await.answer(&wants(&json!({ "u": url }), "s"));
    let mut reader = reader_of(waiting.await.unwrap());
    let question = next(&mut reader).await;
    assert_eq!(question["params"]["url"], "https://a");
    assert_eq!(question["params"]["elicitationId"].as_str().unwrap().len(), 32);
    reply(&session, &question, &json!({ "action": "accept" }));
    let second = world.server.expect("tools/call").await;
    assert_eq!(second.params()["inputResponses"], json!({ "u": { "action": "accept" } }));
    let older = world.session_of("2025-06-18").await;
    let waiting = send(&older, 1, "tools/call", &json!({ "name": "t" }));
    let asked = world.server.expect("tools/call").await;
    assert_eq!(asked.meta("clientCapabilities")["elicitation"], json!({}));
    asked.answer(&wants(&json!({ "u": url }), "s"));
    assert_eq!(json_of(waiting.await.unwrap())["result"]["isError"], true);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_only_wants_the_request_again_gets_it_later() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    let state = json!({ "resultType": "input_required", "requestState": "s" });
    world.server.expect("tools/call").await.answer(&state);
    let before = tokio::time::Instant::now();
    let second = world.server.expect("tools/call").await;
    assert!(before.elapsed() >= Duration::from_millis(200), "{:?}", before.elapsed());
    assert_eq!(second.params()["requestState"], "s");
    assert_eq!(second.params()["inputResponses"], Value::Null);
    second.answer(&json!({ "content": [] }));
    let mut reader = reader_of(waiting.await.unwrap());
    assert_eq!(next(&mut reader).await["result"], json!({ "content": [] }));
}

#[tokio::test(start_paused = true)]
async fn ten_rounds_are_enough() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    for round in 0..11 {
        let state = json!({ "resultType": "input_required", "requestState": format!("s{round}") });
        world.server.expect("tools/call").await.answer(&state);
    }
    let mut reader = reader_of(waiting.await.unwrap());
    assert_eq!(next(&mut reader).await["error"]["code"], -32603);
    assert!(world.server.is_quiet());
}

#[tokio::test]
async fn progress_rises_over_all_rounds() {
    let mut world = World::new();
    let session = world.session().await;
    let meta = json!({ "progressToken": "p" });
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t", "_meta": meta }));
    let progress = |progress: u64| json!({ "progressToken": "p", "progress": progress, "total": 4 });
    let first = world.server.expect("tools/call").await;
    assert_eq!(first.context.progress_token().unwrap().bytes(), &r#""p""#);
    first.say(&Method::Progress, &progress(1)).await;
    first.say(&Method::Progress, &progress(3)).await;
    first.answer(&wants(&json!({ "q": form("?") }), "s"));
    let mut reader = reader_of(waiting.await.unwrap());
    let mut told = Vec::new();
    let question = loop {
        let message = next(&mut reader).await;
        match message["method"] == "notifications/progress" {
            true => told.push((message["params"]["progress"].clone(), message["params"]["total"].clone())),
            false => break message,
        }
    };
    reply(&session, &question, &json!({ "action": "accept" }));
    let second = world.server.expect("tools/call").await;
    second.say(&Method::Progress, &progress(1)).await;
    second.answer(&json!({ "content": [] }));
    let message = next(&mut reader).await;
    told.push((message["params"]["progress"].clone(), message["params"]["total"].clone()));
    assert_eq!(told, [(json!(1), json!(4)), (json!(3), json!(4)), (json!(4), json!(7))]);
    assert!(next(&mut reader).await["result"].is_object());
}

async fn withdraw(session: &Arc<Session>, id: u64) {
    let params = RawJson::of(&json!({ "requestId": id }));
    session.notification(Notification { method: Method::Cancelled, params: Some(params) }).unwrap();
}

#[tokio::test]
async fn a_request_that_is_withdrawn_while_its_client_is_asked_is_not_sent_again() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    world.server.expect("tools/call").await.answer(&wants(&json!({ "q": form("?") }), "s"));
    let Answer::Stream(mut reader) = waiting.await.unwrap() else { panic!("a stream") };
    let question = next(&mut reader).await;
    withdraw(&session, 1).await;
    reply(&session, &question, &json!({ "action": "accept" }));
    // If the first request was sent again, the server got it before this one.
    let waiting = send(&session, 2, "tools/list", &json!({}));
    world.server.expect("tools/list").await.answer(&json!({ "tools": [] }));
    waiting.await.unwrap();
    assert!(world.server.is_quiet());
}

#[tokio::test]
async fn rounds_serve_any_server_that_wants_input() {
    let client = FakeClient::new(json!({ "elicitation": {} }));
    client.answer(|_, params| {
        Ok(RawJson::of(&json!({ "action": "accept", "content": { "said": params["message"] } })))
    });
    let call = client.plain_call(1, "tools/call", &Value::Null);
    let reply = drive(&call.context, call.request, |request| {
        Box::pin(async move {
            let params: Value = request.params.map_or(Value::Null, |params| params.read().unwrap());
            match params["inputResponses"]["q"]["content"]["said"].as_str() {
                None => Ok(RawJson::of(&wants(&json!({ "q": form("hello") }), "s"))),
                Some(said) => Ok(RawJson::of(&json!({ "said": said, "state": params["requestState"] }))),
            }
        })
    });
    let reply: Value = reply.await.unwrap().read().unwrap();
    assert_eq!(reply, json!({ "said": "hello", "state": "s" }));
    let call = client.plain_call(1, "tools/call", &Value::Null);
    let failed =
        drive(&call.context, call.request, |_| Box::pin(std::future::ready(Err(RpcError::new(7, "no")))));
    assert_eq!(failed.await.unwrap_err().code(), 7);
}

#[tokio::test]
async fn a_call_that_has_begun_is_not_begun_anew_when_its_server_is_replaced() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = send(&session, 1, "tools/call", &json!({ "name": "t" }));
    world.server.expect("tools/call").await.answer(&wants(&json!({ "who": form("name?") }), "begun"));
    let mut reader = reader_of(waiting.await.unwrap());
    let question = next(&mut reader).await;
    reply(&session, &question, &json!({ "action": "accept", "content": {} }));
    let data = json!({ "supported": ["2025-11-25"], "requested": "2026-07-28" });
    world.server.expect("tools/call").await.fail(RpcError::with_data(-32022, "not served", &data));
    let answer = next(&mut reader).await;
    assert_eq!(answer["error"]["data"]["reason"], "interrupted", "{answer}");
    assert!(world.server.is_quiet(), "it is not called once more");
}
