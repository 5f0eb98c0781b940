//! Without free file descriptors the engine fails; it is opened anew when some are free again.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tenure_session::id::{NodeId, Position, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, NewEvent, Store};
use tenure_store::disk::{Disk, Health, Sync};

use super::tools::{ALL, key, noise, until};

const CHILD: &str = "TENURE_TEST_DESCRIPTORS_CHILD";
const PATIENCE: Duration = Duration::from_secs(120);

/// Enough for the engine to write some of them into a table.
const EVENTS: u64 = 160;
const EVENT_BYTES: usize = 512 << 10;

fn large(number: u64) -> NewEvent {
    let body = noise(number, EVENT_BYTES);
    NewEvent { stream: StreamId::new(0), body, place: EntryPlace::Middle, at: Time(1_000) }
}

/// Sets the limit to the number of open descriptors; returns the old limit.
fn allow_no_more() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(1), maximum: before.maximum }).unwrap();
    before
}

/// Runs in a process of its own, because the limit holds for the whole process.
async fn run_out_of_descriptors() {
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let epoch = store.claim(key(1), NodeId::random(), None).await.unwrap();
    let before = allow_no_more();
    let mut acknowledged = 0;
    while acknowledged < EVENTS && store.append(key(1), epoch, vec![large(acknowledged)]).await.is_ok() {
        acknowledged += 1;
    }
    until("the engine fails", PATIENCE, async || store.health() == Health::Poisoned).await;
    // While none is free, the store stays failed and can be read.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.health(), Health::Poisoned);
    let holds = async || {
        let events = store.read(key(1), StreamId::new(0), Position::START, ALL).await.unwrap().events;
        for (number, event) in (0..).zip(&events) {
            assert_eq!(event.body, noise(number, EVENT_BYTES), "event {number}");
        }
        events.len() as u64
    };
    assert!(holds().await >= acknowledged);

    setrlimit(Resource::Nofile, before).unwrap();
    until("the store works again", PATIENCE, async || store.health() == Health::Ok).await;
    let found = holds().await;
    assert!((acknowledged..=acknowledged + 1).contains(&found), "{found} of {acknowledged}");
    store.append(key(1), epoch, vec![large(found)]).await.unwrap();
    assert_eq!(holds().await, found + 1);
}

#[tokio::test]
async fn a_store_that_had_no_file_descriptors_left_works_again_when_there_are_some() {
    if std::env::var_os(CHILD).is_some() {
        return run_out_of_descriptors().await;
    }
    let test = "disk::descriptors::a_store_that_had_no_file_descriptors_left_works_again_when_there_are_some";
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&said));
}
