//! A node in front of another one over HTTP: what passes, what is restored, what fails fast.

mod batches;
mod eras;
mod http_sse;
mod odd;
mod questions;
mod server;
mod streams;

use serde_json::{Value, json};
use tenure::Node;
use tenure_testkit::fake_backend::NewLink;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::node::{Steered, announce, config, demo, demo_with, say};
use crate::support::proxy::Proxy;
use crate::support::session::{Session, initialize};
use crate::support::wait::{until, within};

/// A node in front of this endpoint.
async fn gateway(url: &str) -> Node {
    gateway_with(url, &[]).await
}

async fn gateway_with(url: &str, settings: &[(&str, &str)]) -> Node {
    // Most tests are not about waiting for a server that is away; those that are say how long.
    let settings = [&[("upstream.url", url), ("upstream.patience", "0s")][..], settings].concat();
    Node::start(&config(&settings)).await.expect("a node")
}

/// A scripted server upstream, a node in front of it, and a session through both.
async fn through(upstream: &mut Steered) -> (Node, Session, NewLink) {
    let front = gateway(&upstream.node.url()).await;
    let session = Session::start(front.address()).await;
    let link = upstream.script.opened().await;
    (front, session, link)
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

#[tokio::test]
async fn calls_pass_with_everything_that_belongs_to_them() {
    let back = demo().await;
    let front = gateway(&back.url()).await;
    let session = Session::start(front.address()).await;
    let echoed = session.tool(1, "public_echo", &json!({ "text": "é\n\u{1F600}" })).await.json();
    assert_eq!(text(&echoed), "é\n\u{1F600}");

    let count = json!({ "name": "count_slowly", "arguments": { "to": 2, "interval_ms": 1, "tag": "t" }, "_meta": { "progressToken": "p" } });
    let mut stream = session.request(2, "tools/call", &count).open(front.address()).await;
    let mut heard = Vec::new();
    while let Some((_, message)) = stream.message().await {
        heard.push(message["method"].as_str().unwrap_or("answer").to_owned());
    }
    let pair = ["notifications/message", "notifications/progress"];
    assert_eq!(heard, [&pair[..], &pair[..], &["answer"]].concat());

    // A question of the server's, and its answer.
    let ask = json!({ "name": "ask_name" });
    let mut stream = session.request(3, "tools/call", &ask).open(front.address()).await;
    let (_, question) = stream.message().await.unwrap();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": { "name": "Ann" } } });
    assert_eq!(session.post(&answer).send(front.address()).await.status(), 202);
    assert_eq!(text(&stream.message().await.unwrap().1), "Hello, Ann!");
}

#[tokio::test]
async fn what_belongs_to_no_request_comes_on_the_stream_of_its_own() {
    let mut back = Steered::start().await;
    let (_front, session, link) = through(&mut back).await;
    let mut stream = session.listen().await;
    // Its stream upstream is there when it is read.
    within("news", async {
        announce(&link, "news").await;
        assert_eq!(stream.heard().await, "news");
    })
    .await;
}

#[tokio::test]
async fn cancelling_reaches_the_server() {
    let mut back = Steered::start().await;
    let (front, session, _link) = through(&mut back).await;
    let request = session.request(7, "tools/call", &json!({ "name": "any" })).begin(front.address()).await;
    let call = back.script.call().await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    assert_eq!(session.post(&cancel).send(front.address()).await.status(), 202);
    within("the server hears of it", call.context.cancelled()).await;
    drop(request);
}

#[tokio::test]
async fn a_stream_that_breaks_off_upstream_is_resumed() {
    let mut back = Steered::start().await;
    let proxy = Proxy::to(back.address()).await;
    let front = gateway(&format!("http://{}/mcp", proxy.address())).await;
    let session = Session::start(front.address()).await;
    back.script.opened().await;
    let connection = session.request(1, "tools/call", &json!({ "name": "any" })).begin(front.address()).await;
    let call = back.script.call().await;
    say(&call, "one").await;
    let mut events = connection.events().await;
    assert_eq!(events.heard().await, "one");
    proxy.cut();
    say(&call, "two").await;
    call.answer(&json!({}));
    assert_eq!(events.rest().await, ["two", "result 1"], "our client's own connection was never cut");
}

#[tokio::test]
async fn a_server_that_forgot_everything_gets_the_session_anew() {
    let back = demo().await;
    let (address, url) = (back.address().to_string(), back.url());
    let front = gateway(&url).await;
    let session = Session::start(front.address()).await;
    assert_eq!(text(&session.tool(1, "public_echo", &json!({ "text": "a" })).await.json()), "a");
    let level = session.request(2, "logging/setLevel", &json!({ "level": "error" }));
    assert_eq!(level.send(front.address()).await.status(), 200);
    back.stop().await;
    let down = session.tool(3, "public_echo", &json!({ "text": "b" })).await.json();
    assert_eq!(
        (&down["error"]["code"], &down["error"]["data"]["reason"]),
        (&json!(-31011), &json!("backend_unavailable"))
    );

    let back = demo_with(&[("listen", &address)]).await;
    // A tool that is not safe to repeat; it was refused, so it is.
    let count = json!({ "to": 1, "interval_ms": 1, "tag": "t" });
    let answer = session.tool(4, "count_slowly", &count).await.json();
    assert_eq!(
        text(&answer),
        "t: counted to 1",
        "as JSON: the log level was restored, so it does not count aloud"
    );
    assert_eq!(back.sessions().list().len(), 1);
    assert_eq!(front.sessions().tallies().created, 1, "the client noticed nothing");
}

#[tokio::test]
async fn the_end_of_a_session_is_passed_on() {
    let back = demo().await;
    let front = gateway(&back.url()).await;
    let session = Session::start(front.address()).await;
    assert_eq!(back.sessions().list().len(), 1);
    assert_eq!(session.delete().send(front.address()).await.status(), 204);
    until("the session upstream ends", || back.sessions().list().is_empty()).await;
}

#[tokio::test]
async fn without_a_server_initialize_fails_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    let front = gateway(&url).await;
    let refused = within("an answer", initialize("2025-11-25").send(front.address())).await.json();
    assert_eq!(refused["error"]["code"], -31011, "{refused}");
    assert_eq!(front.sessions().tallies().sessions, 0);
}

#[tokio::test]
async fn a_server_gets_its_own_credentials_and_never_the_clients() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let front = gateway_with(&url, &[("upstream.headers", "Authorization: Bearer ours")]).await;
    let server = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|four| four == b"\r\n\r\n") {
            assert!(client.read_buf(&mut head).await.unwrap() > 0);
        }
        client.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        String::from_utf8(head).unwrap()
    });
    let asked = initialize("2025-11-25").header("Authorization", "Bearer theirs").header("Cookie", "theirs");
    let refused = asked.send(front.address()).await.json();
    assert_eq!(refused["error"]["code"], -31011);
    assert_eq!(refused["error"]["data"]["reason"], "backend_unauthorized", "{refused}");
    let head = within("the head", server).await.unwrap();
    assert!(head.contains("authorization: Bearer ours") && !head.contains("theirs"), "{head}");
}

#[tokio::test]
async fn an_answer_that_is_too_long_or_none_at_all_is_an_error() {
    let mut back = Steered::start().await;
    let front = gateway_with(&back.node.url(), &[("upstream.max_message", "1KiB")]).await;
    let session = Session::start(front.address()).await;
    back.script.opened().await;
    let mut connection =
        session.request(1, "tools/call", &json!({ "name": "any" })).begin(front.address()).await;
    let call = back.script.call().await;
    call.answer(&json!({ "long": "x".repeat(4096) }));
    let answer = connection.response().await.json();
    assert_eq!(answer["error"]["data"]["reason"], "backend_unavailable", "{answer}");
    let after = session.request(2, "ping", &json!({})).send(front.address()).await;
    assert_eq!(after.json()["result"], json!({}), "the session goes on");
}
