//! Sessions that outlive the process: clients of the doors find them in the next one.

use serde_json::{Value, json};

use super::support::{OldClient, Socket};
use crate::operator::place::{Place, kill, stop};
use crate::support::session::request;

const DOORS: &[&str] = &["--door", "sse", "--door", "websocket", "--set", "shutdown.retry=2s"];

/// Reads up to the answer to this request, which must not come twice.
fn is_answer(message: &Value, id: u64) -> bool {
    message["id"] == id && message.get("method").is_none()
}

#[tokio::test]
async fn an_event_source_comes_back_after_a_stop() {
    let place = Place::new();
    let server = place.serve_with(DOORS).await;
    let mut client = OldClient::start(server.address()).await;
    client.send(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(client.heard().await, "result 1");
    let last = client.events.last_id();
    let stopping = async {
        stop(server).await;
    };
    // Told when to come back, and closed in an orderly way.
    let reading = async {
        assert_eq!(client.events.items().await, ["retry 2000"]);
        assert!(client.events.is_complete());
    };
    tokio::join!(stopping, reading);
    let server = place.serve_with(DOORS).await;
    let mut client = OldClient::back(server.address(), &last).await;
    client.send(&request(2, "tools/list", &json!({}))).await;
    assert_eq!(client.heard().await, "result 2");
    stop(server).await;
}

#[tokio::test]
async fn an_event_source_comes_back_after_a_kill_in_the_middle_of_a_call() {
    let place = Place::new();
    let server = place.serve_with(DOORS).await;
    let mut client = OldClient::start(server.address()).await;
    client.call(1, "public_echo", &json!({ "text": "before" })).await;
    assert_eq!(client.heard().await, "result 1");
    client.call(2, "long_task", &json!({ "seconds": 20, "interval_ms": 20 })).await;
    for progress in [0.0, 1.0, 2.0] {
        assert_eq!(client.next().await["params"]["progress"], progress);
    }
    let last = client.events.last_id();
    kill(server).await;
    let server = place.serve_with(DOORS).await;
    let mut client = OldClient::back(server.address(), &last).await;
    // Whether the call goes on or was cut off, its client is told, once.
    let mut progress = 2.0;
    loop {
        let message = client.next().await;
        if is_answer(&message, 2) {
            break;
        }
        let next = message["params"]["progress"].as_f64().unwrap_or_else(|| panic!("{message}"));
        assert!(next > progress, "{next} after {progress}");
        progress = next;
    }
    client.send(&request(3, "tools/list", &json!({}))).await;
    assert_eq!(client.heard().await, "result 3");
    stop(server).await;
}

#[tokio::test]
async fn a_socket_comes_back_after_a_stop_and_after_a_kill() {
    let place = Place::new();
    let server = place.serve_with(DOORS).await;
    let mut socket = Socket::start(server.address()).await;
    let id = socket.id.clone();
    let (_, code) = tokio::join!(stop(server), socket.close_code());
    assert_eq!(code, 1012);

    let server = place.serve_with(DOORS).await;
    let mut socket = Socket::back(server.address(), &id).await;
    socket.send(&request(1, "tools/list", &json!({}))).await;
    assert_eq!(socket.heard().await, "result 1");
    socket
        .send(&super::support::tool_call(2, "long_task", &json!({ "seconds": 20, "interval_ms": 20 })))
        .await;
    assert_eq!(socket.next().await["params"]["progress"], 0.0);
    kill(server).await;

    let server = place.serve_with(DOORS).await;
    let mut socket = Socket::back(server.address(), &id).await;
    while !is_answer(&socket.next().await, 2) {}
    socket.send(&request(3, "tools/list", &json!({}))).await;
    assert_eq!(socket.heard().await, "result 3");
    stop(server).await;
}
