//! Question: how long does it take to open a store of a million sessions, after a clean stop and after a
//! kill, and how much memory does it hold then?
//!
//! The store is filled once. Every opening is a process of its own. The kill (SIGKILL) hits a process that
//! writes at full speed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_session::port::store::RecordKey;
use tenure_store::disk::Sync;
use tokio::time::sleep;

use super::fill::{self, Fill, Filled};
use super::task::{Task, WORKER};
use super::wake::counted;
use super::writers::{self, IntoStore};
use super::{echo, material};
use crate::cli::StoreQuestion;
use crate::clock::now;
use crate::histogram::Histogram;
use crate::latency::{Latency, micros};
use crate::plan::Plan;
use crate::process::Memory;
use crate::progress;
use crate::report::Section;
use crate::scratch::{Scratch, drop_file_cache};
use crate::stats::{Spread, mebibytes};
use crate::table::Table;
use crate::target::{self, Target};
use crate::worker::{self, Worker};

const WRITERS: usize = 256;

/// How long memory may settle before it is read.
const SETTLE: Duration = Duration::from_millis(500);

/// Opens the store and looks at it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OpenJob {
    folder: PathBuf,
    sessions: u64,
    /// Random gets after opening.
    gets: usize,
    /// Whether the runtime is started too, and counts the sessions.
    count: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Opening {
    milliseconds: f64,
    before: Memory,
    opened: Memory,
    gets: Option<Gets>,
    counting: Option<Counting>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Gets {
    latency: Latency,
    memory: Memory,
}

#[derive(Debug, Serialize, Deserialize)]
struct Counting {
    seconds: f64,
    memory: Memory,
}

/// Writes until it is killed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Churn {
    folder: PathBuf,
}

pub(super) async fn run(plan: &Plan<StoreQuestion>) -> Result<Section> {
    let scratch = Scratch::new(plan.dir.as_deref())?;
    let folder = scratch.path();
    let (sessions, events) = (plan.sessions, plan.events);
    let fill = Fill { folder: folder.to_owned(), sessions, events };
    let filled: Filled = worker::ask(WORKER, &Task::Fill(fill)).await.context("fill a store")?;
    progress::note(&format!("open: filled {sessions} sessions, {events} events in {:.0} s", filled.seconds));

    let job = OpenJob { folder: folder.to_owned(), sessions, gets: 0, count: false };
    let (mut clean, mut cold, mut killed) = (Vec::new(), Vec::new(), Vec::new());
    // Reading and counting fill caches, so each has a process of its own.
    clean.push(open("clean", OpenJob { gets: plan.choose(100_000, 2_000), ..job.clone() }).await?);
    clean.push(open("clean", OpenJob { count: true, ..job.clone() }).await?);
    for _ in 1..plan.rounds {
        clean.push(open("clean", job.clone()).await?);
    }
    for _ in 0..plan.rounds {
        drop_file_cache(folder)?;
        cold.push(open("clean, cold", job.clone()).await?);
    }
    for _ in 0..plan.rounds {
        churn_and_kill(folder, plan.window).await?;
        killed.push(open("killed", job.clone()).await?);
    }
    let each = |bytes: u64| bytes as f64 / sessions as f64;
    let counted = clean.iter().find_map(|opening| Some((opening, opening.counting.as_ref()?)));
    let growth =
        counted.map(|(opening, counting)| each(counting.memory.rss.saturating_sub(opening.opened.rss)));
    let targets = [Target::at_most("memory of a dormant session in the runtime", 1024.0, "B", growth)];

    let command = plan.command(StoreQuestion::Open);
    let mut text = format!(
        "### Open\n\nA store of {sessions} sessions and {events} events, filled in {:.0} s through its own API, {:.0} MiB on disk; every opening in a fresh process. Cold: the files have left the file cache. Killed: SIGKILL while {WRITERS} writers appended. Median (min–max).\n\n`{command}`\n\n",
        filled.seconds,
        mebibytes(filled.disk_bytes),
    );
    let kinds = [("clean stop", &clean), ("clean stop, cold", &cold), ("SIGKILL", &killed)];
    let spread = |openings: &[Opening], figure: fn(&Opening) -> f64| Spread::of(openings.iter().map(figure));
    text += &Table::of(&kinds)
        .text("opened after", |(name, _)| *name)
        .samples("ms", 1, |(_, openings)| spread(openings, |opening| opening.milliseconds))
        .samples("RSS MiB", 1, |(_, openings)| spread(openings, |opening| mebibytes(opening.opened.rss)))
        .samples("anonymous MiB", 1, |(_, openings)| {
            spread(openings, |opening| mebibytes(opening.opened.anonymous))
        })
        .markdown();

    let mut lines: Vec<(String, Memory, String)> = Vec::new();
    let found = clean.iter().find_map(|opening| Some((opening, opening.gets.as_ref()?)));
    if let Some((opening, gets)) = found {
        lines.push(("before opening".to_owned(), opening.before, String::new()));
        lines.push(("opened".to_owned(), opening.opened, String::new()));
        let note = format!("p50 {} µs, p99 {} µs", micros(gets.latency.p50_us), micros(gets.latency.p99_us));
        lines.push((format!("after {} random gets", gets.latency.samples), gets.memory, note));
    }
    if let Some((opening, counting)) = counted {
        lines.push(("opened, in another process".to_owned(), opening.opened, String::new()));
        let growth = |from: u64, to: u64| each(to.saturating_sub(from));
        let note = format!(
            "counted in {:.1} s; {:.0} B of RSS and {:.0} B of anonymous memory per dormant session",
            counting.seconds,
            growth(opening.opened.rss, counting.memory.rss),
            growth(opening.opened.anonymous, counting.memory.anonymous)
        );
        lines.push(("runtime started, sessions counted".to_owned(), counting.memory, note));
    }
    let memory = Table::of(&lines)
        .text("memory", |line| &line.0)
        .number("RSS MiB", |line| format!("{:.1}", mebibytes(line.1.rss)))
        .number("anonymous MiB", |line| format!("{:.1}", mebibytes(line.1.anonymous)))
        .text("", |line| &line.2)
        .markdown();
    text += &format!("\n{memory}{}", target::table(&targets));
    let figures = json!({ "command": command, "sessions": sessions, "events": events, "filled": filled, "clean": clean, "cold": cold, "killed": killed, "targets": targets });
    Ok(Section::new("open", figures, text))
}

async fn open(name: &str, job: OpenJob) -> Result<Opening> {
    let opening: Opening = worker::ask(WORKER, &Task::Open(job)).await.context("open the store")?;
    progress::note(&format!(
        "open, {name}: {:.0} ms, {:.0} MiB of anonymous memory",
        opening.milliseconds,
        mebibytes(opening.opened.anonymous)
    ));
    Ok(opening)
}

async fn churn_and_kill(folder: &Path, time: Duration) -> Result<()> {
    let mut worker = Worker::start(WORKER, &Task::Churn(Churn { folder: folder.to_owned() }))?;
    let _: String = worker.hear().await?;
    sleep(time).await;
    worker.kill().await
}

impl OpenJob {
    pub(super) async fn run(self) -> Result<Opening> {
        let before = Memory::of("self")?;
        let started = now();
        let opened = fill::open(&self.folder, Sync::Os).await?;
        let milliseconds = started.elapsed().as_secs_f64() * 1e3;
        sleep(SETTLE).await;
        let mut opening =
            Opening { milliseconds, before, opened: Memory::of("self")?, gets: None, counting: None };
        if self.gets > 0 {
            let (mut latency, mut random) = (Histogram::new(), fastrand::Rng::with_seed(4));
            for _ in 0..self.gets {
                let key = RecordKey::session(material::session(random.u64(..self.sessions)).key());
                let started = now();
                let record = opened.store.get(key).await.context("get a record")?;
                latency.record(started.elapsed());
                ensure!(record.is_some(), "a record is missing");
            }
            opening.gets = Some(Gets { latency: Latency::of(&latency), memory: Memory::of("self")? });
        }
        if self.count {
            let started = now();
            let sessions = echo::start(opened.store);
            counted(&sessions, self.sessions).await?;
            let seconds = started.elapsed().as_secs_f64();
            sleep(SETTLE).await;
            opening.counting = Some(Counting { seconds, memory: Memory::of("self")? });
            sessions.shut_down(Duration::from_secs(5)).await;
        }
        Ok(opening)
    }
}

impl Churn {
    pub(super) async fn run(self) -> Result<()> {
        let opened = fill::open(&self.folder, Sync::Os).await?;
        let into = IntoStore::claim(&opened.store, WRITERS).await?;
        worker::tell(&"writing")?;
        // It is killed long before.
        writers::write(&into, WRITERS, Duration::ZERO, Duration::from_secs(3600)).await?;
        bail!("the process that writes was not killed")
    }
}
