//! Settles an append that failed: reads it back, tries it again, or gives the session up.
//!
//! Outside of a cluster an unknown outcome is read back, and every other failure leaves the events without ids; see
//! `backlog`. In a cluster another process may read the log at any moment, so an event that is not in it must not be
//! shown: the append is tried again until it works, the session turns out to have another owner, or the time is up.
//! Before an unknown outcome is read back, the session is claimed again, so that the append cannot still happen.
//! Until all this is decided no other append begins.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::id::{Position, StreamId};
use crate::port::store::{EntryPlace, NewEvent, ReadLimit, StoreError};
use crate::session::live_session::Session;

/// How long an append is tried again in a cluster.
const PATIENCE: Duration = Duration::from_secs(10);

/// First and longest pause between two tries.
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_LAST: Duration = Duration::from_secs(1);

impl Session {
    /// Takes the outcome of an append.
    pub(super) fn appended(
        self: &Arc<Self>,
        batch: Vec<NewEvent>,
        outcome: Result<Vec<Position>, StoreError>,
    ) {
        match outcome {
            Err(error) if self.inner.roster.is_some() => self.settle_append(batch, error),
            Err(StoreError::Unknown) => self.resolve_append(batch),
            outcome => self.committed(batch, outcome),
        }
    }

    /// Reads the log to see whether the batch is there.
    fn resolve_append(self: &Arc<Self>, batch: Vec<NewEvent>) {
        let session = Arc::clone(self);
        self.inner.tasks.spawn(async move {
            let found = session.read_back(&batch).await;
            session.committed(batch, found);
            session.flush();
        });
    }

    /// In a cluster: tries until the outcome is clear.
    fn settle_append(self: &Arc<Self>, batch: Vec<NewEvent>, error: StoreError) {
        let session = Arc::clone(self);
        self.inner.tasks.spawn(async move {
            match session.append_until_clear(&batch, error).await {
                Some(outcome) => {
                    session.committed(batch, outcome);
                    session.flush();
                }
                None => {
                    session.give_up();
                    // An ended session is not given up: the waiters of this append are told that it failed.
                    if session.state.lock().end.is_some() {
                        session.committed(batch, Err(StoreError::Unknown));
                        session.flush();
                    }
                }
            }
        });
    }

    /// The outcome; `None` if the session has another owner, or the outcome stays unclear.
    async fn append_until_clear(
        self: &Arc<Self>,
        batch: &[NewEvent],
        error: StoreError,
    ) -> Option<Result<Vec<Position>, StoreError>> {
        let (until, mut backoff) = (Instant::now() + PATIENCE, Backoff::new(AGAIN_FIRST, AGAIN_LAST));
        let mut outcome = Err(error);
        loop {
            let error = match outcome {
                Ok(positions) => return Some(Ok(positions)),
                Err(error) => error,
            };
            let (has_ended, is_given_up) = {
                let state = self.state.lock();
                (state.end.is_some(), state.is_given_up)
            };
            // A session that has ended no longer has a log, and its events go to its readers without ids.
            if error == StoreError::TooLarge || has_ended {
                return Some(Err(error));
            }
            // A session that was given up meanwhile is not claimed or written here.
            if is_given_up || error == StoreError::Fenced || Instant::now() >= until {
                return None;
            }
            // A process that stops leaves the session to the next owner too.
            if !backoff.wait(&self.inner.stop).await {
                return None;
            }
            outcome = match error {
                StoreError::Unknown => self.settle_unknown(batch).await,
                _ => self.inner.store.append(self.key, self.fence(), batch.to_vec()).await,
            };
        }
    }

    /// Makes sure that the append cannot still happen, and then reads whether it did. Says that the store is busy if it
    /// did not.
    async fn settle_unknown(self: &Arc<Self>, batch: &[NewEvent]) -> Result<Vec<Position>, StoreError> {
        match self.claim_again().await {
            Ok(()) => {}
            Err(StoreError::Fenced) => return Err(StoreError::Fenced),
            Err(_) => return Err(StoreError::Unknown),
        }
        match self.read_back(batch).await {
            Ok(positions) => Ok(positions),
            Err(StoreError::Unknown) => Err(StoreError::Busy),
            Err(_) => Err(StoreError::Unknown),
        }
    }

    /// The positions of a batch in the log; `Unknown` if it is not there.
    async fn read_back(&self, batch: &[NewEvent]) -> Result<Vec<Position>, StoreError> {
        const ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };
        let mut positions = vec![Position::START; batch.len()];
        let ids: BTreeSet<StreamId> = batch.iter().map(|event| event.stream).collect();
        for id in ids {
            let last = self.state.lock().streams.get(&id).map_or(Position::START, |stream| stream.last);
            let mut found = self.inner.store.read(self.key, id, last, ALL).await?.events.into_iter();
            let own = batch.iter().enumerate().filter(|(_, event)| event.stream == id);
            for (index, event) in own.filter(|(_, event)| event.place != EntryPlace::Note) {
                match found.next() {
                    Some(kept) if kept.body == event.body => positions[index] = kept.position,
                    _ => return Err(StoreError::Unknown),
                }
            }
        }
        // A batch is written as a whole or not at all, but `read` returns no notes, so a batch of notes needs a survey.
        let notes = batch.iter().filter(|event| event.place == EntryPlace::Note);
        let known = self.inner.store.survey(self.key).await?.streams;
        let seen = |id: StreamId| known.iter().any(|stream| stream.stream == id);
        if notes.map(|event| event.stream).any(|id| !seen(id)) {
            return Err(StoreError::Unknown);
        }
        Ok(positions)
    }
}
