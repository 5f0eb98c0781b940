//! rmcp's stores on our engines: the contract of rmcp's traits, in memory and on disk, across a restart, with
//! concurrent writers, beyond the bounds and with failing calls.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod expiry;
mod faults;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use rmcp::model::{
    ClientCapabilities, CustomNotification, Implementation, InitializeRequestParams, ServerJsonRpcMessage,
    ServerNotification,
};
use rmcp::transport::streamable_http_server::session::{
    EventStore, ServerSseMessage, SessionState, SessionStore,
};
use serde_json::json;
use tempfile::TempDir;
use tenure_session::id::{SessionId, SessionKey};
use tenure_session::port::store::{Space, Store};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_store::rmcp::{RmcpStore, RmcpStoreError};

/// One store of each kind; the folder is removed when the test is done.
fn engines() -> (TempDir, [Arc<dyn Store>; 2]) {
    let folder = TempDir::new().unwrap();
    let disk = Disk::open(folder.path(), Sync::Os).unwrap();
    (folder, [Arc::new(Memory::new()), Arc::new(disk)])
}

fn said(text: &str) -> ServerSseMessage {
    let notification = CustomNotification::new("x/said", Some(json!({ "text": text })));
    let notification = ServerNotification::CustomNotification(notification);
    ServerSseMessage::from_message(ServerJsonRpcMessage::notification(notification))
}

fn text(event: &ServerSseMessage) -> String {
    let message = serde_json::to_value(event.message.as_deref().expect("a message")).unwrap();
    message["params"]["text"].as_str().expect("a text").to_owned()
}

/// The ids and texts of the events that are replayed after an event.
async fn after(store: &RmcpStore, id: &str) -> Vec<(String, String)> {
    let events: Vec<_> = store.replay_events_after(id).await.unwrap().collect().await;
    events.into_iter().map(|event| (event.event_id.clone().unwrap(), text(&event))).collect()
}

async fn texts_after(store: &RmcpStore, id: &str) -> Vec<String> {
    after(store, id).await.into_iter().map(|(_, text)| text).collect()
}

/// Why a replay is refused.
async fn refusal(store: &RmcpStore, id: &str) -> RmcpStoreError {
    match store.replay_events_after(id).await {
        Ok(_) => panic!("{id} was accepted"),
        Err(error) => *error.downcast().unwrap(),
    }
}

/// The log that an event id names.
fn log_of(id: &str) -> SessionKey {
    let (log, _) = id.split_once('-').unwrap();
    SessionKey::from_bytes(u128::from_str_radix(log, 16).unwrap().to_be_bytes())
}

async fn records(engine: &Arc<dyn Store>) -> usize {
    engine.list(Space::Rmcp, None, usize::MAX).await.unwrap().len()
}

fn state(client: &str) -> SessionState {
    let client = Implementation::new(client, "1");
    SessionState::new(InitializeRequestParams::new(ClientCapabilities::default(), client))
}

async fn client_of(store: &RmcpStore, session: &str) -> Option<String> {
    store.load(session).await.unwrap().map(|state| state.initialize_params.client_info.name)
}

#[tokio::test]
async fn a_session_is_stored_loaded_overwritten_and_deleted() {
    let (_folder, engines) = engines();
    for engine in engines {
        let store = RmcpStore::new(engine.clone());
        assert_eq!(client_of(&store, "a").await, None);
        store.store("a", &state("ada")).await.unwrap();
        store.store("b", &state("bob")).await.unwrap();
        assert_eq!(client_of(&store, "a").await.as_deref(), Some("ada"));
        store.clone().store("a", &state("eve")).await.unwrap();
        assert_eq!(client_of(&store, "a").await.as_deref(), Some("eve"));
        store.delete("a").await.unwrap();
        store.delete("a").await.unwrap();
        assert_eq!(client_of(&store, "a").await, None);
        assert_eq!(client_of(&store, "b").await.as_deref(), Some("bob"));
        assert_eq!(records(&engine).await, 1);
    }
}

#[tokio::test]
async fn an_engine_never_sees_an_id_nor_a_key_of_our_own_sessions() {
    let engine: Arc<dyn Store> = Arc::new(Memory::new());
    let store = RmcpStore::new(engine.clone());
    let id = SessionId::random();
    store.store(&id.expose(), &state("ada")).await.unwrap();
    store.store_event(&id.expose(), &said("hi")).await.unwrap();
    let found = engine.list(Space::Rmcp, None, 9).await.unwrap();
    assert_eq!(found.len(), 2);
    for (key, record) in found {
        assert_ne!(key, id.key());
        assert!(!String::from_utf8_lossy(&record.value).contains(&id.expose()));
    }
    assert_eq!(engine.list(Space::Session, None, 9).await.unwrap(), []);
    assert_eq!(engine.owner(id.key()).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_one_session_do_not_fail_each_other() {
    let (_folder, engines) = engines();
    for engine in engines {
        let stores = [RmcpStore::new(engine.clone()), RmcpStore::new(engine)];
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..6 {
            let store = stores[writer % 2].clone();
            writers.spawn(async move { store.store("s", &state(&writer.to_string())).await.unwrap() });
        }
        writers.join_all().await;
        let last: usize = client_of(&stores[0], "s").await.unwrap().parse().unwrap();
        assert!(last < 6);
    }
}

#[tokio::test]
async fn a_replay_has_the_later_events_of_its_stream_with_their_ids() {
    let (_folder, engines) = engines();
    for engine in engines {
        let store = RmcpStore::new(engine);
        let mut ids = Vec::new();
        // More events than one read, interleaved with those of another stream.
        for n in 0..600 {
            ids.push(store.store_event("one", &said(&format!("one {n}"))).await.unwrap());
            ids.push(store.store_event("two", &said(&format!("two {n}"))).await.unwrap());
        }
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 1200, "an id names one event");
        for (from, stream) in [(0, "one"), (1, "two"), (598, "one"), (1199, "two")] {
            let expected: Vec<_> = (from / 2 + 1..600)
                .map(|n| (ids[2 * n + from % 2].clone(), format!("{stream} {n}")))
                .collect();
            assert_eq!(after(&store, &ids[from]).await, expected);
        }
    }
}

#[tokio::test]
async fn a_priming_event_is_replayed_as_one() {
    let store = RmcpStore::new(Arc::new(Memory::new()));
    let first = store.store_event("s", &said("hi")).await.unwrap();
    let id = store.store_event("s", &ServerSseMessage::retry(Duration::from_secs(3))).await.unwrap();
    let events: Vec<_> = store.replay_events_after(&first).await.unwrap().collect().await;
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].event_id.as_deref(), events[0].retry), (Some(&*id), Some(Duration::from_secs(3))));
    assert!(events[0].message.is_none());
}

#[tokio::test]
async fn sessions_and_streams_go_on_after_the_store_is_reopened() {
    let folder = TempDir::new().unwrap();
    let mut ids: Vec<String> = Vec::new();
    for round in 0..3 {
        let engine = Arc::new(Disk::open(folder.path(), Sync::Os).unwrap());
        let store = RmcpStore::new(engine);
        match round {
            0 => store.store("s", &state("ada")).await.unwrap(),
            _ => assert_eq!(client_of(&store, "s").await.as_deref(), Some("ada")),
        }
        let before = 5 * round;
        if let Some(first) = ids.first() {
            let kept = after(&store, first).await;
            assert_eq!(kept.len(), before - 1, "all of it is there before anything is written");
        }
        for n in before..before + 5 {
            ids.push(store.store_event("s:common", &said(&n.to_string())).await.unwrap());
        }
        let expected: Vec<_> = (1..before + 5).map(|n| (ids[n].clone(), n.to_string())).collect();
        assert_eq!(after(&store, &ids[0]).await, expected);
    }
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 15);
}

#[tokio::test]
async fn an_id_that_is_not_of_this_store_is_refused() {
    let (_folder, engines) = engines();
    let elsewhere = RmcpStore::new(Arc::new(Memory::new()));
    for engine in engines {
        let store = RmcpStore::new(engine);
        let id = store.store_event("s", &said("hi")).await.unwrap();
        for bad in ["", "0", "0/1", "s", &id[..32], &format!("{id}0x"), &id.to_uppercase()] {
            if bad != id {
                assert!(matches!(refusal(&store, bad).await, RmcpStoreError::EventId), "{bad}");
            }
        }
        let foreign = elsewhere.store_event("s", &said("hi")).await.unwrap();
        assert!(matches!(refusal(&store, &foreign).await, RmcpStoreError::UnknownStream));
        assert_eq!(after(&store, &id).await, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_one_stream_in_one_process_lose_nothing() {
    let (_folder, engines) = engines();
    for engine in engines {
        let store = RmcpStore::new(engine);
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let store = store.clone();
            writers.spawn(async move {
                let mut ids = Vec::new();
                for n in 0..20 {
                    ids.push(store.store_event("s", &said(&format!("{writer} {n}"))).await.unwrap());
                }
                ids
            });
        }
        let written: Vec<Vec<String>> = writers.join_all().await;
        let mut written: Vec<&String> = written.iter().flatten().collect();
        let position = |id: &str| u64::from_str_radix(id.split_once('-').unwrap().1, 16).unwrap();
        written.sort_unstable_by_key(|id| position(id));
        let replayed = after(&store, written[0]).await;
        assert_eq!(replayed.iter().map(|(id, _)| id).collect::<Vec<_>>(), written[1..]);
        assert_eq!(replayed.iter().map(|(_, text)| text).collect::<HashSet<_>>().len(), 159);
    }
}

#[tokio::test]
async fn a_stream_may_move_between_processes_and_back() {
    let (_folder, engines) = engines();
    for engine in engines {
        let processes = [RmcpStore::new(engine.clone()), RmcpStore::new(engine)];
        let mut ids = Vec::new();
        for n in 0..10 {
            let store = &processes[n % 2];
            ids.push(store.store_event("s", &said(&n.to_string())).await.unwrap());
        }
        let expected: Vec<_> = (1..10).map(|n| (ids[n].clone(), n.to_string())).collect();
        for store in &processes {
            assert_eq!(after(store, &ids[0]).await, expected);
        }
    }
}
