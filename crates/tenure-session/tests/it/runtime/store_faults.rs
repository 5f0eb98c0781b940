//! What happens when the store fails.

use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Kind, Method, Notification, Reason};
use tenure_session::port::store::{RecordKey, Space, Store, StoreError};
use tenure_session::record::{EndCause, StoredSession};
use tenure_session::session::Item;
use tenure_session::{Limits, Principal};
use tenure_testkit::crash::Last;
use tenure_testkit::late::let_others_run;
use tenure_testkit::runtime::{self, parse};

use crate::runtime::support::{World, all, gist, next, resume, say};

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test]
async fn a_session_that_cannot_be_stored_is_not_created() {
    let world = World::new();
    for nth in 0..2 {
        // The remains of the last try are removed in the background, which counts as a call.
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        world.store.fail_nth(nth);
        let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
        let error = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap_err();
        assert_eq!((error.reason(), error.kind()), (Reason::StoreUnavailable, Kind::Unavailable));
        assert_eq!(world.sessions.tallies().sessions, 0, "call {nth} failed");
    }
    world.session().await;
}

#[tokio::test]
async fn events_that_cannot_be_logged_are_shown_without_an_id() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    world.store.set_broken(true);
    say(&call, "unlogged").await;
    let Some(Item::Event { id: None, body }) = reader.next().await else { panic!("an event without an id") };
    assert_eq!(gist(&parse(&body)), "unlogged");
    world.store.set_broken(false);
    say(&call, "logged").await;
    assert_eq!(next(&mut reader).await.1, "logged");
    drop(reader);
    call.answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    // Whether the client has got the one without an id is not known here, so it is told of a gap.
    assert_eq!(all(&mut resumed).await, ["prime", "gap", "logged", "result 1"]);
}

#[tokio::test]
async fn a_resume_goes_on_live_when_the_log_cannot_be_read() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    say(&call, "missed").await;
    world.store.set_broken(true);
    let mut resumed = resume(&session, &id).await.unwrap();
    assert!(matches!(resumed.next().await, Some(Item::Prime(_))));
    assert_eq!(resumed.next().await, Some(Item::Gap));
    world.store.set_broken(false);
    // The next try finds everything.
    drop(resumed);
    let mut again = resume(&session, &id).await.unwrap();
    assert_eq!(next(&mut again).await.1, "missed");
}

#[tokio::test]
async fn finding_a_session_says_when_the_store_is_the_trouble() {
    let world = World::new();
    world.store.set_broken(true);
    let unknown = tenure_session::SessionId::random();
    let error = world.sessions.find(&unknown, &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), Reason::StoreUnavailable);
}

/// Sessions that neither sleep nor expire, so that they write only when a test makes them.
fn restless() -> Limits {
    Limits { idle_ttl: None, handshake_ttl: None, dormant_after: None, ..Limits::default() }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_too_large_is_written_again_when_the_session_changes_and_not_before() {
    let world = World::with(restless());
    let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
    let created = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap();
    let session = created.session.unwrap();
    let before = world.store.puts();
    world.store.fail_puts_with(StoreError::TooLarge);
    session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
    tokio::time::sleep(HOUR).await;
    assert_eq!(world.store.puts(), before + 1, "it cannot get better by itself");
    world.store.fail_puts(false);
    session.update_metadata(|metadata| drop(metadata.insert("a".into(), 1.into()))).await.unwrap();
    session.saved().await;
    let record = world.store.get(RecordKey::session(session.id().key())).await.unwrap().unwrap();
    let Ok(StoredSession::Session(kept)) = StoredSession::decode(&record.value) else { panic!("a session") };
    assert_eq!((kept.phase.as_str(), kept.metadata.len()), ("initialized", 1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_takes_nothing_is_asked_less_and_less_often() {
    let mut world = World::with(restless());
    let ending = world.session().await;
    let saving = world.session().await;
    let before = world.store.puts();
    world.store.fail_puts(true);
    world.sessions.end(&ending, EndCause::Deleted).await.unwrap_err();
    let set_level = runtime::request(1, "logging/setLevel", &json!({ "level": "error" }));
    let waiting = runtime::send(&saving, set_level);
    world.script.call().await.answer(&json!({}));
    waiting.await.unwrap();
    tokio::time::sleep(HOUR).await;
    let asked = world.store.puts() - before;
    assert!((100..300).contains(&asked), "{asked} writes in an hour");
    // And when it works again, both are written.
    world.store.fail_puts(false);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.find(&ending).await.unwrap_err().reason(), Reason::SessionDeleted);
    assert_eq!(world.sessions.tallies().awake, 1);
    saving.saved().await;
    let record = world.store.get(RecordKey::session(saving.id().key())).await.unwrap().unwrap();
    let Ok(StoredSession::Session(kept)) = StoredSession::decode(&record.value) else { panic!("a session") };
    assert_eq!(kept.log_level.as_deref(), Some("error"));
}

#[tokio::test]
async fn a_session_is_not_ended_because_a_list_says_that_it_is_due() {
    let world = World::new();
    let session = world.session().await;
    let world = world.killed(Limits::default());
    world.store.say_that_all_is_due();
    let looks = world.store.looks();
    while world.store.looks() == looks {
        tokio::task::yield_now().await;
    }
    let_others_run().await;
    assert_eq!(world.store.looks(), looks + 1, "a list that does not get shorter is not read again at once");
    world.find(&session).await.unwrap();
}

#[tokio::test]
async fn an_end_of_a_dormant_session_whose_answer_is_lost_is_the_end() {
    for put in [Last::Done, Last::Undone] {
        let world = World::new();
        let session = world.session().await;
        let world = world.killed(Limits::default());
        let_others_run().await;
        assert_eq!(world.sessions.tallies().sessions, 1);
        world.store.lose_answer_of_next_put(put);
        world.sessions.delete(session.id(), &Principal::ANONYMOUS).await.unwrap();
        assert_eq!(world.sessions.tallies().sessions, 0, "{put:?}");
        assert_eq!(world.store.owner(session.id().key()).await.unwrap(), None, "{put:?}");
        assert_eq!(world.find(&session).await.unwrap_err().reason(), Reason::SessionDeleted, "{put:?}");
    }
}

#[tokio::test]
async fn a_session_whose_record_has_an_unknown_fate_leaves_nothing_behind() {
    for put in [Last::Done, Last::Undone] {
        let world = World::new();
        world.store.lose_answer_of_next_put(put);
        let initialize = runtime::request(1, "initialize", &runtime::initialize("2025-11-25"));
        let error = world.sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap_err();
        assert_eq!(error.reason(), Reason::StoreUnavailable);
        let_others_run().await;
        assert_eq!(world.sessions.tallies().sessions, 0, "{put:?}");
        assert_eq!(world.store.list(Space::Session, None, 10).await.unwrap(), [], "{put:?}");
    }
}
