//! Events that the log did not take: they wait for their client, for the log, or count as missing.

use std::time::Duration;

use serde_json::json;
use tenure_protocol::Reason;
use tenure_session::limits::OnGap;
use tenure_session::session::Item;
use tenure_session::{Limits, Principal};
use tenure_testkit::fake_backend::FakeCall;
use tenure_testkit::runtime::{self, reader_of, send};

use crate::runtime::support::{World, all, next, resume, say, settle, short};

/// Answers a request while the store is broken.
async fn answer_unlogged(world: &World, call: FakeCall) {
    world.store.set_broken(true);
    call.answer(&json!({}));
    settle().await;
    world.store.set_broken(false);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_answer_was_given_but_not_logged_is_not_run_again_after_sleep() {
    let sleep = Duration::from_secs(60);
    let mut world = World::with(Limits { dormant_after: Some(sleep), ..Limits::default() });
    let old = world.session().await;
    let waiting = send(&old, runtime::request(1, "resources/read", &json!({ "uri": "test://a" })));
    let call = world.script.call().await;
    // The answer is late, so the log has a note of the request, and no event of its stream.
    let mut reader = reader_of(waiting.await.unwrap());
    assert!(matches!(reader.next().await, Some(Item::Prime(_))));
    answer_unlogged(&world, call).await;
    let Some(Item::Event { id: None, .. }) = reader.next().await else { panic!("the answer, without an id") };
    assert!(reader.next().await.is_none());
    drop(reader);
    let (id, key) = (*old.id(), old.info().key);
    drop(old);
    tokio::time::sleep(3 * sleep).await;
    assert!(world.sessions.info(&key).is_none(), "it sleeps");
    let session = world.sessions.find(&id, &Principal::ANONYMOUS).await.unwrap();
    assert!(session.info().calls.is_empty(), "{:?}", session.info().calls);
}

#[tokio::test]
async fn an_answer_that_waits_for_its_client_goes_into_the_log_when_that_works_again() {
    let mut world = World::new();
    let old = world.session().await;
    let (call, mut reader) = world.streaming_call(&old, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    answer_unlogged(&world, call).await;
    // Some other event shows that the log works.
    let (_other, _reader) = world.streaming_call(&old, 2).await;
    settle().await;
    let world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 1"]);
}

#[tokio::test]
async fn an_answer_that_a_stuck_reader_has_not_taken_goes_into_the_log_too() {
    let mut world = World::new();
    let old = world.session().await;
    let (call, mut stuck) = world.streaming_call(&old, 1).await;
    let (id, _) = next(&mut stuck).await;
    answer_unlogged(&world, call).await;
    let (_other, _reader) = world.streaming_call(&old, 2).await;
    settle().await;
    let world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_works_again_gets_what_it_lacks_though_nothing_more_is_said() {
    let mut world = World::new();
    let old = world.session().await;
    let (call, mut reader) = world.streaming_call(&old, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    answer_unlogged(&world, call).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "result 1"]);
}

#[tokio::test]
async fn events_that_the_log_refused_stand_in_it_in_front_of_later_ones() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    say(&call, "one").await;
    world.store.set_broken(true);
    say(&call, "two").await;
    say(&call, "three").await;
    world.store.set_broken(false);
    say(&call, "four").await;
    call.answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    let (_, one) = next(&mut resumed).await;
    let (second, two) = next(&mut resumed).await;
    assert_eq!((one.as_str(), two.as_str()), ("one", "two"));
    assert_eq!(all(&mut resumed).await, ["three", "four", "result 1"]);
    let mut again = resume(&session, &second).await.unwrap();
    assert_eq!(all(&mut again).await, ["prime", "three", "four", "result 1"]);
}

/// A stream on which more was said while the store was broken than is kept for a reader.
async fn forgetful(on_gap: OnGap) -> (World, std::sync::Arc<tenure_session::Session>, FakeCall, String) {
    let mut world = World::with(Limits { max_tail_events: 2, on_gap, ..Limits::default() });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    world.store.set_broken(true);
    for n in 0..5 {
        say(&call, &n.to_string()).await;
    }
    (world, session, call, id)
}

#[tokio::test]
async fn events_that_were_neither_logged_nor_kept_are_a_gap_each_time() {
    let (world, session, call, id) = forgetful(OnGap::Report).await;
    world.store.set_broken(false);
    call.answer(&json!({}));
    settle().await;
    for _ in 0..2 {
        let mut resumed = resume(&session, &id).await.unwrap();
        assert_eq!(all(&mut resumed).await, ["prime", "gap", "3", "4", "result 1"]);
    }
}

#[tokio::test]
async fn a_reader_that_is_replaced_leaves_the_gap_to_its_successor() {
    let mut world = World::with(Limits { max_tail_events: 2, ..Limits::default() });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    world.store.set_broken(true);
    for n in 0..5 {
        say(&call, &n.to_string()).await;
    }
    let mut second = resume(&session, &id).await.unwrap();
    assert!(matches!(second.next().await, Some(Item::Prime(_))));
    drop(second);
    let mut third = resume(&session, &id).await.unwrap();
    world.store.set_broken(false);
    call.answer(&json!({}));
    assert_eq!(all(&mut third).await, ["prime", "gap", "3", "4", "result 1"]);
    drop(reader);
}

#[tokio::test]
async fn missing_events_are_an_error_if_so_configured() {
    let (_world, session, _call, id) = forgetful(OnGap::Error).await;
    assert_eq!(resume(&session, &id).await.unwrap_err().reason(), Reason::StreamForgotten);
}

#[tokio::test]
async fn an_event_that_only_a_broken_connection_got_is_a_gap_for_those_who_come_back() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut reader).await;
    world.store.set_broken(true);
    say(&call, "unlogged").await;
    let item = reader.next().await.unwrap();
    assert_eq!(short(&item), "unlogged");
    world.store.set_broken(false);
    drop(reader);
    say(&call, "logged").await;
    let mut resumed = resume(&session, &id).await.unwrap();
    let (last, text) = next(&mut resumed).await;
    assert_eq!(text, "logged");
    call.answer(&json!({}));
    drop(resumed);
    let mut from_before = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut from_before).await, ["prime", "gap", "logged", "result 1"]);
    let mut from_after = resume(&session, &last).await.unwrap();
    assert_eq!(all(&mut from_after).await, ["prime", "result 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_told_after_sleep_and_after_a_crash_too() {
    let sleep = Duration::from_secs(60);
    let limits = Limits { max_tail_events: 2, dormant_after: Some(sleep), ..Limits::default() };
    let mut world = World::with(limits.clone());
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    let (first, _) = next(&mut reader).await;
    drop(reader);
    world.store.set_broken(true);
    for n in 0..5 {
        say(&call, &n.to_string()).await;
    }
    world.store.set_broken(false);
    call.answer(&json!({}));
    settle().await;
    let (id, key) = (*session.id(), session.info().key);
    drop(session);
    tokio::time::sleep(3 * sleep).await;
    assert!(world.sessions.info(&key).is_none(), "it sleeps");
    let woken = world.sessions.find(&id, &Principal::ANONYMOUS).await.unwrap();
    let mut resumed = resume(&woken, &first).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "gap", "3", "4", "result 1"]);
    let world = world.killed(limits);
    let again = world.find(&woken).await.unwrap();
    let mut resumed = resume(&again, &first).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["prime", "gap", "3", "4", "result 1"]);
}

#[tokio::test]
async fn an_event_that_could_not_be_logged_is_given_between_its_neighbours() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut slow) = world.streaming_call(&session, 1).await;
    let (id, _) = next(&mut slow).await;
    say(&call, "one").await;
    world.store.set_broken(true);
    say(&call, "two").await;
    world.store.set_broken(false);
    say(&call, "three").await;
    // The reader has taken nothing of it.
    drop(slow);
    call.answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    let items: Vec<_> = all(&mut resumed).await.into_iter().filter(|item| item != "gap").collect();
    assert_eq!(items, ["prime", "one", "two", "three", "result 1"]);
}
