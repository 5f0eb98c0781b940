//! Backups, checks, repairs, copies and keys.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use serde_json::{Value, json};

use super::place::{Place, assert_lives, at, finished_call, kill, label, rest, stop, url};
use crate::cli::process::Server;
use crate::support::session::Session;

#[tokio::test]
async fn a_backup_of_a_running_server_is_a_store_of_its_own() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let events = finished_call(&session, 1).await;
    let said = place.run(&["store", "backup", "monday"]).await;
    assert_eq!(said.code, Some(0), "{}", said.err);
    let backup = place.beside("monday");
    assert!(said.err.ends_with(&format!("backed up 1 session to `{}`\n", backup.display())), "{}", said.err);
    let later = Session::start(server.address()).await;
    assert_lives(&session).await;
    let again = place.refused(&["store", "backup", "monday"]).await;
    expect_file!["snapshots/backup_not_empty.txt"].assert_eq(&again);

    let copy = Server::start(&["--store", &url(&backup)]).await;
    let mut resumed = at(&session, &copy).resume(&events[0].0).await;
    assert_eq!(rest(&mut resumed).await, events[1..]);
    super::place::assert_over(&at(&later, &copy), "session_not_found").await;
}

#[tokio::test]
async fn a_store_that_is_not_in_use_is_backed_up_too() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    kill(server).await;
    place.told(&["store", "backup", "monday"]).await;
    let checked = place.told(&["store", "check", "--store", "disk:monday"]).await;
    assert!(checked.starts_with("`monday` is sound\n  1 session, "), "{checked}");
    let copy = Server::start(&["--store", &url(&place.beside("monday"))]).await;
    assert_lives(&at(&session, &copy)).await;
}

#[tokio::test]
async fn a_store_is_encrypted_by_a_copy_and_opens_with_its_key_alone() {
    let place = Place::new();
    let server = place.serve().await;
    let session = Session::start(server.address()).await;
    let events = finished_call(&session, 1).await;
    let secret = "a note that must not be found on the disk";
    let in_use = place.refused(&["store", "copy", &place.url(), "disk:sealed"]).await;
    expect_file!["snapshots/copy_in_use.txt"].assert_eq(&in_use);
    let params = json!({ "name": "ask_name", "arguments": {}, "_meta": { "note": secret } });
    let mut asking = session.request(2, "tools/call", &params).open(server.address()).await;
    asking.message().await.expect("a question");
    kill(server).await;

    for name in ["key", "other-key"] {
        place.told(&["store", "new-key", "--output", name]).await;
    }
    let copy = ["store", "copy", &place.url(), "disk:sealed", "--to-key-file", "key"];
    let said = place.run(&copy).await;
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "{}", said.err);
    assert!(said.err.contains("copying: 1 of 1 records\n"), "{}", said.err);
    let last = said.err.lines().last().unwrap();
    assert!(last.starts_with("copied 1 record, 2 streams and "), "{last}");
    assert!(contains(&place.store(), secret), "it is there in the plain store");
    assert!(!contains(&place.beside("sealed"), secret));

    let full = place.refused(&copy).await;
    expect_file!["snapshots/copy_not_empty.txt"].assert_eq(&full);
    let itself = place.refused(&["store", "copy", "disk:sealed", "disk:./sealed"]).await;
    expect_file!["snapshots/copy_itself.txt"].assert_eq(&itself);
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "disk:sealed"];
    expect_file!["snapshots/no_key.txt"].assert_eq(&place.refused(&serve).await);
    let list = ["sessions", "list", "--store", "disk:sealed"];
    assert_eq!(place.refused(&list).await, place.refused(&serve).await);
    let other = place.refused(&[&list[..], &["--store-key-file", "other-key"]].concat()).await;
    assert!(other.contains("the store is encrypted with key "), "{other}");

    let listed = place.told(&[&list[..], &["--store-key-file", "key"]].concat()).await;
    assert!(listed.contains(&label(&session)), "{listed}");
    let (sealed, key) = (url(&place.beside("sealed")), place.beside("key"));
    let server = Server::start(&["--store", &sealed, "--store-key-file", key.to_str().unwrap()]).await;
    let mut resumed = at(&session, &server).resume(&events[0].0).await;
    assert_eq!(rest(&mut resumed).await, events[1..]);
    // The server has the key: who asks it needs none.
    assert!(place.told(&list).await.contains(&label(&session)));
}

/// Whether a text is in any file of a folder.
fn contains(folder: &Path, text: &str) -> bool {
    files(folder).iter().any(|file| {
        let bytes = std::fs::read(file).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        bytes[..end].windows(text.len()).any(|window| window == text.as_bytes())
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let inside = |entry: std::fs::DirEntry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files(&entry.path()),
        kind if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    };
    entries.flat_map(inside).collect()
}

#[tokio::test]
async fn a_check_finds_damage_and_a_repair_makes_the_store_start_again() {
    let place = Place::new();
    let server = place.serve().await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        let session = Session::start(server.address()).await;
        finished_call(&session, 1).await;
        sessions.push(session);
    }
    let in_use = place.refused(&["store", "check"]).await;
    expect_file!["snapshots/check_in_use.txt"].assert_eq(&in_use);
    stop(server).await;
    let sound = place.told(&["store", "check"]).await;
    assert!(
        sound.contains("` is sound\n  8 sessions, 0 data sessions, 0 tasks, 1 other record, "),
        "{sound}"
    );
    let report: Value = serde_json::from_str(&place.told(&["store", "check", "--json"]).await).unwrap();
    assert_eq!((&report["is_sound"], &report["totals"]["sessions"]), (&json!(true), &json!(8)));

    flip_a_bit(&place.store());
    let said = place.run(&["store", "check"]).await;
    assert_eq!(said.code, Some(2), "{}{}", said.out, said.err);
    assert!(
        said.out.contains("` is damaged\n") && said.out.contains(".jnl: a damaged journal"),
        "{}",
        said.out
    );
    assert!(said.err.ends_with(
        "hint: save the readable data with `tenure store check --repair`; the damaged files are kept\n"
    ));
    let found: Value = serde_json::from_str(&place.run(&["store", "check", "--json"]).await.out).unwrap();
    assert_eq!((&found["is_sound"], &found["damage"][0]["kind"]), (&json!(false), &json!("journal")));
    let refused = place.refused(&["serve", "--listen", "127.0.0.1:0"]).await;
    assert!(refused.contains("hint: check the store with `tenure store check`"), "{refused}");

    let said = place.run(&["store", "check", "--repair"]).await;
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert!(said.out.contains("` is repaired\n") && said.out.contains("/data.damaged-"), "{}", said.out);
    assert!(place.told(&["store", "check"]).await.contains("` is sound\n"));
    let server = place.serve().await;
    let mut alive = 0;
    for session in &sessions {
        let answer = at(session, &server).tool(9, "public_echo", &json!({ "text": "hello" })).await;
        alive += usize::from(answer.status() == 200);
    }
    // One batch of writes may be gone, which is one session's at most.
    assert!(alive >= 7, "{alive} of 8");
}

/// Flips a bit in the middle of what was written to the journal.
fn flip_a_bit(store: &Path) {
    let is_journal = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "jnl");
    let journal = files(store).into_iter().find(is_journal).expect("a journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).expect("something was written");
    bytes[end / 2] ^= 0x20;
    std::fs::write(&journal, bytes).unwrap();
}

#[tokio::test]
async fn a_new_key_is_for_its_owner_alone_and_never_overwrites_another() {
    let place = Place::new();
    let printed = place.told(&["store", "new-key"]).await;
    let is_key =
        |text: &str| text.len() == 65 && text.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_key(&printed), "{printed}");
    assert_ne!(place.told(&["store", "new-key"]).await, printed);
    let said = place.run(&["store", "new-key", "--output", "key"]).await;
    assert_eq!((said.code, said.out.as_str()), (Some(0), ""), "the key is in the file alone");
    let file = place.beside("key");
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(is_key(&written) && !said.err.contains(written.trim_end()));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let refused = place.refused(&["store", "new-key", "--output", "key"]).await;
    expect_file!["snapshots/key_exists.txt"].assert_eq(&refused);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);
}
