//! Servers that die, stop, go away and come back empty.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use bytes::Bytes;
use tenure_session::id::{NodeId, Position, SessionId, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Expected, Grade, NewEvent, ReadLimit, RecordKey, Store, StoreError, Trouble,
};
use tenure_store_nats::{Nats, NatsOptions};
use tenure_testkit::nats_servers::NatsServers;
use tokio::time::Instant;

use crate::history::{Writers, check};
use crate::stores::{SETTLED_WITHIN, open, options};

/// Reads until it is as wanted; the engine notices by itself, within seconds.
async fn until<T>(what: &str, mut read: impl FnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = read() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// The server that leads a stream.
async fn leader(servers: &NatsServers, stream: &str) -> usize {
    let addresses: Vec<String> = servers.addresses();
    let context = jetstream::new(async_nats::connect(addresses).await.expect("connects"));
    let find = async {
        loop {
            if let Ok(mut stream) = context.get_stream(stream).await
                && let Ok(info) = stream.info().await
                && let Some(name) = info.cluster.as_ref().and_then(|cluster| cluster.leader.clone())
            {
                return servers.index_of(&name).expect("a server");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), find).await.expect("a leader")
}

/// Stores of one cluster with one shard, each connected to a server of its own.
async fn spread(servers: &NatsServers) -> Vec<Arc<Nats>> {
    let mut stores = Vec::new();
    for index in 0..3 {
        let mut addresses = servers.addresses();
        addresses.rotate_left(index);
        let wanted = NatsOptions {
            shards: 1,
            servers: addresses,
            patience: SETTLED_WITHIN,
            ..options(servers, "one")
        };
        stores.push(Arc::new(Nats::open(&wanted).await.expect("opens")));
    }
    stores
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_makes_no_second_winner_and_loses_no_acknowledged_write() {
    let mut servers = NatsServers::start(3);
    let stores = spread(&servers).await;
    let key = RecordKey::session(SessionId::random().key());
    let mut writers = Writers::start(&stores, key);
    writers.more(100).await;
    for _ in 0..3 {
        let leads = leader(&servers, "one_0").await;
        servers.kill(leads);
        writers.more(100).await;
        servers.restart(leads);
        writers.more(100).await;
    }
    let all = writers.end().await;
    for store in &stores {
        let last = store.get(key).await.expect("gets").expect("there");
        check(&all, (last.version, &last.value));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_leader_makes_no_second_winner() {
    let servers = NatsServers::start(3);
    let stores = spread(&servers).await;
    let key = RecordKey::session(SessionId::random().key());
    let mut writers = Writers::start(&stores, key);
    writers.more(100).await;
    let leads = leader(&servers, "one_0").await;
    servers.signal(leads, "STOP");
    // The others elect a leader; the writer at the stopped server finds another one.
    writers.more(100).await;
    servers.signal(leads, "CONT");
    writers.more(100).await;
    let all = writers.end().await;
    let last = stores[0].get(key).await.expect("gets").expect("there");
    check(&all, (last.version, &last.value));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_a_claim_has_fenced_never_arrives() {
    // Two nodes claim one session from each other and append as fast as they can, while the leader dies. What a claim has read
    // is final: nothing of an earlier epoch comes after it.
    let mut servers = NatsServers::start(3);
    let stores = spread(&servers).await;
    let session = SessionId::random().key();
    let leads = leader(&servers, "one_0").await;
    let mut tasks = tokio::task::JoinSet::new();
    for store in &stores[..2] {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let (node, began, mut claims) = (NodeId::random(), Instant::now(), Vec::new());
            while began.elapsed() < Duration::from_secs(15) {
                let Ok(owner) = store.owner(session).await else { continue };
                let Ok(epoch) = store.claim(session, node, owner.map(|(_, epoch)| epoch)).await else {
                    continue;
                };
                // What the log had when it was claimed.
                let Ok(tail) = store.tail(session).await else { continue };
                claims.push((epoch, tail));
                for _ in 0..20 {
                    let body = Bytes::from(epoch.0.to_string());
                    let event =
                        NewEvent { stream: StreamId::new(0), body, place: EntryPlace::Middle, at: Time(1) };
                    if store.append(session, epoch, vec![event]).await.is_err() {
                        break;
                    }
                }
            }
            claims
        });
    }
    servers.kill(leads);
    let claims: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    assert!(claims.len() > 10, "{} claims", claims.len());
    let limit = ReadLimit { events: usize::MAX, bytes: usize::MAX };
    let events =
        stores[2].read(session, StreamId::new(0), Position::START, limit).await.expect("reads").events;
    assert!(events.len() > 20, "{} events", events.len());
    for (epoch, tail) in claims {
        for event in events.iter().filter(|event| event.position > tail) {
            let of: u64 = std::str::from_utf8(&event.body).expect("text").parse().expect("an epoch");
            assert!(of >= epoch.0, "{event:?} came after {epoch:?} had read up to {tail:?}");
        }
    }
}

fn trouble(store: &Nats) -> Option<Trouble> {
    store.trouble()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_goes_away_is_reported_and_used_again_when_it_is_back() {
    let mut servers = NatsServers::start(1);
    let wanted = NatsOptions { operation_timeout: Duration::from_secs(2), ..options(&servers, "one") };
    let store = Nats::open(&wanted).await.expect("opens");
    let key = RecordKey::session(SessionId::random().key());
    let version = store.put(key, Bytes::from_static(b"a"), Expected::Absent, None).await.expect("puts");
    assert_eq!(trouble(&store), None);
    servers.kill(0);
    let found = until("trouble", || trouble(&store)).await;
    assert_eq!(found.grade, Grade::Down);
    let began = Instant::now();
    assert_eq!(store.get(key).await, Err(StoreError::Busy));
    let put = store.put(key, Bytes::from_static(b"b"), Expected::Version(version), None).await;
    assert_eq!(put, Err(StoreError::Busy), "nothing was sent, so nothing is in doubt");
    assert!(began.elapsed() < Duration::from_secs(6), "each within its time: {:?}", began.elapsed());
    servers.restart(0);
    until("recovery", || trouble(&store).is_none().then_some(())).await;
    assert_eq!(store.get(key).await.expect("gets").expect("there").version, version);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_comes_back_empty_is_not_used_until_its_data_is_back() {
    let mut servers = NatsServers::start(1);
    let store = open(&servers, "one").await;
    let key = RecordKey::session(SessionId::random().key());
    let version = store.put(key, Bytes::from_static(b"a"), Expected::Absent, None).await.expect("puts");
    servers.kill(0);
    servers.put_data_aside(0);
    servers.restart(0);
    let is_foreign = || trouble(&store).filter(|found| found.what.contains("record of the cluster is gone"));
    assert_eq!(until("trouble", is_foreign).await.grade, Grade::Down);
    assert!(matches!(store.get(key).await, Err(StoreError::Unavailable(_))));
    // A node that starts now founds another cluster of the same name, which is not that of this one.
    let other = open(&servers, "one").await;
    let is_other = || trouble(&store).filter(|found| found.what.contains("another cluster of the same name"));
    until("trouble", is_other).await;
    let put = store.put(key, Bytes::from_static(b"b"), Expected::Absent, None).await;
    assert!(matches!(put, Err(StoreError::Unavailable(_))), "{put:?}");
    assert_eq!(other.get(key).await.expect("gets"), None);
    servers.kill(0);
    servers.put_data_back(0);
    servers.restart(0);
    until("recovery", || trouble(&store).is_none().then_some(())).await;
    assert_eq!(store.get(key).await.expect("gets").expect("there").version, version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_lost_is_noticed_at_once_whichever_it_is() {
    let servers = NatsServers::start(1);
    let store = Nats::open(&NatsOptions { shards: 16, ..options(&servers, "one") }).await.expect("opens");
    let client = async_nats::connect(servers.addresses()).await.expect("connects");
    let began = Instant::now();
    async_nats::jetstream::new(client).delete_stream("one_15").await.expect("deletes");
    let is_lost = || trouble(&store).filter(|found| found.what.contains("`one_15` has lost its data"));
    assert_eq!(until("trouble", is_lost).await.grade, Grade::Down);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}
