//! The thread that looks after the store: syncs what was written, raises the mark, watches room, rights and engine.
//!
//! It comes round every 100 ms. A failure of the engine's own threads shows only when it is asked for
//! something, so it is asked here, whether anybody writes or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use fjall::PersistMode;

use super::job::Progress;
use super::layout::Keyspaces;
use super::mark::Mark;
use super::private::Watch;
use super::room::Room;

/// How long after a write its bytes are on the disk at the latest, if nobody waits for that.
const EVERY: Duration = Duration::from_millis(100);

/// How many rounds a failed engine may keep the writer before nobody waits for it any more.
const PATIENCE: u32 = 20;

pub(super) struct Keeper {
    pub(super) keyspaces: Arc<Keyspaces>,
    pub(super) progress: Arc<Progress>,
    pub(super) room: Arc<Room>,
    pub(super) mark: Mark,
    pub(super) watch: Watch,
}

impl Keeper {
    /// Runs until it is told to stop, or nobody is left who could tell it.
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

    /// Syncs what was written since the last time and raises the mark.
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

    /// An engine whose own threads have failed can hold the writer forever, waiting for them to make room.
    fn watch(&self, waited: &mut u32) {
        *waited = if self.progress.is_held() { *waited + 1 } else { 0 };
        if *waited > PATIENCE && !self.progress.is_stuck() {
            tracing::error!("the failed engine holds the store's writer: nobody waits for it any more");
            self.progress.set_stuck();
        }
    }
}
