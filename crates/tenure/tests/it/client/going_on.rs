//! Sessions go on: from process to process, over a kill of the server, from one door to another.

use expect_test::expect_file;
use serde_json::json;

use super::home::Home;
use crate::operator::place::{kill, stop};
use crate::support::address::own_address;

#[tokio::test]
async fn two_calls_in_two_processes_share_a_notebook() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    assert_eq!(home.told(&["call", url, "notebook_append", r#"{"text":"one"}"#]).await, "{\"notes\":1}\n");
    assert_eq!(home.call(&[url, "notebook_append", "text=two"]).await, json!({ "notes": 2 }));
    assert_eq!(home.call(&[url, "notebook_read"]).await, json!({ "notes": ["one", "two"] }));
    assert_eq!(home.ids(&[]).await.len(), 1, "one session for all of it");
}

#[tokio::test]
async fn the_notebook_is_there_after_the_server_was_killed() {
    let home = Home::new();
    let server = home.serve(&["--set", &format!("listen={}", own_address())]).await;
    let (url, address) = (server.url.clone(), server.address());
    home.call(&[&url, "notebook_append", "text=one"]).await;
    kill(server).await;
    let said = home.refused(&["call", &url, "notebook_read"]).await;
    let said = said.replace(&address.to_string(), "127.0.0.1:PORT");
    expect_file!["snapshots/unreachable.txt"].assert_eq(&said);
    let server = home.serve(&["--set", &format!("listen={address}")]).await;
    assert_eq!(server.url, url);
    home.call(&[&url, "notebook_append", "text=two"]).await;
    assert_eq!(home.call(&[&url, "notebook_read"]).await, json!({ "notes": ["one", "two"] }));
}

#[tokio::test]
async fn a_server_that_is_started_for_each_call_keeps_the_session_too() {
    let home = Home::new();
    let stdio = home.stdio();
    let stdio: Vec<_> = stdio.iter().map(String::as_str).collect();
    home.call(&[&["notebook_append", "text=one"], &stdio[..]].concat()).await;
    let read = home.call(&[&["notebook_read"], &stdio[..]].concat()).await;
    assert_eq!(read, json!({ "notes": ["one"] }));
}

#[tokio::test]
async fn a_session_is_carried_from_http_to_stdio() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    home.call(&[&server.url, "notebook_append", "text=over HTTP"]).await;
    let id = home.ids(&[]).await.remove(0);
    stop(server).await;
    let stdio = home.stdio();
    let stdio: Vec<_> = stdio.iter().map(String::as_str).collect();

    // The jar does not hand a session to another server by itself.
    let prefix = &id[..12];
    let refused = home.refused(&[&["jar", "use", prefix], &stdio[..]].concat()).await;
    expect_file!["snapshots/use_of_another_server.txt"].assert_eq(&refused);
    let used = home.told(&[&["jar", "use", prefix, "--carry"], &stdio[..]].concat()).await;
    expect_file!["snapshots/use_carried.txt"].assert_eq(&home.plain(&used));
    home.call(&[&["notebook_append", "text=over a pipe"], &stdio[..]].concat()).await;

    // Or by its whole id, with a jar that has never seen it.
    let other = Home::new();
    let server = home.serve(&[]).await;
    let read = other.call(&[&server.url, "notebook_read", "--session", &id]).await;
    assert_eq!(read, json!({ "notes": ["over HTTP", "over a pipe"] }));
    assert_eq!(other.ids(&[]).await, [id], "and it is kept for the next call");
}

#[tokio::test]
async fn a_session_that_an_operator_made_is_used_by_its_id() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let data = r#"{"notes":["read me"]}"#;
    let made = home.place.told(&["sessions", "data", "create", "--data", data, "--json"]).await;
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let id = made["id"].as_str().unwrap();
    let read = home.call(&[&server.url, "notebook_read", "--session", id]).await;
    assert_eq!(read, json!({ "notes": ["read me"] }));
    home.call(&[&server.url, "notebook_append", "text=and this"]).await;
    assert_eq!(home.call(&[&server.url, "notebook_status"]).await, json!({ "notes": 2 }));
}

#[tokio::test]
async fn a_session_is_begun_where_one_is_required() {
    let home = Home::new();
    let server = home.serve(&["--set", "data_sessions.required=all"]).await;
    let url = server.url.as_str();
    let refused = home.refused(&["call", url, "public_echo", "text=hi", "--no-session"]).await;
    expect_file!["snapshots/session_required.txt"].assert_eq(&refused);
    assert!(!home.jar().exists(), "nothing was kept");
    assert_eq!(home.told(&["call", url, "public_echo", "text=hi"]).await, "hi\n");
    assert_eq!(home.ids(&[]).await.len(), 1);
}

#[tokio::test]
async fn a_revoked_session_is_told_and_the_next_call_begins_a_new_one() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    home.call(&[url, "notebook_append", "text=one"]).await;
    let (home, other) = home.copy();
    other.told(&["call", url, "session_probe", "action=revoke"]).await;
    assert_eq!(other.sessions(&[]).await[0]["reason"], "session_revoked");

    expect_file!["snapshots/session_revoked.txt"]
        .assert_eq(&home.refused(&["call", url, "notebook_read"]).await);
    assert_eq!(home.call(&[url, "notebook_read"]).await, json!({ "notes": [] }));
    let listed = home.plain(&home.told(&["jar", "list", url]).await);
    assert!(listed.contains("in use") && listed.contains("invalidated (session_revoked)"), "{listed}");
}

#[tokio::test]
async fn a_session_that_the_server_does_not_know_is_told() {
    let home = Home::new();
    let server = home.serve(&[]).await;
    let url = server.url.as_str();
    home.call(&[url, "notebook_append", "text=mine"]).await;
    let unknown = format!("sess-{}", "0".repeat(32));
    let refused = home.refused(&["call", url, "notebook_read", "--session", &unknown]).await;
    expect_file!["snapshots/session_unknown.txt"].assert_eq(&refused);
    assert_eq!(
        home.call(&[url, "notebook_read"]).await,
        json!({ "notes": ["mine"] }),
        "the old one is still there"
    );
}

#[tokio::test]
async fn a_server_without_sessions_works() {
    let home = Home::new();
    let server = home.serve(&["--set", "data_sessions.offer=never"]).await;
    let url = server.url.as_str();
    assert_eq!(home.told(&["call", url, "public_echo", "text=hi"]).await, "hi\n");
    assert!(!home.jar().exists(), "there is nothing to keep");
    for arguments in [&["call", url, "public_echo", "text=hi", "--new"][..], &["jar", "new", url]] {
        expect_file!["snapshots/no_sessions.txt"].assert_eq(&home.refused(arguments).await);
    }
}
