//! `tenure serve`, from its first line to its exit code.

use serde_json::json;

use super::process::{Server, finish, run, tenure};
use crate::support::client::Ask;
use crate::support::session::{Session, initialize};
use crate::support::wait::within;

#[tokio::test]
async fn the_first_line_is_the_endpoint_and_it_answers() {
    let server = Server::start(&[]).await;
    assert!(server.url.starts_with("http://127.0.0.1:") && server.url.ends_with("/mcp"), "{}", server.url);
    let session = Session::start(server.address()).await;
    let response = session.tool(1, "public_echo", &json!({ "text": "from a process" })).await;
    assert_eq!(response.json()["result"]["content"][0]["text"], "from a process");
    server.signal("TERM").await;
    let (status, rest, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    assert_eq!(rest, "", "standard output is the address and nothing more");
}

#[tokio::test]
async fn an_interrupt_from_the_keyboard_is_a_good_end_too() {
    let server = Server::start(&[]).await;
    let session = Session::start(server.address()).await;
    let mut stream = session.listen().await;
    stream.event().await.unwrap();
    server.signal("INT").await;
    assert_eq!(stream.items().await, ["retry 10000"]);
    assert_eq!(server.ended().await.0.code(), Some(0));
}

#[tokio::test]
async fn a_call_in_flight_is_finished_before_the_process_ends() {
    let server = Server::start(&[]).await;
    let session = Session::start(server.address()).await;
    let params =
        json!({ "name": "long_task", "arguments": { "seconds": 1 }, "_meta": { "progressToken": 1 } });
    let mut stream = session.request(1, "tools/call", &params).open(server.address()).await;
    stream.message().await.unwrap();
    server.signal("TERM").await;
    let mut last = String::new();
    for heard in stream.rest().await {
        last = heard;
    }
    assert_eq!(last, "result 1");
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let server = Server::start(&["--set", "shutdown.grace=1h"]).await;
    let session = Session::start(server.address()).await;
    let params =
        json!({ "name": "long_task", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": 1 } });
    let mut stream = session.request(1, "tools/call", &params).open(server.address()).await;
    stream.message().await.unwrap();
    server.signal("TERM").await;
    // Two signals at once may count as one, so the second waits until the first has had its effect.
    let stops = async { while Ask::new("GET", "/readyz").send(server.address()).await.status() != 503 {} };
    within("it begins to stop", stops).await;
    server.signal("TERM").await;
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    assert!(logs.contains("a second time"), "{logs}");
}

#[tokio::test]
async fn an_address_in_use_is_explained() {
    let server = Server::start(&[]).await;
    let address = server.address().to_string();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let said = run(&["serve", "--listen", &address, "--store", &format!("disk:{}", store.display())]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    let text = said.err.replace(&address, "127.0.0.1:PORT");
    expect_test::expect_file!["snapshots/address_in_use.txt"].assert_eq(&text);
    assert!(!store.exists(), "nothing is begun, so nothing of it can fail later");
    assert_eq!(Ask::new("GET", "/healthz").send(server.address()).await.status(), 200);
}

#[tokio::test]
async fn settings_come_from_flags_variables_and_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tenure.toml");
    std::fs::write(&file, "[session]\nmax_sessions = 1\n").unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]).await;
    Session::start(server.address()).await;
    let refused = initialize("2025-11-25").send(server.address()).await;
    assert_eq!(refused.fault().2, "too_many_sessions");
    let mut command = tenure(&["config", "show"]);
    command.env("TENURE_SESSION_MAX_SESSIONS", "2").env("TENURE_CONFIG", &file);
    let said = finish(command).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.out.contains("max_sessions = 2                         # env TENURE_SESSION_MAX_SESSIONS"),
        "{}",
        said.out
    );
}

/// A mistyped command is an error now, and not when the first client comes.
#[tokio::test]
async fn a_command_that_cannot_be_run_is_refused_at_start() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let script = folder.path().join("server.js");
    std::fs::write(&script, "").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o644)).unwrap();
    let script = script.display().to_string();
    let (runs_in, nowhere) = (format!("child.folder={path}"), format!("child.folder={path}/gone"));
    let mut all = String::new();
    for (settings, command) in [
        (&[][..], "no-such-mcp-server"),
        (&[][..], "./no/such/file"),
        (&["--set", &runs_in][..], "bin/server"),
        (&["--set", &nowhere][..], "sh"),
        (&[][..], &script),
        (&[][..], &path),
    ] {
        let base = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:"];
        let said = run(&[&base[..], settings, &["--", command, "--flag"]].concat()).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{}", said.err);
        all += &said.err.replace(&path, "FOLDER");
    }
    expect_test::expect_file!["snapshots/command_not_found.txt"].assert_eq(&all);
}
