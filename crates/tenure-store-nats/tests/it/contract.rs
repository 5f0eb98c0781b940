//! The contract of the store port, on one server and on three, of the newest and the oldest version.

use tenure_testkit::nats_servers::{NatsServers, NatsSetup, NatsVersion};
use tenure_testkit::{members_contract, store_contract};
use tokio::runtime::Handle;

use crate::stores::fresh;

#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_one_server_keeps_the_contract() {
    let servers = NatsServers::start(1);
    let fresh = fresh(&servers);
    store_contract::all(|| fresh()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_three_servers_keeps_the_contract() {
    let servers = NatsServers::start(3);
    let fresh = fresh(&servers);
    store_contract::all(|| fresh()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_the_oldest_servers_keeps_the_contract() {
    let servers =
        NatsServers::set_up(NatsSetup { version: NatsVersion::Oldest, servers: 3, ..NatsSetup::default() });
    let fresh = fresh(&servers);
    store_contract::all(|| fresh()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_store_keeps_the_contract() {
    use std::sync::Arc;
    use tenure_store::sealed::Sealed;
    use tenure_store::sealed::keys::{SealKeys, generate};

    let servers = NatsServers::start(1);
    let fresh = fresh(&servers);
    let key = generate();
    store_contract::all(|| {
        let keys = SealKeys::parse(&key).expect("a key");
        let sealed = Sealed::open(fresh(), keys);
        Arc::new(tokio::task::block_in_place(|| Handle::current().block_on(sealed)).expect("opens"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_a_cluster_keep_the_contract() {
    for count in [1, 3] {
        let servers = NatsServers::start(count);
        let fresh = fresh(&servers);
        members_contract::all(|| fresh()).await;
    }
}
