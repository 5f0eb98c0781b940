//! A store that is used with another server: whose sessions are woken, and what the client of the others is told.

use std::sync::Arc;

use serde_json::json;
use tenure_protocol::Reason;
use tenure_session::fingerprint::{Fingerprint, Fingerprints};
use tenure_session::limits::OtherServer;
use tenure_session::port::store::{Expected, RecordKey, Store};
use tenure_session::record::{SessionRecord, StoredSession};
use tenure_session::{Limits, Route, Session};

use crate::runtime::support::{World, request};

/// A process with a server that is configured so.
fn serving(configured: &str, world: Option<World>, other_server: OtherServer) -> World {
    let one = Fingerprint::of(configured, [configured.as_bytes()]);
    let servers = Fingerprints::from_iter([(Route::MAIN, one)]);
    let limits = Limits { other_server, ..Limits::default() };
    match world {
        None => {
            let clock = Arc::new(tenure_testkit::clock::TurnableClock::start());
            World::serving(servers, clock, Arc::new(tenure_store::memory::Memory::new()), limits)
        }
        Some(old) => {
            old.store.set_broken(true);
            World::serving(servers, Arc::clone(&old.clock), old.store.inner(), limits)
        }
    }
}

async fn record_of(world: &World, session: &Session) -> SessionRecord {
    let record = world.store.get(RecordKey::session(session.id().key())).await.unwrap().unwrap();
    match StoredSession::decode(&record.value).unwrap() {
        StoredSession::Session(record) => *record,
        StoredSession::Tombstone(tombstone) => panic!("it ended: {tombstone:?}"),
    }
}

#[tokio::test]
async fn a_session_of_another_server_is_refused_and_goes_on_when_its_own_is_back() {
    let world = serving("one", None, OtherServer::Refuse);
    let old = world.session().await;
    let world = serving("two", Some(world), OtherServer::Refuse);
    world.backend.set_name("other");
    for _ in 0..2 {
        let error = world.find(&old).await.unwrap_err();
        assert_eq!(error.reason(), Reason::SessionOfOtherServer);
    }
    assert_eq!(world.sessions.tallies().awake, 0);
    assert_eq!(record_of(&world, &old).await.server.unwrap().shown, "one", "nothing was written");
    let world = serving("one", Some(world), OtherServer::Refuse);
    request(&world.find(&old).await.unwrap(), 1, "ping").await.unwrap();
}

#[tokio::test]
async fn a_client_that_comes_back_again_and_again_starts_the_other_server_once() {
    let world = serving("one", None, OtherServer::Refuse);
    let old = world.session().await;
    let mut world = serving("two", Some(world), OtherServer::Refuse);
    world.backend.set_name("other");
    for _ in 0..5 {
        world.find(&old).await.unwrap_err();
    }
    assert_eq!(world.script.opened_meanwhile(), 1);
}

#[tokio::test]
async fn a_newer_version_of_the_same_server_wakes_its_sessions() {
    let world = serving("foo@1.2", None, OtherServer::Refuse);
    let old = world.session().await;
    let world = serving("foo@1.3", Some(world), OtherServer::Refuse);
    // The server of another session was heard before, so the name is known without starting one.
    world.session().await;
    world.find(&old).await.unwrap();
    assert_eq!(record_of(&world, &old).await.server.unwrap().shown, "foo@1.3");
}

#[tokio::test]
async fn a_server_that_draws_its_name_anew_is_known_by_its_configuration() {
    let world = serving("one", None, OtherServer::Refuse);
    let old = world.session().await;
    let world = serving("one", Some(world), OtherServer::Refuse);
    world.backend.set_name("drawn anew");
    world.find(&old).await.unwrap();
}

#[tokio::test]
async fn a_session_of_another_server_can_be_woken_with_a_warning() {
    let world = serving("one", None, OtherServer::Warn);
    let old = world.session().await;
    let world = serving("two", Some(world), OtherServer::Warn);
    world.backend.set_name("other");
    world.session().await;
    world.find(&old).await.unwrap();
    assert_eq!(record_of(&world, &old).await.server.unwrap().shown, "two", "it belongs to that one now");
}

#[tokio::test]
async fn the_owner_can_delete_a_session_of_another_server() {
    let world = serving("one", None, OtherServer::Refuse);
    let old = world.session().await;
    let world = serving("two", Some(world), OtherServer::Refuse);
    world.backend.set_name("other");
    world.sessions.delete(old.id(), &tenure_session::Principal::ANONYMOUS).await.unwrap();
    assert_eq!(world.find(&old).await.unwrap_err().reason(), Reason::SessionDeleted);
}

/// Records that earlier versions wrote have no server; those that they write over lose it.
#[tokio::test]
async fn a_session_without_a_fingerprint_is_woken_and_gets_one() {
    let world = serving("one", None, OtherServer::Refuse);
    let old = world.session().await;
    let key = RecordKey::session(old.id().key());
    let stored = world.store.get(key).await.unwrap().unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&stored.value).unwrap();
    assert!(record["session"].as_object_mut().unwrap().remove("server").is_some());
    let earlier = serde_json::to_vec(&record).unwrap().into();
    world.store.put(key, earlier, Expected::Version(stored.version), stored.deadline).await.unwrap();
    let world = serving("two", Some(world), OtherServer::Refuse);
    world.backend.set_name("other");
    world.find(&old).await.unwrap();
    assert_eq!(record_of(&world, &old).await.server.unwrap().shown, "two");
}

#[tokio::test]
async fn a_process_that_does_not_know_its_servers_wakes_every_session() {
    let world = serving("one", None, OtherServer::Refuse);
    let old = world.session().await;
    let world = world.killed(Limits::default());
    world.backend.set_name("other");
    let session = world.find(&old).await.unwrap();
    let waiting =
        tenure_testkit::runtime::send(&session, tenure_testkit::runtime::request(1, "ping", &json!({})));
    tenure_testkit::runtime::json_of(waiting.await.unwrap());
}
