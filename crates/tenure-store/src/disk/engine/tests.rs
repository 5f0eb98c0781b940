//! Opening a store after a kill reads a bounded number of bytes, however well they compress.

use bytes::Bytes;
use fjall::AbstractTree;
use tempfile::TempDir;
use tenure_session::id::{NodeId, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, NewEvent, Store};

use crate::disk::raw::journal::{self, Part};
use crate::disk::raw::numbered;
use crate::disk::writer::{MAX_SEALED, MEMORY_BYTES};
use crate::disk::{Disk, Sync};

/// Bytes that batches may add to memory between two looks at its size.
const SLACK_BYTES: u64 = 16 << 20;

/// The bytes of all journals: in the files, and uncompressed as an opening reads them.
fn journals(data: &std::path::Path) -> (u64, u64) {
    let (mut packed, mut unpacked) = (0, 0);
    for (_, path) in numbered(data, ".jnl").unwrap() {
        // The engine may have removed it meanwhile.
        let Ok(bytes) = journal::read(&path) else { continue };
        packed += bytes.len() as u64;
        for part in journal::parts(&bytes) {
            let Part::Good(batch) = part else { continue };
            let values = batch.items.iter().filter_map(|item| item.value().unwrap());
            unpacked += values.map(|value| value.len() as u64).sum::<u64>();
        }
    }
    (packed, unpacked)
}

#[tokio::test]
async fn a_kill_leaves_no_more_to_read_than_there_is_in_journals_and_no_large_table_in_memory() {
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let session = SessionKey::from_bytes([1; 16]);
    let epoch = store.claim(session, NodeId::random(), None).await.unwrap();
    // Like a server that sends the same text over and over.
    let body = Bytes::from(vec![b'a'; 256 << 10]);
    let (mut most, mut most_sealed) = (0, 0);
    for _ in 0..480 {
        let (stream, at) = (StreamId::new(0), Time(1_000));
        let event = NewEvent { stream, body: body.clone(), place: EntryPlace::Middle, at };
        store.append(session, epoch, vec![event]).await.unwrap();
        let (in_memory, sealed) = store
            .cell()
            .with(|engine| {
                let events = &engine.keyspaces.events;
                (events.tree.active_memtable().size(), events.sealed_memtable_count())
            })
            .unwrap();
        (most, most_sealed) = (most.max(in_memory), most_sealed.max(sealed));
    }
    assert!(most <= MEMORY_BYTES + SLACK_BYTES, "{most} bytes were in memory at once");
    assert!(most_sealed <= MAX_SEALED + 1, "{most_sealed} tables were on their way to the disk");
    let (packed, unpacked) = journals(&folder.path().join("data"));
    assert!(unpacked <= packed, "{packed} bytes of journals become {unpacked}");
}

#[test]
fn a_merge_holds_a_part_of_a_table_in_memory_and_not_all_of_it() {
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    let keyspaces = store.cell().with(|engine| std::sync::Arc::clone(&engine.keyspaces)).unwrap();
    for keyspace in keyspaces.all() {
        // A merge holds every block until it writes the index, or the part of the index, that names it.
        let in_parts = &keyspace.config.index_block_partitioning_policy;
        assert!(in_parts.iter().all(|is_in_parts| *is_in_parts), "{} at some level", keyspace.name());
    }
}

#[test]
fn an_engine_whose_writer_or_keeper_panicked_counts_as_failed() {
    let (failed, told) = std::sync::mpsc::channel();
    let progress = std::sync::Arc::new(super::WriterProgress::new(failed));
    let shared = std::sync::Arc::clone(&progress);
    let ended = super::thread("fine", move || super::vital(&shared, || {})).unwrap().join();
    assert!(ended.is_ok() && !progress.is_poisoned());
    let shared = std::sync::Arc::clone(&progress);
    let panics = move || super::vital(&shared, || panic!("a panic for testing"));
    assert!(super::thread("panics", panics).unwrap().join().is_err());
    assert!(progress.is_poisoned());
    assert!(told.try_recv().is_ok(), "it is to be opened anew");
}
