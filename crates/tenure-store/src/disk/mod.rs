//! The engine that keeps everything on disk, on fjall.
//!
//! One thread writes: it takes what has queued up, checks each write against what is there, and commits
//! all of it at once (`writer`). Reads go straight to the engine on tokio's blocking threads, because a cold
//! one waits for the disk, unless a record was read lately (`recent`); what they see of a batch that is being written
//! is told in `read`. How things lie on disk is decided in `layout` alone. A mark beside the data says up to where it
//! was once synced (`mark`); a store that comes back with less has lost something. What is open is an `engine`; one that
//! failed to write is closed and opened anew (`revive`).

mod backup;
mod check;
mod engine;
mod error;
mod events;
mod fates;
mod gaps;
mod guard;
mod job;
mod keeper;
mod layout;
mod load;
mod log;
mod mark;
mod open;
mod private;
mod raw;
mod read;
mod recent;
mod repair;
mod report;
mod revive;
mod room;
mod tidy;
mod writer;

use std::sync::Arc;

use bytes::Bytes;
use fjall::Snapshot;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Capabilities, Durability, Epoch, Expected, Grade, Keep, Kept, NewEvent, ReadLimit, Record, RecordKey,
    SavedLog, Space, Store, StoreError, Stored, Stretch, Survey, Trouble, Version,
};
use tokio::sync::oneshot;

use self::job::{Write, failed, poisoned};
use self::layout::Keyspaces;

pub use self::check::check;
pub use self::error::DiskError;
pub use self::open::{Disk, Options, Sync};
pub use self::raw::Stage;
pub use self::repair::repair;
pub use self::report::{Damage, Kind, Missing, Report, Totals};
pub use self::room::Health;

impl Disk {
    fn write<T: Send + 'static>(
        &self,
        write: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Write,
    ) -> Stored<T> {
        let parts = self.place().with(|engine| (engine.jobs.clone(), engine.progress.stuck()));
        let (jobs, mut stuck) = match parts {
            Ok(parts) => parts,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let (done, outcome) = oneshot::channel();
        let write = write(done);
        Box::pin(async move {
            // A full queue makes the caller wait: that is the backpressure.
            tokio::select! {
                sent = jobs.send(write) => sent.map_err(|_| closed())?,
                Ok(_) = stuck.wait_for(|stuck| *stuck) => return Err(poisoned()),
            }
            // The writer answers everything it took. If it did not, it ended in the middle of it.
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

    /// Everything as it is between two batches. The writer gives it out at the end of the batch that is under way,
    /// and does not end that any sooner.
    fn view(&self) -> impl Future<Output = Result<Snapshot, StoreError>> + Send + 'static {
        let asked = self.write(|done| Write::Freeze { done });
        let keyspaces = self.keyspaces();
        async move {
            match asked.await {
                Ok(view) => Ok(view),
                // Without a writer nothing is written, and any moment is as good as another.
                Err(_) => Ok(keyspaces?.database.snapshot()),
            }
        }
    }

    /// Looks at the store as it is between two batches.
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
        self.place().with(|engine| Arc::clone(&engine.keyspaces))
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
        let parts = self.place().with(|engine| (Arc::clone(&engine.recent), Arc::clone(&engine.keyspaces)));
        Box::pin(async move {
            let (recent, keyspaces) = parts?;
            let place = match recent.get_or_hold(&key).await {
                Ok(record) => return Ok(Some(record)),
                Err(place) => place,
            };
            let fetch = move || keyspaces.records.get(layout::record_key(key));
            let found = tokio::task::spawn_blocking(fetch).await.map_err(|_| closed())?.map_err(failed)?;
            let record = found.and_then(|value| layout::read_record(&value));
            if let Some(record) = &record {
                // Not taken: the writer came between, and what was read is what was there before.
                drop(place.insert(record.clone()));
            }
            Ok(record)
        })
    }

    fn peek(&self, key: RecordKey) -> Option<Result<Option<Record>, StoreError>> {
        match self.place().with(|engine| engine.recent.get(&key)) {
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
    ) -> Stored<Stretch> {
        self.look(move |keyspaces| read::read(keyspaces, &session, stream, after, limit))
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<Kept> {
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

    fn capabilities(&self) -> Capabilities {
        let durability = match self.place().options().sync {
            Sync::Os => Durability::Machine,
            Sync::Disk => Durability::Disk,
        };
        Capabilities { durability, max_batch: 1024, max_value_bytes: 64 << 20 }
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
