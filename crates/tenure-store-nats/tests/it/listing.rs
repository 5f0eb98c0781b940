//! Lists of records that do not fit into one answer of a server.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tenure_session::id::SessionId;
use tenure_session::port::store::{Expected, RecordKey, Space, Store};
use tenure_store_nats::{Nats, NatsOptions};
use tenure_testkit::nats_servers::NatsServers;

use crate::stores::options;

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_all_records_when_they_are_larger_than_one_answer() {
    let servers = NatsServers::start(1);
    let wanted = NatsOptions { shards: 1, ..options(&servers, "one") };
    let store = &Nats::open(&wanted).await.expect("opens");
    // More than the 64 MiB that a server sends at once.
    let value = &Bytes::from(vec![b'x'; 900_000]);
    let mut keys: Vec<_> = (0..80).map(|_| SessionId::random().key()).collect();
    let puts = keys.iter().map(|key| async move {
        let key = RecordKey { space: Space::State, key: *key };
        store.put(key, value.clone(), Expected::Absent, None).await.expect("puts");
    });
    stream::iter(puts).buffer_unordered(8).collect::<()>().await;
    keys.sort_unstable();
    let listed = store.list(Space::State, None, 1_000).await.expect("lists");
    let listed: Vec<_> = listed.into_iter().map(|(key, _)| key).collect();
    assert_eq!(listed, keys);
}
