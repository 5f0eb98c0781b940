//! Child processes at bad moments: a call that takes too long, an input that is closed, questions without end.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_backend::child::{ChildBackend, ChildCommand, ChildLimits};
use tenure_session::call::Caller;
use tenure_session::{Limits, Session, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::runtime::{self, json_of};

/// Answers `initialize` and reads `notifications/initialized`.
const HANDSHAKE: &str = r#"
read -r initialize
echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"sh","version":"1"}}}'
read -r initialized
"#;

/// A session whose server runs this script after the handshake, in its own folder.
async fn session(name: &str, script: &str, limits: Limits) -> (Sessions, Arc<Session>, PathBuf) {
    let folder = std::env::temp_dir().join(format!("tenure-child-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = ChildCommand::new("sh", ["-c".to_owned(), format!("{HANDSHAKE}{script}")]);
    command.folder = Some(folder.clone());
    command.limits = ChildLimits { warm: 0, grace: Duration::from_millis(100), ..ChildLimits::default() };
    let backend = Arc::new(ChildBackend::new(command, None));
    let sessions = runtime::start(Arc::new(Memory::new()), backend, limits);
    let session = runtime::session(&sessions, "2025-11-25").await;
    (sessions, session, folder)
}

async fn ask(session: &Arc<Session>, id: u64, method: &str) -> Value {
    let request = runtime::request(id, method, &json!({}));
    json_of(session.request(request, Caller::anonymous("test")).await.unwrap())
}

/// Waits until the server has written a line to the file, and returns its content.
async fn written(file: PathBuf) -> String {
    for _ in 0..3000 {
        match std::fs::read_to_string(&file) {
            Ok(text) if text.ends_with('\n') => return text,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    panic!("nothing in {}", file.display());
}

#[tokio::test]
async fn a_server_hears_that_the_time_of_a_call_is_up() {
    let limits = Limits { request_timeout: Duration::from_millis(200), ..Limits::default() };
    let limits = Limits { json_wait: Duration::ZERO, ..limits };
    let script = "read -r call; read -r next; echo \"$next\" > heard; cat";
    let (sessions, session, folder) = session("late", script, limits).await;
    assert_eq!(ask(&session, 7, "tools/list").await["error"]["data"]["reason"], "timed_out");
    let heard: Value = serde_json::from_str(&written(folder.join("heard")).await).unwrap();
    assert_eq!(heard["method"], "notifications/cancelled");
    assert_eq!(heard["params"]["requestId"], 1, "our own id for it");
    sessions.shut_down(Duration::ZERO).await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_server_that_closes_only_its_input_is_replaced() {
    // The first server closes its input and lives on; the second one answers.
    let script = r#"
        if [ ! -e first ]; then echo > first; exec <&-; echo > closed; sleep 60; fi
        while read -r call; do
            id=${call#*\"id\":}; id=${id%%,*}
            echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{}}"
        done
    "#;
    let limits = Limits { json_wait: Duration::ZERO, ..Limits::default() };
    let (sessions, session, folder) = session("deaf", script, limits).await;
    written(folder.join("closed")).await;
    // The first request finds the closed input, and no request is lost.
    for id in 1..=3 {
        let answer = ask(&session, id, "tools/list");
        let answer =
            tokio::time::timeout(Duration::from_secs(10), answer).await.expect("long before it ends");
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
    sessions.shut_down(Duration::ZERO).await;
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_server_that_asks_and_does_not_read_costs_no_more_than_its_bound() {
    let script = r#"
        i=0
        while [ $i -lt 20000 ]; do
            echo "{\"jsonrpc\":\"2.0\",\"id\":\"some-id-that-makes-the-answers-fill-the-pipe-$i\",\"method\":\"ping\"}"
            i=$((i+1))
        done
        echo > asked
        sleep 60
    "#;
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (sessions, _session, folder) = session("flood", script, Limits::default()).await;
    written(folder.join("asked")).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks() - before;
    assert!(tasks < 200, "{tasks} tasks");
    sessions.shut_down(Duration::ZERO).await;
    std::fs::remove_dir_all(folder).unwrap();
}

/// The first process ends when it gets `initialize`; the others serve.
const FIRST_DIES: &str = "if mkdir first 2> mkdir; then read -r initialize; exit 7; fi";

#[tokio::test]
async fn a_spare_that_ends_in_its_handshake_is_thrown_away_and_a_fresh_process_serves() {
    for is_shared in [false, true] {
        let folder = std::env::temp_dir().join(format!("tenure-spare-{is_shared}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let script = format!("{FIRST_DIES}\n{HANDSHAKE}cat > rest");
        let mut command = ChildCommand::new("sh", ["-c".to_owned(), script]);
        command.folder = Some(folder.clone());
        command.is_shared = is_shared;
        command.limits = ChildLimits { warm: 1, grace: Duration::from_millis(100), ..ChildLimits::default() };
        let backend = Arc::new(ChildBackend::new(command, None));
        // The spare waits for `initialize`. No other process has started.
        while !folder.join("first").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let sessions = runtime::start(Arc::new(Memory::new()), backend, Limits::default());
        let session = runtime::session(&sessions, "2025-11-25").await;
        drop(session);
        sessions.shut_down(Duration::ZERO).await;
        std::fs::remove_dir_all(folder).unwrap();
    }
}
