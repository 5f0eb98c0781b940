//! What operators do with states, by the key that a list shows.

use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::Reason;
use tenure_session::port::store::{Expected, RecordKey, Space, Store};
use tenure_session::state::{Edition, Lost, Resumed, State, StateInfo, StateLimits, States};
use tenure_session::{Principal, SessionKey};

use crate::state::support::{
    Engine, HOUR, MINUTE, World, ann, bob, holding, increment, lost, number, on_every_engine,
};

on_every_engine!(
    a_state_is_looked_at_without_being_used,
    what_expired_is_resumed_while_it_is_kept_and_nothing_else_comes_back,
    what_is_cleared_goes_on_empty,
    a_copy_has_the_same_owner_and_goes_its_own_way,
    states_are_found_by_their_names_in_logs,
    what_cannot_be_read_is_listed_apart_and_only_once,
    states_at_rest_are_neither_removed_nor_counted,
);

fn limits() -> StateLimits {
    StateLimits {
        idle_ttl: Some(16 * MINUTE),
        retention: 24 * HOUR,
        tombstone_ttl: HOUR,
        ..StateLimits::default()
    }
}

/// After this time an unused state is over for certain.
const OVER: Duration = Duration::from_secs(17 * 60);

fn key(owner: &Principal, state: &State) -> SessionKey {
    state.id().key(owner)
}

async fn listed(world: &World, key: SessionKey) -> StateInfo {
    world.states.look_at(key).await.unwrap().unwrap().0
}

async fn a_state_is_looked_at_without_being_used(engine: Engine) {
    let world = World::with(engine, limits());
    let state = world.make(&ann(), "7").await;
    let key = key(&ann(), &state);
    world.clock.turn(10 * MINUTE);
    let (found, data) = world.states.look_at(key).await.unwrap().unwrap();
    assert_eq!((&data[..], found.bytes, found.edition), (&b"7"[..], 1, Edition(1)));
    assert_eq!((found.idle_ttl, found.ends), (Some(16 * MINUTE), None));
    assert_eq!((found.end, found.ended, found.is_recoverable), (None, None, false));
    assert_eq!((found.label(), found.id), (state.label(), Some(state.id())));
    // 16 minutes and a little after it was made, not after it was looked at.
    world.clock.turn(7 * MINUTE);
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Expired);
    let found = listed(&world, key).await;
    assert_eq!((found.end, found.is_recoverable), (Some(Reason::SessionExpired), true));
    assert!(found.ended.is_some_and(|ended| ended <= world.now()));
    assert_eq!(found.due, found.ended.map(|ended| ended.after(24 * HOUR)));
    assert!(world.states.look_at(SessionKey::from_bytes([9; 16])).await.unwrap().is_none());
}

async fn what_expired_is_resumed_while_it_is_kept_and_nothing_else_comes_back(engine: Engine) {
    let world = World::with(engine, StateLimits { max_lifetime: Some(48 * HOUR), ..limits() });
    let state = world.make(&Principal::ANONYMOUS, "7").await;
    let one = key(&Principal::ANONYMOUS, &state);
    world.clock.turn(10 * MINUTE);
    assert_eq!(world.states.resume(one).await.unwrap(), Resumed::Alive);
    assert_eq!(listed(&world, one).await.expiry, Some(world.now().after(16 * MINUTE)));
    world.clock.turn(OVER + HOUR);
    assert_eq!(world.states.resume(one).await.unwrap(), Resumed::Recovered);
    let found = world.states.find(&Principal::ANONYMOUS, state.id()).await.unwrap();
    assert_eq!(number(&found), 7);

    let (deleted, revoked) = (world.make(&ann(), "1").await, world.make(&ann(), "2").await);
    deleted.delete().await.unwrap();
    world.states.revoke(key(&ann(), &revoked)).await.unwrap();
    assert_eq!(lost(world.states.resume(key(&ann(), &deleted)).await), Lost::Deleted);
    assert_eq!(lost(world.states.resume(key(&ann(), &revoked)).await), Lost::Revoked);
    assert_eq!(lost(world.states.revoke(key(&ann(), &revoked)).await), Lost::Revoked);
    assert_eq!(lost(world.states.resume(SessionKey::from_bytes([9; 16])).await), Lost::NotFound);
    assert_eq!(listed(&world, key(&ann(), &revoked)).await.ended, Some(world.now()));
    // Too old: looked at before anybody has come to write that down.
    world.clock.turn(48 * HOUR);
    assert_eq!(lost(world.states.resume(one).await), Lost::Expired);
    assert!(!listed(&world, one).await.is_recoverable);
}

async fn what_is_cleared_goes_on_empty(engine: Engine) {
    let world = World::with(engine, limits());
    let state = world.make(&ann(), "7").await;
    let key = key(&ann(), &state);
    let before = listed(&world, key).await.expiry;
    world.clock.turn(MINUTE);
    world.states.clear(key).await.unwrap();
    let (found, data) = world.states.look_at(key).await.unwrap().unwrap();
    assert_eq!((data, found.edition, found.expiry), (Bytes::new(), Edition(2), before));
    // A handler that held it meanwhile counts on from zero.
    assert_eq!(increment(&state).await.unwrap(), 1);
    world.clock.turn(OVER);
    assert_eq!(lost(world.states.clear(key).await), Lost::Expired);
    assert_eq!(world.states.look_at(key).await.unwrap().unwrap().1, "1");
    state.delete().await.unwrap();
    assert_eq!(lost(world.states.clear(key).await), Lost::Deleted);
}

async fn a_copy_has_the_same_owner_and_goes_its_own_way(engine: Engine) {
    let world = World::with(engine, limits());
    let state = world.make(&ann(), "7").await;
    let copy = world.states.copy(key(&ann(), &state), Some("copy".to_owned())).await.unwrap();
    assert_eq!((number(&copy), copy.about().label.as_deref()), (7, Some("copy")));
    increment(&copy).await.unwrap();
    assert_eq!(number(&world.states.find(&ann(), state.id()).await.unwrap()), 7);
    assert_eq!(number(&world.states.find(&ann(), copy.id()).await.unwrap()), 8);
    assert_eq!(lost(world.states.find(&bob(), copy.id()).await), Lost::NotFound);
    world.states.revoke(key(&ann(), &state)).await.unwrap();
    assert_eq!(lost(world.states.copy(key(&ann(), &state), None).await), Lost::Revoked);
}

async fn states_are_found_by_their_names_in_logs(engine: Engine) {
    let world = World::with(engine, limits());
    let mut states = Vec::new();
    for _ in 0..20 {
        states.push(world.make(&ann(), "1").await);
        states.push(world.make(&Principal::ANONYMOUS, "1").await);
    }
    states[0].delete().await.unwrap();
    for state in &states {
        let found = world.states.list_named(&state.label(), 10).await.unwrap().states;
        assert_eq!(found.iter().map(StateInfo::label).collect::<Vec<_>>(), [state.label()]);
        let begin = &state.label()[..3];
        let found = world.states.list_named(begin, 100).await.unwrap().states.len();
        assert_eq!(found, states.iter().filter(|other| other.label().starts_with(begin)).count());
    }
    let some = world.states.list_named("d-", 5).await.unwrap();
    assert_eq!((some.states.len(), some.next.is_some()), (5, true));
}

async fn what_cannot_be_read_is_listed_apart_and_only_once(engine: Engine) {
    let world = World::with(engine, limits());
    for _ in 0..7 {
        world.make(&ann(), "1").await;
    }
    // Before all others, and after.
    let broken = [SessionKey::from_bytes([0; 16]), SessionKey::from_bytes([255; 16])];
    for key in broken {
        let record = RecordKey { space: Space::State, key };
        world.store.put(record, Bytes::from_static(b"broken"), Expected::Absent, None).await.unwrap();
    }
    for limit in [1, 2, 3, 7, 100] {
        let (mut states, mut unreadable, mut after) = (0, Vec::new(), None);
        loop {
            let page = world.states.list_all(after, limit).await.unwrap();
            states += page.states.len();
            unreadable.extend(page.unreadable);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((states, &unreadable[..]), (7, &broken[..]), "{limit} at a time");
    }
    let named = world.states.list_named("d-ffffffff", 10).await.unwrap();
    assert_eq!((named.states.len(), &named.unreadable[..]), (0, &broken[1..]));
    world.states.look_at(broken[0]).await.unwrap_err();
}

async fn states_at_rest_are_neither_removed_nor_counted(engine: Engine) {
    let world = World::with(engine, limits());
    world.states.stop().await;
    let rest = States::at_rest(world.store.clone(), world.clock.clone(), limits());
    let state = rest.create(&ann(), holding("7")).await.unwrap();
    world.clock.turn(OVER + 25 * HOUR);
    tokio::time::sleep(10 * HOUR).await;
    let found = rest.list_all(None, 10).await.unwrap().states;
    assert_eq!((found.len(), found[0].is_recoverable), (1, false), "it is due, and it is there");
    assert_eq!(lost(rest.resume(state.id().key(&ann())).await), Lost::NotFound);
    assert_eq!(States::at_rest(world.store.clone(), world.clock.clone(), limits()).count(), 0);
}
