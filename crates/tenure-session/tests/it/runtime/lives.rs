//! Birth, phases, ownership and end of sessions.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Kind, Method, Notification, Reason};
use tenure_session::record::EndCause;
use tenure_session::{Answer, Limits, Principal, SessionId};
use tenure_testkit::fake_backend::Opens;
use tenure_testkit::runtime::{self, json_of, parse};

use crate::runtime::support::{World, all, next, request, settle};

#[tokio::test]
async fn a_session_is_created_by_initialize_and_found_by_its_id() {
    let world = World::new();
    let session = world.session().await;
    let found = world.sessions.find(session.id(), &Principal::ANONYMOUS).await.unwrap();
    assert!(Arc::ptr_eq(&session, &found));
    assert_eq!(world.sessions.list().len(), 1);
    assert_eq!(world.sessions.tallies().created, 1);
}

#[tokio::test]
async fn an_unknown_version_is_answered_with_our_latest() {
    let world = World::new();
    for (asked, given) in
        [("2099-01-01", "2025-11-25"), ("2025-03-26", "2025-03-26"), ("2024-11-05", "2024-11-05")]
    {
        let initialize = runtime::request(1, "initialize", &runtime::initialize(asked));
        let created = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap();
        assert_eq!(parse(&created.answer)["result"]["protocolVersion"], given);
    }
}

#[tokio::test]
async fn a_foreign_session_looks_exactly_like_an_unknown_one() {
    let world = World::new();
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let alice = Principal::named("alice");
    let session = world.sessions.create(initialize, &alice).await.unwrap().session.unwrap();
    let unknown = tenure_session::SessionId::random();
    let strange = world.sessions.find(session.id(), &Principal::named("eve")).await.unwrap_err();
    let absent = world.sessions.find(&unknown, &Principal::named("eve")).await.unwrap_err();
    assert_eq!(strange.to_rpc(), absent.to_rpc());
    assert!(world.sessions.find(session.id(), &alice).await.is_ok());
    // Both take one read of the store, so that the time tells nothing either: both notice that it is broken.
    let eve = Principal::named("eve");
    world.store.set_broken(true);
    for id in [session.id(), &unknown] {
        let (found, deleted) = (world.sessions.find(id, &eve).await, world.sessions.delete(id, &eve).await);
        assert_eq!(found.unwrap_err().reason(), Reason::StoreUnavailable);
        assert_eq!(deleted.unwrap_err().reason(), Reason::StoreUnavailable);
    }
    world.store.set_broken(false);
    // Also after it has ended: only its owner is told how.
    world.sessions.end(&session, EndCause::Revoked).await.unwrap();
    let strange = world.sessions.find(session.id(), &Principal::named("eve")).await.unwrap_err();
    assert_eq!(strange.to_rpc(), absent.to_rpc());
    let owner = world.sessions.find(session.id(), &alice).await.unwrap_err();
    assert_eq!((owner.reason(), owner.kind()), (Reason::SessionRevoked, Kind::Gone));
}

#[tokio::test]
async fn a_session_belongs_to_one_client_of_its_owner_also_after_its_end() {
    let world = World::new();
    let client = |name: &str| Principal::verified("alice".into(), Some(name.into()));
    let (desk, phone) = (client("desk"), client("phone"));
    assert_eq!(desk, phone, "they are the same user");
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let session = world.sessions.create(initialize, &desk).await.unwrap().session.unwrap();
    let id = *session.id();
    for others in [&phone, &Principal::named("alice")] {
        assert_eq!(world.sessions.find(&id, others).await.unwrap_err().reason(), Reason::SessionNotFound);
        assert_eq!(world.sessions.delete(&id, others).await.unwrap_err().reason(), Reason::SessionNotFound);
    }
    assert!(world.sessions.find(&id, &desk).await.is_ok());
    world.sessions.delete(&id, &desk).await.unwrap();
    assert_eq!(world.sessions.find(&id, &phone).await.unwrap_err().reason(), Reason::SessionNotFound);
    assert_eq!(world.sessions.find(&id, &desk).await.unwrap_err().reason(), Reason::SessionDeleted);
}

#[tokio::test]
async fn requests_wait_for_initialized_but_ping_does_not() {
    let world = World::new();
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let session = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap().session.unwrap();
    assert_eq!(request(&session, 2, "tools/list").await.unwrap_err().reason(), Reason::NotInitialized);
    let pong = json_of(request(&session, 3, "ping").await.unwrap());
    assert_eq!(pong, json!({ "jsonrpc": "2.0", "id": 3, "result": {} }));
    session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
    assert_eq!(request(&session, 4, "initialize").await.unwrap_err().reason(), Reason::AlreadyInitialized);
}

#[tokio::test]
async fn an_ended_session_stays_dead_and_says_how_it_ended() {
    for (end, reason) in
        [(EndCause::Deleted, Reason::SessionDeleted), (EndCause::Revoked, Reason::SessionRevoked)]
    {
        let mut world = World::new();
        let session = world.session().await;
        world.sessions.end(&session, end).await.unwrap();
        world.script.closed().await;
        let error = world.sessions.find(session.id(), &Principal::ANONYMOUS).await.unwrap_err();
        assert_eq!(error.reason(), reason);
        assert_eq!(request(&session, 1, "ping").await.unwrap_err().reason(), reason);
        assert_eq!(session.listen(None).await.unwrap_err().reason(), reason);
        assert_eq!(world.sessions.tallies().sessions, 0);
    }
}

#[tokio::test]
async fn ending_a_session_answers_what_is_in_flight_and_ends_its_streams() {
    let mut world = World::new();
    let session = world.session().await;
    let waiting = runtime::send(&session, runtime::request(1, "tools/call", &json!({})));
    let _first = world.script.call().await;
    let (_second, mut stream) = world.streaming_call(&session, 2).await;
    assert_eq!(next(&mut stream).await.1, "hello");
    let mut standalone = session.listen(None).await.unwrap();
    world.sessions.end(&session, EndCause::Deleted).await.unwrap();
    let answer = json_of(waiting.await.unwrap());
    assert_eq!(
        (answer["id"].as_u64(), &answer["error"]["data"]["reason"]),
        (Some(1), &json!("session_deleted"))
    );
    assert_eq!(all(&mut stream).await, ["error 2 session_deleted"]);
    assert_eq!(all(&mut standalone).await, ["prime"]);
}

#[tokio::test]
async fn a_backend_that_hangs_in_initialize_delays_no_other_session() {
    let world = World::new();
    world.backend.set_opens(Opens::Hangs);
    let slow = {
        let sessions = world.sessions.clone();
        let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
        tokio::spawn(async move { sessions.create(initialize, &Principal::ANONYMOUS).await })
    };
    while world.sessions.tallies().sessions == 0 {
        tokio::task::yield_now().await;
    }
    world.backend.set_opens(Opens::Well);
    let others = async {
        for _ in 0..50 {
            world.session().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), others).await.expect("others do not wait for it");
    assert!(!slow.is_finished());
    slow.abort();
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_fails_in_initialize_leaves_nothing_behind() {
    for (opens, reason) in [
        (Opens::Refuses, "backend_unavailable"),
        (Opens::Panics, "internal"),
        (Opens::Nonsense, "backend_unavailable"),
        (Opens::Hangs, "timed_out"),
    ] {
        let world = World::new();
        world.backend.set_opens(opens);
        let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
        let created = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap();
        assert!(created.session.is_none());
        assert_eq!(parse(&created.answer)["error"]["data"]["reason"], reason, "{opens:?}");
        assert_eq!((world.sessions.tallies().sessions, world.sessions.list().len()), (0, 0));
    }
}

#[tokio::test]
async fn a_client_that_leaves_during_initialize_leaves_nothing_behind() {
    let world = World::new();
    world.backend.set_opens(Opens::Hangs);
    let sessions = world.sessions.clone();
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let leaving = tokio::spawn(async move { sessions.create(initialize, &Principal::ANONYMOUS).await });
    while world.sessions.tallies().sessions == 0 {
        tokio::task::yield_now().await;
    }
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    assert_eq!(world.sessions.tallies().sessions, 0);
}

#[tokio::test]
async fn metadata_changes_by_compare_and_swap() {
    let world = World::new();
    let session = world.session().await;
    let (_, mut seen) = session.metadata();
    let first = json!({ "user_id": "u1" }).as_object().unwrap().clone();
    // The handshake may still be on its way into the store; then the version moves once more.
    let version = loop {
        match session.set_metadata(seen, first.clone()).await {
            Ok(version) => break version,
            Err(_) => tokio::task::yield_now().await,
        }
        seen = session.metadata().1;
    };
    let late = session.set_metadata(seen, serde_json::Map::new()).await.unwrap_err();
    assert_eq!(late.reason(), Reason::Conflict);
    assert_eq!(late.to_rpc().raw().read::<serde_json::Value>().unwrap()["data"]["version"], version.0);
    assert_eq!(session.metadata(), (first, version));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let session = session.clone();
        writers.spawn(async move {
            let count = |metadata: &mut tenure_session::settings::Metadata| {
                let count = metadata.get("count").and_then(serde_json::Value::as_u64).unwrap_or(0);
                metadata.insert("count".into(), (count + 1).into());
            };
            session.update_metadata(count).await.unwrap();
        });
    }
    writers.join_all().await;
    assert_eq!(session.metadata().0["count"], 20);
}

#[tokio::test]
async fn a_revoked_session_is_found_by_its_key() {
    let world = World::new();
    let session = world.session().await;
    assert!(!world.sessions.revoke(&SessionId::random().key()).await.unwrap());
    assert!(world.sessions.revoke(&session.id().key()).await.unwrap());
    assert_eq!(request(&session, 1, "ping").await.unwrap_err().reason(), Reason::SessionRevoked);
}

#[tokio::test]
async fn shutdown_waits_for_what_is_in_flight() {
    let mut world = World::new();
    let session = world.session().await;
    let mut standalone = session.listen(None).await.unwrap();
    let waiting = runtime::send(&session, runtime::request(1, "tools/call", &json!({})));
    let call = world.script.call().await;
    let sessions = world.sessions.clone();
    let down = tokio::spawn(async move { sessions.shut_down(Duration::from_secs(30)).await });
    settle().await;
    assert!(!world.sessions.is_ready());
    // Nothing here outlives the process, so that nothing can be left to the next one.
    assert_eq!(request(&session, 2, "tools/list").await.unwrap_err().reason(), Reason::Draining);
    call.answer(&json!({}));
    assert!(matches!(waiting.await.unwrap(), Answer::Json(_)));
    assert_eq!(all(&mut standalone).await, ["prime", "close"]);
    assert_eq!(down.await.unwrap(), 0);
    world.script.closed().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_interrupts_what_does_not_finish_in_time() {
    let mut world = World::with(Limits { json_wait: Duration::from_secs(3600), ..Limits::default() });
    let session = world.session().await;
    let waiting = runtime::send(&session, runtime::request(1, "tools/call", &json!({})));
    let _call = world.script.call().await;
    let (_streaming, mut reader) = world.streaming_call(&session, 2).await;
    assert_eq!(world.sessions.shut_down(Duration::from_secs(1)).await, 2);
    assert_eq!(json_of(waiting.await.unwrap())["error"]["data"]["reason"], "interrupted");
    assert_eq!(all(&mut reader).await, ["prime", "hello", "error 2 interrupted"]);
}
