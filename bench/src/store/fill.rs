//! Fills a store with sessions and their events, through the store's own API.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tenure_session::id::{NodeId, StreamId};
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::store::{EntryPlace, Expected, NewEvent, RecordKey, Store};
use tenure_store::disk::Sync;
use tenure_store::open::{Location, OpenedStore, StoreOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::material::{self, Bodies};
use crate::clock::now;
use crate::progress;
use crate::scratch::disk_bytes;

/// Sessions that are made at once: enough that every batch of the store's writer is a full one.
const TASKS: usize = 1024;

/// Events of one append.
const BATCH: u64 = 256;

/// How often a long run says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// What a session's record allows before it expires: longer than any run.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Fill {
    pub(super) folder: PathBuf,
    pub(super) sessions: u64,
    /// Of all sessions together, spread evenly.
    pub(super) events: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Filled {
    pub(super) seconds: f64,
    pub(super) disk_bytes: u64,
}

/// Opens a store in a folder as `tenure serve` does.
pub(crate) async fn open(folder: &std::path::Path, sync: Sync) -> Result<OpenedStore> {
    let options = StoreOptions { sync, ..StoreOptions::default() };
    Location::Disk(folder.to_owned()).open(options).await.context("open the store")
}

impl Fill {
    pub(super) async fn run(self) -> Result<Filled> {
        let started = now();
        let opened = open(&self.folder, Sync::Os).await?;
        self.write(&opened.store).await?;
        // Dropping it waits until everything is on the disk: a clean stop.
        drop(opened);
        let seconds = started.elapsed().as_secs_f64();
        Ok(Filled { seconds, disk_bytes: disk_bytes(&self.folder)? })
    }

    /// Writes everything into an open store.
    pub(super) async fn write(&self, store: &Arc<dyn Store>) -> Result<()> {
        let maker = Arc::new(Maker {
            store: Arc::clone(store),
            bodies: Bodies::new(),
            node: NodeId::random(),
            now: SystemClock.now(),
            next: AtomicU64::new(0),
            sessions: self.sessions,
            events: self.events,
        });
        let mut tasks: JoinSet<_> = (0..TASKS).map(|_| Arc::clone(&maker).make_sessions()).collect();
        loop {
            match timeout(SAY_EVERY, tasks.join_next()).await {
                Ok(Some(task)) => task.context("fill a store")??,
                Ok(None) => return Ok(()),
                Err(_) => {
                    let made = maker.next.load(Relaxed).min(self.sessions);
                    let share = 100 * made / self.sessions.max(1);
                    progress::note(&format!("fill: {made} of {} sessions, {share} %", self.sessions));
                }
            }
        }
    }
}

struct Maker {
    store: Arc<dyn Store>,
    bodies: Bodies,
    node: NodeId,
    now: Time,
    next: AtomicU64,
    sessions: u64,
    events: u64,
}

impl Maker {
    async fn make_sessions(self: Arc<Self>) -> Result<()> {
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= self.sessions {
                return Ok(());
            }
            self.make_session(number).await.with_context(|| format!("make session {number}"))?;
        }
    }

    async fn make_session(&self, number: u64) -> Result<()> {
        let key = material::session(number).key();
        let (value, deadline) = (material::record(number, self.now), self.now.after(LIFETIME));
        let record = self.store.put(RecordKey::session(key), value, Expected::Absent, Some(deadline));
        let log = async {
            let epoch = self.store.claim(key, self.node, None).await?;
            let mut events = self.events_of(number);
            while !events.is_empty() {
                let end = events.end.min(events.start + BATCH);
                let batch = (events.start..end).map(|event| self.event(event)).collect();
                self.store.append(key, epoch, batch).await?;
                events.start = end;
            }
            Ok(())
        };
        tokio::try_join!(record, log)?;
        Ok(())
    }

    /// The numbers of a session's events among all events.
    fn events_of(&self, session: u64) -> std::ops::Range<u64> {
        let before = |session: u64| u128::from(session) * u128::from(self.events) / u128::from(self.sessions);
        before(session) as u64..before(session + 1) as u64
    }

    fn event(&self, number: u64) -> NewEvent {
        NewEvent {
            stream: StreamId::STANDALONE,
            body: self.bodies.get(number as usize),
            place: EntryPlace::Middle,
            at: self.now,
        }
    }
}
