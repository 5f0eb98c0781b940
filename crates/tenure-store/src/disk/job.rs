//! What goes to the writer, and what others see of it.
//!
//! Every write carries the sender of its answer. `Progress` is what the writer, the thread that keeps the store
//! synced and the callers share: how far the writer is, and whether it still writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;

use bytes::Bytes;
use fjall::Snapshot;
use tenure_session::id::{NodeId, Position, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Epoch, Expected, Keep, Kept, NewEvent, RecordKey, SavedLog, StoreError, Version,
};
use tokio::sync::{oneshot, watch};

/// What an entry costs in the journal beyond its value: its key, its head, and its share of the batch's.
pub(super) const ENTRY_BYTES: u64 = 96;

pub(super) type Done<T> = oneshot::Sender<Result<T, StoreError>>;

/// Something to write, and whom to tell.
pub(super) enum Write {
    Put {
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
        done: Done<Version>,
    },
    Delete {
        key: RecordKey,
        expected: Version,
        done: Done<()>,
    },
    Claim {
        session: SessionKey,
        node: NodeId,
        expected: Option<Epoch>,
        done: Done<Epoch>,
    },
    Release {
        session: SessionKey,
        epoch: Epoch,
        done: Done<()>,
    },
    Append {
        session: SessionKey,
        epoch: Epoch,
        batch: Vec<NewEvent>,
        done: Done<Vec<Position>>,
    },
    Trim {
        session: SessionKey,
        keep: Keep,
        done: Done<Kept>,
    },
    Drop {
        session: SessionKey,
        done: Done<()>,
    },
    Restore {
        session: SessionKey,
        log: SavedLog,
        done: Done<()>,
    },
    /// Not a write: a view of everything up to here, or a little later, between two batches.
    Freeze {
        done: Done<Snapshot>,
    },
}

impl Write {
    /// About what it costs in the journal.
    pub(super) fn bytes(&self) -> u64 {
        let (entries, values) = match self {
            // A record may come with two entries of its deadline.
            Self::Put { value, .. } => (3, value.len()),
            Self::Append { batch, .. } => (batch.len(), batch.iter().map(|event| event.body.len()).sum()),
            Self::Restore { log, .. } => {
                let events = || log.streams.iter().flat_map(|stream| &stream.events);
                let notes = log.streams.iter().filter_map(|stream| stream.note.as_ref());
                let values = events().map(|event| event.body.len()).sum::<usize>();
                (events().count() + 2 * log.streams.len(), values + notes.map(Bytes::len).sum::<usize>())
            }
            _ => (1, 0),
        };
        entries as u64 * ENTRY_BYTES + values as u64
    }

    /// Whether nothing is there after it that was not there before.
    pub(super) fn only_removes(&self) -> bool {
        match self {
            Self::Delete { .. } | Self::Release { .. } | Self::Trim { .. } | Self::Drop { .. } => true,
            Self::Put { .. }
            | Self::Claim { .. }
            | Self::Append { .. }
            | Self::Restore { .. }
            | Self::Freeze { .. } => false,
        }
    }

    pub(super) fn refuse(self, error: &StoreError) {
        // Whoever asked may be gone; then nobody wants to know.
        match self {
            Self::Put { done, .. } => drop(done.send(Err(error.clone()))),
            Self::Delete { done, .. }
            | Self::Release { done, .. }
            | Self::Drop { done, .. }
            | Self::Restore { done, .. } => drop(done.send(Err(error.clone()))),
            Self::Claim { done, .. } => drop(done.send(Err(error.clone()))),
            Self::Append { done, .. } => drop(done.send(Err(error.clone()))),
            Self::Trim { done, .. } => drop(done.send(Err(error.clone()))),
            Self::Freeze { done } => drop(done.send(Err(error.clone()))),
        }
    }
}

/// What the one who opens a failed store anew is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// The engine failed.
    Failed,
    /// The store is closed.
    Stop,
}

/// What others see of the writer.
pub(super) struct Progress {
    /// The number of the last batch that was committed.
    pub(super) batch: AtomicU64,
    /// Keys that were removed since the store was opened.
    pub(super) removed: AtomicU64,
    /// The writer is inside the engine's commit.
    pub(super) committing: AtomicBool,
    /// The engine failed: nothing is written any more.
    poisoned: AtomicBool,
    /// The writer will not come back from the engine, so nobody should wait for it.
    stuck: watch::Sender<bool>,
    /// Told when the engine fails.
    failed: std_mpsc::Sender<Signal>,
}

impl Progress {
    pub(super) fn new(failed: std_mpsc::Sender<Signal>) -> Self {
        Self {
            failed,
            batch: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            committing: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            stuck: watch::Sender::new(false),
        }
    }

    pub(super) fn poison(&self) {
        if !self.poisoned.swap(true, Ordering::AcqRel) {
            // Nobody is left to tell if the store is being closed.
            let _ = self.failed.send(Signal::Failed);
        }
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Whether the writer is inside the engine, which has failed, and may never come back.
    pub(super) fn is_held(&self) -> bool {
        self.is_poisoned() && self.committing.load(Ordering::Acquire)
    }

    pub(super) fn set_stuck(&self) {
        self.stuck.send_replace(true);
    }

    pub(super) fn is_stuck(&self) -> bool {
        *self.stuck.borrow()
    }

    pub(super) fn stuck(&self) -> watch::Receiver<bool> {
        self.stuck.subscribe()
    }
}

pub(super) fn poisoned() -> StoreError {
    StoreError::Unavailable(
        "an earlier write failed; it is opened anew as soon as that can succeed".to_owned(),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
pub(super) fn failed(error: fjall::Error) -> StoreError {
    StoreError::Unavailable(error.to_string())
}
