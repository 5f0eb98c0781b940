//! Sessions to a file, and from there into another store.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::place::{
    Place, assert_lives, assert_over, at, digits, finished_call, kill, label, long_call, rest, stop,
};
use crate::cli::process::tenure;
use crate::support::session::Session;
use crate::support::wait::within;

#[tokio::test]
async fn a_session_goes_on_elsewhere_with_its_id_and_its_streams() {
    let (old, new) = (Place::new(), Place::new());
    let server = old.serve().await;
    let session = Session::start(server.address()).await;
    let events = finished_call(&session, 1).await;
    assert!(events.len() >= 5, "{events:?}");
    let mut stream = long_call(&session, 2).await;
    let (open_at, _) = stream.message().await.expect("more progress");
    let deleted = Session::start(server.address()).await;
    assert_eq!(deleted.delete().send(server.address()).await.status(), 204);
    kill(server).await;

    let file = old.beside("sessions.jsonl");
    let said = old.run(&["sessions", "export", "--output", "sessions.jsonl"]).await;
    assert!(said.err.ends_with("exported 2 sessions to `sessions.jsonl`\n"), "{}", said.err);
    assert_eq!(said.code, Some(0));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().count(), 2);
    assert!(!text.contains(&session.id) && !text.contains(&deleted.id), "no secret is in it");

    let said = new.run(&["sessions", "import", file.to_str().unwrap()]).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.ends_with("imported 2 sessions\n"), "{}", said.err);
    let server = new.serve().await;
    let session = at(&session, &server);
    // Exactly what came after the first event, with the same ids.
    let mut resumed = session.resume(&events[0].0).await;
    assert_eq!(rest(&mut resumed).await, events[1..]);
    // The call that was running is safe to repeat, so it goes on here.
    let mut resumed = session.resume(&open_at).await;
    let (id, progress) = within("it goes on", resumed.message()).await.expect("progress");
    assert_ne!(id, open_at);
    assert_eq!(progress["method"], "notifications/progress");
    assert_lives(&session).await;
    assert_over(&at(&deleted, &server), "session_deleted").await;
}

#[tokio::test]
async fn sessions_move_between_running_servers() {
    let (old, new) = (Place::new(), Place::new());
    let (from, to) = (old.serve().await, new.serve().await);
    let (one, two) = (Session::start(from.address()).await, Session::start(from.address()).await);
    let events = finished_call(&one, 1).await;
    let line = old.told(&["sessions", "export", &label(&one)]).await;
    let saved: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&saved["format"], &saved["key"]), (&json!(1), &json!(digits(&one))));
    assert_over(&at(&one, &to), "session_not_found").await;

    // Through standard input.
    let mut command = tenure(&["sessions", "import", "-"]);
    command.env("TENURE_STORE", new.url()).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(line.as_bytes()).await.unwrap();
    drop(input);
    let output = within("the import", child.wait_with_output()).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "imported 1 session\n");

    assert_eq!(new.rows(&["--state", "dormant"]).await.len(), 1);
    let moved = at(&one, &to);
    let mut resumed = moved.resume(&events[0].0).await;
    assert_eq!(rest(&mut resumed).await, events[1..]);
    assert_over(&at(&two, &to), "session_not_found").await;
    assert_lives(&one).await;
}

#[tokio::test]
async fn a_session_that_is_there_is_not_overwritten_by_accident() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let events = finished_call(&session, 1).await;
    place.told(&["sessions", "export", "-o", "saved"]).await;
    let there = place.refused(&["sessions", "export", "-o", "saved"]).await;
    expect_test::expect_file!["snapshots/export_exists.txt"].assert_eq(&there);

    let refused = |text: String| text.replace(&label(&session), "LABEL");
    let exists = refused(place.refused(&["sessions", "import", "saved"]).await);
    // It is awake, which is worse than being there.
    expect_test::expect_file!["snapshots/import_awake.txt"].assert_eq(&exists);
    let awake = refused(place.refused(&["sessions", "import", "saved", "--replace"]).await);
    assert_eq!(awake, exists);
    stop(server).await;
    let exists = refused(place.refused(&["sessions", "import", "saved"]).await);
    expect_test::expect_file!["snapshots/import_exists.txt"].assert_eq(&exists);

    place.told(&["sessions", "revoke", &label(&session)]).await;
    place.refused(&["sessions", "import", "saved"]).await;
    place.told(&["sessions", "import", "saved", "--replace"]).await;
    let server = place.serve().await;
    let session = at(&session, &server);
    let mut resumed = session.resume(&events[0].0).await;
    assert_eq!(rest(&mut resumed).await, events[1..], "as it was saved");
}

#[tokio::test]
async fn a_dormant_session_is_replaced_while_the_server_runs() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let first = finished_call(&session, 1).await;
    place.told(&["sessions", "export", "-o", "saved"]).await;
    finished_call(&session, 2).await;
    kill(server).await;
    // No client has asked for it since, so it is dormant here.
    let server = place.serve().await;
    let streams = async || place.shown(&session).await["streams"].as_array().unwrap().len();
    assert_eq!(streams().await, 2);
    place.told(&["sessions", "import", "saved", "--replace"]).await;
    assert_eq!(streams().await, 1, "what came after it was saved is gone");
    let mut resumed = at(&session, &server).resume(&first[0].0).await;
    assert_eq!(rest(&mut resumed).await, first[1..]);
}

#[tokio::test]
async fn a_bad_line_is_named_and_nothing_of_its_file_is_imported() {
    let (old, new) = (Place::new(), Place::new());
    let server = old.serve().await;
    let session = Session::start(server.address()).await;
    let line = old.told(&["sessions", "export"]).await;
    std::fs::write(new.beside("cut"), format!("{line}\n{}", &line[..40])).unwrap();
    std::fs::write(new.beside("newer"), line.replace("{\"format\":1,\"key\"", "{\"format\":2,\"key\""))
        .unwrap();
    std::fs::write(new.beside("changed"), line.replace(&digits(&session), "no key")).unwrap();
    let mut all = String::new();
    for file in ["cut", "newer", "changed", "missing"] {
        all.push_str(&new.refused(&["sessions", "import", file]).await);
        all.push('\n');
    }
    expect_test::expect_file!["snapshots/import_bad.txt"].assert_eq(&all);
    assert!(!new.store().exists(), "not even a store was made");
}
