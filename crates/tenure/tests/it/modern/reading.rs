//! Clients that do not read, and streams on which nothing is said.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::net::TcpSocket;

use super::support::{Steered, call, listen, post, say};
use crate::http2_and_tls::client::{Http2, json as json_of};
use crate::support::client::{self, Connection};
use crate::support::events::SseItem;
use crate::support::wait::within;

/// A connection with a small window, so that a client that stops reading is noticed soon.
async fn narrow(server: std::net::SocketAddr) -> Connection {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    Connection::over(within("connect", socket.connect(server)).await.unwrap())
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_buffered_for_and_in_the_end_hung_up_on() {
    let mut steered = Steered::with(&[("http.stall_timeout", "500ms")]).await;
    let mut connection = narrow(steered.address()).await;
    connection.write(&post(&call()).bytes()).await;
    let asked = steered.server.next().await;
    let large = "x".repeat(64 << 10);
    let (mut said, context) = (0, asked.context.clone());
    let speaking = async {
        let params = tenure_protocol::RawJson::of(&json!({ "level": "info", "data": large }));
        while context.notify(&tenure_protocol::Method::LogMessage, Some(&params)).await.is_ok() {
            said += 1;
        }
    };
    within("the server is told that its stream is not read", speaking).await;
    asked.dropped().await;
    steered.idle().await;
    // The queue holds 64, and the sockets a few megabytes.
    assert!(said < 400, "{said} messages of 64 KiB were taken from the server");
    drop(connection);
}

#[tokio::test]
async fn a_client_of_http2_that_gives_no_room_is_given_up() {
    // Its connection is in good order, and only the stream is stuck: nothing of TCP tells.
    let mut steered = Steered::with(&[("http.stall_timeout", "200ms"), ("http.keep_alive", "100ms")]).await;
    let origin = format!("http://{}", steered.address());
    let mut client = Http2::with_room(client::connect(steered.address()).await, &origin, 1).await;
    let headers =
        |method, name| [("mcp-protocol-version", "2026-07-28"), ("mcp-method", method), ("mcp-name", name)];
    let streams = "text/event-stream";
    let mut unread = Vec::new();
    for (message, head) in
        [(call(), headers("tools/call", "t")), (listen(), headers("subscriptions/listen", ""))]
    {
        let (response, asked) =
            tokio::join!(client.send("POST", streams, &head, message.to_string()), async {
                let asked = steered.server.next().await;
                if message["method"] == "tools/call" {
                    say(&asked, "hello").await;
                } else {
                    asked.acknowledge(&[]).await;
                }
                asked
            });
        assert_eq!(response.status(), 200);
        unread.push(response);
        asked.dropped().await;
    }
    steered.idle().await;
}

#[tokio::test]
async fn an_answer_over_http2_comes_whole_to_a_client_that_gives_little_room() {
    let mut steered = Steered::start().await;
    let origin = format!("http://{}", steered.address());
    let mut client = Http2::with_room(client::connect(steered.address()).await, &origin, 1000).await;
    let head = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "t")];
    let large = "x".repeat(1 << 20);
    let (response, ()) =
        tokio::join!(client.send("POST", "application/json", &head, call().to_string()), async {
            steered.server.next().await.answer(&json!({ "text": large }))
        });
    assert_eq!(response.headers()["content-type"], "application/json");
    let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
    assert!(length > large.len());
    assert_eq!(json_of(response).await["result"]["text"], large);
    steered.idle().await;
}

#[tokio::test]
async fn a_quiet_stream_is_kept_alive_with_comments() {
    let settings =
        [("http.keep_alive", "50ms"), ("exchanges.stream_after", "50ms"), ("http.header_timeout", "50ms")];
    let mut steered = Steered::with(&settings).await;
    let connection = post(&call()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    let mut events = connection.events().await;
    assert!(matches!(events.next().await, Some(SseItem::Comment(_))), "the opening");
    assert!(matches!(events.next().await, Some(SseItem::Event(_))), "an id to come back with");
    for _ in 0..5 {
        assert!(matches!(events.next().await, Some(SseItem::Comment(_))));
    }
    say(&asked, "hello").await;
    assert_eq!(events.heard().await, "hello");
    assert!(matches!(events.next().await, Some(SseItem::Comment(_))), "and again");
    asked.answer(&json!({}));
    assert_eq!(events.rest().await, ["result 1"]);
    assert!(events.is_complete());
    let connection = post(&listen()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    asked.acknowledge(&[]).await;
    let mut events = connection.events().await;
    events.message().await.unwrap();
    for _ in 0..5 {
        assert!(matches!(events.next().await, Some(SseItem::Comment(_))), "a listen too");
    }
}

#[tokio::test]
async fn silence_becomes_a_stream_in_time() {
    let mut steered = Steered::with(&[("exchanges.stream_after", "200ms")]).await;
    let before = Instant::now();
    let connection = post(&call()).begin(steered.address()).await;
    let asked = steered.server.next().await;
    let mut events = connection.events().await;
    assert!(before.elapsed() >= Duration::from_millis(200));
    asked.answer(&json!({}));
    assert_eq!(events.rest().await, ["result 1"]);
}
