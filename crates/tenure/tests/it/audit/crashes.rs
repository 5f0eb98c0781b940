//! The log over kills, full disks, and processes that want the same one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;

use super::log::Log;
use crate::cli::process::{Server, finish, tenure};
use crate::support::client::Ask;
use crate::support::session::Session;
use crate::support::wait::until;

const REQUIRED: &str = "audit.durability=required";

#[tokio::test(flavor = "multi_thread")]
async fn al2_after_a_kill_every_call_that_a_client_saw_finished_is_in_the_log_and_the_chain_goes_on() {
    let log = Log::new();
    let setting = log.setting();
    let mut seen = 0;
    for round in 0..3 {
        let server = Server::start(&["--log-level", "warn", "--set", &setting, "--set", REQUIRED]).await;
        let address = server.address();
        let (finished, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let clients: Vec<_> = (0..4)
            .map(|_| {
                let (finished, over) = (Arc::clone(&finished), Arc::clone(&over));
                tokio::spawn(async move {
                    let session = Session::start(address).await;
                    for id in 1.. {
                        let params = json!({ "name": "public_echo", "arguments": { "text": "x" } });
                        // The server is killed in the middle of one of them.
                        let call = tokio::spawn(session.request(id, "tools/call", &params).send(address));
                        let Ok(answer) = call.await else { return };
                        assert_eq!(answer.status(), 200);
                        finished.fetch_add(1, Ordering::SeqCst);
                        if over.load(Ordering::SeqCst) {
                            return;
                        }
                    }
                })
            })
            .collect();
        until("some calls", || finished.load(Ordering::SeqCst) > 40).await;
        server.signal("KILL").await;
        server.ended().await;
        over.store(true, Ordering::SeqCst);
        for client in clients {
            // A client whose first request met the kill has failed.
            drop(client.await);
        }
        seen += finished.load(Ordering::SeqCst);
        let text = log.text();
        let kept = text.matches("\"event\":\"call_finished\"").count() as u64;
        assert!(kept >= seen, "round {round}: clients saw {seen}, the log has {kept}");
    }
    let server = Server::start(&["--set", &setting, "--set", REQUIRED]).await;
    server.signal("TERM").await;
    server.ended().await;
    let said = log.verified().await;
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert_eq!(log.records(&["audit_opened"]).len(), 4);
    assert!(log.records(&["call_begun"]).len() as u64 >= seen);
}

#[tokio::test]
async fn al4_on_a_full_disk_calls_are_refused_where_records_are_required_and_health_is_answered() {
    for (durability, is_refused) in [("required", true), ("best_effort", false)] {
        let log = Log::new();
        // A device on which nothing can be written.
        std::os::unix::fs::symlink("/dev/full", log.path()).unwrap();
        let durability = format!("audit.durability={durability}");
        let server = Server::start(&["--log", "json", "--set", &log.setting(), "--set", &durability]).await;
        let address = server.address();
        let session = Session::start(address).await;
        let answer = session.tool(1, "public_echo", &json!({ "text": "x" })).await;
        assert_eq!(answer.status(), 200);
        let answer = answer.json();
        let reason = &answer["error"]["data"]["reason"];
        assert_eq!(*reason == "audit_unavailable", is_refused, "{answer}");
        assert_eq!(answer["result"].is_object(), !is_refused, "{answer}");
        let lists = session.request(2, "tools/list", &json!({})).send(address).await.json();
        assert!(lists["result"]["tools"].is_array(), "what is not recorded goes on: {lists}");
        assert_eq!(Ask::get().at("/healthz").send(address).await.status(), 200);
        server.signal("TERM").await;
        let (status, _, logs) = server.ended().await;
        assert_eq!(status.code(), Some(0), "{logs}");
        assert!(logs.contains("the audit log cannot be written"), "{logs}");
    }
}

#[tokio::test]
async fn al3_a_signal_puts_the_file_aside_and_the_chain_goes_on() {
    let log = Log::new();
    let server = Server::start(&["--set", &log.setting()]).await;
    let session = Session::start(server.address()).await;
    session.tool(1, "public_echo", &json!({ "text": "x" })).await;
    server.signal("USR1").await;
    until("the file is put aside", || log.beside(".000000000001").exists()).await;
    session.tool(2, "public_echo", &json!({ "text": "x" })).await;
    server.signal("TERM").await;
    server.ended().await;
    let said = log.verified().await;
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert!(said.out.starts_with("good: ") && said.out.contains(", 1 to "), "{}", said.out);
}

#[tokio::test]
async fn al1_a_log_that_was_cut_is_found_and_no_process_goes_on_with_it() {
    let log = Log::new();
    let server = Server::start(&["--set", &log.setting()]).await;
    let session = Session::start(server.address()).await;
    session.tool(1, "public_echo", &json!({ "text": "x" })).await;
    server.signal("TERM").await;
    server.ended().await;
    let text = log.text();
    let cut: Vec<&str> = text.lines().take(2).collect();
    std::fs::write(log.path(), cut.join("\n") + "\n").unwrap();
    let said = log.verified().await;
    assert_eq!(said.code, Some(1));
    assert!(said.out.starts_with("broken at record 3: the log was cut"), "{}", said.out);
    let setting = log.setting();
    let said =
        finish(tenure(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--set", &setting])).await;
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("was cut"), "{}", said.err);
}

#[tokio::test]
async fn two_processes_do_not_write_to_one_log() {
    let log = Log::new();
    let server = Server::start(&["--set", &log.setting()]).await;
    let setting = log.setting();
    let said =
        finish(tenure(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--set", &setting])).await;
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("another process writes to the audit log"), "{}", said.err);
    server.signal("TERM").await;
    server.ended().await;
}

#[tokio::test]
async fn the_key_is_for_its_owner_alone_and_a_log_is_not_continued_without_it() {
    use std::os::unix::fs::PermissionsExt;
    let log = Log::new();
    let server = Server::start(&["--set", &log.setting()]).await;
    server.signal("TERM").await;
    server.ended().await;
    for file in [log.path(), log.beside(".key"), log.beside(".head")] {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", file.display());
    }
    let setting = log.setting();
    let start = async || {
        finish(tenure(&["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--set", &setting])).await
    };
    std::fs::set_permissions(log.beside(".key"), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(start().await.err.contains("other users may read"));
    std::fs::remove_file(log.beside(".key")).unwrap();
    assert!(start().await.err.contains("the log was begun with it"));
}
