//! Clients that hang up while a session is created, ended or put back: whatever the moment, the count says how many
//! sessions there are, and nothing is left of one that its client never heard of.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Error, Notification, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened};
use tenure_session::port::BoxFuture;
use tenure_session::port::store::{RecordKey, Space, Store};
use tenure_session::record::StoredSession;
use tenure_session::session::{Existing, SavedSession, SessionParts};
use tenure_session::{Limits, Principal, SessionId, Sessions};
use tenure_store::copy::save_log;
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::late::{Late, leave_after, let_others_run};
use tenure_testkit::runtime;

/// More steps than anything here takes.
const MANY: usize = 60;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A server that takes a few turns to start, and counts how many of it run.
#[derive(Default)]
struct Servers(Arc<AtomicUsize>);

/// One that runs until this is dropped, or its link is closed.
struct Running(Arc<AtomicUsize>);

impl Backend for Servers {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let result = RawJson::of(&json!({ "protocolVersion": open.revision.as_str(), "capabilities": {} }));
        self.0.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.0));
        Box::pin(async move {
            let_others_run().await;
            Ok(Opened { link: Box::new(running), result })
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Link for Running {
    fn call(&self, _: Call) -> BoxFuture<Reply> {
        Box::pin(async { Ok(RawJson::EMPTY_OBJECT) })
    }

    fn notify(&self, _: Notification) {}

    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// A process, on a store whose writes take effect when they are let go.
struct Scene {
    sessions: Sessions,
    late: Arc<Late>,
    clock: Arc<HandClock>,
    running: Arc<AtomicUsize>,
    /// A session that an earlier process left.
    dormant: SessionId,
    /// A session in memory.
    live: SessionId,
    /// The name of one that is yet to be.
    new: SessionId,
}

impl Scene {
    async fn new() -> Self {
        let (late, clock) = (Arc::new(Late::new(Arc::new(Memory::new()))), Arc::new(HandClock::start()));
        let dormant = *runtime::session(&start(&late, &clock, Servers::default()), "2025-11-25").await.id();
        clock.turn(Duration::from_secs(1));
        let servers = Servers::default();
        let running = Arc::clone(&servers.0);
        let sessions = start(&late, &clock, servers);
        let live = *runtime::session(&sessions, "2025-11-25").await.id();
        // The session of the earlier process is counted.
        let_others_run().await;
        assert_eq!(sessions.tallies().sessions, 2);
        Self { sessions, late, clock, running, dormant, live, new: SessionId::random() }
    }

    async fn create(&self) -> Result<(), Error> {
        let request = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
        let created = self.sessions.create_as(self.new, request, &Principal::ANONYMOUS, None).await?;
        assert!(created.session.is_some());
        Ok(())
    }

    /// How many sessions the store has.
    async fn there(&self) -> usize {
        let records = self.late.list(Space::Session, None, 100).await.unwrap();
        let is_session = |value| matches!(StoredSession::decode(value), Ok(StoredSession::Session(_)));
        records.iter().filter(|(_, record)| is_session(&record.value)).count()
    }
}

fn start(late: &Arc<Late>, clock: &Arc<HandClock>, servers: Servers) -> Sessions {
    Sessions::start(SessionParts {
        store: late.clone(),
        backend: Arc::new(servers),
        clock: clock.clone(),
        limits: Limits::default(),
        roster: None,
    })
}

/// Whether the caller was answered before it could leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Caller {
    Answered,
    Left,
}

/// Lets a caller leave at every moment there is, and checks the outcome each time.
async fn at_every_moment(call: impl AsyncFn(&Scene), check: impl AsyncFn(&Scene, Caller)) {
    for steps in 0..MANY {
        let scene = Scene::new().await;
        scene.late.hold();
        let answer = leave_after(steps, &scene.late, call(&scene)).await;
        scene.late.let_go().await;
        let_others_run().await;
        let counted = scene.sessions.tallies().sessions;
        assert_eq!(counted, scene.there().await, "the caller left after {steps} steps");
        let caller = if answer.is_some() { Caller::Answered } else { Caller::Left };
        check(&scene, caller).await;
        if caller == Caller::Answered {
            assert!(steps > 2, "nothing was waited for, so nothing was tried");
            return;
        }
    }
    panic!("the caller is never answered");
}

#[tokio::test]
async fn a_session_whose_client_leaves_before_it_is_told_leaves_nothing_behind() {
    let create = async |scene: &Scene| scene.create().await.unwrap();
    at_every_moment(create, async |scene: &Scene, caller| {
        let is_there = caller == Caller::Answered;
        let key = scene.new.key();
        assert_eq!(scene.late.get(RecordKey::session(key)).await.unwrap().is_some(), is_there);
        assert_eq!(scene.late.owner(key).await.unwrap().is_some(), is_there, "its claim is given back");
        let servers = 1 + usize::from(is_there);
        assert_eq!(scene.running.load(Ordering::SeqCst), servers, "its server is let go");
        assert_eq!(scene.sessions.tallies().awake, servers);
    })
    .await;
}

#[tokio::test]
async fn a_dormant_session_whose_client_leaves_counts_as_long_as_it_is_there() {
    let delete = async |scene: &Scene| {
        scene.sessions.delete(&scene.dormant, &Principal::ANONYMOUS).await.unwrap();
    };
    at_every_moment(delete, async |scene: &Scene, _| {
        let ended = scene.there().await == 1;
        assert_eq!(scene.sessions.tallies().ended, u64::from(ended));
        let owner = scene.late.owner(scene.dormant.key()).await.unwrap();
        assert_eq!(owner.is_none(), ended, "its events go with it");
    })
    .await;
}

#[tokio::test]
async fn a_dormant_session_whose_operator_leaves_counts_as_long_as_it_is_there() {
    let revoke = async |scene: &Scene| {
        assert!(scene.sessions.revoke(&scene.dormant.key()).await.unwrap());
    };
    at_every_moment(revoke, async |_: &Scene, _| {}).await;
}

#[tokio::test]
async fn a_session_that_is_found_expired_counts_as_long_as_it_is_there() {
    let find = async |scene: &Scene| {
        scene.clock.turn(10 * HOUR);
        let error = scene.sessions.find(&scene.dormant, &Principal::ANONYMOUS).await.unwrap_err();
        assert_eq!(error.reason(), Reason::SessionExpired);
    };
    at_every_moment(find, async |_: &Scene, _| {}).await;
}

#[tokio::test]
async fn a_live_session_ends_once_that_was_begun() {
    let delete = async |scene: &Scene| {
        scene.sessions.delete(&scene.live, &Principal::ANONYMOUS).await.unwrap();
    };
    at_every_moment(delete, async |scene: &Scene, _| {
        let ended = usize::try_from(scene.sessions.tallies().ended).unwrap();
        assert_eq!((scene.there().await, scene.running.load(Ordering::SeqCst)), (2 - ended, 1 - ended));
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_put_back_counts_also_if_its_operator_leaves() {
    let adopt = async |scene: &Scene| {
        let mut saved = saved(scene).await;
        saved.key = scene.new.key();
        scene.sessions.adopt(saved, Existing::Keep).await.unwrap();
    };
    at_every_moment(adopt, async |_: &Scene, _| {}).await;
}

#[tokio::test]
async fn a_session_that_is_replaced_counts_once_also_if_its_operator_leaves() {
    let replace = async |scene: &Scene| {
        let saved = saved(scene).await;
        scene.sessions.adopt(saved, Existing::Replace).await.unwrap();
    };
    at_every_moment(replace, async |scene: &Scene, _| {
        assert_eq!(scene.there().await, 2, "a replacement that was begun is done");
    })
    .await;
}

/// The dormant session, as the store has it.
async fn saved(scene: &Scene) -> SavedSession {
    let (store, key) = (scene.late.as_ref(), scene.dormant.key());
    let record = store.get(RecordKey::session(key)).await.unwrap().unwrap();
    let log = save_log(store, key).await.unwrap();
    SavedSession { key, record: record.value, deadline: record.deadline, log }
}

#[tokio::test]
async fn metadata_that_were_written_are_those_of_the_session_also_if_their_writer_leaves() {
    let change = async |scene: &Scene| {
        let session = scene.sessions.find(&scene.live, &Principal::ANONYMOUS).await.unwrap();
        session
            .update_metadata(|metadata| drop(metadata.insert("colour".into(), "red".into())))
            .await
            .unwrap();
    };
    at_every_moment(change, async |scene: &Scene, _| {
        let session = scene.sessions.find(&scene.live, &Principal::ANONYMOUS).await.unwrap();
        let record = scene.late.get(RecordKey::session(scene.live.key())).await.unwrap().unwrap();
        let Ok(StoredSession::Session(kept)) = StoredSession::decode(&record.value) else {
            panic!("a session")
        };
        assert_eq!(session.metadata(), (kept.metadata, record.version));
    })
    .await;
}

#[tokio::test]
async fn a_name_that_is_taken_is_refused_and_its_session_stays_whole() {
    let scene = Scene::new().await;
    let key = scene.live.key();
    let session = scene.sessions.find(&scene.live, &Principal::ANONYMOUS).await.unwrap();
    scene.sessions.fanout().list_changed(tenure_session::call::News::Tools);
    let_others_run().await;
    let (before, owner) = (save_log(scene.late.as_ref(), key).await.unwrap(), scene.late.owner(key).await);
    assert_eq!(before.streams.len(), 1, "it has something to lose");
    for taken in [scene.live, scene.dormant] {
        let request = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
        let refused =
            scene.sessions.create_as(taken, request, &Principal::ANONYMOUS, None).await.unwrap_err();
        assert_eq!(refused.reason(), Reason::StoreUnavailable);
    }
    let_others_run().await;
    assert_eq!(save_log(scene.late.as_ref(), key).await.unwrap(), before, "its events are there");
    assert_eq!(scene.late.owner(key).await, owner);
    assert!(!session.is_over());
    assert_eq!(scene.sessions.tallies().sessions, 2);
}
