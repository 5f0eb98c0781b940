//! Handshakes that their clients do not go on with: they keep their place for a short time alone.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Method, Notification, Reason, Response};
use tenure_session::budget::{Budget, BudgetLimits, Peer, Resource};
use tenure_session::limits::Gate;
use tenure_session::port::store::Store;
use tenure_session::settings::IdleTtl;
use tenure_session::{Limits, Principal, Session};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::runtime;

use crate::runtime::support::{World, request, settle};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits { handshake_ttl: Some(MINUTE), max_lifetime: None, dormant_after: None, ..Limits::default() }
}

/// A session whose client has said `initialize` and nothing else.
async fn begun(world: &World) -> Arc<Session> {
    let request = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    let created = world.sessions.create(request, &Principal::ANONYMOUS).await.unwrap();
    created.session.unwrap()
}

async fn reason(world: &World, session: &Session) -> Option<Reason> {
    world.find(session).await.err().map(|error| error.reason())
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_handshake_gives_its_place_back() {
    let world = World::with(limits());
    let budget = Budget::new(BudgetLimits::default());
    let share = budget.share(Peer::UNKNOWN);
    let initialize = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    let created = world.sessions.create_within(share, initialize, &Principal::ANONYMOUS).await.unwrap();
    drop(created.in_use);
    let session = created.session.unwrap();
    tokio::time::sleep(59 * SECOND).await;
    assert!(!session.is_over());
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(reason(&world, &session).await, Some(Reason::SessionExpired));
    assert_eq!(world.sessions.tallies().sessions, 0);
    drop((session, created.answer));
    settle().await;
    assert_eq!(budget.usage()[Resource::Sessions as usize].used, 0);
}

/// What a client may do first, whether or not it is allowed.
#[derive(Clone, Copy, Debug)]
enum First {
    Initialized,
    Cancelled,
    Ping,
    Refused,
    Answer,
    Stream,
}

impl First {
    const ALL: [Self; 6] =
        [Self::Initialized, Self::Cancelled, Self::Ping, Self::Refused, Self::Answer, Self::Stream];

    async fn done(self, session: &Arc<Session>) {
        match self {
            Self::Initialized => say(session, Method::Initialized),
            Self::Cancelled => say(session, Method::Cancelled),
            Self::Ping => drop(request(session, 1, "ping").await.unwrap()),
            Self::Refused => {
                let refused = request(session, 1, "tools/list").await.unwrap_err();
                assert_eq!(refused.reason(), Reason::NotInitialized);
            }
            Self::Answer => {
                let id = tenure_protocol::RequestId::from_number(77);
                let result = Ok(tenure_protocol::RawJson::EMPTY_OBJECT);
                session.response(Response { id, outcome: result }).unwrap();
            }
            Self::Stream => drop(session.listen(None).await.unwrap()),
        }
    }
}

fn say(session: &Arc<Session>, method: Method) {
    session.notification(Notification { method, params: None }).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_was_heard_of_has_as_long_as_any_other() {
    for first in First::ALL {
        let world = World::with(limits());
        let session = begun(&world).await;
        tokio::time::sleep(50 * SECOND).await;
        first.done(&session).await;
        tokio::time::sleep(29 * MINUTE).await;
        assert!(!session.is_over(), "{first:?}");
        tokio::time::sleep(2 * MINUTE).await;
        assert!(session.is_over(), "{first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_only_listens_keeps_its_session() {
    let world = World::with(limits());
    let session = begun(&world).await;
    let reader = session.listen(None).await.unwrap();
    tokio::time::sleep(300 * MINUTE).await;
    assert!(!session.is_over());
    drop(reader);
    tokio::time::sleep(29 * MINUTE).await;
    assert!(!session.is_over());
}

// Clients that leave `notifications/initialized` out are let in by the gate; that they came at all says nothing.
#[tokio::test(start_paused = true)]
async fn where_requests_wait_for_nothing_a_first_one_is_waited_for_all_the_same() {
    let world = World::with(Limits { gate: Gate::Lenient, ..limits() });
    let (silent, used) = (begun(&world).await, begun(&world).await);
    drop(request(&used, 1, "ping").await.unwrap());
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!((silent.is_over(), used.is_over()), (true, false));
}

async fn outlives_a_kill_only_if_it_was_used(store: Arc<dyn Store>) {
    let mut world = World::on(store, limits());
    let silent = begun(&world).await;
    let mut used = Vec::new();
    for first in First::ALL {
        let session = begun(&world).await;
        first.done(&session).await;
        session.saved().await;
        used.push((first, session));
    }
    // The next process has another idle time: what follows the limits follows it, and a handshake does not.
    world.kill(Limits { idle_ttl: Some(20 * MINUTE), ..limits() });
    world.clock.set_ahead(2 * MINUTE);
    assert_eq!(reason(&world, &silent).await, Some(Reason::SessionExpired));
    world.clock.set_ahead(17 * MINUTE);
    for (first, session) in &used {
        assert_eq!(reason(&world, session).await, None, "{first:?}");
    }
}

#[tokio::test]
async fn a_stored_handshake_outlives_a_kill_only_if_it_was_used() {
    outlives_a_kill_only_if_it_was_used(Arc::new(Memory::new())).await;
}

#[tokio::test]
async fn a_stored_handshake_outlives_a_kill_only_if_it_was_used_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = Disk::open(&folder.path().join("store"), Sync::Os).unwrap();
    outlives_a_kill_only_if_it_was_used(Arc::new(store)).await;
}

#[tokio::test(start_paused = true)]
async fn a_stored_handshake_is_swept_away() {
    let mut world = World::with(limits());
    drop(begun(&world).await);
    world.kill(limits());
    tokio::time::sleep(SECOND).await;
    assert_eq!(world.sessions.tallies().sessions, 1);
    tokio::time::sleep(6 * MINUTE).await;
    assert_eq!(world.sessions.tallies().sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_sleeps_has_no_more_time_and_one_that_is_woken_has() {
    let world = World::with(Limits { dormant_after: Some(20 * SECOND), ..limits() });
    // No handle holds them, so that they can sleep.
    let (silent, back) = (*begun(&world).await.id(), *begun(&world).await.id());
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!((world.sessions.tallies().sessions, world.sessions.tallies().awake), (2, 0));
    world.sessions.find(&back, &Principal::ANONYMOUS).await.unwrap();
    tokio::time::sleep(31 * SECOND).await;
    let gone = world.sessions.find(&silent, &Principal::ANONYMOUS).await.unwrap_err();
    assert_eq!(gone.reason(), Reason::SessionExpired);
    tokio::time::sleep(20 * MINUTE).await;
    world.sessions.find(&back, &Principal::ANONYMOUS).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_time_of_its_own_and_no_limit_at_all_leave_a_handshake_alone() {
    let world = World::with(limits());
    let own = begun(&world).await;
    own.set_ttl(IdleTtl::After(10 * MINUTE)).await.unwrap();
    let unlimited = World::with(Limits { handshake_ttl: None, ..limits() });
    let plain = begun(&unlimited).await;
    tokio::time::sleep(9 * MINUTE).await;
    assert_eq!((own.is_over(), plain.is_over()), (false, false));
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!((own.is_over(), plain.is_over()), (true, false));
}

#[tokio::test(start_paused = true)]
async fn the_first_message_costs_one_write_and_the_next_ones_none() {
    let world = World::with(limits());
    let session = begun(&world).await;
    let version = || session.info().version.0;
    let begun = version();
    session.touch();
    say(&session, Method::Initialized);
    session.saved().await;
    assert_eq!(version() - begun, 1, "what was heard, and what was said");
    for n in 0..10 {
        drop(request(&session, n, "ping").await.unwrap());
    }
    session.saved().await;
    assert_eq!(version() - begun, 1);
}
