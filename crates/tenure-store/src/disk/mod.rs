//! The engine that keeps everything on disk, on fjall.
//!
//! One thread writes (`writer`): it takes all queued writes, checks each against the current state, and commits them
//! as one batch. Records that were read lately come from a cache (`recent`). All other reads go to the engine on
//! tokio's blocking threads, because they may wait for the disk; `read` says how much of an unfinished batch they see.
//! Only `layout` knows the keys and values on disk. A mark beside the data says how far the data was synced (`mark`):
//! a store that is behind its mark has lost writes. `engine` is an open store; an engine that failed to write is closed
//! and opened anew (`revive`).

mod open;
mod engine;
mod job;
mod writer;
mod events;
mod log;
mod read;
mod recent;
mod layout;
mod mark;
mod keeper;
mod room;
mod tidy;
mod revive;
mod guard;
mod private;
mod background;
mod raw;
mod check;
mod fates;
mod gaps;
mod repair;
mod load;
mod backup;
mod report;
mod error;

use std::sync::Arc;

use bytes::Bytes;
use fjall::Snapshot;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Epoch, Expected, Grade, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, SavedLog, Space, Store,
    StoreCapabilities, StoreDurability, StoreError, Stored, StreamEvents, Survey, Trouble, Version,
};
use tokio::sync::oneshot;

use self::job::{Write, failed, poisoned};
use self::layout::Keyspaces;

pub use self::check::check;
pub use self::error::DiskError;
pub use self::open::{Disk, DiskOptions, Sync};
pub use self::raw::ByteProgress;
pub use self::repair::repair;
pub use self::report::{Damage, DamageKind, Missing, Report, ReportTotals};
pub use self::room::Health;

impl Disk {
    fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Write,
    ) -> Stored<T> {
        let parts = self.cell().with(|engine| (engine.jobs.clone(), engine.progress.stuck()));
        let (jobs, mut stuck) = match parts {
            Ok(parts) => parts,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let (done, outcome) = oneshot::channel();
        let write = write(done);
        Box::pin(async move {
            // If the queue is full, the caller waits: that is the back-pressure.
            tokio::select! {
                sent = jobs.send(write) => sent.map_err(|_| closed())?,
                Ok(_) = stuck.wait_for(|stuck| *stuck) => return Err(poisoned()),
            }
            // The writer answers every job it took. Without an answer it ended in the middle of the job.
            tokio::select! {
                biased;
                outcome = outcome => outcome.unwrap_or(Err(StoreError::Unknown)),
                Ok(_) = stuck.wait_for(|stuck| *stuck) => Err(StoreError::Unknown),
            }
        })
    }

    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Keyspaces) -> Result<T, fjall::Error> + Send + 'static,
    ) -> Stored<T> {
        let keyspaces = self.keyspaces();
        Box::pin(async move {
            let keyspaces = keyspaces?;
            match tokio::task::spawn_blocking(move || look(&keyspaces)).await {
                Ok(found) => found.map_err(failed),
                Err(_) => Err(closed()),
            }
        })
    }

    /// A snapshot of the whole store between two batches. The writer takes it after the current batch, and does not end
    /// that batch early for it.
    fn view(&self) -> impl Future<Output = Result<Snapshot, StoreError>> + Send + 'static {
        let asked = self.write(|done| Write::Freeze { done });
        let keyspaces = self.keyspaces();
        async move {
            match asked.await {
                Ok(view) => Ok(view),
                // No writer runs, so no batch is half written at any moment.
                Err(_) => Ok(keyspaces?.database.snapshot()),
            }
        }
    }

    /// Reads from a snapshot between two batches.
    fn look_at_view<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Keyspaces, &Snapshot) -> Result<T, fjall::Error> + Send + 'static,
    ) -> Stored<T> {
        let (view, keyspaces) = (self.view(), self.keyspaces());
        Box::pin(async move {
            let (view, keyspaces) = (view.await?, keyspaces?);
            match tokio::task::spawn_blocking(move || look(&keyspaces, &view)).await {
                Ok(found) => found.map_err(failed),
                Err(_) => Err(closed()),
            }
        })
    }

    fn keyspaces(&self) -> Result<Arc<Keyspaces>, StoreError> {
        self.cell().with(|engine| Arc::clone(&engine.keyspaces))
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".to_owned())
}

impl Store for Disk {
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        self.write(|done| Write::Put { key, value, expected, deadline, done })
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        if let Some(found) = self.peek(key) {
            return Box::pin(std::future::ready(found));
        }
        let parts = self.cell().with(|engine| (Arc::clone(&engine.recent), Arc::clone(&engine.keyspaces)));
        Box::pin(async move {
            let (recent, keyspaces) = parts?;
            let placeholder = match recent.get_or_hold(&key).await {
                Ok(record) => return Ok(Some(record)),
                Err(placeholder) => placeholder,
            };
            let fetch = move || keyspaces.records.get(layout::record_key(key));
            let found = tokio::task::spawn_blocking(fetch).await.map_err(|_| closed())?.map_err(failed)?;
            let record = found.and_then(|value| layout::read_record(&value));
            if let Some(record) = &record {
                // The cache refuses it if the writer changed the record meanwhile: then this is the old value.
                drop(placeholder.insert(record.clone()));
            }
            Ok(record)
        })
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        match self.cell().with(|engine| engine.recent.get(&key)) {
            Ok(found) => found.map(|record| Ok(Some(record))),
            Err(error) => Some(Err(error)),
        }
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        self.write(|done| Write::Delete { key, expected, done })
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        self.look(move |keyspaces| read::expired(keyspaces, space, now, limit))
    }

    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>> {
        self.look(move |keyspaces| read::list(keyspaces, space, after, limit))
    }

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        self.write(|done| Write::Claim { session, node, expected, done })
    }

    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>> {
        self.look(move |keyspaces| {
            let value = keyspaces.owners.get(session.as_bytes())?;
            let owner = value.and_then(|value| layout::read_owner(&value));
            Ok(owner.and_then(|(node, epoch)| Some((node?, epoch))))
        })
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        self.write(|done| Write::Release { session, epoch, done })
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        self.write(|done| Write::Append { session, epoch, batch, done })
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        self.look(move |keyspaces| read::read(keyspaces, &session, stream, after, limit))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        self.write(|done| Write::Trim { session, keep, done })
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        self.write(|done| Write::Drop { session, done })
    }

    fn tail(&self, session: SessionKey) -> Stored<Position> {
        self.look_at_view(move |keyspaces, view| read::tail(keyspaces, view, &session))
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        self.look_at_view(move |keyspaces, view| read::survey(keyspaces, view, &session))
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        self.write(|done| Write::Restore { session, log, done })
    }

    fn capabilities(&self) -> StoreCapabilities {
        let durability = match self.cell().options().sync {
            Sync::Os => StoreDurability::Machine,
            Sync::Disk => StoreDurability::Disk,
        };
        StoreCapabilities {
            durability,
            max_batch: 1024,
            max_batch_bytes: usize::MAX,
            max_value_bytes: 64 << 20,
        }
    }

    fn trouble(&self) -> Option<Trouble> {
        let mib = |bytes: u64| bytes >> 20;
        let (what, grade) = match self.health() {
            Health::Ok => return None,
            Health::Full { free, reserve } => (
                format!(
                    "the disk is full: {} MiB are free and {} MiB are kept in reserve; \
                     what grows is refused until there is room",
                    mib(free),
                    mib(reserve)
                ),
                Grade::Degraded,
            ),
            Health::Poisoned => (
                "the engine failed to write; what is there can be read, and it is opened anew as soon as that can \
                 succeed"
                    .to_owned(),
                Grade::Degraded,
            ),
            Health::Closed => {
                ("the engine failed to write and is being opened anew".to_owned(), Grade::Degraded)
            }
            Health::Down => (
                "the engine failed to write and could not be opened anew; that is tried again and again"
                    .to_owned(),
                Grade::Down,
            ),
            Health::Lost => {
                ("the engine failed to write, and only a restart opens it anew".to_owned(), Grade::Lost)
            }
        };
        Some(Trouble { what, grade })
    }
}
