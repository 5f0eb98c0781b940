//! What runs in the background goes on after a panic, and it is known that it panicked.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::Reason;
use tenure_session::Limits;
use tenure_session::exchange::ExchangeLimits;
use tenure_session::fingerprint::Fingerprints;
use tenure_session::port::store::{RecordKey, Space};
use tenure_session::state::{StateLimits, States};
use tenure_session::supervise::{LoopState, Loops};
use tenure_session::task::{TaskLimits, Tasks};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::exchanges;
use tenure_testkit::fake_responder::FakeResponder;
use tenure_testkit::faulty::Faulty;

use crate::runtime::support::World;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn limits() -> Limits {
    Limits {
        idle_ttl: Some(10 * MINUTE),
        max_lifetime: None,
        dormant_after: None,
        tombstone_ttl: 60 * MINUTE,
        ..Limits::default()
    }
}

/// The restarts of a loop.
fn restarts(loops: &Loops, name: &str) -> u64 {
    let list = loops.list();
    list.iter().find(|info| info.name == name).unwrap_or_else(|| panic!("{name} in {list:?}")).restarts
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_is_swept_though_the_sweep_panicked() {
    let world = World::with(limits());
    let session = world.session().await;
    // Only the store knows it now, so only the sweep can end it.
    let world = world.killed(limits());
    assert!(world.sessions.store_trouble().is_none());
    tokio::time::sleep(19 * MINUTE).await;
    assert_eq!(world.sessions.tallies().sessions, 1);
    world.store.panic_at_next_look(Space::Session);
    tokio::time::timeout(2 * MINUTE, async {
        while world.sessions.loops().state() == LoopState::Well {
            tokio::time::sleep(SECOND / 10).await;
        }
    })
    .await
    .expect("somebody notices");
    let LoopState::Down(words) = world.sessions.loops().state() else { panic!("down for a moment") };
    assert_eq!(words, "the loop `sweep of sessions` panicked once and waits to be started again");
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(world.sessions.tallies().sessions, 0, "the loop goes on");
    assert_eq!(world.find(&session).await.unwrap_err().reason(), Reason::SessionExpired);
    assert_eq!(restarts(world.sessions.loops(), "sweep of sessions"), 1);
    assert_eq!(restarts(world.sessions.loops(), "deadlines of sessions"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_in_memory_expires_though_the_look_at_it_panicked_and_holds_up_no_other() {
    let world = World::with(limits());
    // Apart from the sweep, which looks at the clock every 75 seconds from the start.
    tokio::time::sleep(10 * SECOND).await;
    let _first = world.session().await;
    tokio::time::sleep(SECOND).await;
    let second = world.session().await;
    tokio::time::sleep(594 * SECOND).await;
    world.clock.panic_once();
    tokio::time::sleep(15 * SECOND).await;
    assert!(second.is_over(), "the loop goes on, and this one did not panic");
    assert_eq!(restarts(world.sessions.loops(), "deadlines of sessions"), 1);
    assert!(matches!(world.sessions.loops().state(), LoopState::Restarted(_)));
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(world.sessions.tallies().sessions, 0, "the other one is looked at again");
    tokio::time::sleep(5 * MINUTE).await;
    assert_eq!(world.sessions.loops().state(), LoopState::Well, "after a while there is nothing to tell");
    assert_eq!(restarts(world.sessions.loops(), "deadlines of sessions"), 1, "but the count stays");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_a_sweep_panics_at_holds_up_no_other() {
    let world = World::with(limits());
    let poisoned = world.session().await;
    tokio::time::sleep(SECOND).await;
    let other = world.session().await;
    let world = world.killed(limits());
    // It is due first, so the sweep comes to it first, each time.
    world.store.panic_at_reads_of(RecordKey::session(poisoned.id().key()));
    tokio::time::sleep(30 * MINUTE).await;
    assert_eq!(world.sessions.tallies().sessions, 1, "the other one is swept");
    assert_eq!(world.find(&other).await.unwrap_err().reason(), Reason::SessionExpired);
    assert_eq!(restarts(world.sessions.loops(), "sweep of sessions"), 1, "and the loop panics no more");
}

#[tokio::test(start_paused = true)]
async fn every_other_sweep_goes_on_after_a_panic_too() {
    /// A store that panics at the first look at what is due in a space.
    fn panicking(space: Space) -> Arc<Faulty> {
        let store = Arc::new(Faulty::new(Arc::new(Memory::new())));
        store.panic_at_next_look(space);
        store
    }
    async fn goes_on(store: &Faulty, loops: &Loops, name: &str) {
        let swept = tokio::time::timeout(10 * MINUTE, store.swept()).await;
        assert!(swept.is_ok(), "the {name} goes on");
        assert_eq!(restarts(loops, name), 1);
    }
    let clock = Arc::new(TurnableClock::start());
    let store = panicking(Space::State);
    let states = States::start(store.clone(), clock.clone(), StateLimits::default());
    goes_on(&store, states.loops(), "sweep of data sessions").await;
    let (kept, notes) = (panicking(Space::Task), panicking(Space::Call));
    let tasks = Tasks::start(kept.clone(), clock, TaskLimits::default());
    let exchanges = exchanges::start(FakeResponder::new().0, ExchangeLimits::of(&Limits::default()))
        .with_store(notes.clone(), Fingerprints::default())
        .with_tasks(tasks);
    goes_on(&kept, exchanges.loops(), "sweep of tasks").await;
    goes_on(&notes, exchanges.loops(), "sweep of kept calls").await;
}
