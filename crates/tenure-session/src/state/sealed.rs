//! A state that its client carries: sealed, so that the client can neither read nor change it, and bound to its owner
//! and its id.
//!
//! The record in the store always takes precedence. Only if the store has no record of the id, not even a tombstone,
//! is the state restored from the client's copy. A tombstone is kept longer than such a copy is valid, so an ended
//! state is never restored.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::budget::Peer;
use crate::finish::finish;
use crate::id::Principal;
use crate::port::seal::Seal;
use crate::port::store::StoreError;
use crate::state::fault::{Fault, Lost};
use crate::state::live_state::State;
use crate::state::make::Made;
use crate::state::name::StateId;
use crate::state::record::StateRecord;
use crate::state::states::States;

fn bound(owner: &Principal, id: StateId) -> Vec<u8> {
    let (named, name) = (u8::from(owner.name().is_some()), owner.name().unwrap_or_default());
    [&b"state\0"[..], &id.to_bytes(), &[named], name.as_bytes()].concat()
}

impl State {
    /// The sealed copy for the client; `None` if it is larger than `max_bytes`.
    pub fn carried(&self, seal: &dyn Seal, max_bytes: usize) -> Option<String> {
        let (mut record, owner, seen_at) = self.for_carrying();
        // Base64 makes it a third larger.
        if record.data.len() / 3 * 4 > max_bytes {
            return None;
        }
        // Counted from when the state was last seen alive: if it has ended since, its tombstone is kept longer than
        // this.
        let good_until = seen_at.after(self.tombstone_ttl()).0;
        record.head_mut().expires = Some(record.head.expires.map_or(good_until, |at| at.min(good_until)));
        let sealed = seal.seal(&bound(&owner, self.id()), &record.encode())?;
        let text = URL_SAFE_NO_PAD.encode(sealed);
        (text.len() <= max_bytes).then_some(text)
    }
}

impl States {
    /// Restores a state from the client's sealed copy, if the store has no record of it. Its bytes count for this peer.
    ///
    /// # Cancel safety
    /// A write that has begun is finished: the client has the id, and finds the state with its next request.
    pub async fn restore(
        &self,
        owner: &Principal,
        id: StateId,
        carried: &str,
        seal: &dyn Seal,
        peer: Peer,
    ) -> Result<State, Fault> {
        let lost = Fault::Lost(Lost::NotFound);
        let sealed = URL_SAFE_NO_PAD.decode(carried).ok();
        let Some(plain) = sealed.and_then(|sealed| seal.open(&bound(owner, id), &sealed)) else {
            return Err(lost);
        };
        let Ok(mut record) = StateRecord::decode(&plain.into()) else { return Err(lost) };
        let (inner, now) = (&self.0, self.0.clock.now());
        record.head.standing(now).map_err(Fault::Lost)?;
        inner.check_size(record.data.len())?;
        inner.prolong(record.head_mut(), now);
        record.head_mut().peer = peer;
        let key = id.key(owner);
        let count_guard = self.count_guard(key, owner, &record)?;
        let making = Arc::clone(inner).make(key, record, count_guard);
        match finish(&inner.tasks, async move { making.await.map(Made::kept) }).await {
            Ok(seen) => {
                let state = State::new(Arc::clone(inner), id, key, seen, now);
                tracing::debug!(state = %state.label(), "a state was restored from its client's copy");
                Ok(state)
            }
            // Another request was faster, or the state has ended in the meantime.
            Err(StoreError::Conflict { .. }) => self.find(owner, id).await,
            Err(error) => Err(error.into()),
        }
    }
}
