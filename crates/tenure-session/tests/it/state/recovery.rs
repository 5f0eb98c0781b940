//! What becomes of states that are over: recovered while that is possible, remembered for a while, then removed.

use std::time::Duration;

use tenure_protocol::Reason;
use tenure_session::state::{Lost, StateLimits};

use crate::state::support::{
    Engine, HOUR, MINUTE, SECOND, World, ann, bob, increment, lost, number, on_every_engine,
};

on_every_engine!(
    what_expired_for_want_of_use_can_be_recovered_for_a_while,
    what_was_ended_or_grew_too_old_is_never_recovered,
    tombstones_vanish_in_the_end,
    a_crowd_is_removed_when_it_is_due,
    what_is_used_meanwhile_is_not_removed,
    what_an_earlier_process_left_is_counted_and_removed,
);

fn limits() -> StateLimits {
    StateLimits {
        idle_ttl: Some(16 * MINUTE),
        max_lifetime: None,
        retention: 24 * HOUR,
        tombstone_ttl: HOUR,
        ..StateLimits::default()
    }
}

/// After this time an unused state is over for certain.
const OVER: Duration = Duration::from_secs(17 * 60);

async fn what_expired_for_want_of_use_can_be_recovered_for_a_while(engine: Engine) {
    let world = World::with(engine, limits());
    let state = world.make(&ann(), "1").await;
    increment(&state).await.unwrap();
    world.clock.turn(OVER + 24 * HOUR - Duration::from_millis(1));
    world.store.swept().await;
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Expired);
    let (found, recovered) = world.states.recover(&ann(), state.id()).await.unwrap();
    assert!(recovered && found.is_alive());
    assert_eq!((number(&found), found.expiry()), (2, Some(world.now().after(16 * MINUTE))));
    let found = world.states.find(&ann(), state.id()).await.unwrap();
    assert_eq!(increment(&found).await.unwrap(), 3);
    assert_eq!(world.states.count(), 1);
    world.clock.turn(OVER + 24 * HOUR);
    // Also if its record is not removed yet.
    assert_eq!(lost(world.states.recover(&ann(), state.id()).await), Lost::NotFound);
    world.store.swept().await;
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::NotFound);
    assert_eq!(lost(world.states.recover(&ann(), state.id()).await), Lost::NotFound);
    assert_eq!(lost(increment(&found).await), Lost::NotFound);
    assert_eq!(world.states.count(), 0);
    assert!(world.states.list_all(None, 10).await.unwrap().states.is_empty(), "it leaves nothing");
}

async fn what_was_ended_or_grew_too_old_is_never_recovered(engine: Engine) {
    let world = World::with(engine, StateLimits { max_lifetime: Some(HOUR), ..limits() });
    let (deleted, revoked, old) =
        (world.make(&ann(), "1").await, world.make(&ann(), "2").await, world.make(&ann(), "3").await);
    deleted.delete().await.unwrap();
    revoked.revoke().await.unwrap();
    // Over for want of use is not over by age: it comes back, but not beyond its age.
    world.clock.turn(OVER);
    assert!(world.states.recover(&ann(), old.id()).await.unwrap().1);
    world.clock.turn(HOUR - OVER - Duration::from_millis(1));
    let over = [(&deleted, Lost::Deleted), (&revoked, Lost::Revoked)];
    for (state, why) in over {
        assert_eq!(lost(world.states.recover(&ann(), state.id()).await), why);
    }
    assert!(world.states.recover(&ann(), old.id()).await.unwrap().1);
    world.clock.turn(Duration::from_millis(1));
    assert_eq!(lost(world.states.recover(&ann(), old.id()).await), Lost::Expired);
    world.store.swept().await;
    assert_eq!(lost(world.states.recover(&ann(), old.id()).await), Lost::Expired);
    let all = world.states.list_all(None, 10).await.unwrap().states;
    let [left] = &all[..] else { panic!("only one is remembered: {all:?}") };
    assert_eq!((left.end, left.bytes, left.id.is_none()), (Some(Reason::SessionExpired), 0, true));
    assert_eq!(world.states.count(), 0);
}

async fn tombstones_vanish_in_the_end(engine: Engine) {
    let world = World::with(engine, limits());
    let state = world.make(&ann(), "1").await;
    world.clock.turn(MINUTE);
    state.delete().await.unwrap();
    world.clock.turn(HOUR - Duration::from_millis(1));
    world.store.swept().await;
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Deleted);
    world.clock.turn(Duration::from_millis(1));
    world.store.swept().await;
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::NotFound);
    assert_eq!(lost(state.delete().await), Lost::NotFound);
    assert!(world.states.list_all(None, 10).await.unwrap().states.is_empty());
}

async fn a_crowd_is_removed_when_it_is_due(engine: Engine) {
    let world = World::with(engine, limits());
    let owners = [ann(), bob()];
    let mut kept = Vec::new();
    for n in 0..700 {
        let state = world.make(&owners[n % 2], "1").await;
        match n % 7 {
            0 => kept.push((n, state)),
            1 => state.delete().await.unwrap(),
            _ => {}
        }
    }
    assert_eq!(world.states.count(), 600);
    world.clock.turn(HOUR);
    world.store.swept().await;
    assert_eq!(
        world.states.list_all(None, 1_000).await.unwrap().states.len(),
        600,
        "the tombstones are gone"
    );
    for (n, state) in &kept {
        world.states.recover(&owners[n % 2], state.id()).await.unwrap();
    }
    world.clock.turn(24 * HOUR);
    world.store.swept().await;
    let all = world.states.list_all(None, 1_000).await.unwrap().states;
    assert_eq!((all.len(), world.states.count()), (100, 100), "those that were recovered");
}

async fn what_is_used_meanwhile_is_not_removed(engine: Engine) {
    let world = World::with(engine, limits());
    let state = world.make(&ann(), "1").await;
    for _ in 0..200 {
        world.clock.turn(15 * MINUTE);
        world.store.swept().await;
        world.states.find(&ann(), state.id()).await.unwrap();
    }
    assert_eq!((number(&state), world.states.count()), (1, 1));
}

async fn what_an_earlier_process_left_is_counted_and_removed(engine: Engine) {
    let world = World::with(engine, limits());
    for _ in 0..300 {
        world.make(&ann(), "1").await;
    }
    let old = world.make(&bob(), "1").await.id();
    let deleted = world.make(&bob(), "1").await.id();
    world.states.find(&bob(), deleted).await.unwrap().delete().await.unwrap();
    let world = world.reopened().await;
    // It counts before it removes.
    world.store.swept().await;
    assert_eq!(world.states.count(), 301);
    world.make(&ann(), "1").await;
    world.states.find(&bob(), old).await.unwrap().delete().await.unwrap();
    assert_eq!(lost(world.states.find(&bob(), deleted).await), Lost::Deleted);
    assert_eq!(world.states.count(), 301);
    world.clock.turn(OVER + 24 * HOUR - SECOND);
    world.store.swept().await;
    assert_eq!(world.states.count(), 1, "the one that was made later");
    world.clock.turn(SECOND);
    world.store.swept().await;
    assert_eq!(world.states.count(), 0);
    assert!(world.states.list_all(None, 10).await.unwrap().states.is_empty());
}
