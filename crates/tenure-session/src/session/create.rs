//! A session that is being created, and is undone if its client leaves before it hears of it.
//!
//! First the key is claimed, then the server is started, then the record is written. If the client hangs up, a server
//! that is being started is let go at once. A claim or a write goes on until its outcome is known, because only then
//! it is clear whether there is something to undo.

use std::sync::Arc;

use bytes::Bytes;

use crate::id::SessionKey;
use crate::port::clock::Time;
use crate::port::store::{Epoch, Expected, RecordKey, StoreError, Version};
use crate::record::End;
use crate::session::session::Session;
use crate::session::sessions::Inner;
use crate::take_back::{Written, take_back};

/// A session that its client has not heard of. Dropped, it leaves nothing behind.
pub(super) struct Unborn {
    inner: Arc<Inner>,
    key: SessionKey,
    /// The key was claimed for this session, and so are the events behind it.
    is_claimed: bool,
    session: Option<Arc<Session>>,
    record: Option<Written>,
}

impl Unborn {
    /// Claims a key that no session has. To be run to its end.
    ///
    /// # Errors
    /// When another session has the key, or the store fails. The events under the key stay as they are.
    pub(super) async fn claim(inner: Arc<Inner>, key: SessionKey) -> Result<(Self, Epoch), StoreError> {
        let epoch = inner.store.claim(key, inner.node, None).await?;
        Ok((Self { inner, key, is_claimed: true, session: None, record: None }, epoch))
    }

    /// From now on its server and its seat are given back too.
    pub(super) fn becomes(&mut self, session: &Arc<Session>) {
        self.session = Some(Arc::clone(session));
    }

    /// Writes its record. To be run to its end.
    ///
    /// # Errors
    /// When the store fails, or has a record of that key.
    pub(super) async fn write(
        mut self,
        value: Bytes,
        deadline: Option<Time>,
    ) -> Result<(Self, Version), StoreError> {
        let key = RecordKey::session(self.key);
        match self.inner.store.put(key, value.clone(), Expected::Absent, deadline).await {
            Ok(version) => {
                self.record = Some(Written::As(version));
                Ok((self, version))
            }
            Err(error) => {
                match error {
                    StoreError::Unknown => self.record = Some(Written::Perhaps(value)),
                    // There is a session of that name, and the events are its own.
                    StoreError::Conflict { .. } => self.is_claimed = false,
                    _ => {}
                }
                Err(error)
            }
        }
    }

    /// Its client hears of it.
    pub(super) fn born(mut self) {
        self.is_claimed = false;
        self.session = None;
        self.record = None;
    }
}

impl Drop for Unborn {
    fn drop(&mut self) {
        let (link, seat) = match self.session.take() {
            Some(session) => {
                let mut state = session.state.lock();
                state.end = Some(End::Deleted);
                (state.link.take(), state.seat.take())
            }
            None => (None, None),
        };
        let tasks = &self.inner.tasks;
        // Apart, because a server may be slow to leave.
        if let Some(link) = link {
            tasks.spawn(async move { link.close().await });
        }
        let record = self.record.take();
        if !self.is_claimed && record.is_none() {
            return;
        }
        let (inner, key) = (Arc::clone(&self.inner), self.key);
        // Without a record there is no session that could count.
        let written = record.zip(seat);
        tasks.spawn(async move {
            if let Some((written, seat)) = written {
                let record = RecordKey::session(key);
                if !take_back(inner.store.as_ref(), record, written, seat, &inner.stop).await {
                    return;
                }
            }
            if let Err(error) = inner.store.drop_session(key).await {
                tracing::debug!(session = %key.label(), %error, "could not give a claim back");
            }
        });
    }
}
