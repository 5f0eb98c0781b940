//! The store of a node: the configured one, the one that another process is about to close, or one of the embedder.

use std::sync::Arc;
use std::time::Duration;

use tenure_session::port::members::Members;
use tenure_session::port::store::Store;
use tokio::time::Instant;

use crate::config::Config;
use crate::control::{KeptConnections, Predecessor};
use crate::failure::Failure;
use crate::wire::{self, Access, OpenedStore};

/// How long to retry opening a store that its last process has closed, and the pause between two attempts.
const STORE_PATIENCE: Duration = Duration::from_secs(10);
const STORE_LOOKS: Duration = Duration::from_millis(5);

/// Which store keeps the sessions.
pub(super) enum Keep {
    /// The store that the configuration names.
    Configured,
    /// The same store, once the process that has it open has closed it.
    After(Predecessor),
    /// A store of the embedder, and the nodes that share it.
    Lent(Arc<dyn Store>, Option<Arc<dyn Members>>),
}

/// Opens the store. After a predecessor it also yields that process's connections, as they arrive. Call this after
/// every other step that can fail: from here on the predecessor stops.
pub(super) async fn open_to_serve(
    config: &Config,
    keep: Keep,
) -> Result<(OpenedStore, Option<KeptConnections>), Failure> {
    match keep {
        Keep::After(predecessor) => open_after(predecessor, config).await,
        Keep::Lent(store, None) => Ok((OpenedStore::lent(store), None)),
        Keep::Lent(store, Some(members)) => Ok((OpenedStore::lent(store).shared_by(members), None)),
        Keep::Configured => match wire::open_configured(config).await? {
            Access::Open(opened) => Ok((opened, None)),
            Access::InUse(failure) => Err(failure),
        },
    }
}

/// Opens the store once the predecessor has closed it, and yields the predecessor's connections, as they arrive.
async fn open_after(
    predecessor: Predecessor,
    config: &Config,
) -> Result<(OpenedStore, Option<KeptConnections>), Failure> {
    tracing::info!("waiting for the other process to close the store");
    let released = predecessor.release().await;
    let kept = released.inspect_err(|error| tracing::warn!(%error, "the other process is gone")).ok();
    let closed = Instant::now();
    loop {
        match wire::open_configured(config).await? {
            Access::Open(opened) => {
                tracing::info!(took = ?closed.elapsed(), "took over");
                return Ok((opened, kept));
            }
            // The predecessor may not have released the lock on the folder yet.
            Access::InUse(failure) if closed.elapsed() > STORE_PATIENCE => return Err(failure),
            Access::InUse(_) => tokio::time::sleep(STORE_LOOKS).await,
        }
    }
}
