//! Knows which connection serves each session, so that a client that comes back replaces its old connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_session::SessionKey;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::duplex::Cursor;

/// How long an old connection may take to release its session.
const HAND_OVER: Duration = Duration::from_secs(5);

/// The sessions of all connections that are open, or whose client may come back.
#[derive(Debug, Default)]
pub(super) struct Presences(Mutex<PresenceTable>);

#[derive(Debug, Default)]
struct PresenceTable {
    next: u64,
    present: HashMap<SessionKey, Present>,
}

#[derive(Debug)]
struct Present {
    number: u64,
    replaced: CancellationToken,
    let_go: CancellationToken,
    /// Final cursor of the client, set when the connection has ended.
    cursor: Option<Cursor>,
    lease: Lease,
}

/// Whether the session belongs to the door.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lease {
    /// It began at this door and ends with its client.
    Own,
    /// It began elsewhere and may be in use there.
    Guest,
}

/// The right of one connection to serve a session.
#[derive(Debug)]
pub(super) struct Presence {
    presences: Arc<Presences>,
    key: SessionKey,
    number: u64,
    /// Cancelled when another connection has taken the session over.
    pub(super) replaced: CancellationToken,
    pub(super) lease: Lease,
    let_go: Option<DropGuard>,
}

impl Presences {
    /// Takes a session over, and waits until the connection before has released it. Returns the cursor that it left.
    pub(super) async fn enter(self: &Arc<Self>, key: SessionKey, lease: Lease) -> (Presence, Option<Cursor>) {
        let let_go = CancellationToken::new();
        let (presence, before) = {
            let mut table = self.table();
            table.next += 1;
            let number = table.next;
            let replaced = CancellationToken::new();
            // A client that comes back has the same lease as before.
            let lease = table.present.get(&key).map_or(lease, |before| before.lease);
            let present =
                Present { number, replaced: replaced.clone(), let_go: let_go.clone(), cursor: None, lease };
            let before = table.present.insert(key, present);
            let presences = Arc::clone(self);
            let let_go = Some(let_go.drop_guard());
            (Presence { presences, key, number, replaced, lease, let_go }, before)
        };
        let Some(before) = before else { return (presence, None) };
        before.replaced.cancel();
        if tokio::time::timeout(HAND_OVER, before.let_go.cancelled()).await.is_err() {
            tracing::warn!("an old connection does not release its session");
        }
        // The connection before may have set its cursor meanwhile, in the new entry.
        let noted = self.table().present.get_mut(&key).and_then(|present| present.cursor.take());
        (presence, noted.or(before.cursor))
    }

    /// Forgets a session, whose client has come to another node. Waits until its connection has released it.
    pub(super) async fn give_up(&self, key: SessionKey) {
        let Some(present) = self.table().present.remove(&key) else { return };
        present.replaced.cancel();
        if tokio::time::timeout(HAND_OVER, present.let_go.cancelled()).await.is_err() {
            tracing::warn!("an old connection does not release its session");
        }
    }

    fn table(&self) -> MutexGuard<'_, PresenceTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    /// Releases the session: the connection has ended and reads no stream any more. Keeps the client's cursor.
    pub(super) fn let_go(&mut self, cursor: Cursor) {
        if let Some(present) = self.presences.table().present.get_mut(&self.key) {
            present.cursor = Some(cursor);
        }
        self.let_go = None;
    }

    /// Removes this connection's entry. Returns false if another connection has taken the session over.
    pub(super) fn leave(self) -> bool {
        let mut table = self.presences.table();
        let ours = table.present.get(&self.key).is_some_and(|present| present.number == self.number);
        if ours {
            table.present.remove(&self.key);
        }
        ours
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let mut table = self.presences.table();
        if table.present.get(&self.key).is_some_and(|present| present.number == self.number) {
            table.present.remove(&self.key);
        }
    }
}
