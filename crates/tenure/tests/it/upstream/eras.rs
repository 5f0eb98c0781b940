//! A server upstream of one era or the other, as bytes: what is left there in the end, and what happens when it changes.

use serde_json::json;

use super::gateway_with;
use super::odd::{answer, calling, through};
use super::server::Server;
use crate::modern::support::{self, MODERN};
use crate::support::events::Events;
use crate::support::session::Session;
use crate::support::wait::within;

#[tokio::test]
async fn sessions_that_were_kept_for_exchanges_are_ended_with_the_process() {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), &[]).await;
    let call =
        support::post(&support::message("tools/call", json!({ "name": "t" }))).begin(front.address()).await;
    server.post("server/discover").await.refuse("404 Not Found").await;
    server.shake_hands().await;
    server.get().await.refuse("405 Method Not Allowed").await;
    server.post("tools/call").await.answer(&json!({ "result": { "content": [] } })).await;
    assert_eq!(answer(call).await["result"]["resultType"], "complete");
    let stopping = tokio::spawn(front.stop());
    let ended = server.delete().await;
    assert!(!stopping.is_finished(), "it waits until the server knows");
    ended.refuse("200 OK").await;
    within("the node stops", stopping).await.unwrap();
}

#[tokio::test]
async fn a_session_goes_on_when_its_server_is_replaced_by_one_that_keeps_none() {
    let (mut server, _front, session) = through(&[]).await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let (asked, call) = calling(&mut server, &session).await;
    let error = json!({ "error": { "code": -32022, "message": "m", "data": { "supported": [MODERN] } } });
    let refusal = asked.response(&error);
    asked.refuse_with("400 Bad Request", &refusal).await;
    let asked = server.post("initialize").await;
    let refusal = asked.response(&error);
    asked.refuse_with("400 Bad Request", &refusal).await;
    let discovered = json!({ "result": {
        "resultType": "complete", "supportedVersions": [MODERN], "capabilities": { "tools": {} },
    } });
    server.post("server/discover").await.answer(&discovered).await;
    let again = server.post("tools/call").await;
    assert_eq!(again.body["params"]["_meta"][support::VERSION], MODERN);
    again.answer(&json!({ "result": { "resultType": "complete", "content": [] } })).await;
    assert_eq!(answer(call).await["result"], json!({ "content": [] }));
}

#[tokio::test]
async fn a_modern_client_that_hangs_up_withdraws_its_request_before_the_session_ends() {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), &[]).await;
    let call =
        support::post(&support::message("tools/call", json!({ "name": "t" }))).begin(front.address()).await;
    server.post("server/discover").await.refuse("404 Not Found").await;
    server.shake_hands().await;
    server.get().await.refuse("405 Method Not Allowed").await;
    let working = server.post("tools/call").await;
    drop(call);
    let cancelled = server.post("notifications/cancelled").await;
    assert_eq!(cancelled.body["params"]["requestId"], working.body["id"]);
    cancelled.accept().await;
    // Its late messages could belong to another caller.
    server.delete().await.refuse("405 Method Not Allowed").await;
}

#[tokio::test]
async fn the_stream_of_a_session_outlives_its_connection_before_a_server_that_keeps_none() {
    let mut server = Server::start().await;
    let front = gateway_with(server.url(), &[("upstream.era", "modern")]).await;
    let there = async {
        let discovered = json!({ "result": {
            "resultType": "complete", "supportedVersions": [MODERN], "capabilities": { "tools": {} },
        } });
        server.post("server/discover").await.answer(&discovered).await;
    };
    let (session, ()) = tokio::join!(Session::start(front.address()), there);
    let call = json!({ "name": "t", "_meta": { "progressToken": "mine" } });
    let there = async {
        let asked = server.post("tools/call").await;
        let token = asked.body["params"]["_meta"]["progressToken"].clone();
        let last = asked.response(&json!({ "result": { "resultType": "complete", "content": [] } }));
        let step = move |step: u64| {
            let params = json!({ "progressToken": token, "progress": step });
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
        };
        let mut stream = asked.stream().await;
        stream.event(&step(1)).await;
        (stream, step, last)
    };
    let opening = session.request(1, "tools/call", &call).open(front.address());
    let (mut events, (mut stream, step, last)) = tokio::join!(opening, there);
    let progress = async |events: &mut Events| {
        let (_, message) = events.message().await.expect("progress");
        assert_eq!(message["params"]["progressToken"], "mine", "{message}");
        message["params"]["progress"].as_u64()
    };
    assert_eq!(progress(&mut events).await, Some(1));
    let seen = events.last_id();
    drop(events);
    // One while the client does not listen, one after the client is back; the server hears of neither the loss nor the return.
    stream.event(&step(2)).await;
    let mut events = session.resume(&seen).await;
    assert_eq!(progress(&mut events).await, Some(2));
    stream.event(&step(3)).await;
    assert_eq!(progress(&mut events).await, Some(3));
    stream.write(&format!("data: {last}\n\n")).await;
    let (_, answer) = events.message().await.expect("the answer");
    assert_eq!((&answer["id"], &answer["result"]), (&json!(1), &json!({ "content": [] })));
    assert!(events.message().await.is_none(), "nothing is told twice");
}
