//! Connections of a port at which every caller needs credentials: until these are shown, a connection is one of few, and short.
//!
//! Each connection begins in the reserve: it ends soon, and the oldest of its peer gives way to a newer one, so strangers keep no caller
//! with credentials out, however many they are. With good credentials it gets a permit, which it holds as long as it is open.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tenure_session::budget::Peer;

use crate::permits::ConnectionPermits;
use crate::reserve::{Reserve, Spare};

/// The connections of such a port.
#[derive(Clone, Debug)]
pub struct GuardedConnections {
    permits: ConnectionPermits,
    reserve: Reserve,
}

/// One of them. Dropping the last clone gives its place back.
#[derive(Clone, Debug)]
pub struct GuardedConnection(Arc<Spare>);

impl GuardedConnections {
    /// So many connections of callers with credentials, in all and of one peer. The others end after `patience`.
    pub fn new(most: usize, most_of_peer: usize, patience: Duration) -> Self {
        Self { permits: ConnectionPermits::new(most, most_of_peer), reserve: Reserve::new(patience) }
    }

    /// Adds a connection of a caller who has shown no credentials yet. It may end another one of such a caller.
    pub fn begin(&self, address: IpAddr) -> GuardedConnection {
        GuardedConnection(self.reserve.take(Peer::at(address), &self.permits))
    }
}

impl GuardedConnection {
    /// Its caller has shown good credentials. Returns whether it may stay; it waits a short time for room.
    ///
    /// # Cancel safety
    /// No room is taken if the future is dropped.
    pub async fn is_proven(&self) -> bool {
        self.0.wait_for_permit().await.is_some()
    }

    /// Resolves when the connection has to end; never for one that may stay.
    ///
    /// # Cancel safety
    /// It only waits.
    pub async fn is_over(&self) {
        self.0.is_over().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_credentials_ends_and_one_with_them_stays() {
        let port = GuardedConnections::new(2, 2, PATIENCE);
        let (stranger, caller) = (port.begin([10, 0, 0, 1].into()), port.begin([10, 0, 0, 1].into()));
        assert!(caller.is_proven().await && caller.is_proven().await, "each request shows them again");
        let begun = tokio::time::Instant::now();
        stranger.is_over().await;
        assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
        assert!(tokio::time::timeout(PATIENCE * 10, caller.is_over()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn very_many_strangers_end_each_other_and_no_caller() {
        let port = GuardedConnections::new(2, 2, PATIENCE);
        let caller = port.begin([10, 0, 0, 1].into());
        assert!(caller.is_proven().await);
        let strangers: Vec<_> = (0..1000).map(|_| port.begin([10, 0, 0, 1].into())).collect();
        let ended = strangers.iter().filter(|stranger| stranger.is_over().now_or_never().is_some());
        assert_eq!(ended.count(), 1000 - 16);
        let another = port.begin([10, 0, 0, 1].into());
        assert!(another.is_proven().await, "the newest has its turn");
        let third = port.begin([10, 0, 0, 1].into());
        assert!(!third.is_proven().await, "its address has its share");
        drop(caller);
        assert!(port.begin([10, 0, 0, 1].into()).is_proven().await);
    }
}
