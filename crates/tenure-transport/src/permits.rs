//! How many connections there are, in all and of each peer.
//!
//! A connection has a place as long as it is open. A peer has a share of the places, so that it can take away only its
//! own. Nothing here waits for the kernel: who gets no place is told at once, and may wait for one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenure_session::budget::Peer;
use tokio::sync::Notify;

/// All places.
#[derive(Clone, Debug)]
pub(crate) struct Seats(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    most_per_peer: usize,
    taken: Mutex<Taken>,
    /// Notified when a place comes free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only peers that have a place, so no more than there are places.
    peers: HashMap<Peer, usize>,
}

/// A place. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    inner: Arc<Inner>,
    peer: Peer,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPlace {
    /// All are taken.
    Full,
    /// The peer has its share.
    Share,
}

impl Seats {
    pub(crate) fn new(most: usize, most_per_peer: usize) -> Self {
        Self(Arc::new(Inner { most, most_per_peer, taken: Mutex::default(), freed: Notify::new() }))
    }

    /// A place for a connection of this peer.
    pub(crate) fn take(&self, peer: Peer) -> Result<Place, NoPlace> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.0.most {
            return Err(NoPlace::Full);
        }
        let of_peer = taken.peers.entry(peer).or_default();
        if *of_peer >= self.0.most_per_peer {
            return Err(NoPlace::Share);
        }
        *of_peer += 1;
        taken.all += 1;
        Ok(Place { inner: Arc::clone(&self.0), peer })
    }

    /// The same, when there is one.
    ///
    /// # Cancel safety
    /// Nothing is taken if it is dropped.
    pub(crate) async fn wait(&self, peer: Peer) -> Place {
        loop {
            let mut freed = std::pin::pin!(self.0.freed.notified());
            // Before it is looked: one that comes free in between is not missed.
            freed.as_mut().enable();
            if let Ok(place) = self.take(peer) {
                return place;
            }
            freed.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        {
            let mut taken = self.inner.taken.lock().unwrap_or_else(PoisonError::into_inner);
            taken.all -= 1;
            if let Some(of_peer) = taken.peers.get_mut(&self.peer) {
                *of_peer -= 1;
                if *of_peer == 0 {
                    taken.peers.remove(&self.peer);
                }
            }
        }
        self.inner.freed.notify_waiters();
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
        let seats = Seats::new(3, 2);
        let held = [seats.take(one()).unwrap(), seats.take(one()).unwrap()];
        assert_eq!(seats.take(one()).unwrap_err(), NoPlace::Share);
        let _other = seats.take(other()).unwrap();
        assert_eq!(seats.take(other()).unwrap_err(), NoPlace::Full);
        drop(held);
        assert!(seats.take(other()).is_ok());
        assert_eq!(seats.0.taken.lock().unwrap().peers.len(), 1, "who has none is forgotten");
    }

    #[tokio::test]
    async fn who_waits_gets_the_next_place_that_it_may_have() {
        let seats = Seats::new(2, 1);
        let first = seats.take(one()).unwrap();
        let mut waiting = std::pin::pin!(seats.wait(one()));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(seats.take(other()).unwrap());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending(), "that one was not for this peer");
        drop(first);
        waiting.await;
    }
}
