//! Clients that mean no good, or do not know better.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

use super::support::{ALL, OldClient, Socket, all_and, get_sse, refusal, shake, tool_call};
use crate::support::client::Ask;
use crate::support::node::{Steered, announce, demo_with};
use crate::support::session::{initialize_params, notification, request};
use crate::support::wait::{until, within};

#[tokio::test]
async fn strange_hosts_and_origins_are_refused_at_every_door() {
    let node = demo_with(ALL).await;
    let list = request(1, "tools/list", &json!({})).to_string();
    for ask in [
        get_sse(),
        Ask::new("GET", "/mcp/sse").header("Accept", "text/event-stream"),
        Ask::new("GET", "/ws"),
        Ask::post_to("/sse", &list),
        Ask::post_to("/rpc", &list),
        Ask::post_to("/messages?sessionId=0123456789abcdef0123456789abcdef", &list),
    ] {
        let origin = ask.clone().header("Origin", "https://evil.example.com").send(node.address()).await;
        assert_eq!(refusal(&origin), (403, "origin_not_allowed".to_owned()), "{ask:?}");
        let host = ask.clone().header("Host", "evil.example.com").send(node.address()).await;
        assert_eq!(refusal(&host), (403, "host_not_allowed".to_owned()), "{ask:?}");
    }
    let evil = [("origin", "https://evil.example.com")];
    let refused = shake(node.address(), &evil).await.expect_err("refused");
    assert!(refused.to_string().contains("403"), "{refused}");
}

#[tokio::test]
async fn bodies_are_bounded_at_every_door() {
    let node = demo_with(&all_and(&[("http.max_body", "1000")])).await;
    let large = request(1, "tools/list", &json!({ "x": "x".repeat(1000) })).to_string();
    let client = OldClient::start(node.address()).await;
    for path in ["/rpc", "/sse", &client.post] {
        let refused = Ask::post_to(path, &large).send(node.address()).await;
        assert_eq!(refusal(&refused), (413, "body_too_large".to_owned()), "{path}");
    }
    let mut socket = Socket::open(node.address(), &[]).await;
    socket.send(&json!(large)).await;
    assert_eq!(socket.close_code().await, 1009);
}

#[tokio::test]
async fn what_is_no_message_is_refused_and_the_talk_goes_on() {
    let node = demo_with(ALL).await;
    let mut client = OldClient::start(node.address()).await;
    for (body, reason) in
        [("{", "parse_error"), ("[", "parse_error"), ("{}", "invalid_request"), ("", "parse_error")]
    {
        let refused = client.ask(body).send(node.address()).await;
        assert_eq!(refusal(&refused), (400, reason.to_owned()), "{body}");
    }
    let typeless = client.ask("{}").header("Content-Type", "text/plain").send(node.address()).await;
    assert_eq!(refusal(&typeless), (415, "unsupported_media_type".to_owned()));
    client.send(&request(1, "ping", &json!({}))).await;
    assert_eq!(client.heard().await, "result 1");

    let mut socket = Socket::start(node.address()).await;
    for (body, reason) in [("{", "parse_error"), ("{}", "invalid_request"), ("", "parse_error")] {
        socket.send_frame(Message::text(body)).await;
        assert_eq!(socket.next().await["error"]["data"]["reason"], reason, "{body}");
    }
    socket.send(&json!([request(1, "ping", &json!({}))])).await;
    assert_eq!(socket.next().await["error"]["data"]["reason"], "batch_not_allowed");
    socket.send(&request(1, "initialize", &initialize_params("2025-11-25"))).await;
    assert_eq!(socket.heard().await, "error 1 already_initialized");
    socket.send(&request(2, "tools/list", &json!({}))).await;
    assert_eq!(socket.heard().await, "result 2");
}

#[tokio::test]
async fn a_modern_request_in_a_batch_is_refused_on_a_socket() {
    let node = demo_with(ALL).await;
    let mut socket = Socket::open(node.address(), &[("sec-websocket-protocol", "mcp")]).await;
    socket.send(&request(0, "initialize", &initialize_params("2025-03-26"))).await;
    assert_eq!(socket.heard().await, "result 0");
    socket.send(&notification("notifications/initialized")).await;
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
    let modern = request(1, "tools/list", &json!({ "_meta": meta }));
    socket.send(&json!([modern, request(2, "ping", &json!({}))])).await;
    assert_eq!(socket.next().await["error"]["data"]["reason"], "invalid_request");
    socket.send(&request(3, "tools/list", &json!({}))).await;
    assert_eq!(socket.heard().await, "result 3");
}

#[tokio::test]
async fn frames_that_break_the_rules_end_the_socket_and_nothing_else() {
    let node = demo_with(ALL).await;
    for (frame, code) in [
        // A text frame that is not UTF-8.
        (&[0x81, 0x82, 0, 0, 0, 0, 0xff, 0xfe][..], 1007),
        // One that is not masked.
        (&[0x81, 0x02, b'{', b'}'], 1002),
        // One of a kind that does not exist.
        (&[0x83, 0x80, 0, 0, 0, 0], 1002),
        // A ping of more than 125 bytes.
        (&[&[0x89, 0xfe, 0x00, 0x7e, 0, 0, 0, 0][..], &[0; 126]].concat(), 1002),
        // A continuation of nothing.
        (&[0x80, 0x80, 0, 0, 0, 0], 1002),
        // A frame that says that it is 2^63 bytes long.
        (&[0x82, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], 1009),
    ] {
        let mut socket = Socket::start(node.address()).await;
        within("written", socket.frames.get_mut().write_all(frame)).await.unwrap();
        assert_eq!(socket.close_code().await, code, "{frame:?}");
    }
    let mut socket = Socket::start(node.address()).await;
    socket.send(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(socket.heard().await, "result 1");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_stream_is_not_read_either() {
    let settings = all_and(&[("http.body_timeout", "200ms"), ("http.stall_timeout", "60s")]);
    let mut steered = Steered::with(&settings).await;
    let client = OldClient::start(steered.address()).await;
    let link = steered.script.opened().await;
    let text = "x".repeat(1 << 20);
    let flood = tokio::spawn(async move {
        for _ in 0..64 {
            announce(&link, &text).await;
        }
    });
    within("the flood is kept by the store, not by the connection", flood).await.unwrap();
    let refused = async {
        loop {
            let response = client.ask(&request(1, "ping", &json!({})).to_string()).send(client.server).await;
            if response.status() != 202 {
                return response;
            }
        }
    };
    let refused = within("a refusal", refused).await;
    assert_eq!(refusal(&refused), (429, "slow_reader".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_client_that_stops_reading_its_socket_is_given_up_and_can_come_back() {
    let settings = all_and(&[("http.stall_timeout", "200ms")]);
    let mut steered = Steered::with(&settings).await;
    let mut socket = Socket::start(steered.address()).await;
    let link = steered.script.opened().await;
    let text = "x".repeat(1 << 20);
    for _ in 0..12 {
        announce(&link, &text).await;
    }
    let session = || steered.node.sessions().list().remove(0);
    until("its stream is let go", || session().readers == 0).await;
    let id = socket.id.clone();
    assert!(socket.closed().await.is_none(), "it was cut off");
    let mut socket = Socket::back(steered.address(), &id).await;
    assert_eq!(socket.heard().await, text, "what it did not read is read now");
    socket.send(&tool_call(2, "any", &json!({}))).await;
    let answering = async { steered.script.call().await.answer(&json!({})) };
    let reading = async { while socket.heard().await != "result 2" {} };
    tokio::join!(answering, reading);
}

#[tokio::test]
async fn sockets_count_among_the_connections() {
    let node = demo_with(&all_and(&[("http.max_connections", "2")])).await;
    let first = Socket::start(node.address()).await;
    let _second = Socket::start(node.address()).await;
    let third = tokio::spawn(Socket::start(node.address()));
    // It waits for a place.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(node.sessions().tallies().sessions, 2);
    drop(first);
    within("there is room", third).await.unwrap();
}

#[tokio::test]
async fn many_who_open_and_leave_leave_nothing_behind() {
    let node = demo_with(&all_and(&[("doors.linger", "1ms")])).await;
    for round in 0..50 {
        let mut socket = Socket::start(node.address()).await;
        let client = OldClient::start(node.address()).await;
        socket.send(&tool_call(1, "long_task", &json!({ "seconds": 1000 }))).await;
        client.call(1, "long_task", &json!({ "seconds": 1000 })).await;
        if round % 2 == 0 {
            within("goodbye", socket.frames.close(None)).await.unwrap();
        }
    }
    until("all are gone", || node.sessions().tallies().sessions == 0).await;
    assert_eq!(node.sessions().tallies().ended, 100);
    within("nothing holds it up", node.stop()).await;
}
