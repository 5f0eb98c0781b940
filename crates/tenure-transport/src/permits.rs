//! Counts the connections, in all and for each peer.
//!
//! A connection holds a permit as long as it is open. Each peer may hold a share of the permits, so that one peer
//! cannot take them all. A connection that gets no permit is told so at once, and may wait for one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_session::budget::Peer;
use tokio::sync::Notify;

/// All permits.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPermits(Arc<PermitPool>);

#[derive(Debug)]
struct PermitPool {
    most: usize,
    most_per_peer: usize,
    taken: Mutex<PermitCounts>,
    /// Notified when a permit is given back.
    freed: Notify,
}

#[derive(Debug, Default)]
struct PermitCounts {
    all: usize,
    /// Only peers that hold a permit, so there are never more entries than permits.
    peers: HashMap<Peer, usize>,
}

/// The right to have one connection open. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    pool: Arc<PermitPool>,
    peer: Peer,
}

/// Why a connection gets no permit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPermit {
    /// All permits are taken.
    Full,
    /// The peer holds its whole share.
    Share,
}

impl ConnectionPermits {
    pub(crate) fn new(most: usize, most_per_peer: usize) -> Self {
        Self(Arc::new(PermitPool { most, most_per_peer, taken: Mutex::default(), freed: Notify::new() }))
    }

    /// Takes a permit for a connection of this peer.
    pub(crate) fn take(&self, peer: Peer) -> Result<ConnectionPermit, NoPermit> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.0.most {
            return Err(NoPermit::Full);
        }
        let of_peer = taken.peers.entry(peer).or_default();
        if *of_peer >= self.0.most_per_peer {
            return Err(NoPermit::Share);
        }
        *of_peer += 1;
        taken.all += 1;
        Ok(ConnectionPermit { pool: Arc::clone(&self.0), peer })
    }

    /// Waits until there is a permit for this peer, and takes it.
    ///
    /// # Cancel safety
    /// No permit is taken if the future is dropped.
    pub(crate) async fn wait(&self, peer: Peer) -> ConnectionPermit {
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            // Enabled before `take`, so that a permit given back in between is not missed.
            freed.as_mut().enable();
            if let Ok(permit) = self.take(peer) {
                return permit;
            }
            freed.await;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        {
            let mut taken = self.pool.taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.all -= 1;
            if let Some(of_peer) = taken.peers.get_mut(&self.peer) {
                *of_peer -= 1;
                if *of_peer == 0 {
                    taken.peers.remove(&self.peer);
                }
            }
        }
        self.pool.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Peer {
        Peer::at([10, 0, 0, 1].into())
    }

    fn other() -> Peer {
        Peer::at([10, 0, 0, 2].into())
    }

    #[test]
    fn a_peer_takes_its_share_and_no_more() {
        let permits = ConnectionPermits::new(3, 2);
        let held = [permits.take(one()).unwrap(), permits.take(one()).unwrap()];
        assert_eq!(permits.take(one()).unwrap_err(), NoPermit::Share);
        let _other = permits.take(other()).unwrap();
        assert_eq!(permits.take(other()).unwrap_err(), NoPermit::Full);
        drop(held);
        assert!(permits.take(other()).is_ok());
        assert_eq!(permits.0.taken.lock().unwrap().peers.len(), 1, "a peer without a permit is forgotten");
    }

    #[tokio::test]
    async fn a_waiting_peer_gets_the_next_permit_that_it_may_have() {
        let permits = ConnectionPermits::new(2, 1);
        let first = permits.take(one()).unwrap();
        let mut waiting = std::pin::pin!(permits.wait(one()));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(permits.take(other()).unwrap());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending(), "that permit was not for this peer");
        drop(first);
        waiting.await;
    }
}
