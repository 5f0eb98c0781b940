//! Expiry: by want of use, by age, never before what was promised, and without a write per use.

use std::time::Duration;

use tenure_session::state::{Lost, NewState, StateLimits};

use crate::state::support::{
    Engine, HOUR, MINUTE, SECOND, World, ann, holding, increment, lost, number, on_every_engine,
};

on_every_engine!(
    an_unused_state_expires,
    every_use_puts_off_the_expiry,
    a_use_is_written_down_at_most_once_in_a_sixteenth_of_the_idle_time,
    a_state_grows_only_so_old,
    a_state_may_have_its_own_times,
    a_state_without_limits_never_expires,
);

pub(crate) fn limits(idle: Option<Duration>, lifetime: Option<Duration>) -> StateLimits {
    StateLimits { idle_ttl: idle, max_lifetime: lifetime, ..StateLimits::default() }
}

async fn an_unused_state_expires(engine: Engine) {
    let world = World::with(engine, limits(Some(16 * MINUTE), None));
    let state = world.make(&ann(), "1").await;
    assert_eq!(state.expiry(), Some(world.now().after(16 * MINUTE)));
    // A little more than is promised, by at most a sixteenth.
    world.clock.turn(17 * MINUTE);
    assert!(!state.is_alive());
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Expired);
    assert_eq!(lost(increment(&state).await), Lost::Expired);
    assert!(world.states.list(&ann(), None, 10).await.unwrap().states.is_empty());
    // It can still be recovered, so it counts.
    world.store.swept().await;
    assert_eq!(world.states.count(), 1);
}

async fn every_use_puts_off_the_expiry(engine: Engine) {
    let world = World::with(engine, limits(Some(16 * MINUTE), None));
    let state = world.make(&ann(), "1").await;
    for _ in 0..10 {
        world.clock.turn(15 * MINUTE);
        let found = world.states.find(&ann(), state.id()).await.unwrap();
        assert_eq!(found.expiry(), Some(world.now().after(16 * MINUTE)));
        assert!(found.was_written());
    }
    for n in 2..12 {
        world.clock.turn(16 * MINUTE - Duration::from_millis(1));
        assert_eq!(increment(&state).await.unwrap(), n, "a change is a use");
        assert_eq!(state.expiry(), Some(world.now().after(16 * MINUTE)));
    }
    world.clock.turn(16 * MINUTE - Duration::from_millis(1));
    let (found, recovered) = world.states.recover(&ann(), state.id()).await.unwrap();
    assert!(!recovered, "it was not over");
    world.clock.turn(15 * MINUTE);
    assert!(found.is_alive());
}

async fn a_use_is_written_down_at_most_once_in_a_sixteenth_of_the_idle_time(engine: Engine) {
    let world = World::with(engine, limits(Some(16 * MINUTE), None));
    let state = world.make(&ann(), "1").await;
    let made = world.store.puts();
    for _ in 0..1_000 {
        let found = world.states.find(&ann(), state.id()).await.unwrap();
        assert!(!found.was_written());
        world.clock.turn(Duration::from_millis(60));
    }
    assert_eq!(world.store.puts(), made, "within a minute nothing is written");
    for _ in 0..32 * 60 {
        world.clock.turn(SECOND);
        let found = world.states.find(&ann(), state.id()).await.unwrap();
        assert_eq!(found.expiry(), Some(world.now().after(16 * MINUTE)));
    }
    let written = world.store.puts() - made;
    assert!((16..=32).contains(&written), "{written} writes in 32 minutes");
    // Nor twice for a use that changes something.
    let puts = world.store.puts();
    world.clock.turn(10 * MINUTE);
    let mut held = world.states.find(&ann(), state.id()).await.unwrap();
    for _ in 0..10 {
        increment(&held).await.unwrap();
        held = world.states.find(&ann(), state.id()).await.unwrap();
    }
    assert_eq!((number(&held), world.store.puts() - puts), (11, 11));
}

async fn a_state_grows_only_so_old(engine: Engine) {
    let world = World::with(engine, limits(Some(16 * MINUTE), Some(HOUR)));
    let state = world.make(&ann(), "1").await;
    let end = world.now().after(HOUR);
    for _ in 0..59 {
        world.clock.turn(MINUTE);
        let expiry = world.states.find(&ann(), state.id()).await.unwrap().expiry();
        assert_eq!(expiry, Some(end.min(world.now().after(16 * MINUTE))));
    }
    world.clock.turn(MINUTE - Duration::from_millis(1));
    assert_eq!(increment(&state).await.unwrap(), 2);
    world.clock.turn(Duration::from_millis(1));
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Expired);
    assert_eq!(lost(increment(&state).await), Lost::Expired);
}

async fn a_state_may_have_its_own_times(engine: Engine) {
    let world = World::with(engine, limits(Some(16 * MINUTE), None));
    let new = NewState { idle_ttl: Some(MINUTE), max_lifetime: Some(2 * MINUTE), ..holding("1") };
    let state = world.states.create(&ann(), new).await.unwrap();
    assert_eq!(state.expiry(), Some(world.now().after(MINUTE)));
    world.clock.turn(59 * SECOND);
    world.states.find(&ann(), state.id()).await.unwrap();
    world.clock.turn(59 * SECOND);
    let found = world.states.find(&ann(), state.id()).await.unwrap();
    assert_eq!(found.expiry(), Some(world.now().after(2 * SECOND)));
    let child = found.fork(None).await.unwrap();
    world.clock.turn(2 * SECOND);
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Expired);
    let child = world.states.find(&ann(), child.id()).await.unwrap();
    assert_eq!(
        child.expiry(),
        Some(world.now().after(MINUTE)),
        "a fork has its parent's times, from its start"
    );
    world.clock.turn(5 * MINUTE);
    assert_eq!(lost(world.states.find(&ann(), child.id()).await), Lost::Expired);
}

async fn a_state_without_limits_never_expires(engine: Engine) {
    let world = World::with(engine, limits(None, None));
    let state = world.make(&ann(), "1").await;
    assert_eq!(state.expiry(), None);
    let puts = world.store.puts();
    world.clock.turn(100_000 * HOUR);
    world.store.swept().await;
    let found = world.states.find(&ann(), state.id()).await.unwrap();
    assert_eq!((found.expiry(), world.store.puts()), (None, puts));
}
