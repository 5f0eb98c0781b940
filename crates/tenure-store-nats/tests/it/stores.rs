//! Stores on real servers, each with a cluster of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_store_nats::{Nats, NatsOptions};
use tenure_testkit::nats_servers::NatsServers;
use tokio::runtime::Handle;

/// How to open a new cluster on these servers. Few shards, so that tests need little time for elections.
pub(crate) fn options(servers: &NatsServers, cluster: &str) -> NatsOptions {
    NatsOptions { cluster: cluster.to_owned(), shards: 3, ..NatsOptions::new(servers.addresses()) }
}

/// How long servers that have just started are waited for. They tell each other every ten seconds or later what room they have; on a
/// machine with other work they miss that more than once, and have no place for a stream until then.
pub(crate) const SETTLED_WITHIN: Duration = Duration::from_secs(90);

/// Opens a store.
pub(crate) async fn open(servers: &NatsServers, cluster: &str) -> Arc<Nats> {
    let wanted = NatsOptions { patience: SETTLED_WITHIN, ..options(servers, cluster) };
    Arc::new(Nats::open(&wanted).await.expect("opens"))
}

/// Opens a store with a cluster of its own at every call. Needs a runtime of several threads.
pub(crate) fn fresh(servers: &NatsServers) -> impl Fn() -> Arc<Nats> {
    let count = AtomicUsize::new(0);
    move || {
        let cluster = format!("c{}", count.fetch_add(1, Ordering::Relaxed));
        tokio::task::block_in_place(|| Handle::current().block_on(open(servers, &cluster)))
    }
}
