//! The jobs in the writer's queue, and the state that the writer shares.
//!
//! Every job carries the sender for its answer. The writer, the keeper and the callers share `WriterProgress`: how
//! far the writer is, and whether it still writes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;

use bytes::Bytes;
use fjall::Snapshot;
use tenure_session::id::{NodeId, Position, SessionKey};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    Epoch, Expected, Keep, KeptEvents, NewEvent, RecordKey, SavedLog, StoreError, Version,
};
use tokio::sync::{oneshot, watch};

/// Journal bytes of an entry besides its value: its key, its head, and its share of the batch's head.
pub(super) const ENTRY_BYTES: u64 = 96;

pub(super) type DoneSender<T> = oneshot::Sender<Result<T, StoreError>>;

/// A job for the writer, with the sender for its answer.
pub(super) enum Write {
    Put {
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
        done: DoneSender<Version>,
    },
    Delete {
        key: RecordKey,
        expected: Version,
        done: DoneSender<()>,
    },
    Claim {
        session: SessionKey,
        node: NodeId,
        expected: Option<Epoch>,
        done: DoneSender<Epoch>,
    },
    Release {
        session: SessionKey,
        epoch: Epoch,
        done: DoneSender<()>,
    },
    Append {
        session: SessionKey,
        epoch: Epoch,
        batch: Vec<NewEvent>,
        done: DoneSender<Vec<Position>>,
    },
    Trim {
        session: SessionKey,
        keep: Keep,
        done: DoneSender<KeptEvents>,
    },
    Drop {
        session: SessionKey,
        done: DoneSender<()>,
    },
    Restore {
        session: SessionKey,
        log: SavedLog,
        done: DoneSender<()>,
    },
    /// Not a write: a snapshot between two batches that includes every write before it in the queue.
    Freeze {
        done: DoneSender<Snapshot>,
    },
}

impl Write {
    /// Estimated bytes in the journal.
    pub(super) fn bytes(&self) -> u64 {
        let (entries, values) = match self {
            // A put may also write two entries of the deadline index.
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

    /// Whether the job only removes entries.
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
        // Sending fails if the caller has gone, which does not matter.
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

/// A message to the thread that opens a failed engine anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Signal {
    /// The engine failed.
    Failed,
    /// The store is closed.
    Stop,
}

/// The state of the writer that other threads read.
pub(super) struct WriterProgress {
    /// The number of the last batch that was committed.
    pub(super) batch: AtomicU64,
    /// Bytes that were written since the store was opened.
    pub(super) written: AtomicU64,
    /// Keys that were removed since the store was opened.
    pub(super) removed: AtomicU64,
    /// The writer is inside the engine's commit.
    pub(super) committing: AtomicBool,
    /// The engine failed and takes no more writes.
    poisoned: AtomicBool,
    /// The writer is blocked in the failed engine for good, so callers must not wait for it.
    stuck: watch::Sender<bool>,
    /// Gets `Signal::Failed` when the engine fails.
    failed: std_mpsc::Sender<Signal>,
}

impl WriterProgress {
    pub(super) fn new(failed: std_mpsc::Sender<Signal>) -> Self {
        Self {
            failed,
            batch: AtomicU64::new(0),
            written: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            committing: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            stuck: watch::Sender::new(false),
        }
    }

    pub(super) fn poison(&self) {
        if !self.poisoned.swap(true, Ordering::AcqRel) {
            // The receiver is gone if the store is being closed.
            let _ = self.failed.send(Signal::Failed);
        }
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Whether the writer is inside a commit of the failed engine and may never return from it.
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
