//! Copies between engines and keys: everything arrives in its place, and a copy that is cut off has no session without
//! its events.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod contents;

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::forward_store;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Epoch, Event, Expected, Keep, NewEvent, ReadLimit, RecordKey, SavedLog, Space, Store, Stored,
    Survey,
};
use tenure_store::copy::{CopyError, CopyTotals, copy, save_log};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_store::sealed::keys::{SealKeys, generate};
use tenure_store::sealed::{Sealed, check_plain};
use tenure_testkit::faulty::Faulty;

use self::contents::{LONG, OTHERS, RECORDS, SESSIONS, contents, fill, log, records};

type Shared = Arc<dyn Store>;

const ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };
const NODE: NodeId = NodeId::from_bytes([7; 8]);
const KEEP_ALL: Keep = Keep { events: usize::MAX, bytes: usize::MAX, since: Time(0) };

fn key(number: u8) -> SessionKey {
    SessionKey::from_bytes([number; 16])
}

fn event(stream: u32, body: &str, place: EntryPlace, at: u64) -> NewEvent {
    let body = Bytes::copy_from_slice(body.as_bytes());
    NewEvent { stream: StreamId::new(stream), body, place, at: Time(at) }
}

fn disk() -> (TempDir, Shared) {
    let folder = TempDir::new().unwrap();
    let store = Disk::open(folder.path(), Sync::Os).unwrap();
    (folder, Arc::new(store))
}

async fn seal(store: Shared) -> Shared {
    Arc::new(Sealed::open(store, SealKeys::parse(&generate()).unwrap()).await.unwrap())
}

#[tokio::test]
async fn everything_arrives_whatever_engine_and_key_it_goes_through() {
    let first: Shared = Arc::new(Memory::new());
    fill(first.as_ref()).await;
    let expected = contents(first.as_ref()).await;
    assert_eq!(expected.records[0].1.len(), usize::from(RECORDS));
    assert_eq!(expected.logs[200].kept.events, 1);
    let ((_one, on_disk), (_two, old_key), (_three, new_key)) = (disk(), disk(), disk());
    let stores: [Shared; 5] =
        [first, on_disk, seal(old_key).await, seal(new_key).await, Arc::new(Memory::new())];
    for pair in stores.windows(2) {
        let mut told = Vec::new();
        let totals = copy(pair[0].as_ref(), pair[1].as_ref(), |progress| told.push(progress)).await.unwrap();
        assert_eq!(contents(pair[1].as_ref()).await, expected);
        // Two of a session's events are on stream 1 and 0, one on 2 and 3; stream 4 has none.
        let (sessions, long) = (u64::from(SESSIONS), LONG as u64);
        assert_eq!((totals.records, totals.streams), (u64::from(RECORDS + OTHERS), sessions * 5 + 2));
        assert_eq!(totals.events, sessions * 4 + long + 1);
        assert_eq!(told.len() as u64, totals.records, "told after every record");
        assert_eq!(told.last().map(|progress| progress.totals), Some(totals));
    }
    // A store's own records are not copied: the last store is plain.
    assert_eq!(check_plain(stores[4].as_ref()).await, Ok(()));
    assert!(check_plain(stores[1].as_ref()).await.is_ok());
}

#[tokio::test]
async fn sessions_wake_on_the_target_and_go_on_after_what_they_had() {
    let ((_one, from), (_two, to)) = (disk(), disk());
    fill(from.as_ref()).await;
    for to in [seal(to).await, Arc::new(Memory::new())] {
        copy(from.as_ref(), to.as_ref(), |_| ()).await.unwrap();
        assert_eq!(to.owner(key(1)).await, Ok(None));
        let epoch = to.claim(key(1), NODE, None).await.unwrap();
        // A client that holds the id of the first of two events gets the second.
        let stream = StreamId::new(0);
        let held = from.read(key(1), stream, Position::START, ALL).await.unwrap().trimmed;
        let missed = to.read(key(1), stream, held, ALL).await.unwrap();
        assert_eq!(missed, from.read(key(1), stream, held, ALL).await.unwrap());
        let more = to.append(key(1), epoch, vec![event(0, "more", EntryPlace::Middle, 200)]).await.unwrap();
        assert!(more[0] > missed.events[0].position);
        // A known rmcp stream has an owner, and another process can take it over.
        let (_, epoch) = to.owner(key(200)).await.unwrap().unwrap();
        to.claim(key(200), NodeId::random(), Some(epoch)).await.unwrap();
    }
}

#[tokio::test]
async fn a_target_that_has_records_is_refused_and_stays_as_it_is() {
    let from = Memory::new();
    fill(&from).await;
    for space in [Space::Session, Space::State, Space::Rmcp, Space::Task] {
        let to = Memory::new();
        let record = RecordKey { space, key: key(1) };
        to.put(record, Bytes::from_static(b"theirs"), Expected::Absent, None).await.unwrap();
        let before = contents(&to).await;
        assert_eq!(copy(&from, &to, |_| ()).await, Err(CopyError::NotEmpty));
        assert_eq!(contents(&to).await, before);
    }
    assert_eq!(copy(&Memory::new(), &Memory::new(), |_| ()).await, Ok(CopyTotals::default()));
    let broken = Faulty::new(Arc::new(Memory::new()));
    broken.set_broken(true);
    let refused = copy(&from, &broken, |_| ()).await.unwrap_err();
    assert_eq!(refused.to_string(), "could not read the target");
}

/// Checks that every copied session has all of its events; returns the number of records.
async fn assert_whole(from: &dyn Store, to: &dyn Store) -> usize {
    let sessions = records(to, Space::Session).await;
    for (key, ..) in &sessions {
        assert_eq!(log(to, *key).await, log(from, *key).await);
    }
    let streams = records(to, Space::Rmcp).await;
    if streams.len() == 2 {
        assert_eq!(log(to, key(200)).await, log(from, key(200)).await);
        assert!(to.owner(key(200)).await.unwrap().is_some());
    }
    let others = records(to, Space::State).await.len() + records(to, Space::Task).await.len();
    sessions.len() + others + streams.len()
}

#[tokio::test]
async fn a_copy_that_fails_anywhere_shows_no_session_without_its_events() {
    let from = Memory::new();
    fill(&from).await;
    let mut seen = Vec::new();
    for call in 0.. {
        let inner: Shared = Arc::new(Memory::new());
        let to = Faulty::new(Arc::clone(&inner));
        to.fail_nth(call);
        let outcome = copy(&from, &to, |_| ()).await;
        seen.push(assert_whole(&from, inner.as_ref()).await);
        match outcome {
            Ok(totals) => {
                assert_eq!(totals.records, u64::from(RECORDS + OTHERS));
                break;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.starts_with("could not write ") || text.starts_with("could not read "),
                    "{text}"
                );
                assert!(error.source().unwrap().to_string().contains("a fault for testing"));
            }
        }
    }
    // One restore per log, a read of the owner and a claim for rmcp's, one put per record; then a copy that works.
    assert_eq!(seen.len(), (usize::from(SESSIONS) + 3) + 2 + usize::from(RECORDS + OTHERS) + 1);
    assert_eq!((seen[0], seen.last()), (0, Some(&usize::from(RECORDS + OTHERS))));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_dropped_leaves_whole_sessions_and_can_be_done_anew() {
    let from = Memory::new();
    fill(&from).await;
    let inner: Shared = Arc::new(Memory::new());
    let to = Faulty::new(Arc::clone(&inner));
    // Progress was reported for session 2, so the copy is cut off while it writes session 3.
    let mut told = 0;
    let copying = copy(&from, &to, |_| {
        told += 1;
        if told == 3 {
            to.hold_answers_of_puts();
        }
    });
    tokio::time::timeout(Duration::from_secs(1), copying).await.unwrap_err();
    assert_eq!(told, 3);
    assert_eq!(assert_whole(&from, inner.as_ref()).await, 4);
    assert_eq!(copy(&from, inner.as_ref(), |_| ()).await, Err(CopyError::NotEmpty));
    // A copy that is cut off before the first record leaves events, which the next copy restores again.
    let inner: Shared = Arc::new(Memory::new());
    let to = Faulty::new(Arc::clone(&inner));
    to.fail_nth(1);
    copy(&from, &to, |_| ()).await.unwrap_err();
    assert_eq!(log(inner.as_ref(), key(0)).await, log(&from, key(0)).await);
    copy(&from, inner.as_ref(), |_| ()).await.unwrap();
    assert_eq!(contents(inner.as_ref()).await, contents(&from).await);
}

#[tokio::test]
async fn a_log_of_rmcp_that_an_earlier_copy_left_owned_is_taken_over() {
    let from = Memory::new();
    let record = RecordKey { space: Space::Rmcp, key: key(21) };
    let value = [&[2], key(200).as_bytes().as_slice()].concat();
    from.put(record, value.into(), Expected::Absent, None).await.unwrap();
    let epoch = from.claim(key(200), NODE, None).await.unwrap();
    from.append(key(200), epoch, vec![event(0, "of rmcp", EntryPlace::Middle, 100)]).await.unwrap();
    let inner: Shared = Arc::new(Memory::new());
    let to = Faulty::new(Arc::clone(&inner));
    // The restore, the read of the owner and the claim work; the put does not.
    to.fail_nth(3);
    let cut_off = copy(&from, &to, |_| ()).await.unwrap_err();
    assert_eq!(cut_off.to_string(), format!("could not write the record {}", key(21).label()));
    assert!(inner.owner(key(200)).await.unwrap().is_some());
    assert_eq!(copy(&from, inner.as_ref(), |_| ()).await.unwrap().events, 1);
}

#[tokio::test]
async fn a_source_that_was_changed_is_not_copied_as_if_it_were_whole() {
    let inner: Shared = Arc::new(Memory::new());
    let from = seal(Arc::clone(&inner)).await;
    fill(from.as_ref()).await;
    let mut raw = save_log(inner.as_ref(), key(3)).await.unwrap();
    let other = raw.streams[0].events[0].body.clone();
    raw.streams[1].events[0].body = other;
    inner.restore(key(3), raw).await.unwrap();
    let to = Memory::new();
    let error = copy(from.as_ref(), &to, |_| ()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("could not read the events of {}", key(3).label()));
    assert!(error.source().unwrap().to_string().contains("was changed"));
    assert_eq!(to.list(Space::Session, None, usize::MAX).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_saved_log_is_what_restore_takes() {
    let from = Memory::new();
    fill(&from).await;
    let saved = save_log(&from, key(1)).await.unwrap();
    let note = |index: usize| saved.streams[index].note.as_deref();
    assert_eq!((note(1), note(2), note(4)), (Some(&b"call"[..]), None, Some(&b"only a note"[..])));
    let to = Memory::new();
    to.restore(key(1), saved).await.unwrap();
    assert_eq!(log(&to, key(1)).await, log(&from, key(1)).await);
    assert_eq!(save_log(&from, key(250)).await, Ok(SavedLog::default()));
}

/// A store in which a request ends, and all but its end is trimmed, right before the second survey.
struct EndsMeanwhile {
    inner: Memory,
    epoch: Epoch,
    surveys: AtomicUsize,
}

impl EndsMeanwhile {
    fn memory<T>(&self, operation: impl FnOnce(&dyn Store) -> T) -> T {
        operation(&self.inner)
    }
}

impl Store for EndsMeanwhile {
    forward_store!(memory: put, get, peek, delete, expired, list, claim, owner, release, append, read, trim);
    forward_store!(memory: drop_session, tail, restore, capabilities, trouble);

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        let meanwhile = (self.surveys.fetch_add(1, Ordering::SeqCst) == 1).then(|| {
            let ended = self.inner.append(session, self.epoch, vec![event(1, "", EntryPlace::End, 100)]);
            (ended, self.inner.trim(session, Keep { events: 1, ..KEEP_ALL }))
        });
        let survey = self.inner.survey(session);
        Box::pin(async move {
            if let Some((ended, trimmed)) = meanwhile {
                ended.await?;
                trimmed.await?;
            }
            survey.await
        })
    }
}

#[tokio::test]
async fn a_request_that_ends_and_is_trimmed_while_its_log_is_saved_is_saved_with_its_end() {
    let inner = Memory::new();
    let epoch = inner.claim(key(1), NODE, None).await.unwrap();
    let call = vec![event(1, "call", EntryPlace::Note, 100), event(1, "a", EntryPlace::Middle, 100)];
    inner.append(key(1), epoch, call).await.unwrap();
    let store = EndsMeanwhile { inner, epoch, surveys: AtomicUsize::new(0) };
    let saved = save_log(&store, key(1)).await.unwrap();
    let [stream] = &saved.streams[..] else { panic!("one stream: {saved:?}") };
    assert_eq!((stream.note.as_ref(), stream.events.len()), (None, 1), "it is complete: {stream:?}");
    assert_eq!(stream.events[0].place, EntryPlace::End);
    let to = Memory::new();
    to.restore(key(1), saved).await.unwrap();
    assert_eq!(log(&to, key(1)).await, log(&store.inner, key(1)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "the test holds the handle")]
async fn a_log_that_is_saved_while_it_changes_has_no_hole_and_no_stream_reopened() {
    let store: Shared = Arc::new(Memory::new());
    let epoch = store.claim(key(1), NODE, None).await.unwrap();
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            // A trim removes more events than one read, so that it overtakes a reader.
            for round in 0..600 {
                let request = round + 1;
                let call = vec![
                    event(request, "call", EntryPlace::Note, 100),
                    event(request, "a", EntryPlace::Middle, 100),
                ];
                store.append(key(1), epoch, call).await.unwrap();
                let news = (0..800).map(|_| event(0, "news", EntryPlace::Middle, 100)).collect();
                store.append(key(1), epoch, news).await.unwrap();
                tokio::task::yield_now().await;
                store.append(key(1), epoch, vec![event(request, "", EntryPlace::End, 100)]).await.unwrap();
                store.trim(key(1), Keep { events: 1_500, ..KEEP_ALL }).await.unwrap();
            }
        })
    };
    let mut saves = 0;
    while !writer.is_finished() {
        let saved = save_log(store.as_ref(), key(1)).await.unwrap();
        for stream in saved.streams {
            let ends = stream.events.last().is_some_and(|event| event.place == EntryPlace::End);
            if stream.stream != StreamId::STANDALONE {
                assert_ne!(stream.note.is_some(), ends, "either open or complete: {stream:?}");
                // Its only event is trimmed after its end was appended.
                assert!(
                    !stream.events.is_empty(),
                    "complete and trimmed away, but saved as open: {stream:?}"
                );
                continue;
            }
            assert!(stream.events.iter().all(|event| event.position > stream.trimmed.max(saved.trimmed)));
            // Between two rounds of news there are three entries of requests; within a round there is no entry.
            let holes = |pair: &&[Event]| !matches!(pair[1].position.0 - pair[0].position.0, 1 | 4);
            assert_eq!(stream.events.windows(2).find(holes), None, "after {saves} saves");
        }
        saves += 1;
    }
    writer.await.unwrap();
    assert!(saves > 10, "only {saves} saves met the writer");
}

#[cfg(feature = "rmcp")]
#[tokio::test]
async fn clients_of_an_rmcp_server_resume_on_the_target() {
    use futures_util::StreamExt;
    use rmcp::model::{CustomNotification, ServerJsonRpcMessage, ServerNotification};
    use rmcp::transport::streamable_http_server::session::{EventStore, ServerSseMessage};
    use tenure_store::rmcp::RmcpStore;

    let said = |text: &str| {
        let notification = CustomNotification::new("x/said", Some(serde_json::json!({ "text": text })));
        let notification = ServerNotification::CustomNotification(notification);
        ServerSseMessage::from_message(ServerJsonRpcMessage::notification(notification))
    };
    let (from, (_folder, to)): (Shared, _) = (Arc::new(Memory::new()), disk());
    let server = RmcpStore::new(Arc::clone(&from));
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        ids.push(server.store_event("a stream", &said(text)).await.unwrap());
    }
    let to = seal(to).await;
    assert_eq!(copy(from.as_ref(), to.as_ref(), |_| ()).await.unwrap().events, 3);
    let server = RmcpStore::new(to);
    let missed: Vec<_> = server.replay_events_after(&ids[0]).await.unwrap().collect().await;
    let missed: Vec<_> = missed.into_iter().map(|event| event.event_id.unwrap()).collect();
    assert_eq!(missed, ids[1..]);
    // The stream continues with the same ids.
    let more = server.store_event("a stream", &said("four")).await.unwrap();
    let missed: Vec<_> = server.replay_events_after(&ids[2]).await.unwrap().collect().await;
    assert_eq!(missed[0].event_id, Some(more));
}
