//! An engine whose calls fail.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use rmcp::transport::streamable_http_server::session::{EventStore, SessionStore};
use tenure_session::port::store::Store;
use tenure_store::memory::Memory;
use tenure_store::rmcp::RmcpStore;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::faulty::Faulty;

use crate::rmcp::{after, log_of, records, said, state, texts_after};

#[tokio::test]
async fn a_replay_that_fails_ends_early_and_is_taken_up_where_it_ended() {
    let engine = Arc::new(Faulty::new(Arc::new(Memory::new())));
    let store = RmcpStore::new(engine.clone());
    let mut ids = Vec::new();
    for n in 0..600 {
        ids.push(store.store_event("s", &said(&n.to_string())).await.unwrap());
    }
    let mut replay = store.replay_events_after(&ids[0]).await.unwrap();
    let mut seen = vec![ids[0].clone()];
    while let Some(event) = replay.next().await {
        seen.push(event.event_id.unwrap());
        // Events that were read already still come; the next read fails.
        engine.set_broken(true);
    }
    assert!(replay.next().await.is_none());
    assert!(seen.len() > 1 && seen.len() < 600, "{} of 600", seen.len());
    engine.set_broken(false);
    seen.extend(after(&store, seen.last().unwrap()).await.into_iter().map(|(id, _)| id));
    assert_eq!(seen, ids);
}

#[tokio::test]
async fn a_failed_trim_fails_no_write() {
    let engine = Arc::new(Faulty::new(Arc::new(Memory::new())));
    engine.fail_trims();
    let store = RmcpStore::new(engine.clone()).with_max_events(2);
    let first = store.store_event("s", &said("0")).await.unwrap();
    for n in 1..5 {
        store.store_event("s", &said(&n.to_string())).await.unwrap();
    }
    assert_eq!(engine.trims(), 3, "it is tried again with each");
    assert_eq!(texts_after(&store, &first).await, ["1", "2", "3", "4"]);
}

/// Lets a stream expire and come back while one call to the engine fails, for every such call.
#[tokio::test(start_paused = true)]
async fn whichever_call_fails_nothing_acknowledged_is_lost_and_nothing_stays_for_ever() {
    for failing in 0..64 {
        let memory: Arc<dyn Store> = Arc::new(Memory::new());
        let engine = Arc::new(Faulty::new(memory.clone()));
        let clock = Arc::new(TurnableClock::start());
        let store = RmcpStore::new(engine.clone()).with_clock(clock);
        let healthy = RmcpStore::new(memory.clone());
        engine.fail_nth(failing);
        let mut logs = HashSet::new();
        for round in 0..3 {
            let mut ids = Vec::new();
            for stream in ["s", "s", "t", "s"] {
                // A second try, like a client that calls again.
                for _ in 0..2 {
                    if let Ok(id) = store.store_event(stream, &said(stream)).await {
                        ids.push((stream, id));
                        break;
                    }
                }
            }
            assert_eq!(ids.len(), 4, "failing call {failing}, round {round}");
            logs.extend(ids.iter().map(|(_, id)| log_of(id)));
            let replayed = after(&healthy, &ids[0].1).await;
            for (_, id) in ids.iter().skip(1).filter(|(stream, _)| *stream == "s") {
                assert!(replayed.iter().any(|(is, _)| is == id), "failing call {failing}: {id} is lost");
            }
            tokio::time::advance(Duration::from_secs(90 * 60)).await;
        }
        // Twice, because the first call may be the one that fails.
        for _ in 0..2 {
            store.store("last", &state("ada")).await.ok();
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(records(&memory).await, 1, "failing call {failing}");
        for log in logs {
            assert_eq!(memory.owner(log).await.unwrap(), None, "failing call {failing}: {log:?} is left");
        }
    }
}
