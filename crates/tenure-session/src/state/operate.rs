//! What operators do with states, by the key that a list shows: whose a state is does not matter here, and its
//! secret name is neither known nor needed.

use std::sync::Arc;

use bytes::Bytes;

use super::fault::{Fault, Lost};
use super::list::Listed;
use super::name::StateId;
use super::states::States;
use crate::id::SessionKey;
use crate::state::state::State;

/// What came of resuming a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resumed {
    /// It was alive; its expiry is put off.
    Alive,
    /// It had expired and was still kept; it is back.
    Recovered,
}

impl States {
    /// A state however it stands, with what it holds. That does not count as a use.
    ///
    /// # Errors
    /// When the record makes no sense, or the store fails.
    pub async fn look_at(&self, key: SessionKey) -> Result<Option<(Listed, Bytes)>, Fault> {
        let seen = self.0.read(key).await?;
        Ok(seen.map(|seen| (self.0.listed(key, &seen), seen.record.data)))
    }

    /// Puts off the expiry of a state, and revives it if it expired for want of use and is still kept.
    ///
    /// # Errors
    /// When there is none, it has ended, or the store fails.
    ///
    /// # Cancel safety
    /// A write that was begun is finished.
    pub async fn resume(&self, key: SessionKey) -> Result<Resumed, Fault> {
        let state = self.open(key).await?;
        let resumed = match state.standing() {
            Ok(()) => Resumed::Alive,
            Err(Fault::Lost(Lost::Expired)) => Resumed::Recovered,
            Err(fault) => return Err(fault),
        };
        state.revive().await?;
        Ok(resumed)
    }

    /// Empties a state. That does not count as a use.
    ///
    /// # Errors
    /// When there is none, it is over, or the store fails.
    ///
    /// # Cancel safety
    /// A write that was begun is finished.
    pub async fn clear(&self, key: SessionKey) -> Result<(), Fault> {
        self.open(key).await?.clear().await
    }

    /// Ends a state.
    ///
    /// # Errors
    /// When there is none, it is over already, or the store fails.
    ///
    /// # Cancel safety
    /// A write that was begun is finished.
    pub async fn revoke(&self, key: SessionKey) -> Result<(), Fault> {
        self.open(key).await?.revoke().await
    }

    /// Makes another state of the same owner that begins with what this one holds.
    ///
    /// # Errors
    /// When there is none, it is over, a limit is reached, or the store fails.
    ///
    /// # Cancel safety
    /// As for [`States::create`].
    pub async fn copy(&self, key: SessionKey, label: Option<String>) -> Result<State, Fault> {
        self.open(key).await?.fork(label).await
    }

    async fn open(&self, key: SessionKey) -> Result<State, Fault> {
        let seen = self.0.read(key).await?.ok_or(Fault::Lost(Lost::NotFound))?;
        // The name stays in here.
        Ok(State::new(Arc::clone(&self.0), StateId::random(), key, seen, self.now()))
    }
}
