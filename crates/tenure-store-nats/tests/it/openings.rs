//! Opening a store: what is founded, what is refused, and why.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use bytes::Bytes;
use tenure_session::id::SessionId;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Expected, RecordKey, Space, Store};
use tenure_store_nats::{Credentials, Nats, NatsError, NatsOptions, NatsTls};
use tenure_testkit::nats_servers::{NatsServers, NatsSetup, NatsVersion};

use crate::stores::{open, options};

async fn refused(options: &NatsOptions) -> NatsError {
    let opened = tokio::time::timeout(Duration::from_secs(20), Nats::open(options)).await;
    opened.expect("within its patience").expect_err("is refused")
}

fn impatient(servers: &NatsServers) -> NatsOptions {
    NatsOptions { patience: Duration::from_secs(3), ..options(servers, "one") }
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    let servers = NatsServers::set_up(NatsSetup { version: NatsVersion::Refused, ..NatsSetup::default() });
    let error = refused(&options(&servers, "one")).await;
    assert!(matches!(&error, NatsError::TooOld(version) if version == "2.11.11"), "{error:?}");
}

#[tokio::test]
async fn a_server_without_jetstream_is_refused() {
    let servers = NatsServers::set_up(NatsSetup { jetstream: false, ..NatsSetup::default() });
    let error = refused(&options(&servers, "one")).await;
    assert!(matches!(error, NatsError::NoJetStream(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_waited_for() {
    let mut servers = NatsServers::planned(NatsSetup::default());
    let error = refused(&NatsOptions { patience: Duration::from_secs(1), ..options(&servers, "one") }).await;
    assert!(matches!(error, NatsError::Away { .. }), "{error:?}");
    let wanted = options(&servers, "one");
    // The server starts when opening has begun.
    let (opened, ()) = tokio::join!(Nats::open(&wanted), async { servers.restart(0) });
    opened.expect("opens as soon as the server is there");
}

#[tokio::test]
async fn wrong_credentials_are_refused_at_once() {
    let settings = "authorization { user: tenure, password: right }".to_owned();
    let servers = NatsServers::set_up(NatsSetup { settings, ..NatsSetup::default() });
    let with = |password: &str| {
        let credentials = Credentials::User { name: "tenure".to_owned(), password: password.to_owned() };
        NatsOptions { credentials, ..options(&servers, "one") }
    };
    // A server that has just started may not listen yet, and is waited for.
    Nats::open(&with("right")).await.expect("opens");
    for wrong in [with("wrong"), options(&servers, "one")] {
        let error = refused(&wrong).await;
        assert!(matches!(error, NatsError::Credentials(_)), "{error:?}");
        assert!(!format!("{error} {error:?} {wrong:?}").contains("wrong"), "a secret is shown");
    }
}

#[tokio::test]
async fn a_missing_permission_is_named() {
    // The first user may do what the docs say, the second one may not make streams.
    let settings = r#"authorization { users: [
        { user: tenure, password: right, permissions: {
            publish: ["one.>", "$JS.API.>"], subscribe: ["_INBOX.>"] } },
        { user: other, password: right, permissions: {
            publish: { allow: ["two.>", "$JS.API.>"], deny: ["$JS.API.STREAM.CREATE.>"] }, subscribe: ["_INBOX.>"] } }
    ] }"#;
    let servers = NatsServers::set_up(NatsSetup { settings: settings.to_owned(), ..NatsSetup::default() });
    let with = |name: &str, cluster: &str| {
        let credentials = Credentials::User { name: name.to_owned(), password: "right".to_owned() };
        NatsOptions { credentials, ..options(&servers, cluster) }
    };
    let store = Nats::open(&with("tenure", "one")).await.expect("opens");
    let key = RecordKey::session(SessionId::random().key());
    store.put(key, Bytes::from_static(b"a"), Expected::Absent, Some(Time(5))).await.expect("puts");
    assert_eq!(store.list(Space::Session, None, 10).await.expect("lists").len(), 1);
    assert_eq!(store.expired(Space::Session, Time(9), 10).await.expect("lists").len(), 1);
    store.drop_session(key.key).await.expect("drops");
    let error = refused(&with("other", "two")).await;
    assert!(matches!(&error, NatsError::Denied(what) if what.contains("STREAM.CREATE")), "{error:?}");
}

#[tokio::test]
async fn tls_and_an_nkey_are_used_and_needed() {
    // A pair of keys from the documents of NATS.
    const SEED: &str = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    const PUBLIC: &str = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let folder = tempfile::TempDir::new().expect("a folder");
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, own.cert.pem()).expect("writes");
    std::fs::write(&key, own.signing_key.serialize_pem()).expect("writes");
    let settings = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\" }}\nauthorization {{ users: [ {{ nkey: {PUBLIC} }} ] }}",
        certificate.display(),
        key.display()
    );
    let servers = NatsServers::set_up(NatsSetup { settings, ..NatsSetup::default() });
    let credentials = Credentials::Nkey(SEED.to_owned());
    let tls = NatsTls { required: true, roots: Some(certificate), client: None };
    Nats::open(&NatsOptions {
        credentials: credentials.clone(),
        tls: tls.clone(),
        ..options(&servers, "one")
    })
    .await
    .expect("opens");
    let error = refused(&NatsOptions { tls, ..options(&servers, "one") }).await;
    assert!(matches!(error, NatsError::Credentials(_)), "{error:?}");
    let unknown = NatsTls { required: true, ..NatsTls::default() };
    let error = refused(&NatsOptions { credentials, tls: unknown, ..impatient(&servers) }).await;
    assert!(matches!(error, NatsError::Tls(_) | NatsError::Away { .. }), "{error:?}");
}

#[tokio::test]
async fn more_replicas_than_servers_are_refused() {
    let servers = NatsServers::start(1);
    let error = refused(&NatsOptions { replicas: Some(3), ..impatient(&servers) }).await;
    assert!(matches!(error, NatsError::TooFewServers { replicas: 3, .. }), "{error:?}");
}

#[tokio::test]
async fn a_name_that_cannot_be_part_of_a_subject_is_refused() {
    let servers = NatsServers::start(1);
    for name in ["", "a.b", "a*", "A", "a b", &"a".repeat(33)] {
        let error = refused(&options(&servers, name)).await;
        assert!(matches!(error, NatsError::Cluster(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_stream_that_forgets_is_refused() {
    let servers = NatsServers::start(1);
    drop(open(&servers, "one").await);
    let context = jetstream::new(async_nats::connect(servers.address(0)).await.expect("connects"));
    let mut stream = context.get_stream("one_1").await.expect("a stream");
    let mut config = stream.info().await.expect("info").config.clone();
    config.max_age = Duration::from_secs(3600);
    context.update_stream(&config).await.expect("updates");
    let error = refused(&impatient(&servers)).await;
    let NatsError::Stream { stream, what } = error else { panic!("{error:?}") };
    assert_eq!((stream.as_str(), what.as_str()), ("one_1", "it forgets messages by their age"));
}

#[tokio::test]
async fn a_cluster_that_lost_a_stream_is_refused() {
    let servers = NatsServers::start(1);
    drop(open(&servers, "one").await);
    let context = jetstream::new(async_nats::connect(servers.address(0)).await.expect("connects"));
    context.delete_stream("one_2").await.expect("deletes");
    let error = refused(&impatient(&servers)).await;
    assert!(matches!(&error, NatsError::Incomplete { what, .. } if what.contains("one_2")), "{error:?}");
    // Also if somebody makes an empty one in its place.
    let mut config = context.get_stream("one_1").await.expect("a stream").cached_info().config.clone();
    (config.name, config.subjects) = ("one_2".to_owned(), vec!["one.2.>".to_owned()]);
    context.create_stream(config).await.expect("creates");
    let error = refused(&impatient(&servers)).await;
    assert!(matches!(&error, NatsError::Incomplete { what, .. } if what.contains("is empty")), "{error:?}");
    // And if the record is gone while there are shards.
    context.delete_stream("one_nodes").await.expect("deletes");
    let error = refused(&impatient(&servers)).await;
    assert!(
        matches!(&error, NatsError::Incomplete { what, .. } if what.contains("record is gone")),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_number_of_shards_is_that_of_the_founding() {
    let servers = NatsServers::start(1);
    drop(open(&servers, "one").await);
    let error = refused(&NatsOptions { shards: 5, ..impatient(&servers) }).await;
    assert!(matches!(error, NatsError::OtherShards { there: 3, wanted: 5 }), "{error:?}");
    let untold = NatsOptions { shards: NatsOptions::SHARDS, ..impatient(&servers) };
    Nats::open(&untold).await.expect("opens what is there");
}

#[tokio::test]
async fn nodes_that_start_at_once_found_one_cluster() {
    let servers = NatsServers::start(3);
    let wanted = options(&servers, "one");
    let opened = futures_util::future::join_all((0..6).map(|_| Nats::open(&wanted))).await;
    let stores: Vec<Nats> = opened.into_iter().map(|opened| opened.expect("opens")).collect();
    assert!(stores.iter().all(|store| store.replicas() == 3));
    let key = RecordKey::session(SessionId::random().key());
    stores[0].put(key, Bytes::from_static(b"a"), Expected::Absent, None).await.expect("puts");
    for store in &stores {
        assert!(store.get(key).await.expect("gets").is_some(), "all of them use the same cluster");
    }
}

#[tokio::test]
async fn two_clusters_share_an_engine_and_nothing_else() {
    let servers = NatsServers::start(1);
    let stores: [Arc<Nats>; 2] = [open(&servers, "one").await, open(&servers, "two").await];
    let key = RecordKey::session(SessionId::random().key());
    stores[0].put(key, Bytes::from_static(b"a"), Expected::Absent, None).await.expect("puts");
    assert_eq!(stores[1].get(key).await.expect("gets"), None);
    assert!(stores[1].list(Space::Session, None, 10).await.expect("lists").is_empty());
    assert_eq!(stores[0].list(Space::Session, None, 10).await.expect("lists").len(), 1);
}
