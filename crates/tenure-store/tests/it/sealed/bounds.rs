//! Byte bounds and byte counts are the same with a sealed store as with a plain one.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use tempfile::TempDir;
use tenure_session::id::{Position, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Expected, Keep, KeptEvents, ReadLimit, RecordKey, Store};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_store::sealed::Sealed;

use crate::sealed::{ALL, NODE, Shared, event, fresh_keys, key};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_caller_cannot_tell_by_its_bounds_whether_a_store_is_sealed(
        bodies in prop::collection::vec((0u32..3, 0usize..150), 0..40),
        read in (0u32..3, 0usize..30, 0usize..2_000),
        trims in prop::collection::vec((0usize..40, 0usize..3_000), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let same: Result<(), TestCaseError> = runtime.block_on(async {
            let plain: Shared = Arc::new(Memory::new());
            let sealed: Shared = Arc::new(Sealed::open(Arc::new(Memory::new()), fresh_keys()).await.unwrap());
            let middle = |(stream, length): &(u32, usize)| event(*stream, &vec![b'x'; *length], EntryPlace::Middle);
            let batch: Vec<_> = bodies.iter().map(middle).collect();
            for store in [&plain, &sealed] {
                let epoch = store.claim(key(1), NODE, None).await.unwrap();
                store.append(key(1), epoch, batch.clone()).await.unwrap();
            }
            let (stream, events, bytes) = read;
            let limit = ReadLimit { events, bytes };
            let stretch = |store: &Shared| store.read(key(1), StreamId::new(stream), Position::START, limit);
            prop_assert_eq!(stretch(&plain).await, stretch(&sealed).await);
            for (events, bytes) in trims {
                let keep = Keep { events, bytes, since: Time(0) };
                prop_assert_eq!(plain.trim(key(1), keep).await, sealed.trim(key(1), keep).await);
                prop_assert_eq!(plain.survey(key(1)).await, sealed.survey(key(1)).await);
                prop_assert_eq!(stretch(&plain).await, stretch(&sealed).await);
            }
            Ok(())
        });
        same?;
    }
}

#[tokio::test]
async fn a_long_stream_is_read_and_trimmed_exactly() {
    let store = Sealed::open(Arc::new(Memory::new()), fresh_keys()).await.unwrap();
    let epoch = store.claim(key(1), NODE, None).await.unwrap();
    // More events than one read from the engine, of one byte each: the overhead is largest then.
    let batch: Vec<_> = (0..3_000).map(|_| event(0, b"x", EntryPlace::Middle)).collect();
    let positions = store.append(key(1), epoch, batch).await.unwrap();
    for (events, bytes) in [(2_500, usize::MAX), (usize::MAX, 2_500), (2_500, 2_500), (2_048, 9_999)] {
        let limit = ReadLimit { events, bytes };
        let stretch = store.read(key(1), StreamId::new(0), Position::START, limit).await.unwrap();
        let read: Vec<_> = stretch.events.iter().map(|event| event.position).collect();
        assert_eq!(read, positions[..events.min(bytes)]);
    }
    let all = store.read(key(1), StreamId::new(0), positions[9], ALL).await.unwrap();
    assert_eq!(all.events.len(), 2_990);
    let keep = Keep { events: usize::MAX, bytes: 1_234, since: Time(0) };
    let kept =
        KeptEvents { events: 1_234, bytes: 1_234, oldest: Some(Time(1_000)), trimmed: positions[1_765] };
    assert_eq!(store.trim(key(1), keep).await, Ok(kept));
    assert_eq!(store.survey(key(1)).await.unwrap().kept, kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the test holds the handle")]
async fn a_stretch_that_is_read_while_its_stream_is_trimmed_has_no_hole() {
    let store: Shared = Arc::new(Sealed::open(Arc::new(Memory::new()), fresh_keys()).await.unwrap());
    let epoch = store.claim(key(1), NODE, None).await.unwrap();
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            // A trim removes more events than one read from the engine.
            for _ in 0..25 {
                let batch = (0..1_500).map(|_| event(0, b"news", EntryPlace::Middle));
                store.append(key(1), epoch, batch.collect()).await.unwrap();
                let keep = Keep { events: 2_500, bytes: usize::MAX, since: Time(0) };
                store.trim(key(1), keep).await.unwrap();
            }
        })
    };
    let mut reads = 0;
    while !writer.is_finished() {
        let stretch = store.read(key(1), StreamId::new(0), Position::START, ALL).await.unwrap();
        let numbers: Vec<u64> = stretch.events.iter().map(|event| event.position.0).collect();
        assert_eq!(numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]), None, "after {reads} reads");
        assert!(numbers.first().is_none_or(|first| *first == stretch.trimmed.0 + 1));
        reads += 1;
    }
    writer.await.unwrap();
    assert!(reads > 2, "only {reads} reads met the writer");
}

#[tokio::test]
async fn the_largest_value_is_smaller_by_what_sealing_adds() {
    let folder = TempDir::new().unwrap();
    let disk: Shared = Arc::new(Disk::open(folder.path(), Sync::Os).unwrap());
    let largest = disk.capabilities().max_value_bytes;
    let store = Sealed::open(Arc::clone(&disk), fresh_keys()).await.unwrap();
    assert_eq!(store.capabilities().max_value_bytes, largest - 45);
    store
        .put(RecordKey::session(key(1)), Bytes::from_static(b"value"), Expected::Absent, None)
        .await
        .unwrap();
    assert_eq!(disk.get(RecordKey::session(key(1))).await.unwrap().unwrap().value.len(), 5 + 45);
}
