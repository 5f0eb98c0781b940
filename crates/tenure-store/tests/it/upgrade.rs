//! A store that an earlier version wrote can be opened, and its sessions continue.
//!
//! `fixtures/store-1.tar.gz` was written by the first version of the disk engine, before there were notes of open
//! requests, and `store-2.tar.gz` before a session remembered up to where its complete streams were trimmed away.
//! Every change of the layout needs a fixture of the version before it.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_protocol::Reason;
use tenure_session::id::{Position, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Keep, NewEvent, ReadLimit, Store};
use tenure_session::{EventId, EventNames, Limits, Principal, SessionId, SessionKey};
use tenure_store::disk::{Disk, Sync, check};
use tenure_testkit::fake_backend::FakeBackend;
use tenure_testkit::runtime;

fn unpack(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let unpacked =
        Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(folder.path()).status().unwrap();
    assert!(unpacked.success());
    folder
}

#[tokio::test]
async fn sessions_of_the_first_layout_go_on() {
    let folder = unpack("store-1.tar.gz");
    let store = Arc::new(Disk::open(&folder.path().join("store-1"), Sync::Os).unwrap());
    let (backend, mut script) = FakeBackend::new();
    let sessions = runtime::start(store, backend, Limits::default());
    let deleted = SessionId::parse(b"ffffffffffffffffffffffffffffffff").unwrap();
    let error = sessions.find(&deleted, &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(error.reason(), Reason::SessionDeleted);
    let id = SessionId::parse(b"000102030405060708090a0b0c0d0e0f").unwrap();
    let finding = sessions.clone();
    #[expect(clippy::disallowed_methods, reason = "a test holds the handle")]
    let find = tokio::spawn(async move { finding.find(&id, &Principal::ANONYMOUS).await.unwrap() });
    for method in ["logging/setLevel", "resources/subscribe"] {
        let call = script.call().await;
        assert_eq!(call.request.method.as_str(), method);
        call.answer(&serde_json::json!({}));
    }
    let session = find.await.unwrap();
    let resume = async |stream: u32, position: u64| {
        let after =
            EventId::new(&EventNames::new(&id.key(), None), StreamId::new(stream), Position(position))
                .to_string();
        session.listen(Some(after.as_bytes())).await.unwrap()
    };
    let mut replayed = resume(0, 4).await;
    assert_eq!(runtime::event(&mut replayed).await.unwrap().1["params"]["data"], "kept");
    let mut replayed = resume(1, 0).await;
    assert_eq!(runtime::event(&mut replayed).await.unwrap().1["params"]["data"], "one");
    assert_eq!(runtime::event(&mut replayed).await.unwrap().1["id"], 7);
    assert_eq!(runtime::event(&mut replayed).await, None);
    assert_eq!(session.info().subscriptions, ["test://a"]);
}

#[tokio::test]
async fn a_session_whose_complete_streams_were_trimmed_away_without_a_word_goes_on() {
    let folder = unpack("store-2.tar.gz");
    let path = folder.path().join("store-2");
    assert!(check(&path, |_| ()).unwrap().is_sound());
    let store = Disk::open(&path, Sync::Os).unwrap();
    let session = SessionKey::from_bytes([1; 16]);
    let (all, nothing) = (
        ReadLimit { events: usize::MAX, bytes: usize::MAX },
        Keep { events: 0, bytes: usize::MAX, since: Time(0) },
    );
    let trimmed = async |stream: u32| {
        store.read(session, StreamId::new(stream), Position::START, all).await.unwrap().trimmed
    };
    // Stream 1 is gone, and the store does not know where it ended. Streams 0 and 2 are open.
    assert_eq!(
        (trimmed(0).await, trimmed(1).await, trimmed(2).await),
        (Position(2), Position(0), Position(6))
    );
    let survey = store.survey(session).await.unwrap();
    let streams: Vec<_> = survey.streams.iter().map(|known| (known.stream.number(), known.last)).collect();
    assert_eq!((streams, survey.next_stream), (vec![(0, Position(7)), (2, Position(6))], 3));
    // When the next stream is trimmed away, the store remembers its end.
    let (_, epoch) = store.owner(session).await.unwrap().unwrap();
    let (stream, body) = (StreamId::new(2), Bytes::new());
    let end = NewEvent { stream, body, place: EntryPlace::End, at: Time(2_000) };
    let end = store.append(session, epoch, vec![end]).await.unwrap()[0];
    store.trim(session, nothing).await.unwrap();
    assert_eq!((trimmed(0).await, trimmed(2).await), (Position(7), end));
}
