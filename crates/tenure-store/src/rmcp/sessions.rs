//! The records of rmcp's sessions: each holds the parameters of `initialize`.

use bytes::Bytes;
use rmcp::transport::streamable_http_server::session::SessionState;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Expected, Record, RecordKey, StoreError};

use super::layout::RmcpRecord;
use super::{RmcpStore, RmcpStoreError, TRIES, names};

impl RmcpStore {
    /// The state of a session that has not expired. Renews its deadline.
    pub(super) async fn load_session(&self, id: &str) -> Result<Option<SessionState>, RmcpStoreError> {
        let (key, now) = (names::session(id), self.clock.now());
        let Some(record) = self.store.get(key).await? else { return Ok(None) };
        if is_due(&record, now) {
            return Ok(None);
        }
        let Some(RmcpRecord::Session(state)) = RmcpRecord::read(&record.value) else {
            return Err(RmcpStoreError::Damaged);
        };
        let state = serde_json::from_slice(&state)?;
        // On a conflict the other writer has renewed the session, unless it deleted it.
        match self.put_session(key, record.value, Expected::Version(record.version), now).await {
            Ok(()) => Ok(Some(state)),
            Err(StoreError::Conflict { current }) => Ok(current.map(|_| state)),
            Err(error) => {
                tracing::warn!(%error, "could not prolong a session that was woken");
                Ok(Some(state))
            }
        }
    }

    /// Stores the state of a session and replaces an earlier one.
    pub(super) async fn store_session(&self, id: &str, state: &SessionState) -> Result<(), RmcpStoreError> {
        let (key, now) = (names::session(id), self.clock.now());
        self.sweep(now).await;
        let value = RmcpRecord::Session(serde_json::to_vec(state)?.into()).write();
        let mut expected = Expected::Absent;
        for _ in 0..TRIES {
            let current = match self.put_session(key, value.clone(), expected, now).await {
                Err(StoreError::Conflict { current }) => current,
                // The put may have succeeded; then the next try replaces it.
                Err(StoreError::Unknown) => self.store.get(key).await?.map(|record| record.version),
                done => return Ok(done?),
            };
            expected = current.map_or(Expected::Absent, Expected::Version);
        }
        Err(RmcpStoreError::Contended)
    }

    /// Deletes a session. A missing session is no error.
    pub(super) async fn delete_session(&self, id: &str) -> Result<(), RmcpStoreError> {
        let key = names::session(id);
        for _ in 0..TRIES {
            let Some(record) = self.store.get(key).await? else { return Ok(()) };
            match self.store.delete(key, record.version).await {
                Err(StoreError::Conflict { current: None }) => return Ok(()),
                Err(StoreError::Conflict { .. } | StoreError::Unknown) => {}
                done => return Ok(done?),
            }
        }
        Err(RmcpStoreError::Contended)
    }

    async fn put_session(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        now: Time,
    ) -> Result<(), StoreError> {
        let deadline = now.after(self.bounds.session_ttl);
        self.store.put(key, value, expected, Some(deadline)).await.map(drop)
    }
}

fn is_due(record: &Record, now: Time) -> bool {
    record.deadline.is_some_and(|deadline| deadline <= now)
}
