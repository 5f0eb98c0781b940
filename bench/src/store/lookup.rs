//! Question: how long does it take to look up a session, and to enter a new one?
//!
//! One lookup at a time, each timed by itself: from the store as such, warm and cold, and through
//! `Sessions::find` of a live session, which is what a request on a live session costs.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_session::Principal;
use tenure_session::port::clock::{Clock, SystemClock};
use tenure_session::port::store::{Expected, RecordKey, Store};
use tenure_store::disk::Sync;
use tenure_store::memory::Memory;
use tokio::time::Duration;

use super::append::Durability;
use super::fill::{self, Fill, Filled};
use super::task::{Task, WORKER};
use super::wake::counted;
use super::{echo, material};
use crate::cli::StoreQuestion;
use crate::clock::now;
use crate::histogram::Histogram;
use crate::latency::{Latency, micros};
use crate::plan::Plan;
use crate::progress;
use crate::report::Section;
use crate::scratch::{Scratch, drop_file_cache};
use crate::table::Table;
use crate::target::{self, Target};
use crate::worker;

/// Sessions in the store that lookups are measured on: enough that most of it is in tables.
const MAX_SESSIONS: u64 = 300_000;

/// Sessions that are in memory while `Sessions::find` is measured.
const LIVE: usize = 1_000;

/// Sessions that are looked up over and over for a warm `get`.
const WARM: u64 = 10_000;

/// Which store, and how much is asked of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LookupJob {
    /// A store on disk that was filled before; without one it is a store in memory.
    folder: Option<PathBuf>,
    durability: Durability,
    sessions: u64,
    /// The numbers of the sessions that are entered.
    first_insert: u64,
    inserts: u64,
    gets: usize,
    finds: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Looked {
    /// Of records that were read lately.
    warm: Latency,
    /// Of any record.
    get: Latency,
    find: Latency,
    insert: Latency,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cold {
    folder: PathBuf,
    sessions: u64,
    gets: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ColdlyLooked {
    get: Latency,
    disk_bytes_per_get: f64,
}

#[derive(Debug, Serialize)]
struct LookupRow {
    what: &'static str,
    store: &'static str,
    latency: Latency,
}

pub(super) async fn run(plan: &Plan<StoreQuestion>) -> Result<Section> {
    let (sessions, inserts) = (plan.sessions.min(MAX_SESSIONS), plan.choose(5_000, 200));
    let lookups = plan.choose(100_000, 2_000);
    let scratch = Scratch::new(plan.dir.as_deref())?;
    let folder = scratch.path().to_owned();
    let fill = Fill { folder: folder.clone(), sessions, events: 0 };
    let filled: Filled = worker::ask(WORKER, &Task::Fill(fill)).await.context("fill a store")?;
    progress::note(&format!("lookup: filled {sessions} sessions in {:.1} s", filled.seconds));

    let job = LookupJob {
        folder: Some(folder.clone()),
        durability: Durability::Os,
        sessions,
        first_insert: sessions,
        inserts,
        gets: lookups,
        finds: lookups,
    };
    let disk = look("disk, durability os", job.clone()).await?;
    let cold = Cold { folder, sessions, gets: plan.choose(2_000, 100) };
    let cold: ColdlyLooked = worker::ask(WORKER, &Task::Cold(cold)).await.context("measure cold lookups")?;
    progress::note(&format!("lookup disk, cold: get p50 {:.0} µs", cold.get.p50_us));
    // Into the same store, behind what was entered before; reading is the same at any durability.
    let synced = LookupJob {
        durability: Durability::Disk,
        first_insert: sessions + inserts,
        gets: 0,
        finds: 0,
        ..job.clone()
    };
    let synced = look("disk, durability disk", synced).await?;
    let memory = look("memory", LookupJob { folder: None, ..job }).await?;

    let row = |what, store, latency| LookupRow { what, store, latency };
    let rows = [
        row("`Sessions::find`, live session", "memory", memory.find),
        row("`Sessions::find`, live session", "disk", disk.find),
        row("`get`", "memory", memory.get),
        row("`get`, read lately", "disk", disk.warm),
        row("`get`, any, in the file cache", "disk", disk.get),
        row("`get`, cold", "disk", cold.get),
        row("`put` of a new record", "memory", memory.insert),
        row("`put` of a new record", "disk, durability os", disk.insert),
        row("`put` of a new record", "disk, durability disk", synced.insert),
    ];
    let targets = targets(&disk, &synced, &cold, &memory);
    let (command, cold_bytes) = (plan.command(StoreQuestion::Lookup), cold.disk_bytes_per_get);
    let mut text = format!(
        "### Lookup\n\nOne at a time, in a store of {sessions} sessions; {LIVE} more are live for `Sessions::find`. Read lately: one of {WARM}, over and over. Cold: a fresh process, after the files have left the file cache, and of records that are no longer in the journal; {cold_bytes:.0} bytes per `get` came from the disk. Microseconds.\n\n`{command}`\n\n"
    );
    text += &Table::of(&rows)
        .text("what", |row| row.what)
        .text("store", |row| row.store)
        .latencies("samples", |row| &row.latency)
        .markdown();
    text += &target::table(&targets);
    let figures = json!({ "command": command, "sessions": sessions, "rows": rows, "cold_disk_bytes_per_get": cold_bytes, "targets": targets });
    Ok(Section::new("lookup", figures, text))
}

async fn look(name: &str, job: LookupJob) -> Result<Looked> {
    let looked: Looked = worker::ask(WORKER, &Task::Lookup(job)).await.context("measure lookups")?;
    let p50 =
        |latency: &Latency| if latency.samples == 0 { "–".to_owned() } else { micros(latency.p50_us) };
    progress::note(&format!(
        "lookup {name}: p50 of get {} µs, find {} µs, put {} µs",
        p50(&looked.get),
        p50(&looked.find),
        p50(&looked.insert)
    ));
    Ok(looked)
}

/// Where a range is to be beaten, the median is held against its lower end and the 99th percentile against
/// its upper end.
fn targets(disk: &Looked, synced: &Looked, cold: &ColdlyLooked, memory: &Looked) -> Vec<Target> {
    let p50 = |what: &str, bound, latency: &Latency| Target::at_most(what, bound, "µs", Some(latency.p50_us));
    let p99 = |what: &str, bound, latency: &Latency| Target::at_most(what, bound, "µs", Some(latency.p99_us));
    vec![
        p50("`Sessions::find` of a live session on disk, p50", 5.0, &disk.find),
        p50("warm `get` from disk, p50", 5.0, &disk.warm),
        p99("`get` of any record from disk, p99", 500.0, &disk.get),
        p50("cold `get` from disk, p50", 500.0, &cold.get),
        p50("`put` to disk, durability os, p50", 1_000.0, &disk.insert),
        p99("`put` to disk, durability os, p99", 5_000.0, &disk.insert),
        p50("`put` to disk, durability disk, p50", 1_000.0, &synced.insert),
        p99("`put` to disk, durability disk, p99", 5_000.0, &synced.insert),
        p50("`get` from memory, p50", 1.0, &memory.get),
        p99("`get` from memory, p99", 5.0, &memory.get),
        p50("`put` to memory, p50", 1.0, &memory.insert),
        p99("`put` to memory, p99", 5.0, &memory.insert),
    ]
}

impl LookupJob {
    pub(super) async fn run(self) -> Result<Looked> {
        let store: Arc<dyn Store> = match &self.folder {
            Some(folder) => fill::open(folder, self.durability.sync()).await?.store,
            None => {
                let store: Arc<dyn Store> = Arc::new(Memory::new());
                let fill = Fill { folder: PathBuf::new(), sessions: self.sessions, events: 0 };
                fill.write(&store).await?;
                store
            }
        };
        // Once without being recorded, so that what is measured is warm.
        get(&store, self.sessions, self.gets).await?;
        let any = get(&store, self.sessions, self.gets).await?;
        get(&store, self.sessions.min(WARM), self.gets).await?;
        let warm = get(&store, self.sessions.min(WARM), self.gets).await?;
        let insert = self.insert(&store).await?;
        let find =
            if self.finds == 0 { Histogram::new() } else { find(store, self.sessions, self.finds).await? };
        let warm = Latency::of(&warm);
        Ok(Looked { warm, get: Latency::of(&any), find: Latency::of(&find), insert: Latency::of(&insert) })
    }

    async fn insert(&self, store: &Arc<dyn Store>) -> Result<Histogram> {
        let (mut latency, today) = (Histogram::new(), SystemClock.now());
        for number in self.first_insert..self.first_insert + self.inserts {
            let key = RecordKey::session(material::session(number).key());
            let value = material::record(number, today);
            let started = now();
            store.put(key, value, Expected::Absent, Some(today.after(Duration::from_secs(3600)))).await?;
            latency.record(started.elapsed());
        }
        Ok(latency)
    }
}

/// Gets records at random.
async fn get(store: &Arc<dyn Store>, sessions: u64, count: usize) -> Result<Histogram> {
    let (mut latency, mut random) = (Histogram::new(), fastrand::Rng::with_seed(2));
    for _ in 0..count {
        let key = RecordKey::session(material::session(random.u64(..sessions)).key());
        let started = now();
        let record = store.get(key).await.context("get a record")?;
        latency.record(started.elapsed());
        record.context("a record is missing")?;
    }
    Ok(latency)
}

/// Finds live sessions at random.
async fn find(store: Arc<dyn Store>, dormant: u64, count: usize) -> Result<Histogram> {
    let sessions = echo::start(store);
    // It counts once, at the start; that is not what is measured.
    counted(&sessions, dormant).await?;
    let mut live = Vec::with_capacity(LIVE);
    for _ in 0..LIVE {
        live.push(*echo::open_session(&sessions).await?.id());
    }
    let (mut latency, mut random) = (Histogram::new(), fastrand::Rng::with_seed(3));
    for _ in 0..count {
        let id = live[random.usize(..live.len())];
        let started = now();
        let session = sessions.find(&id, &Principal::ANONYMOUS).await.context("find a live session")?;
        latency.record(started.elapsed());
        drop(session);
    }
    sessions.shut_down(Duration::from_secs(5)).await;
    Ok(latency)
}

impl Cold {
    pub(super) async fn run(self) -> Result<ColdlyLooked> {
        let opened = fill::open(&self.folder, Sync::Os).await?;
        // After opening, because opening reads too.
        drop_file_cache(&self.folder)?;
        let before = read_from_disk()?;
        // Those that were entered first: what was entered last is still in the journal, and with it in memory.
        let get = get(&opened.store, (self.sessions / 3).max(1), self.gets).await?;
        let bytes = read_from_disk()?.saturating_sub(before);
        let disk_bytes_per_get = bytes as f64 / self.gets.max(1) as f64;
        Ok(ColdlyLooked { get: Latency::of(&get), disk_bytes_per_get })
    }
}

/// Bytes that this process had to fetch from the disk so far: those in the file cache do not count.
fn read_from_disk() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/io").context("read /proc/self/io")?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes:")).context("find the line")?;
    bytes.trim().parse().context("read the number")
}
