//! A state as it was found last, for whoever comes with the same name again and again.
//!
//! The store is asked every time, and says in which version the record is. What was made of the same version before is
//! not made again.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::id::Principal;
use crate::port::clock::Time;
use crate::port::store::{Record, Version};
use crate::state::record::{Head, StateRecord, Unreadable, halves};
use crate::state::state::{Seen, State};

/// What is left of the last uses of a state.
#[derive(Default)]
pub struct Last(Mutex<Left>);

#[derive(Default)]
struct Left {
    head: Option<(Version, Arc<Head>)>,
    /// One that nobody holds any more, without its data.
    spare: Option<State>,
}

/// What a record is to one who has been here before.
pub(super) enum Again {
    /// The state of that owner, as it was left.
    Spare(State),
    /// What stands in the record.
    Seen(Seen),
}

impl std::fmt::Debug for Last {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Last")
    }
}

impl Last {
    /// Reads a record that was found at this time.
    ///
    /// # Errors
    /// When it is none of a state's.
    pub(super) fn read(&self, owner: &Principal, kept: &Record, now: Time) -> Result<Again, Unreadable> {
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
                return Ok(Again::Seen(Seen { version: *version, record }));
            }
        }
        let record = StateRecord::decode(&kept.value)?;
        left.head = Some((kept.version, Arc::clone(&record.head)));
        Ok(Again::Seen(Seen { version: kept.version, record }))
    }

    /// Takes back a state that was found here, unless somebody still holds it.
    pub fn give_back(&self, state: State) {
        if let Some(spare) = state.without_data() {
            self.0.lock().spare = Some(spare);
        }
    }
}
