//! Connections beyond those that there may be: for questions about health, and to wait for a place.
//!
//! A server that is full has to say so to those who look after it. So a few more connections are accepted. A request for
//! `/healthz` or `/readyz` is answered on them at once. Any other request waits a little for a place among the others,
//! and is refused then. A connection that sends no request is closed soon, and the oldest one as soon as there are too many,
//! so that nobody can keep the reserve for itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tenure_session::budget::Peer;
use tokio_util::sync::CancellationToken;

use crate::http::Seat;
use crate::permits::Seats;

/// How many there are, and how many of one peer.
pub(crate) const MOST: usize = 64;
const MOST_PER_PEER: usize = 16;

/// How long a connection may take to send its first request, and then how long that waits for a place.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the answer may take when there is no place.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The connections of the reserve.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reserve(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    /// The oldest first.
    held: VecDeque<Held>,
    next: u64,
}

#[derive(Debug)]
struct Held {
    number: u64,
    peer: Peer,
    give_way: CancellationToken,
}

/// A connection of the reserve.
#[derive(Debug)]
pub(crate) struct Spare {
    reserve: Reserve,
    seats: Seats,
    number: u64,
    peer: Peer,
    /// A newer one takes its place in the reserve.
    give_way: CancellationToken,
    /// It has sent a request that waits.
    is_asking: OnceLock<()>,
    /// The place that it got among the others.
    seat: OnceLock<Seat>,
}

impl Reserve {
    /// Takes in a connection. The oldest of the same peer gives way if that has its share, the oldest of all if there are
    /// too many.
    pub(crate) fn take(&self, peer: Peer, seats: &Seats) -> Arc<Spare> {
        let give_way = CancellationToken::new();
        let mut inner = self.lock();
        let of_peer = inner.held.iter().filter(|held| held.peer == peer).count();
        let oldest = match of_peer >= MOST_PER_PEER {
            true => inner.held.iter().position(|held| held.peer == peer),
            false => (inner.held.len() >= MOST).then_some(0),
        };
        if let Some(gone) = oldest.and_then(|oldest| inner.held.remove(oldest)) {
            gone.give_way.cancel();
        }
        let number = inner.next;
        inner.next += 1;
        inner.held.push_back(Held { number, peer, give_way: give_way.clone() });
        drop(inner);
        Arc::new(Spare {
            reserve: self.clone(),
            seats: seats.clone(),
            number,
            peer,
            give_way,
            is_asking: OnceLock::new(),
            seat: OnceLock::new(),
        })
    }

    fn leave(&self, number: u64) {
        self.lock().held.retain(|held| held.number != number);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare {
    /// The place that it has got among the others.
    pub(crate) fn seat(&self) -> Option<Seat> {
        self.seat.get().cloned()
    }

    /// A place among the others for a request, if there is one in time.
    ///
    /// # Cancel safety
    /// No place is taken if it is dropped.
    pub(crate) async fn wait_for_seat(&self) -> Option<Seat> {
        if let Some(seat) = self.seat() {
            return Some(seat);
        }
        let _ = self.is_asking.set(());
        let place = tokio::select! {
            biased;
            place = self.seats.wait(self.peer) => place,
            () = self.give_way.cancelled() => return None,
            () = tokio::time::sleep(PATIENCE) => return None,
        };
        // Two requests of one connection may come here at once; one place is enough for both.
        let seat = self.seat.get_or_init(|| Seat::new(place)).clone();
        self.reserve.leave(self.number);
        Some(seat)
    }

    /// Resolves when the connection has to end; never if it has got a place.
    pub(crate) async fn is_over(&self) {
        tokio::select! {
            () = self.give_way.cancelled() => {}
            () = tokio::time::sleep(PATIENCE) => {}
        }
        if self.is_asking.get().is_some() {
            // Its request is refused by then, which is still to be written.
            tokio::time::sleep(PATIENCE + LAST_WORDS).await;
        }
        if self.seat.get().is_some() {
            std::future::pending().await
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.reserve.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Peer {
        Peer::at([10, 0, 0, 1].into())
    }

    fn other(number: usize) -> Peer {
        Peer::at([10, 0, 1, u8::try_from(number).unwrap()].into())
    }

    #[test]
    fn the_oldest_gives_way_first_of_its_own_peer() {
        let (reserve, seats) = (Reserve::default(), Seats::new(0, 0));
        let others: Vec<_> = (0..MOST - MOST_PER_PEER).map(|n| reserve.take(other(n), &seats)).collect();
        let of_one: Vec<_> = (0..MOST_PER_PEER).map(|_| reserve.take(one(), &seats)).collect();
        let gone =
            |spares: &[Arc<Spare>]| spares.iter().filter(|spare| spare.give_way.is_cancelled()).count();
        assert_eq!((gone(&others), gone(&of_one)), (0, 0));
        let more: Vec<_> = (0..5).map(|_| reserve.take(one(), &seats)).collect();
        assert_eq!((gone(&others), gone(&of_one), gone(&more)), (0, 5, 0), "a peer takes only its own");
        let last = reserve.take(other(200), &seats);
        assert!(others[0].give_way.is_cancelled() && !others[1].give_way.is_cancelled());
        drop((others, of_one, more, last));
        assert!(reserve.lock().held.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_place_and_not_for_ever() {
        let (reserve, seats) = (Reserve::default(), Seats::new(1, 1));
        let taken = seats.take(one()).unwrap();
        assert!(reserve.take(one(), &seats).wait_for_seat().await.is_none(), "none comes free");
        let spare = reserve.take(one(), &seats);
        let (seat, ()) = tokio::join!(spare.wait_for_seat(), async { drop(taken) });
        assert!(seat.is_some());
        let is_over = tokio::time::timeout(PATIENCE * 10, spare.is_over()).await.is_ok();
        assert!(!is_over, "it is a connection as any other from then on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_ends_soon() {
        let spare = Reserve::default().take(one(), &Seats::new(0, 0));
        assert!(tokio::time::timeout(PATIENCE + LAST_WORDS, spare.is_over()).await.is_ok());
    }
}
