//! Question: how long does a request on a dormant session wait until the session is awake?
//!
//! `Sessions::find` of sessions that an earlier process left on disk, one at a time, with a server behind
//! them that answers at once: what remains is what we do.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_session::session::Sessions;
use tenure_store::disk::Sync;
use tokio::time::{sleep, timeout};

use super::fill::{self, Fill, Filled};
use super::task::{Task, WORKER};
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
use crate::worker;

/// Events that a dormant session has.
const EVENTS: [u64; 3] = [0, 10, 1_000];

/// How long counting what an earlier process left may take.
const COUNT_DEADLINE: Duration = Duration::from_secs(300);

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WakeJob {
    folder: PathBuf,
    sessions: u64,
    events_each: u64,
}

#[derive(Debug, Serialize)]
struct WakeRow {
    events: u64,
    latency: Latency,
}

pub(super) async fn run(plan: &Plan<StoreQuestion>) -> Result<Section> {
    let mut rows = Vec::new();
    for events in EVENTS {
        let scratch = Scratch::new(plan.dir.as_deref())?;
        let (folder, sessions) = (scratch.path().to_owned(), plan.choose(300, 20));
        let fill = Fill { folder: folder.clone(), sessions, events: sessions * events };
        let _: Filled = worker::ask(WORKER, &Task::Fill(fill)).await.context("fill a store")?;
        let job = WakeJob { folder, sessions, events_each: events };
        let latency: Latency = worker::ask(WORKER, &Task::Wake(job)).await.context("wake sessions")?;
        progress::note(&format!(
            "wake, {events} events: p50 {:.0} µs, p99 {:.0} µs",
            latency.p50_us, latency.p99_us
        ));
        rows.push(WakeRow { events, latency });
    }
    let command = plan.command(StoreQuestion::Wake);
    let mut text = format!(
        "### Wake\n\n`Sessions::find` of dormant sessions on disk, one at a time, each once; the server behind answers at once. Microseconds.\n\n`{command}`\n\n"
    );
    let table = Table::of(&rows).number("events kept", |row| row.events);
    text += &table.latencies("sessions woken", |row| &row.latency).markdown();
    Ok(Section::new("wake", json!({ "command": command, "rows": rows }), text))
}

impl WakeJob {
    pub(super) async fn run(self) -> Result<Latency> {
        let opened = fill::open(&self.folder, Sync::Os).await?;
        let sessions = echo::start(opened.store);
        counted(&sessions, self.sessions).await?;
        let mut latency = Histogram::new();
        for number in 0..self.sessions {
            let (id, principal) = (material::session(number), material::principal(number));
            let started = now();
            let session = sessions.find(&id, &principal).await.context("wake a session")?;
            latency.record(started.elapsed());
            let kept = session.info().events as u64;
            ensure!(kept == self.events_each, "a session woke with {kept} of {} events", self.events_each);
        }
        let woken = sessions.tallies().woken;
        ensure!(woken == self.sessions, "{woken} of {} sessions were woken", self.sessions);
        sessions.shut_down(Duration::from_secs(5)).await;
        Ok(Latency::of(&latency))
    }
}

/// Waits until the runtime has counted what an earlier process left.
pub(super) async fn counted(sessions: &Sessions, count: u64) -> Result<()> {
    let wait = async {
        while (sessions.tallies().sessions as u64) < count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(COUNT_DEADLINE, wait).await.with_context(|| {
        format!("the runtime counted {} of {count} sessions in time", sessions.tallies().sessions)
    })
}
