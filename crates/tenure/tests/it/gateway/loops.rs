//! Commands that do not come up: the client is told, the operator sees why, and the pauses grow.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::gateway::running::{Gateway, echo};
use crate::support::session::{Session, initialize};

async fn refused(gateway: &Gateway) -> (u16, i64, String) {
    initialize("2025-11-25").send(gateway.address).await.fault()
}

fn pauses(gateway: &Gateway) -> Vec<u64> {
    let lines = gateway.log_so_far();
    lines
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["next_try_ms"].as_u64())
        .collect()
}

#[tokio::test]
async fn a_command_that_exits_at_once_is_started_again_less_and_less_often() {
    let script = "echo first words >&2; echo the database is gone >&2; exit 3";
    let gateway = Gateway::before(&[], &["sh", "-c", script]).await;
    let unavailable = (200, -31011, "backend_unavailable".to_owned());
    let began = Instant::now();
    while pauses(&gateway).len() < 5 {
        assert_eq!(refused(&gateway).await, unavailable);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", pauses(&gateway));
    }
    let pauses = pauses(&gateway);
    assert_eq!(pauses[0], 0, "once may be a mishap");
    assert!(pauses[4] > pauses[1] && pauses[4] >= 500, "{pauses:?}");
    let failure = gateway.logged("why", |line| line["next_try_ms"].is_u64()).await;
    assert_eq!(failure["stderr"], "first words\nthe database is gone", "{failure}");
    assert!(failure["program"].as_str().is_some_and(|program| program == "sh"), "{failure}");
    // A warm one was tried with each, and no process is left over.
    gateway.until_children(0).await;
}

/// One that is not there from the beginning is refused at start; this one goes while the gateway runs.
#[tokio::test]
async fn a_command_that_is_not_there_any_more_is_named() {
    let folder = tempfile::TempDir::new().unwrap();
    let program = folder.path().join("mcp-server");
    std::fs::copy(echo(), &program).unwrap();
    let name = program.display().to_string();
    let gateway = Gateway::before(&["child.warm=0"], &[&name, "--flag"]).await;
    std::fs::remove_file(&program).unwrap();
    assert_eq!(refused(&gateway).await, (200, -31011, "backend_unavailable".to_owned()));
    let failure = gateway.logged("why", |line| line["next_try_ms"].is_u64()).await;
    assert_eq!(failure["program"], name);
    assert!(failure["message"].as_str().unwrap().contains("No such file or directory"), "{failure}");
}

/// Those who wait for a shared server wait for the same one, so it must not be one that never comes up.
#[tokio::test]
async fn a_shared_server_that_does_not_answer_initialize_is_given_up() {
    let script = r#"[ -e second ] && exec "$0"; : > second; sleep 1000"#;
    let folder = tempfile::TempDir::new().unwrap();
    let setting = format!("child.folder={}", folder.path().display());
    let settings = [&*setting, "child.share=true", "child.warm=0", "timeouts.initialize=1s"];
    let gateway = Gateway::before(&settings, &["sh", "-c", script, &echo()]).await;
    let both = tokio::join!(refused(&gateway), refused(&gateway));
    assert_eq!((both.0.2.as_str(), both.1.2.as_str()), ("timed_out", "timed_out"));
    let failure = gateway.logged("why", |line| line["next_try_ms"].is_u64()).await;
    assert!(failure["message"].as_str().unwrap().contains("did not answer initialize in time"), "{failure}");
    gateway.until_children(0).await;
    let session = Session::start(gateway.address).await;
    assert_eq!(session.tool(1, "public_echo", &serde_json::json!({ "text": "on" })).await.status(), 200);
    gateway.until_children(1).await;
}

#[tokio::test]
async fn a_server_that_answers_initialize_with_an_error_is_not_kept() {
    let gateway = Gateway::before(&["child.warm=0"], &["sh", "-c", REFUSES]).await;
    let said = initialize("2025-11-25").send(gateway.address).await;
    let error = &said.json()["error"];
    assert_eq!(
        (error["code"].as_i64(), error["message"].as_str()),
        (Some(-32000), Some("no licence")),
        "{said:?}"
    );
    gateway.until_children(0).await;
}

const REFUSES: &str = r#"read line; echo '{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no licence"}}'; cat >/dev/null"#;

#[tokio::test]
async fn a_server_that_never_answers_initialize_is_given_up() {
    let gateway =
        Gateway::before(&["child.warm=0", "timeouts.initialize=300ms"], &["sh", "-c", "cat >/dev/null"])
            .await;
    let said = initialize("2025-11-25").send(gateway.address).await;
    assert_eq!(said.json()["error"]["data"]["reason"], "timed_out", "{said:?}");
    gateway.until_children(0).await;
}

/// What one session's requests do to its server is no reason to keep other sessions waiting.
#[tokio::test]
async fn a_session_that_keeps_crashing_its_child_does_not_hold_up_others() {
    let gateway = Gateway::before(&[], &[&echo()]).await;
    let bad = gateway.session().await;
    let began = Instant::now();
    let mut refused = 0;
    for id in 0..40 {
        let said = bad.tool(id, "exit", &serde_json::json!({ "code": 1 })).await;
        match said.json()["error"]["data"]["reason"].as_str() {
            Some("interrupted") => {}
            Some("backend_unavailable") => refused += 1,
            _ => panic!("{said:?}"),
        }
        if refused > 3 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{id} children were started");
    }
    assert!(refused > 3, "a session that crashes its child over and over gets pauses too");
    let before = Instant::now();
    let good = Session::start(gateway.address).await;
    assert_eq!(good.tool(1, "public_echo", &serde_json::json!({ "text": "on" })).await.status(), 200);
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
}
