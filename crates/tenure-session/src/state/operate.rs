//! Operators' commands on states, by the key that a list shows. The owner is not checked here, and the secret id is not
//! needed.

use std::sync::Arc;

use bytes::Bytes;

use super::fault::{Fault, Lost};
use super::list::StateInfo;
use super::name::StateId;
use super::states::States;
use crate::id::SessionKey;
use crate::state::live_state::State;

/// The outcome of resuming a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resumed {
    /// It was alive; its life is prolonged.
    Alive,
    /// It had expired, and was revived.
    Recovered,
}

impl States {
    /// A state, ended or not, with its data. This does not count as a use.
    ///
    /// # Errors
    /// When the record cannot be read, or the store fails.
    pub async fn look_at(&self, key: SessionKey) -> Result<Option<(StateInfo, Bytes)>, Fault> {
        let seen = self.0.read(key).await?;
        Ok(seen.map(|seen| (self.0.listed(key, &seen), seen.record.data)))
    }

    /// Prolongs the life of a state, and revives it if it expired because it was not used and is still kept.
    ///
    /// # Errors
    /// When there is no such state, it has ended, or the store fails.
    ///
    /// # Cancel safety
    /// A write that has begun is finished.
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

    /// Removes the data of a state. This does not count as a use.
    ///
    /// # Errors
    /// When there is no such state, it is over, or the store fails.
    ///
    /// # Cancel safety
    /// A write that has begun is finished.
    pub async fn clear(&self, key: SessionKey) -> Result<(), Fault> {
        self.open(key).await?.clear().await
    }

    /// Ends a state.
    ///
    /// # Errors
    /// When there is no such state, it is over already, or the store fails.
    ///
    /// # Cancel safety
    /// A write that has begun is finished.
    pub async fn revoke(&self, key: SessionKey) -> Result<(), Fault> {
        self.open(key).await?.revoke().await
    }

    /// Makes another state of the same owner with a copy of the data.
    ///
    /// # Errors
    /// When there is no such state, it is over, a limit is reached, or the store fails.
    ///
    /// # Cancel safety
    /// As for [`States::create`].
    pub async fn copy(&self, key: SessionKey, label: Option<String>) -> Result<State, Fault> {
        self.open(key).await?.fork(label).await
    }

    async fn open(&self, key: SessionKey) -> Result<State, Fault> {
        let seen = self.0.read(key).await?.ok_or(Fault::Lost(Lost::NotFound))?;
        // The real id is not known. A random one serves, because it is not given to any caller.
        Ok(State::new(Arc::clone(&self.0), StateId::random(), key, seen, self.now()))
    }
}
