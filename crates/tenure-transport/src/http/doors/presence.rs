//! Who talks in which session, so that a client that comes back takes the place of its old connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_session::SessionKey;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::duplex::Cursor;

/// How long an old connection may take to let go.
const HAND_OVER: Duration = Duration::from_secs(5);

/// All who talk, or talked and may come back.
#[derive(Debug, Default)]
pub(super) struct Presences(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    present: HashMap<SessionKey, Present>,
}

#[derive(Debug)]
struct Present {
    number: u64,
    replaced: CancellationToken,
    let_go: CancellationToken,
    /// How far its client got, once that is known to be all.
    cursor: Option<Cursor>,
    lease: Lease,
}

/// Whose the session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lease {
    /// It began at this door and ends with its client.
    Own,
    /// It began elsewhere and may be in use there.
    Guest,
}

/// One connection's place in a session.
#[derive(Debug)]
pub(super) struct Presence {
    presences: Arc<Presences>,
    key: SessionKey,
    number: u64,
    /// Another connection has taken the place.
    pub(super) replaced: CancellationToken,
    pub(super) lease: Lease,
    let_go: Option<DropGuard>,
}

impl Presences {
    /// Takes the place in a session and waits until whoever had it has let go. Returns how far that one's client got.
    pub(super) async fn enter(self: &Arc<Self>, key: SessionKey, lease: Lease) -> (Presence, Option<Cursor>) {
        let let_go = CancellationToken::new();
        let (presence, before) = {
            let mut inside = self.inside();
            inside.next += 1;
            let number = inside.next;
            let replaced = CancellationToken::new();
            // Whoever comes back has what the one before had.
            let lease = inside.present.get(&key).map_or(lease, |before| before.lease);
            let present =
                Present { number, replaced: replaced.clone(), let_go: let_go.clone(), cursor: None, lease };
            let before = inside.present.insert(key, present);
            let presences = Arc::clone(self);
            let let_go = Some(let_go.drop_guard());
            (Presence { presences, key, number, replaced, lease, let_go }, before)
        };
        let Some(before) = before else { return (presence, None) };
        before.replaced.cancel();
        if tokio::time::timeout(HAND_OVER, before.let_go.cancelled()).await.is_err() {
            tracing::warn!("an old connection does not let go of its session");
        }
        // It may have noted it while we waited, in our entry.
        let noted = self.inside().present.get_mut(&key).and_then(|present| present.cursor.take());
        (presence, noted.or(before.cursor))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    /// The connection is over, and nothing of it is left that reads a stream. Notes how far the client got.
    pub(super) fn let_go(&mut self, cursor: Cursor) {
        if let Some(present) = self.presences.inside().present.get_mut(&self.key) {
            present.cursor = Some(cursor);
        }
        self.let_go = None;
    }

    /// Gives up the place, unless another connection has it. Returns whether it was still this one's.
    pub(super) fn leave(self) -> bool {
        let mut inside = self.presences.inside();
        let ours = inside.present.get(&self.key).is_some_and(|present| present.number == self.number);
        if ours {
            inside.present.remove(&self.key);
        }
        ours
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut inside = self.presences.inside();
        if inside.present.get(&self.key).is_some_and(|present| present.number == self.number) {
            inside.present.remove(&self.key);
        }
    }
}
