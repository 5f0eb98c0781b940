//! How many sessions there are, while those that an earlier process left are being counted: whatever happens to them
//! meanwhile, in the end the count is right.

use std::sync::Arc;
use std::time::Duration;

use tenure_session::port::store::{RecordKey, Space, Store};
use tenure_session::record::StoredSession;
use tenure_session::session::{Existing, SavedSession, SessionParts};
use tenure_session::{Limits, Principal, SessionId, SessionKey, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::fake_backend::FakeBackend;
use tenure_testkit::faulty::Faulty;
use tenure_testkit::late::{Late, let_others_run};
use tenure_testkit::runtime;

const SECOND: Duration = Duration::from_secs(1);

/// Sessions that an earlier process left.
const LEFT: usize = 5;

/// A process that has read the sessions of an earlier one, and has not counted them yet.
struct Scene {
    sessions: Sessions,
    late: Arc<Late>,
    /// In the order in which they are counted.
    left: Vec<SessionId>,
}

fn start(store: Arc<dyn Store>, clock: Arc<HandClock>) -> Sessions {
    Sessions::start(SessionParts {
        store,
        backend: FakeBackend::new().0,
        clock,
        limits: Limits::default(),
        roster: None,
    })
}

impl Scene {
    async fn new() -> Self {
        let (late, clock) = (Arc::new(Late::new(Arc::new(Memory::new()))), Arc::new(HandClock::start()));
        let earlier = start(late.clone(), clock.clone());
        let mut left = Vec::new();
        for _ in 0..LEFT {
            left.push(*runtime::session(&earlier, "2025-11-25").await.id());
        }
        left.sort_by_key(SessionId::key);
        clock.turn(SECOND);
        late.hold_answers_of_lists();
        let sessions = start(late.clone(), clock);
        let lists = late.lists();
        while late.lists() == lists {
            tokio::task::yield_now().await;
        }
        assert_eq!(sessions.tallies().sessions, 0);
        Self { sessions, late, left }
    }

    /// Lets the counting go on, and compares its outcome with what is in the store.
    async fn is_right(&self, expected: usize) {
        self.late.answer_lists();
        let_others_run().await;
        assert_eq!((self.sessions.tallies().sessions, self.there().await), (expected, expected));
        // And it stays so.
        for (key, _) in self.late.list(Space::Session, None, 100).await.unwrap() {
            self.sessions.revoke(&key).await.unwrap();
        }
        assert_eq!((self.sessions.tallies().sessions, self.there().await), (0, 0));
    }

    async fn there(&self) -> usize {
        let records = self.late.list(Space::Session, None, 100).await.unwrap();
        let is_session = |value| matches!(StoredSession::decode(value), Ok(StoredSession::Session(_)));
        records.iter().filter(|(_, record)| is_session(&record.value)).count()
    }

    async fn saved(&self, key: SessionKey) -> SavedSession {
        let record = self.late.get(RecordKey::session(key)).await.unwrap().unwrap();
        SavedSession { key, record: record.value, deadline: record.deadline, log: Default::default() }
    }

    async fn delete(&self, n: usize) {
        self.sessions.delete(&self.left[n], &Principal::ANONYMOUS).await.unwrap();
    }
}

#[tokio::test]
async fn sessions_that_nothing_happens_to_are_counted_once() {
    Scene::new().await.is_right(LEFT).await;
}

#[tokio::test]
async fn a_session_that_ends_before_it_is_counted_does_not_count() {
    for n in 0..LEFT {
        let scene = Scene::new().await;
        scene.delete(n).await;
        scene.is_right(LEFT - 1).await;
    }
    let scene = Scene::new().await;
    for n in 0..LEFT {
        scene.delete(n).await;
    }
    scene.is_right(0).await;
}

#[tokio::test]
async fn a_session_that_is_woken_before_it_is_counted_counts_once() {
    for n in 0..LEFT {
        let scene = Scene::new().await;
        scene.sessions.find(&scene.left[n], &Principal::ANONYMOUS).await.unwrap();
        assert_eq!(scene.sessions.tallies().sessions, 1);
        scene.is_right(LEFT).await;
    }
}

#[tokio::test]
async fn a_session_that_is_woken_and_ends_before_it_is_counted_does_not_count() {
    for n in 0..LEFT {
        let scene = Scene::new().await;
        let woken = scene.sessions.find(&scene.left[n], &Principal::ANONYMOUS).await.unwrap();
        scene.delete(n).await;
        assert!(woken.is_over());
        scene.is_right(LEFT - 1).await;
    }
}

#[tokio::test]
async fn a_session_that_is_put_back_while_others_are_counted_counts_once() {
    // In front of, between and behind those that are being counted.
    for first in [0x00, 0x40, 0x80, 0xc0, 0xff] {
        let scene = Scene::new().await;
        let mut saved = scene.saved(scene.left[0].key()).await;
        saved.key = SessionKey::from_bytes([first; 16]);
        scene.sessions.adopt(saved, Existing::Keep).await.unwrap();
        scene.is_right(LEFT + 1).await;
    }
}

#[tokio::test]
async fn a_session_that_is_replaced_while_it_is_counted_counts_once() {
    for n in 0..LEFT {
        let scene = Scene::new().await;
        let saved = scene.saved(scene.left[n].key()).await;
        scene.sessions.adopt(saved, Existing::Replace).await.unwrap();
        scene.is_right(LEFT).await;
    }
}

#[tokio::test]
async fn sessions_that_are_created_while_others_are_counted_count_once() {
    let scene = Scene::new().await;
    for _ in 0..3 {
        runtime::session(&scene.sessions, "2025-11-25").await;
    }
    let ended = runtime::session(&scene.sessions, "2025-11-25").await;
    assert!(scene.sessions.revoke(&ended.id().key()).await.unwrap());
    assert_eq!(scene.sessions.tallies().sessions, 3);
    scene.is_right(LEFT + 3).await;
}

#[tokio::test]
async fn a_clock_that_was_set_back_between_two_processes_changes_no_count() {
    let (store, clock): (Arc<dyn Store>, _) = (Arc::new(Memory::new()), Arc::new(HandClock::start()));
    clock.turn(60 * SECOND);
    let earlier = start(Arc::clone(&store), clock);
    let left = runtime::session(&earlier, "2025-11-25").await;
    let sessions = start(store, Arc::new(HandClock::start()));
    let_others_run().await;
    assert_eq!(sessions.tallies().sessions, 1);
    runtime::session(&sessions, "2025-11-25").await;
    sessions.delete(left.id(), &Principal::ANONYMOUS).await.unwrap();
    assert_eq!(sessions.tallies().sessions, 1);
}

#[tokio::test(start_paused = true)]
async fn sessions_that_could_not_be_counted_are_counted_when_the_store_works_again() {
    let (store, clock) = (Arc::new(Faulty::new(Arc::new(Memory::new()))), Arc::new(HandClock::start()));
    let earlier = start(store.inner(), clock.clone());
    let left = runtime::session(&earlier, "2025-11-25").await;
    clock.turn(SECOND);
    store.set_broken(true);
    let sessions = start(store.clone(), clock);
    let_others_run().await;
    store.set_broken(false);
    store.swept().await;
    assert_eq!(sessions.tallies().sessions, 1);
    sessions.delete(left.id(), &Principal::ANONYMOUS).await.unwrap();
    assert_eq!(sessions.tallies().sessions, 0);
}
