//! Writes a new state to the store. If its maker is dropped before it learns of the state, the state is taken back.

use std::sync::Arc;

use super::record::StateRecord;
use super::states::{StatesInner, record_key};
use crate::counts::CountGuard;
use crate::id::SessionKey;
use crate::port::store::{Expected, StoreError};
use crate::state::live_state::SeenRecord;
use crate::take_back::{WriteOutcome, take_back};

/// A new state in the store that its maker does not know yet. If this is dropped without `kept`, the state is taken
/// back.
pub(super) struct Made {
    inner: Arc<StatesInner>,
    key: SessionKey,
    made: Option<(SeenRecord, CountGuard)>,
}

impl StatesInner {
    /// Writes a new state. Must run to its end.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn make(
        self: Arc<Self>,
        key: SessionKey,
        mut record: StateRecord,
        count_guard: CountGuard,
    ) -> Result<Made, StoreError> {
        match self.write(key, &mut record, Expected::Absent).await {
            Ok(version) => {
                Ok(Made { inner: self, key, made: Some((SeenRecord { version, record }, count_guard)) })
            }
            Err(StoreError::Unknown) => {
                self.take_back(key, WriteOutcome::Perhaps(record.encode()), count_guard);
                Err(StoreError::Unknown)
            }
            Err(error) => Err(error),
        }
    }

    fn take_back(self: &Arc<Self>, key: SessionKey, written: WriteOutcome, count_guard: CountGuard) {
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            take_back(inner.store.as_ref(), record_key(key), written, count_guard, &inner.stop).await;
        });
    }
}

impl Made {
    /// The maker gets the state, so it stays.
    pub(super) fn kept(mut self) -> SeenRecord {
        let (seen, count_guard) = self.made.take().expect("it is given away once, with itself");
        count_guard.keep();
        seen
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some((seen, count_guard)) = self.made.take() {
            self.inner.take_back(self.key, WriteOutcome::As(seen.version), count_guard);
        }
    }
}
