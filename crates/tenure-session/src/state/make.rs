//! A state on its way into the store. If its maker leaves before it hears of the state, the state is taken back.

use std::sync::Arc;

use super::record::StateRecord;
use super::states::{Inner, record_key};
use crate::counts::Seat;
use crate::id::SessionKey;
use crate::port::store::{Expected, StoreError};
use crate::state::state::Seen;
use crate::take_back::{Written, take_back};

/// A state in the store that its maker has not heard of. Unless it is kept, it is taken back.
pub(super) struct Made {
    inner: Arc<Inner>,
    key: SessionKey,
    made: Option<(Seen, Seat)>,
}

impl Inner {
    /// Writes a new state. To be run to its end.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn make(
        self: Arc<Self>,
        key: SessionKey,
        mut record: StateRecord,
        seat: Seat,
    ) -> Result<Made, StoreError> {
        match self.write(key, &mut record, Expected::Absent).await {
            Ok(version) => Ok(Made { inner: self, key, made: Some((Seen { version, record }, seat)) }),
            Err(StoreError::Unknown) => {
                self.take_back(key, Written::Perhaps(record.encode()), seat);
                Err(StoreError::Unknown)
            }
            Err(error) => Err(error),
        }
    }

    fn take_back(self: &Arc<Self>, key: SessionKey, written: Written, seat: Seat) {
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            take_back(inner.store.as_ref(), record_key(key), written, seat, &inner.stop).await;
        });
    }
}

impl Made {
    /// Its maker hears of it.
    pub(super) fn kept(mut self) -> Seen {
        let (seen, seat) = self.made.take().expect("it is given away once, with itself");
        seat.keep();
        seen
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some((seen, seat)) = self.made.take() {
            self.inner.take_back(self.key, Written::As(seen.version), seat);
        }
    }
}
