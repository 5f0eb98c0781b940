//! A loss of power: everything since the last sync is gone.
//!
//! A process writes with a preloaded library that keeps a shadow of the store with only the synced data (`power/shim.c`
//! says how). It is killed at some moment, and the shadow is what a loss of power would have left. The next round
//! continues with the shadow.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::id::NodeId;
use tenure_session::port::store::{Expected, RecordKey, Store};
use tenure_store::disk::{Disk, Sync, check};

use super::tools::{bodies, event, key};

const CHILD: &str = "TENURE_TEST_POWER_CHILD";
const SYNC: &str = "TENURE_TEST_POWER_SYNC";
const SESSIONS: u8 = 4;

/// How long a round may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Compiles the library. A machine that compiles Rust has a C compiler.
fn shim(folder: &Path) -> PathBuf {
    let library = folder.join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/shim.c");
    let built = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("there is a C compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

/// Runs in the process that is killed. It prints a write only after the acknowledgement.
async fn write_until_killed(folder: &Path, sync: Sync) {
    let store = Arc::new(Disk::open(folder, sync).unwrap());
    let mut writers = tokio::task::JoinSet::new();
    for session in 0..SESSIONS {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            let owner = store.owner(key(session)).await.unwrap().map(|(_, epoch)| epoch);
            let epoch = store.claim(key(session), NodeId::random(), owner).await.unwrap();
            let record = RecordKey::session(key(session));
            let kept = store.get(record).await.unwrap();
            let mut expected = kept.map_or(Expected::Absent, |kept| Expected::Version(kept.version));
            let mut count = bodies(&store, key(session), 0).await.len();
            // Not as fast as possible, because the next process must read all of it again.
            let mut pace = tokio::time::interval(Duration::from_millis(3));
            loop {
                pace.tick().await;
                store.append(key(session), epoch, vec![event(0, &count.to_string())]).await.unwrap();
                count += 1;
                println!("event {session} {count}");
                let value = Bytes::from(count.to_string());
                expected = Expected::Version(store.put(record, value, expected, None).await.unwrap());
                println!("record {session} {count}");
            }
        });
    }
    // Other sessions come and go, often enough that the engine writes tables and merges them.
    writers.spawn(async move {
        for session in 100..103 {
            store.drop_session(key(session)).await.unwrap();
            let epoch = store.claim(key(session), NodeId::random(), None).await.unwrap();
            store.append(key(session), epoch, vec![event(0, "gone soon"); 1024]).await.unwrap();
            store.drop_session(key(session)).await.unwrap();
        }
    });
    writers.join_all().await;
}

/// The acknowledged events and count of each session.
type Acked = [[usize; 2]; SESSIONS as usize];

/// Runs the process on a store until it has acknowledged enough writes, and then kills it.
fn run(
    test: &str,
    (library, store, shadow): (&Path, &Path, &Path),
    sync: Sync,
    acks: usize,
    is_enough: impl Fn() -> bool,
) -> Acked {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(CHILD, store)
        .env(SYNC, if sync == Sync::Disk { "disk" } else { "os" })
        .env("LD_PRELOAD", library)
        .env("TENURE_POWER_ROOT", store)
        .env("TENURE_POWER_SHADOW", shadow)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut acked, mut count) = (Acked::default(), 0);
    let start = Instant::now();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        let what = match words.next() {
            Some("event") => 0,
            Some("record") => 1,
            _ => continue,
        };
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
        // The last line may be cut short by the kill.
        let (Some(session), Some(so_far)) = (number(), number()) else { continue };
        acked[session][what] = so_far;
        count += 1;
        let is_late = start.elapsed() > PATIENCE;
        if is_late || (count >= acks && (count - acks).is_multiple_of(64) && is_enough()) {
            child.kill().unwrap();
        }
        assert!(!is_late, "what should be durable is not within {PATIENCE:?}");
    }
    child.wait().unwrap();
    assert!(count >= acks, "the child ended by itself after {count} of {acks} writes");
    acked
}

/// Reads a store, and returns how many acknowledged writes are missing. The others must be in order.
async fn lacking(store: &Path, acked: &Acked) -> usize {
    let store = Disk::open(store, Sync::Os).unwrap();
    let mut lacking = 0;
    for (session, acked) in (0..).zip(acked) {
        let bodies = bodies(&store, key(session), 0).await;
        let expected: Vec<String> = (0..bodies.len()).map(|number| number.to_string()).collect();
        assert_eq!(bodies, expected, "in order, none missing, none twice");
        let record = store.get(RecordKey::session(key(session))).await.unwrap();
        let count = record.map_or(0, |record| String::from_utf8_lossy(&record.value).parse().unwrap());
        assert!(count <= bodies.len(), "counted before it happened");
        lacking += acked[0].saturating_sub(bodies.len()) + acked[1].saturating_sub(count);
    }
    lacking
}

/// Whether a table of events is durable, with the manifest that lists it.
fn has_tables(store: &Path) -> bool {
    let current = std::fs::read(store.join("data/keyspaces/5/current")).unwrap_or_default();
    // The first manifest, number 0, is empty.
    current.first().is_some_and(|number| *number > 0)
}

/// A few numbers that differ from run to run.
fn seed() -> usize {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos() as usize / 1000;
    println!("seed {seed}");
    seed
}

fn is_child() -> Option<(PathBuf, Sync)> {
    let sync = if std::env::var(SYNC).is_ok_and(|sync| sync == "disk") { Sync::Disk } else { Sync::Os };
    Some((std::env::var_os(CHILD)?.into(), sync))
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_with_the_power_if_writes_wait_for_the_disk() {
    if let Some((store, sync)) = is_child() {
        return write_until_killed(&store, sync).await;
    }
    let (folder, mut seed) = (TempDir::new().unwrap(), seed());
    let library = shim(folder.path());
    let mut store = folder.path().join("0");
    std::fs::create_dir(&store).unwrap();
    let test = "disk::power::nothing_acknowledged_is_lost_with_the_power_if_writes_wait_for_the_disk";
    for round in 1..=4 {
        let shadow = folder.path().join(round.to_string());
        // The first round is long enough for tables; the others end at any moment, also soon after opening.
        let is_enough = || round > 1 || has_tables(&shadow);
        let acks = 1 + seed % 500;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1) >> 7;
        let acked = run(test, (&library, &store, &shadow), Sync::Disk, acks, is_enough);
        assert_eq!(lacking(&shadow, &acked).await, 0, "round {round} of {acks} writes");
        store = shadow;
    }
    assert!(has_tables(&store), "what is synced stays");
    let report = check(&store, |_| {}).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[tokio::test]
async fn the_power_takes_what_was_not_synced() {
    if let Some((store, sync)) = is_child() {
        return write_until_killed(&store, sync).await;
    }
    let (folder, seed) = (TempDir::new().unwrap(), seed());
    let library = shim(folder.path());
    let mut store = folder.path().join("0");
    std::fs::create_dir(&store).unwrap();
    let (test, mut lost) = ("disk::power::the_power_takes_what_was_not_synced", 0);
    for round in 1..=3 {
        let shadow = folder.path().join(round.to_string());
        let acks = 300 + seed % 200;
        let acked = run(test, (&library, &store, &shadow), Sync::Os, acks, || true);
        lost += lacking(&shadow, &acked).await;
        store = shadow;
    }
    // Otherwise the test above would prove nothing.
    assert!(lost > 0, "all that was acknowledged without a sync is there");
}
