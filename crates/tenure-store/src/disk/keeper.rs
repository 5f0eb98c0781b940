//! The keeper thread: syncs writes, raises the mark, and watches free space, permissions and the engine.
//!
//! It runs a round every 100 ms. A failure of the engine's own threads shows only in a call to the engine, so every
//! round makes one, even if there is nothing to sync.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use fjall::PersistMode;

use super::job::WriterProgress;
use super::layout::Keyspaces;
use super::mark::Mark;
use super::private::Watch;
use super::room::Room;

/// The interval between two rounds: the longest time from a write to its sync, if no caller waits for the sync.
const EVERY: Duration = Duration::from_millis(100);

/// How many rounds a failed engine may block the writer before callers stop waiting for it.
const PATIENCE: u32 = 20;

pub(super) struct StoreKeeper {
    pub(super) keyspaces: Arc<Keyspaces>,
    pub(super) progress: Arc<WriterProgress>,
    pub(super) room: Arc<Room>,
    pub(super) mark: Mark,
    pub(super) watch: Watch,
}

impl StoreKeeper {
    /// Runs until the sender of `stopped` sends or is dropped, and does a last round then.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        let mut waited = 0;
        loop {
            let last = stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
            self.room.survey(&self.keyspaces);
            self.sync();
            self.watch(&mut waited);
            self.watch.round();
            if last {
                return;
            }
        }
    }

    /// Syncs the writes since the last round and raises the mark.
    fn sync(&mut self) {
        if self.progress.is_poisoned() {
            return;
        }
        let batch = self.progress.batch.load(Ordering::Acquire);
        let behind = batch > self.mark.batch();
        let how = if behind { PersistMode::SyncData } else { PersistMode::Buffer };
        match self.keyspaces.database.persist(how) {
            Ok(()) if behind => {
                if let Err(error) = self.mark.raise(batch) {
                    tracing::warn!(%error, "could not raise the store's high-water mark");
                }
            }
            Ok(()) => {}
            Err(error) => {
                tracing::error!(%error, "the engine failed: the store takes no more writes");
                self.progress.poison();
            }
        }
    }

    /// A failed engine can block the writer for ever: the writer waits for threads of the engine that have ended.
    fn watch(&self, waited: &mut u32) {
        *waited = if self.progress.is_held() { *waited + 1 } else { 0 };
        if *waited > PATIENCE && !self.progress.is_stuck() {
            tracing::error!("the failed engine blocks the store's writer: callers no longer wait for it");
            self.progress.set_stuck();
        }
    }
}
