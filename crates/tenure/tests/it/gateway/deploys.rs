//! The gateway is stopped, and another one takes its place: no call ends because of it, and no client is refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cli::process::run;
use crate::gateway::crashing::{begin, rest};
use crate::gateway::running::{Gateway, heard};
use crate::support::client::{Ask, Connection};
use crate::support::session::{Session, initialize};
use crate::support::wait::{DEADLINE, within};

/// What is said at a path that is not MCP.
async fn said(to: SocketAddr, path: &str) -> (u16, String) {
    let response = Ask::new("GET", path).send(to).await;
    (response.status(), response.text())
}

async fn said_ready(gateway: &Gateway) -> (u16, String) {
    said(gateway.address, "/readyz").await
}

/// Waits until it says of itself that it stops.
async fn draining(gateway: &Gateway) {
    let stops = async { while said(gateway.address, "/readyz").await != (503, "draining\n".to_owned()) {} };
    within("it drains", stops).await;
}

#[tokio::test]
async fn a_safe_call_is_collected_from_the_next_process() {
    let mut gateway = Gateway::start(&["shutdown.retry=7s", "streams.retry_jitter=0%"]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let mut stream = begin(&session, 1, "slow_safe", &gate).await;
    let last = stream.last_id();
    let before = Instant::now();
    gateway.terminate().await;
    assert_eq!(stream.items().await, ["retry 7000"], "no answer, and a word when to come back");
    assert!(stream.is_complete());
    assert!(gateway.ended().await.success());
    assert!(before.elapsed() < DEADLINE / 2, "it waits for nothing: {:?}", before.elapsed());
    gateway.start_again().await;
    std::fs::write(&gate, "").unwrap();
    assert_eq!(rest(&mut session.resume(&last).await).await, ["2", "3", "result 1"]);
}

#[tokio::test]
async fn while_an_unsafe_call_is_waited_for_everything_is_served_but_new_sessions() {
    let mut gateway = Gateway::start(&["shutdown.grace=1h"]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let mut stream = begin(&session, 1, "slow", &gate).await;
    let mut is_safe = begin(&session, 2, "slow_safe", &gate).await;
    let call = json!({ "name": "ask", "arguments": { "method": "roots/list", "params": {} } });
    let other = gateway.session().await;
    let mut asking = other.request(3, "tools/call", &call).open(gateway.address).await;
    let (_, question) = asking.message().await.unwrap();
    let mut idle = Connection::open(gateway.address).await;
    gateway.terminate().await;
    draining(&gateway).await;
    assert_eq!(said(gateway.address, "/healthz").await.0, 200);
    // An open question is answered, and a running call resumed.
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } });
    assert_eq!(other.post(&answer).send(gateway.address).await.status(), 202);
    assert_eq!(rest(&mut asking).await, ["result 3"]);
    let last = is_safe.last_id();
    is_safe = session.resume(&last).await;
    // Other requests are served, and each connection is used once.
    idle.write(&session.request(4, "ping", &json!({})).bytes()).await;
    let pong = idle.response().await;
    assert_eq!((pong.status(), pong.header("connection")), (200, Some("close")));
    assert_eq!(session.tool(5, "public_echo", &json!({ "text": "on" })).await.status(), 200);
    let refused = initialize("2025-11-25").send(gateway.address).await;
    assert_eq!(refused.fault(), (503, -31010, "draining".to_owned()));
    assert_eq!(refused.header("retry-after"), Some("1"));
    std::fs::write(&gate, "").unwrap();
    assert_eq!(rest(&mut stream).await, ["2", "3", "result 1"]);
    drop(is_safe);
    assert!(gateway.ended().await.success());
}

#[tokio::test]
async fn a_call_that_outlasts_the_grace_says_so_and_the_client_hears_it_from_the_next_process() {
    let mut gateway = Gateway::start(&["shutdown.grace=300ms"]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("never");
    let stream = begin(&session, 1, "slow", &gate).await;
    let last = stream.last_id();
    drop(stream);
    assert!(gateway.stop().await.success());
    gateway.start_again().await;
    assert_eq!(rest(&mut session.resume(&last).await).await, ["error 1 interrupted"]);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut gateway = Gateway::start(&["shutdown.grace=1h"]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("never");
    let _stream = begin(&session, 1, "slow", &gate).await;
    gateway.terminate().await;
    draining(&gateway).await;
    gateway.terminate().await;
    assert!(gateway.ended().await.success());
}

/// Asks whether the process lives, on a connection of its own, and reads the whole answer.
async fn ask_once(to: SocketAddr) -> std::io::Result<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(to).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 200") {
        Ok(began.elapsed())
    } else {
        Err(std::io::Error::other("no answer"))
    }
}

/// Connects a hundred times a second until it is told to stop; the answers, and how long the longest took.
async fn keep_asking(to: SocketAddr, stop: Arc<AtomicBool>) -> (Vec<std::io::Result<Duration>>, Duration) {
    let mut asking = tokio::task::JoinSet::new();
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    while !stop.load(Ordering::Relaxed) {
        pace.tick().await;
        asking.spawn(ask_once(to));
    }
    let answers = asking.join_all().await;
    let longest = answers.iter().flatten().max().copied().unwrap_or_default();
    (answers, longest)
}

#[tokio::test]
async fn no_client_is_refused_through_ten_take_overs() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let stop = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn(keep_asking(gateway.address, Arc::clone(&stop)));
    for number in 1..=10 {
        let gate = gateway.folder.path().join(format!("gate {number}"));
        let is_safe = begin(&session, number * 10, "slow_safe", &gate).await;
        let last = is_safe.last_id();
        assert!(gateway.hand_over().await.success());
        std::fs::write(&gate, "").unwrap();
        let answer = format!("result {}", number * 10);
        assert_eq!(rest(&mut session.resume(&last).await).await.last(), Some(&answer));
        heard(&session, number * 10 + 1).await;
    }
    stop.store(true, Ordering::Relaxed);
    let (answers, longest) = within("all are answered", asking).await.unwrap();
    let failed: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:?}", failed.len(), answers.len());
    eprintln!("{} connections; the longest took {longest:?}", answers.len());
}

#[tokio::test]
async fn the_old_process_serves_until_the_next_one_may_begin() {
    let mut gateway = Gateway::start(&["shutdown.grace=1h"]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let mut stream = begin(&session, 1, "slow", &gate).await;
    let (pid, address) = (heard(&session, 2).await.0, gateway.address);
    let served = {
        let (gate, session) = (gate.clone(), session.moved_to(address));
        let asked = gateway.logs_later("another process takes over");
        tokio::spawn(async move {
            asked.await;
            // A session that is begun while the process hands over goes on in the next one.
            let fresh = Session::start(address).await;
            assert_eq!(heard(&session, 3).await.0, pid, "the same server as before");
            std::fs::write(&gate, "").unwrap();
            fresh
        })
    };
    assert!(gateway.hand_over().await.success());
    assert_eq!(rest(&mut stream).await, ["2", "3", "result 1"]);
    let fresh = served.await.unwrap();
    assert_eq!(fresh.tool(1, "public_echo", &json!({ "text": "on" })).await.status(), 200);
    assert_ne!(heard(&session, 4).await.0, pid);
}

#[tokio::test]
async fn a_next_process_that_cannot_start_leaves_the_running_one_alone() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let store = format!("disk:{}", gateway.folder.path().join("store").display());
    let listen = gateway.address.to_string();
    let bad = ["serve", "--listen", &listen, "--store", &store, "--take-over", "--", "/no/such/program"];
    let said = run(&bad).await;
    assert_ne!(said.code, Some(0), "{}", said.err);
    gateway
        .logged("that it came to nothing", |line| {
            line["message"] == "another process began to take over and failed"
        })
        .await;
    let (pid, _) = heard(&session, 1).await;
    assert_eq!(said_ready(&gateway).await, (200, "ready\n".to_owned()));
    assert!(gateway.hand_over().await.success());
    assert_ne!(heard(&session, 2).await.0, pid);
}

#[tokio::test]
async fn without_a_process_to_take_over_it_starts_like_any_other() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    gateway.kill().await;
    gateway.hand_over().await;
    assert_eq!(session.tool(1, "public_echo", &json!({ "text": "on" })).await.status(), 200);
}

#[tokio::test]
async fn a_socket_that_was_passed_on_outlives_the_process() {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut gateway = Gateway::on_socket(socket).await;
    assert_eq!(gateway.address, address);
    let session = gateway.session().await;
    assert!(gateway.stop().await.success());
    // No process is there, and the connection waits for the next one.
    let mut waiting = Connection::open(address).await;
    waiting.write(&session.request(1, "ping", &json!({})).bytes()).await;
    gateway.start_again().await;
    assert_eq!(waiting.response().await.status(), 200);
}
