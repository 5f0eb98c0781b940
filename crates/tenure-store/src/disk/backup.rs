//! Copies a store while it is in use.
//!
//! The writer takes a snapshot between two batches, so that the copy holds whole batches only. The copy is read from
//! the snapshot, and writers do not wait for it. It is built under another name and gets the name of a store only
//! when it is complete, with a mark that says how far it goes.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::{Readable, Snapshot};
use tenure_session::port::store::StoreError;

use super::check::Sink;
use super::error::DiskError;
use super::guard::COPYING;
use super::layout::{self, Keyspaces};
use super::load::Load;
use super::mark::Mark;
use super::open::{Disk, sync_folder};
use super::private;
use super::raw::ByteProgress;
use super::report::ReportTotals;
use super::room::{self, Room};

/// Progress is reported after this many bytes.
const TELL_BYTES: u64 = 1 << 20;

impl Disk {
    /// Copies the current state of the store into an empty or new folder. Later writes are not in the copy and do not
    /// wait for it. The copy can be opened as a store of its own. Reports its progress to `progress`.
    ///
    /// # Errors
    /// When the folder is not empty, has no room, or either disk fails; or when the store is damaged.
    pub fn backup(
        &self,
        to: &Path,
        progress: impl FnMut(ByteProgress) + Send + 'static,
    ) -> impl Future<Output = Result<ReportTotals, DiskError>> + Send + 'static {
        let parts = self.cell().with(|engine| (Arc::clone(&engine.keyspaces), Arc::clone(&engine.room)));
        let view = self.view();
        let to = to.to_owned();
        async move {
            let unavailable = |error: StoreError| DiskError::io(&to)(std::io::Error::other(error));
            let (keyspaces, room) = parts.map_err(unavailable)?;
            let snapshot = view.await.map_err(unavailable)?;
            let copy = Copy { keyspaces, room, snapshot, to: to.clone(), progress };
            let failed = |error: tokio::task::JoinError| DiskError::io(&to)(std::io::Error::other(error));
            tokio::task::spawn_blocking(move || copy.run()).await.map_err(failed)?
        }
    }
}

struct Copy<P> {
    keyspaces: Arc<Keyspaces>,
    room: Arc<Room>,
    snapshot: Snapshot,
    to: PathBuf,
    progress: P,
}

impl<P: FnMut(ByteProgress)> Copy<P> {
    fn run(mut self) -> Result<ReportTotals, DiskError> {
        let to = self.to.clone();
        let io = DiskError::io(&to);
        private::make_store(&to).map_err(&io)?;
        if std::fs::read_dir(&to).map_err(&io)?.next().is_some() {
            return Err(io(std::io::ErrorKind::DirectoryNotEmpty.into()));
        }
        let tables = self.keyspaces.all().into_iter().map(fjall::Keyspace::disk_space).sum::<u64>();
        let size = tables + self.keyspaces.database.write_buffer_size();
        self.look_for_room(size).map_err(&io)?;
        let making = to.join(COPYING);
        let fresh = Load::make(&making)?;
        let (totals, batch) = self.fill(&fresh, size)?;
        drop(fresh);
        Mark::open(&to).and_then(|mut mark| mark.set(batch)).map_err(&io)?;
        std::fs::rename(&making, to.join("data")).map_err(&io)?;
        private::close(&to).map_err(&io)?;
        sync_folder(&to).map_err(&io)?;
        Ok(totals)
    }

    /// A copy on the same filesystem must not use the reserve of the store.
    fn look_for_room(&self, size: u64) -> std::io::Result<()> {
        let is_beside = self.to.metadata()?.dev() == self.room.folder().metadata()?.dev();
        let reserve = if is_beside { self.room.reserve() } else { 0 };
        match room::space(&self.to)?.0 >= size + reserve {
            true => Ok(()),
            false => Err(std::io::ErrorKind::StorageFull.into()),
        }
    }

    fn fill(&mut self, fresh: &Keyspaces, of: u64) -> Result<(ReportTotals, u64), DiskError> {
        let store = self.room.folder().to_owned();
        let engine = |cause| DiskError::engine(&store, cause);
        let mut load = Load::new(&self.to, fresh);
        let (mut totals, mut told) = (ReportTotals::default(), 0);
        for (name, keyspace) in layout::NAMES.into_iter().zip(self.keyspaces.all()) {
            if name == "meta" {
                continue;
            }
            for entry in self.snapshot.iter(keyspace) {
                let (key, value) = entry.into_inner().map_err(engine)?;
                totals.count(name, &key, &value);
                load.take(name, &key, &value)?;
                if totals.bytes - told > TELL_BYTES {
                    told = totals.bytes;
                    (self.progress)(ByteProgress { done: told, of: of.max(told) });
                }
            }
        }
        let number = |key| {
            let value = self.snapshot.get(&self.keyspaces.meta, key).map_err(engine)?;
            Ok(value.and_then(|value| layout::read_u64(&value, 0)).unwrap_or(0))
        };
        let (sequence, batch) = (number(layout::META_SEQUENCE)?, number(layout::META_BATCH)?);
        load.finish(sequence, batch)?;
        (self.progress)(ByteProgress { done: totals.bytes, of: totals.bytes });
        Ok((totals, batch))
    }
}
