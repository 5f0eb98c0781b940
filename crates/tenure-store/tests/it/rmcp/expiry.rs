//! Events that are no longer kept: too many, too many bytes, or too old.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rmcp::transport::streamable_http_server::session::{EventStore, SessionStore};
use tenure_session::id::SessionId;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Expected, RecordKey, Space};
use tenure_store::memory::Memory;
use tenure_store::rmcp::{RmcpStore, RmcpStoreError};
use tenure_testkit::clock::TurnableClock;

use crate::rmcp::{client_of, engines, log_of, records, refusal, said, state, texts_after};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_stream_keeps_its_newest_events_and_no_more_than_it_may() {
    let (_folder, engines) = engines();
    for engine in engines {
        let mut first = None;
        for n in 0..100 {
            // From time to time a new store, which must count the existing events.
            let store = RmcpStore::new(engine.clone()).with_max_events(16);
            for step in 0..7 {
                let id = store.store_event("s", &said(&format!("{}", 7 * n + step))).await.unwrap();
                let kept = engine.survey(log_of(&id)).await.unwrap().kept.events;
                let written = 7 * n + step + 1;
                assert!(kept <= 16 && kept >= written.min(14), "{kept} of {written} are kept");
                first.get_or_insert(id);
            }
        }
        let store = RmcpStore::new(engine);
        let replayed = texts_after(&store, first.as_ref().unwrap()).await;
        let newest: Vec<_> = (700 - replayed.len()..700).map(|n| n.to_string()).collect();
        assert_eq!(replayed, newest, "what is left has no gap");
        assert!(replayed.len() >= 14);
    }
}

#[tokio::test]
async fn bytes_are_bounded_but_the_newest_event_stays() {
    let (_folder, engines) = engines();
    for engine in engines {
        let store = RmcpStore::new(engine.clone()).with_max_bytes(1000);
        let first = store.store_event("s", &said("first")).await.unwrap();
        for n in 0..50 {
            store.store_event("s", &said(&format!("{n:0>100}"))).await.unwrap();
            assert!(engine.survey(log_of(&first)).await.unwrap().kept.bytes <= 1000);
        }
        let huge = "x".repeat(5000);
        store.store_event("s", &said(&huge)).await.unwrap();
        assert_eq!(texts_after(&store, &first).await, [huge], "its id is with a client already");
        store.store_event("s", &said("next")).await.unwrap();
        assert_eq!(texts_after(&store, &first).await, ["next"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_expires_unless_it_is_woken_and_then_it_is_removed() {
    let (_folder, engines) = engines();
    for engine in engines {
        let clock = Arc::new(TurnableClock::start());
        let store = RmcpStore::new(engine.clone()).with_session_ttl(10 * MINUTE).with_clock(clock);
        store.store("s", &state("ada")).await.unwrap();
        for _ in 0..3 {
            tokio::time::advance(9 * MINUTE).await;
            assert_eq!(client_of(&store, "s").await.as_deref(), Some("ada"), "woken in time");
        }
        tokio::time::advance(10 * MINUTE).await;
        assert_eq!(client_of(&store, "s").await, None);
        assert_eq!(records(&engine).await, 1, "a read removes nothing");
        store.store("t", &state("bob")).await.unwrap();
        assert_eq!(records(&engine).await, 1, "the next write does");
        assert_eq!(client_of(&store, "t").await.as_deref(), Some("bob"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_expires_with_all_its_events_and_its_ids_never_come_again() {
    let (_folder, engines) = engines();
    for engine in engines {
        let clock = Arc::new(TurnableClock::start());
        let store = RmcpStore::new(engine.clone()).with_event_ttl(10 * MINUTE).with_clock(clock);
        let mut ids = HashSet::new();
        for round in 0..3 {
            let first = store.store_event("s", &said("a")).await.unwrap();
            let second = store.store_event("s", &said("b")).await.unwrap();
            tokio::time::advance(10 * MINUTE).await;
            store.store_event("t", &said("x")).await.unwrap();
            assert_eq!(texts_after(&store, &first).await, ["b"], "round {round}: kept as long as promised");
            tokio::time::advance(5 * MINUTE).await;
            store.store_event("t", &said("x")).await.unwrap();
            assert!(matches!(refusal(&store, &first).await, RmcpStoreError::UnknownStream));
            assert_eq!(engine.owner(log_of(&first)).await.unwrap(), None);
            assert_eq!(records(&engine).await, 1);
            assert!(ids.insert(first) && ids.insert(second), "an id came again");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_in_use_does_not_expire() {
    let (_folder, engines) = engines();
    for engine in engines {
        let clock = Arc::new(TurnableClock::start());
        let store = RmcpStore::new(engine).with_event_ttl(10 * MINUTE).with_clock(clock);
        let first = store.store_event("s", &said("0")).await.unwrap();
        for n in 1..=30usize {
            tokio::time::advance(4 * MINUTE).await;
            store.store_event("s", &said(&n.to_string())).await.unwrap();
            assert_eq!(texts_after(&store, &first).await.len(), n);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_due_of_others_stays_and_is_not_in_the_way() {
    let (_folder, engines) = engines();
    for engine in engines {
        for _ in 0..200 {
            let key = RecordKey::session(SessionId::random().key());
            engine.put(key, Bytes::from_static(b"ours"), Expected::Absent, Some(Time(1))).await.unwrap();
        }
        let clock = Arc::new(TurnableClock::start());
        let store = RmcpStore::new(engine.clone()).with_clock(clock);
        let id = store.store_event("s", &said("a")).await.unwrap();
        tokio::time::advance(90 * MINUTE).await;
        store.store("t", &state("bob")).await.unwrap();
        assert_eq!(engine.owner(log_of(&id)).await.unwrap(), None);
        assert_eq!(records(&engine).await, 1);
        assert_eq!(engine.list(Space::Session, None, 999).await.unwrap().len(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn many_that_expire_at_once_are_removed_by_the_writes_that_follow() {
    let (_folder, engines) = engines();
    for engine in engines {
        let clock = Arc::new(TurnableClock::start());
        let store = RmcpStore::new(engine.clone()).with_clock(clock);
        for n in 0..300 {
            store.store_event(&n.to_string(), &said("a")).await.unwrap();
        }
        tokio::time::advance(90 * MINUTE).await;
        for _ in 0..6 {
            store.store_event("s", &said("b")).await.unwrap();
        }
        assert_eq!(records(&engine).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_engine_gets_room_by_what_expires() {
    let clock = Arc::new(TurnableClock::start());
    let store = RmcpStore::new(Arc::new(Memory::bounded(1000))).with_clock(clock);
    let long = said(&"x".repeat(600));
    store.store_event("one", &long).await.unwrap();
    store.store_event("two", &long).await.unwrap_err();
    tokio::time::advance(90 * MINUTE).await;
    store.store_event("two", &long).await.unwrap();
}
