//! Caches the last use of a state, for a client that names the same state in every request.
//!
//! The store is asked every time, and returns the version of the record. If the cache has the same version, the record
//! is not decoded again.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::framed::{UnreadableFrame, halves};
use crate::id::Principal;
use crate::port::clock::Time;
use crate::port::store::{Record, Version};
use crate::state::live_state::{SeenRecord, State};
use crate::state::record::{StateHead, StateRecord};

/// The cache of one state.
#[derive(Default)]
pub struct StateCache(Mutex<Left>);

#[derive(Default)]
struct Left {
    head: Option<(Version, Arc<StateHead>)>,
    /// A state that is not in use, without its data.
    spare: Option<State>,
}

/// The result of reading a record through the cache.
pub(super) enum Again {
    /// The cached state, ready to use.
    Spare(State),
    /// The record; its state has to be made anew.
    Seen(SeenRecord),
}

impl std::fmt::Debug for StateCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StateCache")
    }
}

impl StateCache {
    /// Reads a record that was found at this time.
    ///
    /// # Errors
    /// When it is not the record of a state.
    pub(super) fn read(&self, owner: &Principal, kept: &Record, now: Time) -> Result<Again, UnreadableFrame> {
        let mut left = self.0.lock();
        if let Some((_, data)) = halves(&kept.value) {
            let data = || kept.value.slice_ref(data);
            let again = |spare: State| spare.again(owner, kept.version, data, now);
            if let Some(spare) = left.spare.take().and_then(again) {
                return Ok(Again::Spare(spare));
            }
            if let Some((version, head)) = &left.head
                && *version == kept.version
            {
                let record = StateRecord { head: Arc::clone(head), data: data() };
                return Ok(Again::Seen(SeenRecord { version: *version, record }));
            }
        }
        let record = StateRecord::decode(&kept.value)?;
        left.head = Some((kept.version, Arc::clone(&record.head)));
        Ok(Again::Seen(SeenRecord { version: kept.version, record }))
    }

    /// Puts a state back into the cache, unless a clone of it is still in use.
    pub fn give_back(&self, state: State) {
        if let Some(spare) = state.without_data() {
            self.0.lock().spare = Some(spare);
        }
    }
}
