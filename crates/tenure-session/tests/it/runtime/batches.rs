//! Batches of 2025-03-26 over a restart: only what is still open is taken up again.

use std::sync::Arc;

use serde_json::json;
use tenure_protocol::{Message, Method, Notification, RawJson};
use tenure_session::call::Caller;
use tenure_session::session::Reader;
use tenure_session::{Limits, Session};
use tenure_testkit::fake_backend::FakeCall;
use tenure_testkit::runtime::{self, reader_of};

use crate::runtime::support::{World, all, next, resume, say, settle};

/// Sends reads of so many resources in one batch; the calls come in the order of their ids, from 1.
async fn reads(world: &mut World, session: &Arc<Session>, count: u64) -> (Vec<FakeCall>, Reader) {
    let read = |id| {
        Message::Request(runtime::request(id, "resources/read", &json!({ "uri": format!("test://{id}") })))
    };
    let batch = (1..=count).map(read).collect();
    let reader = reader_of(session.batch(batch, &Caller::anonymous("test")).unwrap().unwrap());
    let mut calls = Vec::new();
    for _ in 0..count {
        calls.push(world.script.call().await);
    }
    calls.sort_by_key(|call| call.request.id.raw().to_owned());
    (calls, reader)
}

fn in_flight(session: &Session) -> Vec<String> {
    let text = |id: &tenure_protocol::RequestId| String::from_utf8_lossy(id.raw()).into_owned();
    let mut ids: Vec<_> = session.info().calls.iter().map(|call| text(&call.id)).collect();
    ids.sort();
    ids
}

fn withdraw(session: &Arc<Session>, id: u64) {
    let params = Some(RawJson::of(&json!({ "requestId": id })));
    session.notification(Notification { method: Method::Cancelled, params }).unwrap();
}

#[tokio::test]
async fn a_request_of_a_batch_that_was_withdrawn_is_not_run_after_a_restart() {
    let mut world = World::new();
    let old = runtime::session(&world.sessions, "2025-03-26").await;
    let (_calls, _reader) = reads(&mut world, &old, 3).await;
    withdraw(&old, 1);
    withdraw(&old, 3);
    let world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    assert_eq!(in_flight(&session), ["2"]);
}

#[tokio::test]
async fn a_request_of_a_batch_whose_answer_is_no_longer_kept_is_not_run_after_a_restart() {
    let limits = Limits { max_session_events: 4, ..Limits::default() };
    let mut world = World::with(limits.clone());
    let old = runtime::session(&world.sessions, "2025-03-26").await;
    let (mut calls, mut reader) = reads(&mut world, &old, 2).await;
    let long = calls.pop().unwrap();
    calls.pop().unwrap().answer(&json!({}));
    assert_eq!(next(&mut reader).await.1, "result 1");
    for n in 0..10 {
        say(&long, &n.to_string()).await;
    }
    settle().await;
    let world = world.killed(limits);
    let session = world.find(&old).await.unwrap();
    assert_eq!(in_flight(&session), ["2"]);
}

#[tokio::test]
async fn requests_of_a_batch_that_end_after_a_restart_stay_ended_over_the_next() {
    let mut world = World::new();
    let old = runtime::session(&world.sessions, "2025-03-26").await;
    let (_calls, mut reader) = reads(&mut world, &old, 3).await;
    say(&_calls[0], "hello").await;
    let (id, _) = next(&mut reader).await;
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(world.script.call().await);
    }
    calls.sort_by_key(|call| call.request.id.raw().to_owned());
    withdraw(&session, 3);
    calls.remove(0).answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(next(&mut resumed).await.1, "result 1");
    let mut world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    assert_eq!(in_flight(&session), ["2"]);
    world.script.call().await.answer(&json!({}));
    let mut resumed = resume(&session, &id).await.unwrap();
    assert_eq!(all(&mut resumed).await, ["result 1", "result 2"]);
}

#[tokio::test]
async fn a_note_that_could_not_be_renewed_is_renewed_later() {
    let mut world = World::new();
    let old = runtime::session(&world.sessions, "2025-03-26").await;
    let (calls, _reader) = reads(&mut world, &old, 3).await;
    world.store.set_broken(true);
    withdraw(&old, 1);
    settle().await;
    world.store.set_broken(false);
    say(&calls[1], "the log works again").await;
    let world = world.killed(Limits::default());
    let session = world.find(&old).await.unwrap();
    assert_eq!(in_flight(&session), ["2", "3"]);
}
