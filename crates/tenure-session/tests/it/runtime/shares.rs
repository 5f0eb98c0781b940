//! What sessions take from the shares of those who begin and wake them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Error, Method, Notification, RawJson, Reason};
use tenure_session::budget::{Budget, BudgetLimits, Peer, Resource};
use tenure_session::call::Outlet;
use tenure_session::{Limits, Principal, Session};
use tenure_testkit::runtime::{self, event};

use crate::runtime::support::World;

const MINUTE: Duration = Duration::from_secs(60);
const KIB: usize = 1 << 10;

fn memory(total: usize) -> Budget {
    Budget::new(BudgetLimits::default().with(Resource::Memory, total).with_share(50))
}

fn memory_used(budget: &Budget) -> usize {
    budget.usage()[Resource::Memory as usize].used
}

/// A session of this client's, and the outlet of its server.
async fn begun(world: &mut World, budget: &Budget, last: u8) -> (Arc<Session>, Outlet) {
    let share = budget.share(Peer::at([127, 0, 0, last].into()));
    let initialize = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
    let created = world.sessions.create_within(share, initialize, &Principal::ANONYMOUS).await.unwrap();
    let session = created.session.unwrap();
    session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
    (session, world.script.opened().await.outlet.clone())
}

/// Twenty kilobytes of news.
async fn announce(outlet: &Outlet) -> Result<(), Error> {
    let params = RawJson::of(&json!({ "level": "info", "data": "x".repeat(20 * KIB) }));
    outlet.notify(&Method::LogMessage, Some(&params)).await
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_woken_is_charged_to_the_peer_that_wakes_it() {
    let limits = Limits { dormant_after: Some(MINUTE), ..Limits::default() };
    let mut world = World::with(limits.clone());
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(*world.session().await.id());
    }
    world.kill(limits);
    let budget = Budget::new(BudgetLimits::default().with(Resource::Sessions, 4).with_share(50));
    let used = |resource: Resource| budget.usage()[resource as usize].used;
    let wake = async |last: u8, number: usize| {
        let share = || Some(budget.share(Peer::at([127, 0, 0, last].into())));
        let found = world.sessions.find_within(share, &ids[number], &Principal::ANONYMOUS).await;
        found.map(drop).map_err(|error| error.reason())
    };
    assert_eq!(wake(2, 0).await, Ok(()));
    assert!(used(Resource::Memory) > 100, "the params of initialize");
    assert_eq!((wake(2, 1).await, used(Resource::Sessions)), (Ok(()), 2));
    assert_eq!(wake(2, 2).await, Err(Reason::TooManySessionsOfPrincipal));
    assert_eq!((world.sessions.tallies().awake, world.sessions.tallies().sessions), (2, 3));
    // It sleeps on, and somebody else may wake it. Those that are awake are charged no more.
    assert_eq!((wake(1, 2).await, wake(1, 0).await, wake(2, 2).await), (Ok(()), Ok(()), Ok(())));
    assert_eq!(used(Resource::Sessions), 3);
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(world.sessions.tallies().awake, 0);
    assert_eq!((used(Resource::Sessions), used(Resource::Memory)), (0, 0));
}

#[tokio::test]
async fn events_that_wait_for_a_reader_take_memory_in_blocks_and_give_it_back() {
    let (mut world, budget) = (World::new(), memory(4096 * KIB));
    let (session, outlet) = begun(&mut world, &budget, 1).await;
    let before = memory_used(&budget);
    let mut reader = session.listen(None).await.unwrap();
    for _ in 0..3 {
        announce(&outlet).await.unwrap();
    }
    assert_eq!(memory_used(&budget), before, "a few wait uncounted");
    for _ in 0..7 {
        announce(&outlet).await.unwrap();
    }
    assert_eq!(memory_used(&budget) - before, 192 * KIB);
    for _ in 0..10 {
        event(&mut reader).await.unwrap();
    }
    assert_eq!(memory_used(&budget), before);
    for _ in 0..10 {
        announce(&outlet).await.unwrap();
    }
    drop(reader);
    assert_eq!(memory_used(&budget), before, "what its reader left is in the log");
}

#[tokio::test]
async fn a_reader_of_a_client_that_holds_too_much_reads_from_the_log_and_misses_nothing() {
    let (mut world, budget) = (World::new(), memory(256 * KIB));
    let (session, outlet) = begun(&mut world, &budget, 1).await;
    let mut reader = session.listen(None).await.unwrap();
    for _ in 0..40 {
        announce(&outlet).await.unwrap();
        assert!(memory_used(&budget) < 128 * KIB, "{}", memory_used(&budget));
    }
    for _ in 0..40 {
        event(&mut reader).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_wait_for_the_store_hold_up_the_servers_of_their_own_client() {
    let (mut world, budget) = (World::new(), memory(256 * KIB));
    let (_session, outlet) = begun(&mut world, &budget, 1).await;
    let (_others, others_outlet) = begun(&mut world, &budget, 2).await;
    let before = memory_used(&budget);
    world.store.hold_appends();
    let mut said = 0;
    while tokio::time::timeout(MINUTE, announce(&outlet)).await.is_ok() {
        said += 1;
    }
    assert!((5..10).contains(&said), "{said}, and 200 without a share");
    for _ in 0..3 {
        tokio::time::timeout(MINUTE, announce(&others_outlet)).await.unwrap().unwrap();
    }
    world.store.release_appends();
    tokio::time::timeout(MINUTE, announce(&outlet)).await.unwrap().unwrap();
    crate::runtime::support::settle().await;
    assert_eq!(memory_used(&budget), before);
}
