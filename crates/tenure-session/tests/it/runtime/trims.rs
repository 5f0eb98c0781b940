//! Trims beside clients that come back: what is given, and that the gap is told.

use std::sync::Arc;

use serde_json::json;
use tenure_protocol::Reason;
use tenure_session::session::{Item, Reader};
use tenure_session::{Limits, Session};
use tenure_testkit::fake_backend::FakeCall;

use crate::runtime::support::{World, all, next, resume, say, short};

const KEPT: usize = 3;

/// A stream that has said more than its client has got. Returns the client's last id too.
async fn behind(world: &mut World, session: &Arc<Session>) -> (FakeCall, String) {
    let (call, mut reader) = world.streaming_call(session, 1).await;
    let (id, _) = next(&mut reader).await;
    drop(reader);
    say(&call, "one").await;
    (call, id)
}

/// Resumes a stream whose events are read before `meanwhile`, and whose mark is read after it.
async fn resume_beside(
    world: &World,
    session: &Arc<Session>,
    id: &str,
    meanwhile: impl AsyncFnOnce(),
) -> Reader {
    world.store.hold_looks_at_marks();
    let mut reads = world.store.reads();
    let (resuming, id) = (Arc::clone(session), id.to_owned());
    let resumed = tokio::spawn(async move { resume(&resuming, &id).await });
    reads.changed().await.unwrap();
    meanwhile().await;
    world.store.look_at_marks();
    resumed.await.unwrap().unwrap()
}

fn few() -> World {
    World::with(Limits { max_session_events: KEPT, ..Limits::default() })
}

#[tokio::test]
async fn events_that_are_trimmed_while_they_are_read_are_given() {
    let mut world = few();
    let session = world.session().await;
    let (call, id) = behind(&mut world, &session).await;
    say(&call, "two").await;
    let mut resumed = resume_beside(&world, &session, &id, async || {
        for n in 0..KEPT {
            say(&call, &n.to_string()).await;
        }
    })
    .await;
    call.answer(&json!({}));
    // The gap is told, since the store cannot say that the reader was quicker than the trim.
    assert_eq!(all(&mut resumed).await, ["prime", "gap", "one", "two", "0", "1", "2", "result 1"]);
}

#[tokio::test]
async fn an_answer_that_is_trimmed_while_it_is_read_is_given() {
    let mut world = few();
    let session = world.session().await;
    let (call, id) = behind(&mut world, &session).await;
    call.answer(&json!({}));
    while !session.info().calls.is_empty() {
        tokio::task::yield_now().await;
    }
    let mut resumed = resume_beside(&world, &session, &id, async || {
        for _ in 0..KEPT {
            world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
        }
    })
    .await;
    assert_eq!(all(&mut resumed).await, ["prime", "gap", "one", "result 1"]);
    // It was the last chance.
    assert_eq!(resume(&session, &id).await.unwrap_err().reason(), Reason::StreamForgotten);
}

#[tokio::test]
async fn a_reader_that_is_behind_is_given_what_is_trimmed_while_it_reads() {
    let mut world = World::with(Limits { max_session_events: KEPT, max_tail_events: 1, ..Limits::default() });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    assert_eq!(short(&reader.next().await.unwrap()), "prime");
    // Of these and the first, the tail has only the last.
    say(&call, "one").await;
    say(&call, "two").await;
    world.store.hold_looks_at_marks();
    let mut reads = world.store.reads();
    let reading = tokio::spawn(async move { all(&mut reader).await });
    reads.changed().await.unwrap();
    // All but the last of what was read goes.
    for _ in 0..2 {
        world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    }
    world.store.look_at_marks();
    call.answer(&json!({}));
    assert_eq!(reading.await.unwrap(), ["gap", "hello", "one", "two", "result 1"]);
}

/// The id that a response begins with, of a client that gets nothing else of it.
async fn first_id(session: &Arc<Session>, after: &str) -> String {
    let mut reader = resume(session, after).await.unwrap();
    match reader.next().await {
        Some(Item::Prime(id)) => id.to_string(),
        other => panic!("{other:?} in place of an id"),
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_before_it_is_told_of_a_gap_is_told_when_it_comes_back() {
    let mut world = few();
    let session = world.session().await;
    let (call, id) = behind(&mut world, &session).await;
    for n in 0..KEPT {
        say(&call, &n.to_string()).await;
    }
    let got = first_id(&session, &id).await;
    let mut again = resume(&session, &got).await.unwrap();
    call.answer(&json!({}));
    assert_eq!(all(&mut again).await, ["prime", "gap", "0", "1", "2", "result 1"]);
}

#[tokio::test]
async fn a_client_whose_events_are_all_gone_is_told_as_often_as_it_comes_back() {
    let mut world = few();
    let session = world.session().await;
    let (call, id) = behind(&mut world, &session).await;
    for _ in 0..KEPT {
        world.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    }
    let got = first_id(&session, &id).await;
    let mut again = resume(&session, &got).await.unwrap();
    call.answer(&json!({}));
    assert_eq!(all(&mut again).await, ["prime", "gap", "result 1"]);
}
