//! Very many requests: they stay within the bounds, and leave nothing behind.

use serde_json::{Value, json};

use super::support::{message, post};
use crate::support::client::Connection;
use crate::support::node::demo_with;
use crate::support::wait::until;

fn tool(name: &str, arguments: &Value) -> Vec<u8> {
    post(&message("tools/call", json!({ "name": name, "arguments": arguments }))).bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_exchanges_in_a_row_leave_nothing_behind() {
    let node = demo_with(&[]).await;
    let bytes = tool("public_echo", &json!({ "text": "hello" }));
    let flood = async |count: usize| {
        let mut connection = Connection::open(node.address()).await;
        for _ in 0..count {
            connection.write(&bytes).await;
            assert_eq!(connection.response().await.status(), 200);
        }
    };
    tokio::join!(flood(5000), flood(5000));
    let tallies = node.exchanges().tallies();
    assert_eq!((tallies.running, tallies.parked, tallies.begun), (0, 0, 10_000));
    assert!(node.sessions().tallies().sessions == 0, "none of them is a session of a client");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_at_once_than_may_be_are_refused_and_served_later() {
    let node = demo_with(&[("exchanges.max_running", "50"), ("exchanges.max_listens", "50")]).await;
    let listen = message(
        "subscriptions/listen",
        json!({ "notifications": { "resourceSubscriptions": ["demo://visitors"] } }),
    );
    let mut open = Vec::new();
    for _ in 0..50 {
        let mut events = post(&listen).open(node.address()).await;
        events.message().await.unwrap();
        open.push(events);
    }
    let mut connection = Connection::open(node.address()).await;
    for _ in 0..2000 {
        connection.write(&post(&listen).bytes()).await;
        let refused = connection.response().await;
        assert_eq!(refused.fault(), (200, -31029, "too_many_requests".to_owned()));
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert_eq!(node.exchanges().tallies().running, 50);
    // Calls are counted apart.
    let bytes = tool("public_echo", &json!({ "text": "hello" }));
    connection.write(&bytes).await;
    assert_eq!(connection.response().await.status(), 200);
    drop(open);
    until("they are gone", || node.exchanges().tallies().running == 0).await;
    connection.write(&bytes).await;
    assert_eq!(connection.response().await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_questions_wait_within_the_bounds_and_are_gone_without_answers() {
    const CLIENTS: usize = 100;
    let settings =
        [("exchanges.max_parked", "100"), ("timeouts.client_answer", "2s"), ("bridge.max_sessions", "300")];
    let node = demo_with(&settings).await;
    let bytes = tool("ask_name", &json!({}));
    let address = node.address();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let bytes = bytes.clone();
        clients.push(tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            let (mut parked, mut refused) = (0, 0);
            for _ in 0..10_000 / CLIENTS {
                connection.write(&bytes).await;
                let answer = connection.response().await.json();
                match answer["error"]["code"].as_i64() {
                    None if answer["result"]["resultType"] == "input_required" => parked += 1,
                    Some(-31029) => refused += 1,
                    _ => panic!("{answer}"),
                }
            }
            (parked, refused)
        }));
    }
    let mut most = 0;
    let (mut parked, mut refused) = (0, 0);
    for client in clients {
        most = most.max(node.exchanges().tallies().parked);
        let (own, own_refused) = client.await.unwrap();
        parked += own;
        refused += own_refused;
    }
    assert!(most <= 100, "{most} waited at once");
    assert!(parked >= 100 && parked + refused == 10_000, "{parked} {refused}");
    until("all are given up", || {
        let tallies = node.exchanges().tallies();
        (tallies.running, tallies.parked) == (0, 0)
    })
    .await;
}
