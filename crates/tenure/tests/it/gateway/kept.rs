//! Connections that clients keep open between two requests, while another process takes the gateway's place.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::gateway::running::{Gateway, heard};
use crate::support::client::{Ask, Connection};
use crate::support::session::Session;
use crate::support::wait::within;

/// A connection that has had a request answered.
async fn kept(session: &Session, id: u64) -> Connection {
    let mut connection = Connection::open(session.server).await;
    answered(&mut connection, session, id).await;
    connection
}

/// Sends a request on a connection that has had others before; whether the client may use it again.
async fn answered(connection: &mut Connection, session: &Session, id: u64) -> bool {
    connection.write(&session.request(id, "ping", &json!({})).bytes()).await;
    let response = connection.response().await;
    assert_eq!(response.status(), 200, "{response:?}");
    response.header("connection") != Some("close")
}

#[tokio::test]
async fn a_quiet_connection_goes_on_in_the_next_process() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let (pid, _) = heard(&session, 1).await;
    let mut quiet = kept(&session, 2).await;
    let mut never_used = Connection::open(gateway.address).await;
    // Whatever the gateway has read already must not be lost.
    let request = session.request(3, "ping", &json!({})).bytes();
    let head = String::from_utf8_lossy(&request).find("\r\n\r\n").unwrap();
    let mut begun = Vec::new();
    for bytes in [1, 20, 50, head + 3] {
        let (first, rest) = request.split_at(bytes);
        for mut connection in [kept(&session, 4).await, Connection::open(gateway.address).await] {
            connection.write(first).await;
            begun.push((connection, rest));
        }
    }
    for _ in 0..2 {
        assert!(gateway.hand_over().await.success());
    }
    assert!(answered(&mut quiet, &session, 5).await, "and may be used on");
    assert!(answered(&mut never_used, &session, 6).await);
    for (mut connection, rest) in begun {
        connection.write(rest).await;
        assert_eq!(connection.response().await.status(), 200);
    }
    assert_ne!(heard(&session, 7).await.0, pid);
}

#[tokio::test]
async fn a_connection_goes_on_after_a_stream_that_the_hand_over_has_ended() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let mut connection = Connection::open(gateway.address).await;
    connection.write(&session.get().bytes()).await;
    assert_eq!(connection.head().await.status, 200);
    let (status, body) = tokio::join!(gateway.hand_over(), within("the stream ends", connection.body()));
    assert!(status.success());
    assert!(String::from_utf8_lossy(&body).contains("retry:"));
    assert!(answered(&mut connection, &session, 1).await);
}

#[tokio::test]
async fn a_request_whose_body_comes_when_connections_are_passed_on_is_served() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    // One that a process which is about to end still serves.
    let request = session.request(1, "tools/list", &json!({})).bytes();
    let (first, rest) = request.split_at(request.len() - 10);
    let mut connection = kept(&session, 2).await;
    connection.write(first).await;
    let asked = gateway.logs_later("another process takes over");
    let answer = async {
        asked.await;
        // By now connections take no more requests; the gateway waits for this one.
        tokio::time::sleep(Duration::from_millis(600)).await;
        connection.write(rest).await;
        connection.response().await
    };
    let (status, response) = tokio::join!(gateway.hand_over(), answer);
    assert!(status.success());
    assert!(response.json()["result"].is_object(), "{response:?}");
    assert_eq!(response.header("connection"), Some("close"));
    assert!(connection.until_closed().await.is_empty());
}

/// What is told that it is the last request of its connection is so: the client waits for the end.
#[tokio::test]
async fn a_connection_that_is_to_be_closed_is_closed() {
    let mut gateway = Gateway::start(&["shutdown.grace=1h"]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let _waited_for = crate::gateway::crashing::begin(&session, 1, "slow", &gate).await;
    let (mut connection, address) = (kept(&session, 2).await, gateway.address);
    let asked = gateway.logs_later("another process takes over");
    let told = async {
        asked.await;
        // The first ones may come before connections hear of it.
        let mut id = 3;
        while answered(&mut connection, &session, id).await {
            id += 1;
        }
        assert!(connection.until_closed().await.is_empty());
        let mut once = Ask::new("GET", "/healthz").header("Connection", "close").begin(address).await;
        assert!(once.until_closed().await.starts_with(b"HTTP/1.1 200"));
        std::fs::write(&gate, "").unwrap();
    };
    let (status, ()) = tokio::join!(gateway.hand_over(), told);
    assert!(status.success());
}

/// Uses a connection as long as it may, with pauses of all lengths; how many requests were answered.
async fn keep_asking(to: SocketAddr, session: Session, pause: Duration, stop: Arc<AtomicBool>) -> u64 {
    let (mut connection, mut id) = (Connection::open(to).await, 0);
    while !stop.load(Ordering::Relaxed) {
        id += 1;
        if !answered(&mut connection, &session, id).await {
            connection = Connection::open(to).await;
        }
        tokio::time::sleep(pause).await;
    }
    id
}

#[tokio::test]
async fn no_request_on_a_kept_connection_is_lost_through_ten_take_overs() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..60 {
        let pause = Duration::from_millis(1 + 7 * number);
        let session = Session { id: gateway.session().await.id, ..session.clone() };
        asking.spawn(keep_asking(gateway.address, session, pause, Arc::clone(&stop)));
    }
    for _ in 0..10 {
        assert!(gateway.hand_over().await.success());
    }
    stop.store(true, Ordering::Relaxed);
    let answered = within("all are answered", asking.join_all()).await;
    eprintln!("{} requests on 60 kept connections", answered.iter().sum::<u64>());
}
