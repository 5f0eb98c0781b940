//! HTTP/2 with prior knowledge, as gateways speak it.

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::http::Response;
use serde_json::json;
use tenure_testkit::fake_backend::FakeCall;

use super::client::{Http2, json, read_until};
use crate::support::client;
use crate::support::node::{Steered, announce, demo, demo_with, say};
use crate::support::session::request;
use crate::support::wait::{until, within};

async fn connect(server: std::net::SocketAddr) -> Http2 {
    Http2::over(client::connect(server).await, &format!("http://{server}")).await
}

/// A call that has said `hello` and so become a stream.
async fn streaming_call(
    steered: &mut Steered,
    client: &mut Http2,
    id: u64,
) -> (Response<Incoming>, FakeCall) {
    let message = request(id, "tools/call", &json!({}));
    tokio::join!(client.post(&message), async {
        let call = steered.script.call().await;
        say(&call, "hello").await;
        call
    })
}

/// Reads a body to its end.
async fn rest(body: Incoming) -> String {
    String::from_utf8(within("the end", body.collect()).await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn calls_are_answered_with_json() {
    let node = demo().await;
    let mut client = connect(node.address()).await;
    client.start().await;
    let call = json!({ "name": "public_echo", "arguments": { "text": "over HTTP/2" } });
    let response = client.post(&request(1, "tools/call", &call)).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/json".parse().unwrap())
    );
    assert_eq!(json(response).await["result"]["content"][0]["text"], "over HTTP/2");
}

#[tokio::test]
async fn streams_and_calls_share_one_connection() {
    let mut steered = Steered::start().await;
    let mut client = connect(steered.address()).await;
    client.start().await;
    let link = steered.script.opened().await;
    let mut listening = client.get(&[]).await.into_body();
    let opening = read_until(&mut listening, "data: \n\n").await;
    assert!(opening.starts_with(": stream\n\nid: "), "{opening}");
    let (response, call) = streaming_call(&mut steered, &mut client, 1).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["x-accel-buffering"], "no");
    // A header of HTTP/1.1 that would be an error here.
    assert!(!response.headers().contains_key("connection"));
    let mut stream = response.into_body();
    read_until(&mut stream, "hello").await;
    announce(&link, "news").await;
    read_until(&mut listening, "news").await;
    call.answer(&json!({ "done": true }));
    assert!(rest(stream).await.contains(r#""id":1,"result":{"done":true}"#));
}

#[tokio::test]
async fn a_stream_can_be_resumed() {
    let mut steered = Steered::start().await;
    let mut client = connect(steered.address()).await;
    client.start().await;
    let (response, call) = streaming_call(&mut steered, &mut client, 1).await;
    let mut stream = response.into_body();
    let read = read_until(&mut stream, "hello").await;
    let last = read.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().to_owned();
    drop(stream);
    // Dropping a stream of HTTP/2 resets it; the connection and the call go on.
    until("the server notices", || steered.node.sessions().list()[0].readers == 0).await;
    assert!(!call.context.is_cancelled());
    say(&call, "meanwhile").await;
    call.answer(&json!({}));
    let replay = rest(client.get(&[("last-event-id", &last)]).await.into_body()).await;
    assert!(
        !replay.contains("hello") && replay.contains("meanwhile") && replay.contains(r#""result""#),
        "{replay}"
    );
}

#[tokio::test]
async fn a_stream_that_its_client_gives_no_room_is_let_go_and_can_be_resumed() {
    // Its connection is in good order, and only the stream is stuck: nothing of TCP tells.
    let mut steered = Steered::with(&[("http.stall_timeout", "200ms"), ("http.keep_alive", "100ms")]).await;
    let origin = format!("http://{}", steered.address());
    let mut client = Http2::with_room(client::connect(steered.address()).await, &origin, 1).await;
    client.start().await;
    let listening = client.get(&[]).await;
    let (response, call) = streaming_call(&mut steered, &mut client, 1).await;
    until("they have no reader", || steered.node.sessions().list()[0].readers == 0).await;
    assert!(!call.context.is_cancelled(), "the call goes on");
    let mut read = String::new();
    let mut stream = response.into_body();
    let ended = loop {
        match within("the end", stream.frame()).await {
            Some(Ok(frame)) => read.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap()),
            end => break end,
        }
    };
    assert!(matches!(ended, Some(Err(_))), "cut off, and not complete: {read}");
    let first = read.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    say(&call, "meanwhile").await;
    call.answer(&json!({}));
    let replay = rest(client.get(&[("last-event-id", first)]).await.into_body()).await;
    assert!(replay.contains("hello") && replay.contains("meanwhile"), "{replay}");
    assert!(replay.contains(r#""id":1,"result":{}"#), "{replay}");
    drop(listening);
}

#[tokio::test]
async fn many_calls_run_at_once_on_one_connection() {
    let mut steered = Steered::start().await;
    let mut client = connect(steered.address()).await;
    client.start().await;
    let mut streams = Vec::new();
    for id in 1..=50 {
        let (response, call) = streaming_call(&mut steered, &mut client, id).await;
        streams.push((id, response.into_body(), call));
    }
    for (id, body, call) in streams.into_iter().rev() {
        call.answer(&json!({}));
        assert!(rest(body).await.contains(&format!(r#""id":{id},"result":{{}}"#)));
    }
}

#[tokio::test]
async fn an_answer_larger_than_any_window_arrives_whole() {
    let mut steered = Steered::start().await;
    let mut client = connect(steered.address()).await;
    client.start().await;
    let (response, call) = streaming_call(&mut steered, &mut client, 1).await;
    let large = "x".repeat(8 << 20);
    call.answer(&json!({ "text": large }));
    let body = rest(response.into_body()).await;
    assert!(
        body.ends_with(&format!("\"result\":{{\"text\":\"{large}\"}}}}\n\n")),
        "{} bytes came",
        body.len()
    );
}

#[tokio::test]
async fn refusals_are_the_same_as_over_http1() {
    let node = demo_with(&[("http.max_body", "1KiB")]).await;
    let mut client = connect(node.address()).await;
    let large = json!({ "x": "y".repeat(2000) });
    for (message, status, reason) in [
        (json!({}), 400, "invalid_request"),
        (request(1, "ping", &json!({})), 400, "session_required"),
        (request(1, "ping", &large), 413, "body_too_large"),
    ] {
        let response = client.post(&message).await;
        assert_eq!(response.status(), status, "{reason}");
        assert_eq!(json(response).await["error"]["data"]["reason"], reason);
    }
    let evil = client.get(&[("origin", "https://evil.example.com")]).await;
    assert_eq!(evil.status(), 403);
    let put = client.send("PUT", "*/*", &[], String::new()).await;
    assert_eq!(
        (put.status().as_u16(), &put.headers()["allow"]),
        (405, &"GET, POST, DELETE".parse().unwrap())
    );
}

#[tokio::test]
async fn a_foreign_authority_is_403() {
    let node = demo().await;
    let mut client = Http2::over(client::connect(node.address()).await, "http://evil.example.com").await;
    let response = client.post(&request(0, "initialize", &json!({ "protocolVersion": "2025-11-25" }))).await;
    assert_eq!(response.status(), 403);
    assert_eq!(json(response).await["error"]["data"]["reason"], "host_not_allowed");
    // A Host header that says otherwise does not help: the authority is where the browser went.
    let mut client = Http2::over(client::connect(node.address()).await, "http://evil.example.com").await;
    let response = client.send("GET", "text/event-stream", &[("host", "localhost")], String::new()).await;
    assert_eq!(response.status(), 403);
}

#[tokio::test]
async fn delete_is_204_and_stopping_ends_streams_in_good_order() {
    let node = demo().await;
    let mut client = connect(node.address()).await;
    client.start().await;
    let mut listening = client.get(&[]).await.into_body();
    read_until(&mut listening, "data: \n\n").await;
    let stopping = tokio::spawn(node.stop());
    assert_eq!(rest(listening).await, "retry: 10000\n\n");
    within("the node stops", stopping).await.unwrap();

    let node = demo().await;
    let mut client = connect(node.address()).await;
    client.start().await;
    assert_eq!(client.send("DELETE", "*/*", &[], String::new()).await.status(), 204);
    let gone = client.get(&[]).await;
    assert_eq!(gone.status(), 404);
    assert_eq!(json(gone).await["error"]["data"]["reason"], "session_deleted");
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_asked_ends_and_one_with_a_stream_stays() {
    let node = demo_with(&[("http.header_timeout", "1s")]).await;
    let mut listening = connect(node.address()).await;
    listening.start().await;
    let mut stream = listening.get(&[]).await.into_body();
    read_until(&mut stream, "data: \n\n").await;
    let mut quiet = connect(node.address()).await;
    quiet.start().await;
    let silent = connect(node.address()).await;
    tokio::join!(quiet.ended(), silent.ended());
    // It is older than they are, and has been as quiet.
    assert_eq!(listening.post(&request(1, "ping", &json!({}))).await.status(), 200);
}
