//! Question: how long does it take to open a store of a million sessions, after a clean stop and after a
//! kill, and how much memory does it hold then?
//!
//! The store is filled once. Every opening is a process of its own. The kill (SIGKILL) hits a process that
//! writes at full speed.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tenure_session::port::store::RecordKey;
use tenure_store::disk::Sync;
use tokio::time::sleep;

use super::fill::{self, Fill, Filled};
use super::plan::Plan;
use super::task::{Task, WORKER};
use super::wake::counted;
use super::writers::{IntoStore, Writers};
use super::{echo, material};
use crate::cli::StoreQuestion;
use crate::clock::now;
use crate::histogram::Histogram;
use crate::latency::{Latency, micros};
use crate::process::Memory;
use crate::progress;
use crate::scratch::{Scratch, drop_file_cache};
use crate::stats::{Spread, cell};
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

#[derive(Debug, Serialize)]
pub(crate) struct OpenReport {
    command: String,
    sessions: u64,
    events: u64,
    filled: Filled,
    clean: Vec<Opening>,
    cold: Vec<Opening>,
    killed: Vec<Opening>,
    targets: Vec<Target>,
}

pub(super) async fn run(plan: &Plan) -> Result<OpenReport> {
    let scratch = Scratch::new(plan.dir.as_deref())?;
    let folder = scratch.path();
    let (sessions, events) = (plan.sessions, plan.events);
    let fill = Fill { folder: folder.to_owned(), sessions, events };
    let filled: Filled = worker::ask(WORKER, &Task::Fill(fill)).await.context("fill a store")?;
    progress::note(&format!("open: filled {sessions} sessions, {events} events in {:.0} s", filled.seconds));

    let job = OpenJob { folder: folder.to_owned(), sessions, gets: 0, count: false };
    let (mut clean, mut cold, mut killed) = (Vec::new(), Vec::new(), Vec::new());
    // Reading and counting fill caches, so each has a process of its own.
    clean.push(open("clean", OpenJob { gets: plan.random_gets, ..job.clone() }).await?);
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
    let mut report = OpenReport {
        command: plan.command(StoreQuestion::Open),
        sessions,
        events,
        filled,
        clean,
        cold,
        killed,
        targets: Vec::new(),
    };
    let each = report
        .counting()
        .map(|(opening, counting)| report.each(counting.memory.rss.saturating_sub(opening.opened.rss)));
    report.targets = vec![Target::at_most("memory of a dormant session in the runtime", 1024.0, "B", each)];
    Ok(report)
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
        let mut writers = Writers::start(&into, WRITERS);
        worker::tell(&"writing")?;
        loop {
            writers.pause(Duration::from_secs(1)).await?;
        }
    }
}

impl OpenReport {
    fn counting(&self) -> Option<(&Opening, &Counting)> {
        self.clean.iter().find_map(|opening| Some((opening, opening.counting.as_ref()?)))
    }

    fn gets(&self) -> Option<(&Opening, &Gets)> {
        self.clean.iter().find_map(|opening| Some((opening, opening.gets.as_ref()?)))
    }

    fn each(&self, bytes: u64) -> f64 {
        bytes as f64 / self.sessions.max(1) as f64
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "### Open\n\nA store of {} sessions and {} events, filled in {:.0} s through its own API, {:.0} MiB on disk; every opening in a fresh process. Cold: the files have left the file cache. Killed: SIGKILL while {WRITERS} writers appended. Median (min–max).\n\n`{}`\n\n",
            self.sessions,
            self.events,
            self.filled.seconds,
            mebibytes(self.filled.disk_bytes),
            self.command
        );
        text += "| opened after | ms | RSS MiB | anonymous MiB |\n|---|---:|---:|---:|\n";
        let kinds =
            [("clean stop", &self.clean), ("clean stop, cold", &self.cold), ("SIGKILL", &self.killed)];
        for (name, openings) in kinds {
            let spread = |figure: fn(&Opening) -> f64| Spread::of(openings.iter().map(figure));
            writeln!(
                text,
                "| {name} | {} | {} | {} |",
                cell(spread(|opening| opening.milliseconds), 1),
                cell(spread(|opening| mebibytes(opening.opened.rss)), 1),
                cell(spread(|opening| mebibytes(opening.opened.anonymous)), 1),
            )
            .expect("a string takes any text");
        }
        text += "\n| memory | RSS MiB | anonymous MiB | |\n|---|---:|---:|---|\n";
        let mut line = |name: String, memory: Memory, note: String| {
            let (rss, anonymous) = (mebibytes(memory.rss), mebibytes(memory.anonymous));
            writeln!(text, "| {name} | {rss:.1} | {anonymous:.1} | {note} |")
                .expect("a string takes any text");
        };
        if let Some((opening, gets)) = self.gets() {
            line("before opening".to_owned(), opening.before, String::new());
            line("opened".to_owned(), opening.opened, String::new());
            let note =
                format!("p50 {} µs, p99 {} µs", micros(gets.latency.p50_us), micros(gets.latency.p99_us));
            line(format!("after {} random gets", gets.latency.samples), gets.memory, note);
        }
        if let Some((opening, counting)) = self.counting() {
            line("opened, in another process".to_owned(), opening.opened, String::new());
            let growth = |from: u64, to: u64| self.each(to.saturating_sub(from));
            let note = format!(
                "counted in {:.1} s; {:.0} B of RSS and {:.0} B of anonymous memory per dormant session",
                counting.seconds,
                growth(opening.opened.rss, counting.memory.rss),
                growth(opening.opened.anonymous, counting.memory.anonymous)
            );
            line("runtime started, sessions counted".to_owned(), counting.memory, note);
        }
        text + &target::table(&self.targets)
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0 / 1024.0
}
