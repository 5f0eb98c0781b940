//! The verdicts about programs of either era, when they are probed in both eras.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_backend::child::{ChildBackend, ChildCommand, ChildLimits};
use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::evidence::Verdict;
use tenure_protocol::{RawJson, Revision};
use tenure_session::Route;
use tenure_session::backend::probe::{self, Probe};
use tenure_session::backend::{Backend, Open, Opening, Responder};
use tenure_session::call::{Client, Fanout, Outlet};

use super::{client, gone, limits, script, soon, text};

/// Answers each request by its method.
fn serving(discover: &str, initialize: &str) -> String {
    format!(
        r#"while read -r call; do id=${{call#*\"id\":}}; id=${{id%%,*}}
        case $call in
            *server/discover*) {discover} ;;
            *\"initialize\"*) {initialize} ;;
            *tools/call*) echo "{{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{{\"content\":[{{\"text\":\"$$\"}}]}}}}" ;;
        esac; done"#
    )
}

const DISCOVERED: &str = r#"echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{}}}""#;
const INTRODUCED: &str = r#"echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}}""#;
const UNKNOWN: &str =
    r#"echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"m\"}}""#;
const NOT_SERVED: &str = r#"echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32022,\"message\":\"m\",\"data\":{\"supported\":[\"2026-07-28\"]}}}""#;

async fn verdicts(command: ChildCommand) -> (Verdict, Verdict) {
    let backend = ChildBackend::new(command, None);
    let asks = client();
    let attempt = soon(backend.modern().probe(asks.call(1, "server/discover", json!({})))).await;
    let client: Arc<dyn Client> = asks;
    let open = Open {
        params: RawJson::of(&json!({"protocolVersion": "2025-11-25", "capabilities": {}})),
        revision: Revision::LATEST,
        opening: Opening::Fresh,
        route: Route::MAIN,
        outlet: Outlet::to(&client),
        fanout: Fanout::new(Route::MAIN),
    };
    let opened = soon(backend.open(open)).await;
    (attempt.verdict(MODERN), probe::opening(&opened))
}

#[tokio::test]
async fn programs_tell_their_era() {
    let table = [
        ("of both", serving(DISCOVERED, INTRODUCED), (Verdict::Yes, Verdict::Yes)),
        ("modern", serving(DISCOVERED, NOT_SERVED), (Verdict::Yes, Verdict::No)),
        ("modern, and does not know initialize", serving(DISCOVERED, UNKNOWN), (Verdict::Yes, Verdict::No)),
        ("legacy", serving(UNKNOWN, INTRODUCED), (Verdict::No, Verdict::Yes)),
        (
            "legacy, and ends when it does not understand",
            serving("exit 1", INTRODUCED),
            (Verdict::No, Verdict::Yes),
        ),
        ("legacy, and is silent", serving(":", INTRODUCED), (Verdict::No, Verdict::Yes)),
    ];
    for (name, text, expected) in table {
        let mut command = script(&text);
        if name.contains("silent") {
            // This one runs into the timeout. The others answer, however slow the machine is.
            command.limits.start_timeout = Duration::from_millis(700);
        }
        assert_eq!(verdicts(command).await, expected, "a program that is {name}");
    }
    let mut missing = ChildCommand::new("/no/such/program", Vec::<String>::new());
    missing.limits = limits();
    assert_eq!(verdicts(missing).await, (Verdict::Unknown, Verdict::Unknown));
}

#[tokio::test]
async fn a_child_that_was_asked_in_vain_is_ended_and_one_that_was_not_is_kept() {
    let asks = client();
    let discover = || asks.call(1, "server/discover", json!({}));
    let pid = || asks.call(1, "tools/call", json!({"name": "pid"}));
    for (answer, is_kept) in [(DISCOVERED, true), (UNKNOWN, false)] {
        let responder = ChildBackend::new(script(&serving(answer, INTRODUCED)), None).modern();
        let before = text(soon(responder.respond(pid())).await);
        soon(responder.probe(discover())).await;
        if !is_kept {
            gone(before.parse().unwrap()).await;
        }
        let after = text(soon(responder.respond(pid())).await);
        assert_eq!(before == after, is_kept);
    }
}

/// Waits until a process has stopped itself.
async fn stopped(pid: &str) {
    let is_stopped = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().any(|line| line.starts_with("State:\tT"))
    };
    let wait = async {
        while !is_stopped() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(wait).await;
}

#[tokio::test]
async fn a_modern_program_that_is_busy_is_left_alone_and_stays_modern() {
    let answer = r#"echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[{\"text\":\"$$\"}]}}""#;
    // It answers one request after the other, and the slow one only when the test allows it.
    let busy = format!("{DISCOVERED} ;; *slow*) kill -STOP $$; {answer}");
    let mut command = script(&serving(&busy, UNKNOWN));
    let patience = Duration::from_secs(10);
    command.limits = ChildLimits { start_timeout: patience, ..limits() };
    let responder = ChildBackend::new(command, None).modern();
    let asks = client();
    let discovery = || responder.probe(asks.call(1, "server/discover", json!({})));
    let tool = |name| responder.respond(asks.call(2, "tools/call", json!({ "name": name })));
    assert_eq!(soon(discovery()).await.verdict(MODERN), Verdict::Yes);
    let pid = text(soon(tool("pid")).await);
    let mut slow = tool("slow");
    assert!(futures_util::poll!(&mut slow).is_pending());
    stopped(&pid).await;
    let mut asking = discovery();
    assert!(futures_util::poll!(&mut asking).is_pending());
    tokio::time::pause();
    tokio::time::advance(patience * 3).await;
    tokio::time::resume();
    let early = futures_util::poll!(&mut asking);
    assert!(early.is_pending(), "the silence of a program that is busy is no answer: {early:?}");
    let told = std::process::Command::new("kill").args(["-CONT", &pid]).status().unwrap();
    assert!(told.success());
    assert_eq!(text(soon(slow).await), pid);
    assert_eq!(soon(asking).await.verdict(MODERN), Verdict::Yes);
    assert_eq!(text(soon(tool("pid")).await), pid, "the same child");
}

#[tokio::test]
async fn a_modern_program_that_dies_when_it_is_asked_says_nothing_about_its_era() {
    let once = format!("{DISCOVERED}; [ -n \"$seen\" ] && exit 1; seen=1");
    let once = once.replacen("echo", "[ -z \"$seen\" ] && echo", 1);
    let responder = ChildBackend::new(script(&serving(&once, UNKNOWN)), None).modern();
    let asks = client();
    let discovery = || responder.probe(asks.call(1, "server/discover", json!({})));
    assert_eq!(soon(discovery()).await.verdict(MODERN), Verdict::Yes);
    assert_eq!(soon(discovery()).await.verdict(MODERN), Verdict::Unknown);
    assert_eq!(soon(discovery()).await.verdict(MODERN), Verdict::Yes, "of the next child");
}
