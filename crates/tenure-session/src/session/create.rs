//! Undoes the creation of a session if its client disconnects before it receives the session id.
//!
//! First the key is claimed, then the server is started, then the record is written. If the client disconnects, a
//! starting server is closed at once. A claim or a write goes on until its result is known, because only then it is
//! clear what has to be undone.

use std::sync::Arc;

use bytes::Bytes;

use crate::id::SessionKey;
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, StoreError, Version};
use crate::record::EndCause;
use crate::session::claim::Claimed;
use crate::session::live_session::Session;
use crate::session::sessions::SessionRuntime;
use crate::take_back::{WriteOutcome, take_back};

/// A session that its client does not know yet. Drop undoes its creation; [`CreateGuard::commit`] keeps it.
pub(super) struct CreateGuard {
    inner: Arc<SessionRuntime>,
    key: SessionKey,
    /// This session has claimed the key, so the events under the key are its own.
    is_claimed: bool,
    session: Option<Arc<Session>>,
    record: Option<WriteOutcome>,
}

impl CreateGuard {
    /// Claims a key that no session has. Must run to its end.
    ///
    /// # Errors
    /// When another session has the key, or the store fails. The events under the key stay as they are.
    pub(super) async fn claim(
        inner: Arc<SessionRuntime>,
        key: SessionKey,
    ) -> Result<(Self, Claimed), StoreError> {
        let by = inner.claimant();
        let epoch = match inner.store.claim(key, by.node, None).await {
            Ok(epoch) => epoch,
            Err(error) => {
                if error == StoreError::Unknown {
                    // It may still happen, and nothing would be left of the session then.
                    inner.give_back_later(key);
                }
                return Err(error);
            }
        };
        let claimed = Claimed { by, epoch, from: None };
        Ok((Self { inner, key, is_claimed: true, session: None, record: None }, claimed))
    }

    /// From now on drop also closes the session's link and gives back its place in the count.
    pub(super) fn attach(&mut self, session: &Arc<Session>) {
        self.session = Some(Arc::clone(session));
    }

    /// Writes the session's record. Must run to its end.
    ///
    /// # Errors
    /// When the store fails, or has a record under that key.
    pub(super) async fn write(
        mut self,
        value: Bytes,
        deadline: Option<Time>,
    ) -> Result<(Self, Version), StoreError> {
        let key = RecordKey::session(self.key);
        match self.inner.store.put(key, value.clone(), Expected::Absent, deadline).await {
            Ok(version) => {
                self.record = Some(WriteOutcome::As(version));
                Ok((self, version))
            }
            Err(error) => {
                match error {
                    StoreError::Unknown => self.record = Some(WriteOutcome::Perhaps(value)),
                    // Another session has this key, and owns the events.
                    StoreError::Conflict { .. } => {
                        self.is_claimed = false;
                        self.inner.give_back_later(self.key);
                    }
                    _ => {}
                }
                Err(error)
            }
        }
    }

    /// Keeps the session: its client receives the id.
    pub(super) fn commit(mut self) {
        self.is_claimed = false;
        self.session = None;
        self.record = None;
    }
}

impl Drop for CreateGuard {
    fn drop(&mut self) {
        let (link, count_guard) = match self.session.take() {
            Some(session) => {
                let mut state = session.state.lock();
                state.end = Some(EndCause::Deleted);
                (state.link.take(), state.count_guard.take())
            }
            None => (None, None),
        };
        let tasks = &self.inner.tasks;
        // In another task, because a server may be slow to exit.
        if let Some(link) = link {
            tasks.spawn(async move { link.close().await });
        }
        let record = self.record.take();
        if !self.is_claimed && record.is_none() {
            return;
        }
        let (inner, key) = (Arc::clone(&self.inner), self.key);
        // Without a record there is no session to count, so the guard is dropped here.
        let written = record.zip(count_guard);
        tasks.spawn(async move {
            if let Some((written, count_guard)) = written {
                let record = RecordKey::session(key);
                if !take_back(inner.store.as_ref(), record, written, count_guard, &inner.stop).await {
                    inner.give_back_later(key);
                    return;
                }
            }
            if let Err(error) = inner.store.drop_session(key).await {
                tracing::debug!(session = %key.label(), %error, "could not release a claim");
                inner.give_back_later(key);
            }
        });
    }
}
