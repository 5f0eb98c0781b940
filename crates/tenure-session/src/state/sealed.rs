//! A state that its client carries: sealed, so that it can neither be read nor changed, and bound to its owner and
//! its name.
//!
//! What the store has always counts. Only when the store knows nothing of a name, not even how it ended, is the
//! state put back from what the client carries. The end of a state is remembered for longer than anything that is
//! carried is good for, so nothing that ended comes back this way.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::budget::Peer;
use crate::finish::finish;
use crate::id::Principal;
use crate::port::seal::Seal;
use crate::port::store::StoreError;
use crate::state::fault::{Fault, Lost};
use crate::state::make::Made;
use crate::state::name::StateId;
use crate::state::record::StateRecord;
use crate::state::state::State;
use crate::state::states::States;

fn bound(owner: &Principal, id: StateId) -> Vec<u8> {
    let (named, name) = (u8::from(owner.name().is_some()), owner.name().unwrap_or_default());
    [&b"state\0"[..], &id.to_bytes(), &[named], name.as_bytes()].concat()
}

impl State {
    /// The state as its client carries it; `None` if that takes more than so many bytes.
    pub fn carried(&self, seal: &dyn Seal, max_bytes: usize) -> Option<String> {
        let (mut record, owner, seen_at) = self.for_carrying();
        // A third more in base64.
        if record.data.len() / 3 * 4 > max_bytes {
            return None;
        }
        // From when it was seen alive: should it have been ended since, that is remembered for longer.
        let good_until = seen_at.after(self.tombstone_ttl()).0;
        record.head_mut().expires = Some(record.head.expires.map_or(good_until, |at| at.min(good_until)));
        let sealed = seal.seal(&bound(&owner, self.id()), &record.encode())?;
        let text = URL_SAFE_NO_PAD.encode(sealed);
        (text.len() <= max_bytes).then_some(text)
    }
}

impl States {
    /// Puts a state back that its client carries, if the store knows nothing of it. It takes the share of this peer.
    ///
    /// # Cancel safety
    /// A write that was begun is finished: the client carries the name, and finds the state with its next request.
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
        let seat = self.seat(key, owner, &record)?;
        let making = Arc::clone(inner).make(key, record, seat);
        match finish(&inner.tasks, async move { making.await.map(Made::kept) }).await {
            Ok(seen) => {
                let state = State::new(Arc::clone(inner), id, key, seen, now);
                tracing::debug!(state = %state.label(), "a state was put back from what its client carries");
                Ok(state)
            }
            // Another request was first, or it has ended meanwhile.
            Err(StoreError::Conflict { .. }) => self.find(owner, id).await,
            Err(error) => Err(error.into()),
        }
    }
}
