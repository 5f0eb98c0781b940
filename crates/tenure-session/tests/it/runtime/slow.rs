//! A slow or dead reader costs only itself.

use std::time::Duration;

use serde_json::json;
use tenure_session::Limits;
use tenure_session::record::EndCause;

use crate::runtime::support::{World, all, next, say};

#[tokio::test]
async fn a_reader_that_never_reads_holds_up_no_other() {
    let mut world = World::new();
    let session = world.session().await;
    let (stuck, mut reader) = world.streaming_call(&session, 1).await;
    let (second, mut other) = world.streaming_call(&session, 2).await;
    let work = async {
        for n in 0..5000 {
            say(&stuck, &n.to_string()).await;
        }
        say(&second, "quick").await;
        second.answer(&json!({}));
        assert_eq!(all(&mut other).await, ["prime", "hello", "quick", "result 2"]);
    };
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("others do not wait for the reader");
    // It reads at last: everything is there, from the log.
    next(&mut reader).await;
    for n in 0..5000 {
        assert_eq!(next(&mut reader).await.1, n.to_string());
    }
    stuck.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["result 1"]);
}

#[tokio::test]
async fn a_stuck_reader_delays_neither_the_end_of_its_session_nor_shutdown() {
    let mut world = World::new();
    let session = world.session().await;
    let (stuck, _reader) = world.streaming_call(&session, 1).await;
    for n in 0..1000 {
        say(&stuck, &n.to_string()).await;
    }
    let quick = async {
        world.sessions.end(&session, EndCause::Deleted).await.unwrap();
        drop(stuck);
        world.sessions.shut_down(Duration::from_secs(1)).await
    };
    tokio::time::timeout(Duration::from_secs(5), quick).await.expect("neither waits");
}

#[tokio::test]
async fn a_slow_store_holds_back_its_session_and_its_memory_is_bounded() {
    let mut world = World::with(Limits { max_unstored_bytes: 4096, ..Limits::default() });
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    next(&mut reader).await;
    world.store.hold_appends();
    let writer = tokio::spawn(async move {
        for n in 0..200 {
            say(&call, &format!("{n:0>100}")).await;
        }
        call
    });
    // It cannot finish: most of it would have to wait in memory.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!writer.is_finished());
    world.store.release_appends();
    let call = writer.await.unwrap();
    for n in 0..200 {
        assert_eq!(next(&mut reader).await.1, format!("{n:0>100}"));
    }
    call.answer(&json!({}));
    assert_eq!(all(&mut reader).await, ["result 1"]);
}

#[tokio::test]
async fn an_event_is_in_the_log_before_its_reader_sees_it() {
    let mut world = World::new();
    let session = world.session().await;
    let (call, mut reader) = world.streaming_call(&session, 1).await;
    next(&mut reader).await;
    world.store.hold_appends();
    say(&call, "held").await;
    let early = tokio::time::timeout(Duration::from_millis(50), reader.next()).await;
    assert!(early.is_err(), "shown before it was logged: {early:?}");
    world.store.release_appends();
    assert_eq!(next(&mut reader).await.1, "held");
}
