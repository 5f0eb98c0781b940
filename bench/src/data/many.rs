//! Question: how fast are a million data sessions made on disk, how long does it take to open them, how much
//! memory do they hold, and how long does it take to find one, or to list one owner's?
//!
//! The store is filled once; every other measurement is a process of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_session::Principal;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::store::Store;
use tenure_session::state::{NewState, State, StateId, StateKind, StateLimits, States};
use tenure_store::disk::Sync;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::cli::DataQuestion;
use crate::clock::now;
use crate::histogram::Histogram;
use crate::latency::Latency;
use crate::plan::Plan;
use crate::process::Memory;
use crate::progress;
use crate::report::Section;
use crate::scratch::{Scratch, disk_bytes, drop_file_cache};
use crate::stats::{Spread, cell, mebibytes};
use crate::store::open_store;
use crate::table::Table;
use crate::worker;

/// States of one owner.
const OF_ONE: u64 = 1_000;

/// States on one page, as `session/list` has them.
const PAGE: usize = 100;

/// How many are made at once: enough that every batch of the store's writer is a full one.
const TASKS: usize = 1024;

/// How many names are remembered, spread evenly.
const NAMES: u64 = 100_000;

/// Those that are found over and over while what was read lately is measured.
const LATELY: usize = 10_000;

const SETTLE: Duration = Duration::from_millis(500);
const COUNT_DEADLINE: Duration = Duration::from_secs(120);
const SAY_EVERY: Duration = Duration::from_secs(5);

/// The command that starts a worker.
const WORKER: &str = "data-worker";

/// What a worker is asked to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DataJob {
    Fill(Fill),
    Open(Open),
    Find(Find),
}

/// What a worker found out.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Figures {
    Filled(Filled),
    OpenedStates(OpenedStates),
    Found(Found),
}

impl DataJob {
    async fn run(self) -> Result<impl Serialize + use<>> {
        Ok(match self {
            DataJob::Fill(fill) => Figures::Filled(fill.run().await?),
            DataJob::Open(open) => Figures::OpenedStates(open.run().await?),
            DataJob::Find(find) => Figures::Found(find.run().await?),
        })
    }
}

/// Runs the task of a worker.
pub(crate) fn run_worker(task: &str) -> Result<()> {
    worker::run(task, |job: DataJob| async { worker::tell(&job.run().await?) })
}

/// Makes the states.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fill {
    place: StatesPlace,
    states: u64,
}

/// Where the store is, and the file with the names of some of its states.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StatesPlace {
    store: PathBuf,
    names: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Filled {
    seconds: f64,
    per_second: f64,
    disk_bytes: u64,
    /// When it was done. Later measurements stay at that time, so that a use need not be written down.
    at: u64,
}

/// Opens the store and counts what is in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Open {
    place: StatesPlace,
    states: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct OpenedStates {
    milliseconds: f64,
    count_seconds: f64,
    before: Memory,
    opened: Memory,
    counted: Memory,
}

/// Finds, lists and makes states, one at a time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Find {
    place: StatesPlace,
    at: u64,
    heat: Heat,
    finds: usize,
    lists: usize,
    writes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Heat {
    Warm,
    /// The files have left the file cache.
    Cold,
}

#[derive(Debug, Serialize, Deserialize)]
struct Found {
    any: Latency,
    lately: Latency,
    list: Latency,
    put_off: Latency,
    make: Latency,
}

pub(super) async fn run(plan: &Plan<DataQuestion>) -> Result<Section> {
    let scratch = Scratch::new(plan.dir.as_deref())?;
    let place = StatesPlace { store: scratch.path().join("store"), names: scratch.path().join("names") };
    let states = plan.sessions;
    let fill = Fill { place: place.clone(), states };
    let filled: Filled = worker::ask(WORKER, &DataJob::Fill(fill)).await.context("make the states")?;
    progress::note(&format!("many: made {states} in {:.1} s", filled.seconds));

    let mut opens = Vec::new();
    for _ in 0..plan.choose(3, 1) {
        let open = Open { place: place.clone(), states };
        let opened: OpenedStates =
            worker::ask(WORKER, &DataJob::Open(open)).await.context("open the store")?;
        let OpenedStates { milliseconds, count_seconds, .. } = opened;
        progress::note(&format!("many: opened in {milliseconds:.0} ms, counted in {count_seconds:.1} s"));
        opens.push(opened);
    }
    let warm = Find {
        place: place.clone(),
        at: filled.at,
        heat: Heat::Warm,
        finds: plan.choose(100_000, 1_000),
        lists: plan.choose(2_000, 20),
        writes: plan.choose(5_000, 50),
    };
    let cold = Find {
        heat: Heat::Cold,
        finds: plan.choose(2_000, 50),
        lists: plan.choose(200, 5),
        writes: 0,
        ..warm.clone()
    };
    // In this order: the files are still in the file cache from being written.
    let warm: Found = worker::ask(WORKER, &DataJob::Find(warm)).await.context("find states")?;
    let cold: Found = worker::ask(WORKER, &DataJob::Find(cold)).await.context("find states, cold")?;
    progress::note(&format!("many: find p50 {:.1} µs, cold {:.0} µs", warm.any.p50_us, cold.any.p50_us));
    let command = plan.command(DataQuestion::Many);
    let mut text = format!(
        "### Many data sessions\n\n{states} data sessions on disk, durability os, {OF_ONE} of each owner, made by {TASKS} tasks at once in {:.1} s: {:.0} per second; {:.0} MiB on disk. Then every opening in a fresh process, and one thing at a time; \"read lately\": one of {LATELY}, over and over; cold: the files have left the file cache. A use is written down at most once in a sixteenth of the idle time.\n\n`{command}`\n\n",
        filled.seconds,
        filled.per_second,
        mebibytes(filled.disk_bytes),
    );
    let spread = |figure: &dyn Fn(&OpenedStates) -> f64| cell(Spread::of(opens.iter().map(figure)), 1);
    let each = |opened: &OpenedStates| {
        opened.counted.anonymous.saturating_sub(opened.opened.anonymous) as f64 / states as f64
    };
    let lines = [
        ("open, ms", spread(&|opened| opened.milliseconds)),
        ("count them, in the background, s", spread(&|opened| opened.count_seconds)),
        ("anonymous memory before, MiB", spread(&|opened| mebibytes(opened.before.anonymous))),
        ("anonymous memory when opened, MiB", spread(&|opened| mebibytes(opened.opened.anonymous))),
        ("anonymous memory when counted, MiB", spread(&|opened| mebibytes(opened.counted.anonymous))),
        ("RSS when counted, MiB", spread(&|opened| mebibytes(opened.counted.rss))),
        ("anonymous memory of counting, B each", spread(&each)),
    ];
    let rows = [
        ("`find`, read lately", warm.lately),
        ("`find`, not read lately, in the file cache", warm.any),
        ("`find`, cold", cold.any),
        ("`find` that writes down the use", warm.put_off),
        ("`create`, one at a time", warm.make),
        ("`list`, a page of 100", warm.list),
        ("`list`, a page of 100, cold", cold.list),
    ];
    let opened = Table::of(&lines).text("opened after a clean stop", |line| line.0);
    text += &opened.number("median (min–max)", |line| &line.1).markdown();
    let found = Table::of(&rows).text("µs", |row| row.0).latencies("samples", |row| &row.1);
    text += &format!("\n{}", found.markdown());
    let figures =
        json!({ "command": command, "states": states, "filled": filled, "opens": opens, "rows": rows });
    Ok(Section::new("many", figures, text))
}

/// A clock that stands still.
#[derive(Debug)]
struct Still(Time);

impl Clock for Still {
    fn now(&self) -> Time {
        self.0
    }

    fn uptime(&self) -> Duration {
        Duration::ZERO
    }
}

fn owner(number: u64) -> Principal {
    Principal::named(&format!("user-{number:06}@example.com"))
}

fn new(number: u64) -> NewState {
    let data = format!(
        r#"{{"counter":{number},"notes":["the first of a few notes","and the second"],"hashes":{{}}}}"#
    );
    NewState { data: Bytes::from(data), ..NewState::of(StateKind::new("workspace").expect("a kind")) }
}

impl Fill {
    async fn run(self) -> Result<Filled> {
        let opened = open_store(&self.place.store, Sync::Os).await?;
        let states = States::start(opened.store, Arc::new(SystemClock), StateLimits::default());
        let started = now();
        let (next, every) = (Arc::new(AtomicU64::new(0)), self.states.div_ceil(NAMES));
        let mut tasks: JoinSet<_> = (0..TASKS.min(self.states as usize))
            .map(|_| {
                let (states, next) = (states.clone(), Arc::clone(&next));
                make(states, next, self.states, every)
            })
            .collect();
        let mut names = Vec::new();
        loop {
            match timeout(SAY_EVERY, tasks.join_next()).await {
                Ok(Some(made)) => names.extend(made.context("make states")??),
                Ok(None) => break,
                Err(_) => {
                    let made = next.load(Relaxed).min(self.states);
                    progress::note(&format!("many: made {made} of {}", self.states));
                }
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        // In the order in which they were made.
        names.sort_unstable();
        let text = serde_json::to_string(&names).context("encode the names as JSON")?;
        std::fs::write(&self.place.names, text).context("write the names")?;
        states.stop().await;
        drop(states);
        let (per_second, disk_bytes) = (self.states as f64 / seconds, disk_bytes(&self.place.store)?);
        Ok(Filled { seconds, per_second, disk_bytes, at: SystemClock.now().0 })
    }
}

/// A state's number, its owner's, and its name.
type Name = (u64, u64, String);

async fn make(states: States, next: Arc<AtomicU64>, count: u64, every: u64) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    loop {
        let number = next.fetch_add(1, Relaxed);
        if number >= count {
            return Ok(names);
        }
        // Owners take turns, so that one owner's are not made in a row.
        let owns = number % count.div_ceil(OF_ONE);
        let state = states.create(&owner(owns), new(number)).await.context("make a state")?;
        if number.is_multiple_of(every) {
            names.push((number, owns, state.id().cookie()));
        }
    }
}

impl Open {
    async fn run(self) -> Result<OpenedStates> {
        let before = Memory::of("self")?;
        let started = now();
        let opened = open_store(&self.place.store, Sync::Os).await?;
        let milliseconds = started.elapsed().as_secs_f64() * 1e3;
        sleep(SETTLE).await;
        let memory = Memory::of("self")?;
        let started = now();
        let states = States::start(opened.store, Arc::new(SystemClock), StateLimits::default());
        counted(&states, self.states).await?;
        let count_seconds = started.elapsed().as_secs_f64();
        sleep(SETTLE).await;
        let counted = Memory::of("self")?;
        states.stop().await;
        Ok(OpenedStates { milliseconds, count_seconds, before, opened: memory, counted })
    }
}

async fn counted(states: &States, count: u64) -> Result<()> {
    let wait = async {
        while (states.count() as u64) < count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(COUNT_DEADLINE, wait).await;
    waited.with_context(|| format!("counted {} of {count} states in time", states.count()))
}

impl Find {
    async fn run(self) -> Result<Found> {
        let names = names(&self.place.names)?;
        let opened = open_store(&self.place.store, Sync::Os).await?;
        // Nothing runs in the background that would read what is to be measured cold, or write.
        let at = |time| {
            let store: Arc<dyn Store> = Arc::clone(&opened.store);
            States::at_rest(store, Arc::new(Still(time)), StateLimits::default())
        };
        let states = at(Time(self.at));
        // Each once, so that none of them was read lately. Those that were made first: what was made last is
        // still in the journal, and with it in memory.
        let first = shuffled(&names[..names.len().div_ceil(3)]);
        let once = &first[..self.finds.min(first.len())];
        if self.heat == Heat::Cold {
            drop_file_cache(&self.place.store)?;
        }
        let any = find(&states, once, once.len()).await?;
        if self.heat == Heat::Cold {
            drop_file_cache(&self.place.store)?;
        }
        let list = list(&states, &names, self.lists).await?;
        let few = &names[..names.len().min(LATELY)];
        // Once without being recorded.
        find(&states, few, few.len()).await?;
        let lately = find(&states, few, self.finds).await?;
        // So much later that every use has to be written down, but before they expire.
        let later = at(Time(self.at).after(Duration::from_secs(20 * 60)));
        let put_off = put_off(&later, &names[names.len().saturating_sub(self.writes)..]).await?;
        let mut made = Histogram::new();
        for number in 0..self.writes as u64 {
            let started = now();
            let state = states.create(&names[number as usize % names.len()].0, new(number)).await;
            made.record(started.elapsed());
            state.context("make a state")?;
        }
        let of = Latency::of;
        Ok(Found {
            any: of(&any),
            lately: of(&lately),
            list: of(&list),
            put_off: of(&put_off),
            make: of(&made),
        })
    }
}

fn names(file: &Path) -> Result<Vec<(Principal, StateId)>> {
    let text = std::fs::read_to_string(file).context("read the names")?;
    let names: Vec<Name> = serde_json::from_str(&text).context("read the names")?;
    ensure!(!names.is_empty(), "no names were written");
    let read = names.into_iter().map(|(_, number, id)| {
        let id = StateId::from_cookie(&id).with_context(|| format!("`{id}` is no name"))?;
        Ok((owner(number), id))
    });
    read.collect()
}

fn shuffled(names: &[(Principal, StateId)]) -> Vec<(Principal, StateId)> {
    let mut names = names.to_vec();
    fastrand::Rng::with_seed(5).shuffle(&mut names);
    names
}

/// Finds states in turn, and from the beginning again.
async fn find(states: &States, names: &[(Principal, StateId)], count: usize) -> Result<Histogram> {
    let mut latency = Histogram::new();
    for (owner, id) in names.iter().cycle().take(count) {
        let started = now();
        let found: State = states.find(owner, *id).await.context("find a state")?;
        latency.record(started.elapsed());
        ensure!(!found.was_written(), "a use was written down");
    }
    Ok(latency)
}

/// Finds each once, when its use has to be written down.
async fn put_off(states: &States, names: &[(Principal, StateId)]) -> Result<Histogram> {
    let mut latency = Histogram::new();
    for (owner, id) in names {
        let started = now();
        let found = states.find(owner, *id).await.context("find a state")?;
        latency.record(started.elapsed());
        ensure!(found.was_written(), "a use was not written down");
    }
    Ok(latency)
}

/// Lists the first page of owners at random.
async fn list(states: &States, names: &[(Principal, StateId)], count: usize) -> Result<Histogram> {
    let (mut latency, mut random) = (Histogram::new(), fastrand::Rng::with_seed(6));
    for _ in 0..count {
        let (owner, _) = &names[random.usize(..names.len())];
        let started = now();
        let page = states.list(owner, None, PAGE).await.context("list states")?;
        latency.record(started.elapsed());
        ensure!(page.states.len() == PAGE, "a page of {} states", page.states.len());
    }
    Ok(latency)
}
