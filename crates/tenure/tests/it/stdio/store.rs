//! The store of a stdio process: used by one process at a time, sound after a kill, open to operators.

use expect_test::expect_file;
use serde_json::{Value, json};

use super::process::Process;
use super::talk::fault;
use crate::operator::place::{Place, assert_lives, at, stop};
use crate::support::session::Session;

#[tokio::test]
async fn a_second_process_on_the_same_store_is_told_what_to_do() {
    let place = Place::new();
    let mut first = Process::open(&["--store", &place.url()]).await;
    let second = Process::start(&["--store", &place.url()]).ended().await;
    assert_eq!((second.status.code(), second.rest.len()), (Some(1), 0));
    let text = second.logs.replace(&place.path().display().to_string(), "DIR");
    expect_file!["snapshots/store_in_use.txt"].assert_eq(&text);
    first.echo(1).await;
    first.close().await;
    // When the first is gone, there is room.
    let mut third = Process::open(&["--store", &place.url()]).await;
    third.echo(1).await;
    third.close().await;
}

#[tokio::test]
async fn after_a_kill_the_store_opens_and_the_session_is_left_to_expire() {
    let place = Place::new();
    let mut process = Process::open(&["--store", &place.url()]).await;
    process.call(1, "long_task", &json!({ "seconds": 3600 })).await;
    assert_eq!(process.message().await["method"], "notifications/progress");
    process.signal("KILL").await;
    assert_eq!(process.ended().await.status.code(), None);
    let rows = place.rows(&[]).await;
    assert_eq!((rows.len(), &rows[0]["state"]), (1, &json!("dormant")));
    let mut process = Process::open(&["--store", &place.url()]).await;
    process.echo(1).await;
    process.close().await;
    let mut states: Vec<_> = place.rows(&[]).await.iter().map(|row| row["state"].clone()).collect();
    states.sort_by_key(Value::to_string);
    assert_eq!(states, ["dormant", "ended"]);
}

#[tokio::test]
async fn sessions_of_a_server_are_left_alone() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    stop(server).await;
    let mut process = Process::open(&["--store", &place.url()]).await;
    process.echo(1).await;
    process.close().await;
    let server = place.serve().await;
    assert_lives(&at(&session, &server)).await;
}

#[tokio::test]
async fn operators_see_the_session_and_can_end_it() {
    let place = Place::new();
    let mut process = Process::open(&["--set", "shutdown.grace=1h", "--store", &place.url()]).await;
    process.call(1, "long_task", &json!({ "seconds": 3600 })).await;
    assert_eq!(process.message().await["method"], "notifications/progress");
    let rows = place.rows(&[]).await;
    assert_eq!(rows.len(), 1);
    assert_eq!((&rows[0]["state"], &rows[0]["calls"]), (&json!("awake"), &json!(1)));
    let label = rows[0]["label"].as_str().unwrap();
    place.told(&["sessions", "revoke", label]).await;
    // With its session a connection has nothing left to do.
    let ended = process.ended().await;
    assert_eq!(fault(ended.rest.last().unwrap()), (Some(&json!(1)), "session_revoked"));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.logs);
    assert_eq!(place.rows(&[]).await[0]["end"], "revoked");
}

#[tokio::test]
async fn a_session_does_not_grow_too_old_for_its_connection() {
    let shortest = ["max_lifetime", "idle_ttl", "handshake_ttl"].map(|key| format!("session.{key}=1ms"));
    let arguments: Vec<&str> = shortest.iter().flat_map(|setting| ["--set", setting]).collect();
    let mut process = Process::open(&arguments).await;
    process.call(1, "long_task", &json!({ "seconds": 2, "interval_ms": 50 })).await;
    while process.message().await["id"] != 1 {}
    process.echo(2).await;
    process.close().await;
}
