//! Question: does anybody wait who writes nothing, while the store is written to as fast as it goes?
//!
//! An engine that merges its tables makes writers wait now and then. In the same process, on the same
//! threads, records of other sessions are read and a tool of a live session is called, first while all is
//! quiet and then while the writers write. The wishes come from outside, once a millisecond each whether the
//! last one is answered or not, as requests come from a network; so waiting for a thread counts as well.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_session::port::store::{RecordKey, Store};
use tenure_session::{SessionId, Sessions};
use tenure_store::disk::Sync;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::fill::{self, Fill};
use super::task::{Task, WORKER};
use super::writers::{self, IntoStore};
use super::{echo, material};
use crate::cli::StoreQuestion;
use crate::clock::now;
use crate::histogram::Histogram;
use crate::latency::Latency;
use crate::plan::Plan;
use crate::progress;
use crate::report::Section;
use crate::scratch::Scratch;
use crate::table::Table;
use crate::target::{self, Target};
use crate::worker;

const WRITERS: usize = 256;
/// Sessions whose records are read.
const OTHERS: u64 = 10_000;
/// How often something is wished for.
const EVERY: Duration = Duration::from_millis(1);
/// Wishes that may wait: more than come within any stall that is worth a figure.
const QUEUE: usize = 8192;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StallsJob {
    folder: PathBuf,
    window: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Stalled {
    quiet: Probed,
    busy: Probed,
    events_per_second: f64,
    append: Latency,
}

#[derive(Debug, Serialize, Deserialize)]
struct Probed {
    get: Latency,
    call: Latency,
}

pub(super) async fn run(plan: &Plan<StoreQuestion>) -> Result<Section> {
    let scratch = Scratch::new(plan.dir.as_deref())?;
    let window = plan.window * 5;
    let job = StallsJob { folder: scratch.path().to_owned(), window };
    let stalled: Stalled = worker::ask(WORKER, &Task::Stalls(job)).await.context("measure stalls")?;
    let Stalled { quiet, busy, append, events_per_second } = &stalled;
    progress::note(&format!(
        "stalls at {events_per_second:.0} events/s: append max {:.1} ms, get max {:.1} ms, call max {:.1} ms",
        append.max_us / 1e3,
        busy.get.max_us / 1e3,
        busy.call.max_us / 1e3
    ));
    let targets: Vec<_> = [("`get` of another session's record", &busy.get), ("`tools/call`", &busy.call)]
        .into_iter()
        .flat_map(|(what, latency)| {
            let millis = |micros: f64| Some(micros / 1e3);
            [
                Target::at_most(format!("{what} under load, p99"), 5.0, "ms", millis(latency.p99_us)),
                Target::at_most(format!("{what} under load, max"), 150.0, "ms", millis(latency.max_us)),
            ]
        })
        .collect();
    let (command, seconds) = (plan.command(StoreQuestion::Stalls), window.as_secs_f64());
    let mut text = format!(
        "### Stalls\n\n{WRITERS} writers append as fast as the store takes it for {seconds} s ({events_per_second:.0} events/s, durability os); meanwhile, once a millisecond, somebody who writes nothing wants something, on the same threads. From the wish to its fulfilment, waiting for a thread included. Microseconds.\n\n`{command}`\n\n"
    );
    let rows = [
        ("`get` of another session's record", "quiet", &quiet.get),
        ("`get` of another session's record", "writers", &busy.get),
        ("`tools/call` on a live session", "quiet", &quiet.call),
        ("`tools/call` on a live session", "writers", &busy.call),
        ("append, the writers themselves", "writers", append),
    ];
    text += &Table::of(&rows)
        .text("what", |row| row.0)
        .text("meanwhile", |row| row.1)
        .latencies("samples", |row| row.2)
        .markdown();
    text += &target::table(&targets);
    let figures = json!({ "command": command, "seconds": seconds, "stalled": stalled, "targets": targets });
    Ok(Section::new("stalls", figures, text))
}

impl StallsJob {
    pub(super) async fn run(self) -> Result<Stalled> {
        let opened = fill::open(&self.folder, Sync::Os).await?;
        let fill = Fill { folder: self.folder, sessions: OTHERS, events: OTHERS };
        fill.write(&opened.store).await?;
        let sessions = echo::start(Arc::clone(&opened.store));
        let live = *echo::open_session(&sessions).await?.id();

        let probes = Probes::start(&opened.store, &sessions, live);
        sleep(self.window / 5).await;
        let quiet = probes.stop().await?;

        let into = IntoStore::claim(&opened.store, WRITERS).await?;
        let probes = Probes::start(&opened.store, &sessions, live);
        let measured = writers::write(&into, WRITERS, Duration::ZERO, self.window).await?;
        let busy = probes.stop().await?;
        sessions.shut_down(Duration::from_secs(5)).await;
        Ok(Stalled {
            quiet,
            busy,
            events_per_second: measured.calls as f64 / measured.elapsed.as_secs_f64(),
            append: Latency::of(&measured.latency),
        })
    }
}

/// Two tasks that do what is wished for, and the thread that wishes.
struct Probes {
    stop: Arc<AtomicBool>,
    clock: std::thread::JoinHandle<()>,
    get: JoinSet<Result<Histogram>>,
    call: JoinSet<Result<Histogram>>,
}

impl Probes {
    fn start(store: &Arc<dyn Store>, sessions: &Sessions, live: SessionId) -> Probes {
        let store = Arc::clone(store);
        let (get_wishes, wishes) = mpsc::channel(QUEUE);
        let get = probe(wishes, move |number| {
            // A number that shares nothing with the one before it.
            let number = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % OTHERS;
            let record = store.get(RecordKey::session(material::session(number).key()));
            async move { record.await?.map(drop).context("a record is missing") }
        });
        let sessions = sessions.clone();
        let (call_wishes, wishes) = mpsc::channel(QUEUE);
        let call = probe(wishes, move |number| {
            let sessions = sessions.clone();
            async move { echo::call(&sessions, &live, number).await }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let clock = std::thread::spawn(move || wish(&[get_wishes, call_wishes], &stopped));
        Probes { stop, clock, get: JoinSet::from_iter([get]), call: JoinSet::from_iter([call]) }
    }

    async fn stop(mut self) -> Result<Probed> {
        self.stop.store(true, Relaxed);
        let get = self.get.join_next().await.context("the probe is gone")?.context("run a probe")??;
        let call = self.call.join_next().await.context("the probe is gone")?.context("run a probe")??;
        self.clock.join().ok().context("the thread that wishes panicked")?;
        Ok(Probed { get: Latency::of(&get), call: Latency::of(&call) })
    }
}

/// Sends to the probes once in a while, until it is stopped or all probes are gone.
fn wish(probes: &[mpsc::Sender<Instant>], stopped: &AtomicBool) {
    while !stopped.load(Relaxed) {
        std::thread::sleep(EVERY);
        for probe in probes {
            if probe.blocking_send(now()).is_err() {
                return;
            }
        }
    }
}

async fn probe<F: Future<Output = Result<()>> + Send>(
    mut wishes: mpsc::Receiver<Instant>,
    mut fulfil: impl FnMut(u64) -> F + Send,
) -> Result<Histogram> {
    let mut latency = Histogram::new();
    let mut number = 1;
    while let Some(wished) = wishes.recv().await {
        fulfil(number).await?;
        latency.record(wished.elapsed());
        number += 1;
    }
    Ok(latency)
}
