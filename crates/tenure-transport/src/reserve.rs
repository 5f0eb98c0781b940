//! Connections beyond the allowed number: for health checks, and to wait for a permit.
//!
//! A full server must still be able to tell its operators that it is full, so it accepts a few more connections. On
//! these it answers `/healthz` and `/readyz` at once. Any other request waits a short time for a permit and is then
//! refused. A connection that sends no request is closed soon, and when there are too many, the oldest one is closed,
//! so that no client can occupy the whole reserve.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tenure_session::budget::Peer;
use tokio_util::sync::CancellationToken;

use crate::http::SharedPermit;
use crate::permits::ConnectionPermits;

/// The most connections in the reserve, in all and of one peer.
pub(crate) const MOST: usize = 64;
const MOST_PER_PEER: usize = 16;

/// How long a connection may take to send its first request, unless the reserve has a time of its own, and then how long that
/// request waits for a permit.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the refusal may take to be written when no permit came.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The connections of the reserve.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    queue: Arc<Mutex<ReserveQueue>>,
    /// How long a connection may take to send its first request.
    patience: Duration,
}

#[derive(Debug, Default)]
struct ReserveQueue {
    /// The oldest first.
    held: VecDeque<ReservedConnection>,
    next: u64,
}

#[derive(Debug)]
struct ReservedConnection {
    number: u64,
    peer: Peer,
    give_way: CancellationToken,
}

/// A connection of the reserve.
#[derive(Debug)]
pub(crate) struct Spare {
    reserve: Reserve,
    permits: ConnectionPermits,
    number: u64,
    peer: Peer,
    /// Cancelled when a newer connection takes its place in the reserve.
    give_way: CancellationToken,
    /// Set when a request of this connection waits for a permit.
    is_asking: OnceLock<()>,
    /// The permit that it got later.
    permit: OnceLock<SharedPermit>,
}

impl Default for Reserve {
    fn default() -> Self {
        Self::new(PATIENCE)
    }
}

impl Reserve {
    /// A reserve whose connections may take so long to send their first request.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { queue: Arc::default(), patience }
    }

    /// Adds a connection. If its peer already has its share of the reserve, the peer's oldest connection gives way; if
    /// the reserve is full, the oldest of all does.
    pub(crate) fn take(&self, peer: Peer, permits: &ConnectionPermits) -> Arc<Spare> {
        let give_way = CancellationToken::new();
        let mut queue = self.lock();
        let of_peer = queue.held.iter().filter(|held| held.peer == peer).count();
        let oldest = match of_peer >= MOST_PER_PEER {
            true => queue.held.iter().position(|held| held.peer == peer),
            false => (queue.held.len() >= MOST).then_some(0),
        };
        if let Some(gone) = oldest.and_then(|oldest| queue.held.remove(oldest)) {
            gone.give_way.cancel();
        }
        let number = queue.next;
        queue.next += 1;
        queue.held.push_back(ReservedConnection { number, peer, give_way: give_way.clone() });
        drop(queue);
        Arc::new(Spare {
            reserve: self.clone(),
            permits: permits.clone(),
            number,
            peer,
            give_way,
            is_asking: OnceLock::new(),
            permit: OnceLock::new(),
        })
    }

    fn leave(&self, number: u64) {
        self.lock().held.retain(|held| held.number != number);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ReserveQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare {
    /// The permit, if the connection has got one.
    pub(crate) fn permit(&self) -> Option<SharedPermit> {
        self.permit.get().cloned()
    }

    /// Waits for a permit; `None` if none comes in time.
    ///
    /// # Cancel safety
    /// No permit is taken if the future is dropped.
    pub(crate) async fn wait_for_permit(&self) -> Option<SharedPermit> {
        if let Some(permit) = self.permit() {
            return Some(permit);
        }
        let _ = self.is_asking.set(());
        let permit = tokio::select! {
            biased;
            permit = self.permits.wait(self.peer) => permit,
            () = self.give_way.cancelled() => return None,
            () = tokio::time::sleep(PATIENCE) => return None,
        };
        // Two requests of one connection may get here at once; one permit is enough for both.
        let permit = self.permit.get_or_init(|| SharedPermit::new(permit)).clone();
        self.reserve.leave(self.number);
        Some(permit)
    }

    /// Resolves when the connection has to end; never if it has got a permit.
    pub(crate) async fn is_over(&self) {
        tokio::select! {
            () = self.give_way.cancelled() => {}
            () = tokio::time::sleep(self.reserve.patience) => {}
        }
        if self.is_asking.get().is_some() {
            // By then the request is refused; this leaves time to write the refusal.
            tokio::time::sleep(PATIENCE + LAST_WORDS).await;
        }
        if self.permit.get().is_some() {
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
        let (reserve, permits) = (Reserve::default(), ConnectionPermits::new(0, 0));
        let others: Vec<_> = (0..MOST - MOST_PER_PEER).map(|n| reserve.take(other(n), &permits)).collect();
        let of_one: Vec<_> = (0..MOST_PER_PEER).map(|_| reserve.take(one(), &permits)).collect();
        let gone =
            |spares: &[Arc<Spare>]| spares.iter().filter(|spare| spare.give_way.is_cancelled()).count();
        assert_eq!((gone(&others), gone(&of_one)), (0, 0));
        let more: Vec<_> = (0..5).map(|_| reserve.take(one(), &permits)).collect();
        assert_eq!((gone(&others), gone(&of_one), gone(&more)), (0, 5, 0), "a peer takes only its own");
        let last = reserve.take(other(200), &permits);
        assert!(others[0].give_way.is_cancelled() && !others[1].give_way.is_cancelled());
        drop((others, of_one, more, last));
        assert!(reserve.lock().held.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_permit_and_not_for_ever() {
        let (reserve, permits) = (Reserve::default(), ConnectionPermits::new(1, 1));
        let taken = permits.take(one()).unwrap();
        assert!(reserve.take(one(), &permits).wait_for_permit().await.is_none(), "no permit is given back");
        let spare = reserve.take(one(), &permits);
        let (permit, ()) = tokio::join!(spare.wait_for_permit(), async { drop(taken) });
        assert!(permit.is_some());
        let is_over = tokio::time::timeout(PATIENCE * 10, spare.is_over()).await.is_ok();
        assert!(!is_over, "from then on it is a normal connection");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_ends_soon() {
        let spare = Reserve::default().take(one(), &ConnectionPermits::new(0, 0));
        assert!(tokio::time::timeout(PATIENCE + LAST_WORDS, spare.is_over()).await.is_ok());
    }
}
