//! The steps in which a server stops, and the connections that it passes on to the next process.
//!
//! Owns the token of each step and the counts of connections that a step waits for. The node cancels the tokens in
//! order; `serve` and `connection` obey them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The steps in which a server stops. Each step follows the one before it.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    /// The server is about to stop, but still serves. Clients are told not to send another request on their
    /// connections, so that no client sends one just when its connection is closed.
    pub leaving: CancellationToken,
    /// Each connection ends as soon as it has written its last response.
    pub stop: CancellationToken,
    /// The server accepts no more connections. If another process shares the socket, that process accepts them.
    pub shut: CancellationToken,
    /// Connections whose first request has not come yet.
    pub(crate) fresh: TaskTracker,
    /// Connections on which a request may begin, or is being received.
    pub(crate) receiving: TaskTracker,
    /// Takes connections that are between two requests.
    successor: Arc<OnceLock<mpsc::Sender<KeptConnection>>>,
}

/// A connection between two requests, which another process can continue to serve.
#[derive(Debug)]
pub struct KeptConnection {
    /// The connection, over which plain HTTP is spoken.
    pub stream: std::net::TcpStream,
    /// The bytes of the next request that were already read.
    pub read: Bytes,
}

impl Stages {
    /// Waits until every accepted connection has received its first request, at most this long. A client sends it
    /// as soon as it has connected.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn heard(&self, limit: Duration) {
        self.fresh.close();
        drop(tokio::time::timeout(limit, self.fresh.wait()).await);
    }

    /// Waits until no request is being received any more, at most this long. To be called after `stop`.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn received(&self, limit: Duration) {
        self.receiving.close();
        drop(tokio::time::timeout(limit, self.receiving.wait()).await);
    }

    /// From now on, a connection that stops between two requests is sent to this channel instead of closed. To be
    /// called before `stop`.
    pub fn pass_on(&self, to: mpsc::Sender<KeptConnection>) {
        // There is one successor at most.
        drop(self.successor.set(to));
    }

    pub(crate) fn has_successor(&self) -> bool {
        self.successor.get().is_some()
    }

    /// Sends a connection to the successor. Closes it if there is no successor, or if the channel is full.
    pub(crate) fn hand_over(&self, connection: KeptConnection) {
        drop(self.successor.get().map(|to| to.try_send(connection)));
    }
}
