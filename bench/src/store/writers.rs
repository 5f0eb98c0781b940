//! So many tasks, each with its own session and one append of one event in flight.
//!
//! A closed loop: an answer is the start of the next append. The same tasks drive a store and the baseline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use tenure_session::id::{NodeId, SessionKey, StreamId};
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::store::{EntryPlace, Epoch, NewEvent, Store};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::material::{self, Bodies};
use crate::clock::now;
use crate::histogram::Histogram;
use crate::process::CpuTime;

/// Writers use sessions from this number on, so that they meet none that a store was filled with.
const FIRST_SESSION: u64 = 1 << 40;

/// How long a window is left open at most in which nothing is written.
const LONGEST_WINDOW: Duration = Duration::from_secs(30);

/// Takes events.
pub(super) trait Append: Clone + Send + Sync + 'static {
    /// Done when the event is kept as well as was promised.
    fn append(&self, writer: usize, body: Bytes) -> impl Future<Output = Result<()>> + Send;
}

/// The sessions of so many writers.
pub(super) fn sessions(count: usize) -> Vec<SessionKey> {
    (0..count as u64).map(|writer| material::session(FIRST_SESSION + writer).key()).collect()
}

/// Puts events into a store.
#[derive(Clone)]
pub(super) struct IntoStore {
    store: Arc<dyn Store>,
    sessions: Arc<[(SessionKey, Epoch)]>,
    at: Time,
}

impl IntoStore {
    /// Takes the sessions of so many writers.
    pub(super) async fn claim(store: &Arc<dyn Store>, count: usize) -> Result<IntoStore> {
        let node = NodeId::random();
        let mut owned = Vec::with_capacity(count);
        for session in sessions(count) {
            // A writer that was killed may have had it before.
            let held = store.owner(session).await.context("look who owns a session")?;
            let epoch = store.claim(session, node, held.map(|(_, epoch)| epoch)).await;
            owned.push((session, epoch.context("claim a session")?));
        }
        Ok(IntoStore { store: Arc::clone(store), sessions: owned.into(), at: SystemClock.now() })
    }
}

impl Append for IntoStore {
    async fn append(&self, writer: usize, body: Bytes) -> Result<()> {
        let (session, epoch) = self.sessions[writer];
        let event = NewEvent { stream: StreamId::STANDALONE, body, place: EntryPlace::Middle, at: self.at };
        self.store.append(session, epoch, vec![event]).await.context("append an event")?;
        Ok(())
    }
}

/// Written by `Writers` alone, read by each after every append.
#[derive(Debug, Default)]
struct Shared {
    phase: AtomicU8,
    events: AtomicU64,
}

const WARM_UP: u8 = 0;
const MEASURING: u8 = 1;
const DONE: u8 = 2;

/// Writers at work.
#[derive(Debug)]
pub(super) struct Writers {
    shared: Arc<Shared>,
    tasks: JoinSet<Result<Histogram>>,
}

/// What happened inside a window.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) events: u64,
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
    pub(super) latency: Histogram,
}

impl Writers {
    pub(super) fn start(into: &impl Append, count: usize) -> Writers {
        let shared = Arc::new(Shared::default());
        let bodies = Arc::new(Bodies::new());
        let mut tasks = JoinSet::new();
        for writer in 0..count {
            tasks.spawn(write(into.clone(), writer, Arc::clone(&bodies), Arc::clone(&shared)));
        }
        Writers { shared, tasks }
    }

    /// Lets them write for a while, measures one window, and stops them.
    pub(super) async fn measure(mut self, warm_up: Duration, window: Duration) -> Result<Measured> {
        self.pause(warm_up).await?;
        let (started, before) = (now(), self.shared.events.load(Relaxed));
        let cpu = CpuTime::of("self")?;
        self.shared.phase.store(MEASURING, Relaxed);
        self.pause(window).await?;
        // On a busy machine a short window may end before the first write does.
        while self.shared.events.load(Relaxed) == before && started.elapsed() < LONGEST_WINDOW {
            self.pause(window).await?;
        }
        let events = self.shared.events.load(Relaxed) - before;
        let (elapsed, cpu) = (started.elapsed(), CpuTime::of("self")?.since(cpu));
        self.shared.phase.store(DONE, Relaxed);
        let mut latency = Histogram::new();
        while let Some(writer) = self.tasks.join_next().await {
            latency.merge(&writer.context("run a writer")??);
        }
        ensure!(events > 0, "nothing was written within {elapsed:?}");
        Ok(Measured { events, elapsed, cpu, latency })
    }

    /// Sleeps, unless a writer fails first.
    pub(super) async fn pause(&mut self, duration: Duration) -> Result<()> {
        tokio::select! {
            () = sleep(duration) => Ok(()),
            Some(writer) = self.tasks.join_next() => {
                writer.context("run a writer")??;
                unreachable!("a writer ends well only in the phase `DONE`")
            }
        }
    }
}

async fn write(
    into: impl Append,
    writer: usize,
    bodies: Arc<Bodies>,
    shared: Arc<Shared>,
) -> Result<Histogram> {
    let mut latency = Histogram::new();
    // Far apart, so that writers do not write the same bodies at the same time.
    let mut number = writer * 31;
    let mut sent = now();
    loop {
        into.append(writer, bodies.get(number)).await?;
        number += 1;
        // One look at the clock is the end of one append and the start of the next.
        let kept = now();
        shared.events.fetch_add(1, Relaxed);
        match shared.phase.load(Relaxed) {
            WARM_UP => {}
            MEASURING => latency.record(kept - sent),
            _ => return Ok(latency),
        }
        sent = kept;
    }
}
