//! Runs the contract suite of the store port on every engine.

#[path = "../../examples/own_store.rs"]
#[expect(dead_code, reason = "as an example it has a `main`")]
mod own_store;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::crash::{Crashing, Last};
use tenure_testkit::faulty::Faulty;
use tenure_testkit::late::Late;
use tenure_testkit::store_contract;

#[tokio::test]
async fn memory_keeps_the_contract() {
    store_contract::all(|| Arc::new(Memory::new())).await;
}

// A7.12: the example store of the docs keeps the contract.
#[tokio::test]
async fn a7_12_the_store_of_the_example_keeps_the_contract() {
    store_contract::all(|| Arc::new(own_store::OwnStore::default())).await;
}

#[tokio::test]
async fn the_faulty_wrapper_keeps_the_contract_while_it_has_no_fault() {
    store_contract::all(|| Arc::new(Faulty::new(Arc::new(Memory::new())))).await;
}

#[tokio::test]
async fn the_late_wrapper_keeps_the_contract_while_it_holds_nothing_back() {
    store_contract::all(|| Arc::new(Late::new(Arc::new(Memory::new())))).await;
}

#[tokio::test]
async fn the_crashing_wrapper_keeps_the_contract_while_its_process_lives() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let count = AtomicUsize::new(0);
    store_contract::all(|| Arc::new(Crashing::after(Arc::new(Memory::new()), u64::MAX, Last::Done))).await;
    store_contract::all(|| {
        let number = count.fetch_add(1, Ordering::Relaxed).to_string();
        let disk = Disk::open(&folder.path().join(number), Sync::Os).expect("a store");
        Arc::new(Crashing::after(Arc::new(disk), u64::MAX, Last::Done))
    })
    .await;
}

#[tokio::test]
async fn memory_takes_only_as_many_bytes_of_events_as_it_may() {
    use bytes::Bytes;
    use tenure_session::id::{NodeId, SessionId, StreamId};
    use tenure_session::port::clock::Time;
    use tenure_session::port::store::{EntryPlace, Keep, NewEvent, Store, StoreError};

    let store = Memory::bounded(100);
    let event = || NewEvent {
        stream: StreamId::new(0),
        body: Bytes::from_static(&[b'x'; 30]),
        place: EntryPlace::Middle,
        at: Time(5),
    };
    let (one, two) = (SessionId::random().key(), SessionId::random().key());
    let mut epochs = Vec::new();
    for session in [one, two] {
        epochs.push(store.claim(session, NodeId::random(), None).await.expect("claims"));
    }
    store.append(one, epochs[0], vec![event(), event()]).await.expect("there is room");
    store.append(two, epochs[1], vec![event()]).await.expect("there is room");
    assert_eq!(store.append(two, epochs[1], vec![event()]).await, Err(StoreError::Busy));
    // A note is not an event and does not count against the bound.
    let note = NewEvent { place: EntryPlace::Note, body: Bytes::from_static(&[b'n'; 500]), ..event() };
    store.append(two, epochs[1], vec![note]).await.expect("a note");
    // A trim or a drop makes room.
    store.trim(one, Keep { events: 1, bytes: 100, since: Time(0) }).await.expect("trims");
    store.append(two, epochs[1], vec![event()]).await.expect("there is room again");
    store.drop_session(two).await.expect("drops");
    store.append(one, epochs[0], vec![event(), event()]).await.expect("there is room again");
}
