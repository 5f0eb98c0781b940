//! A state answers to its owner alone. To everyone else it looks like one that never was.

use tenure_session::Principal;
use tenure_session::state::{Fault, Lost, StateId};

use crate::state::support::{Engine, HOUR, World, ann, bob, increment, lost, on_every_engine};

on_every_engine!(
    a_stranger_learns_nothing_of_a_state,
    a_stranger_learns_nothing_of_an_expired_or_ended_state,
    an_anonymous_state_answers_to_all_who_have_its_name_and_is_listed_to_no_client,
);

/// What a caller is told, in every form it is told in.
fn told<T>(outcome: Result<T, Fault>) -> String {
    let Err(fault) = outcome else { panic!("told of another's state") };
    let words = format!("{fault:?} {fault}");
    let error = fault.to_error();
    format!("{words} {:?} {error} {error:?} {:?}", error.reason(), error.to_rpc())
}

async fn nothing_is_told(world: &World, stranger: &Principal, id: StateId) {
    let never = StateId::random();
    let (puts, states) = (world.store.puts(), &world.states);
    assert_eq!(told(states.find(stranger, id).await), told(states.find(stranger, never).await));
    assert_eq!(told(states.recover(stranger, id).await), told(states.recover(stranger, never).await));
    assert_eq!(lost(states.find(stranger, id).await), Lost::NotFound);
    assert_eq!(world.store.puts(), puts, "a stranger's try is no use of it");
}

async fn a_stranger_learns_nothing_of_a_state(engine: Engine) {
    let world = World::new(engine);
    let hers = world.make(&ann(), "1").await;
    let anonymous = world.make(&Principal::ANONYMOUS, "1").await;
    for stranger in [bob(), Principal::ANONYMOUS, Principal::named(""), Principal::named("ann ")] {
        nothing_is_told(&world, &stranger, hers.id()).await;
        assert!(world.states.list(&stranger, None, 10).await.unwrap().states.is_empty());
    }
    nothing_is_told(&world, &ann(), anonymous.id()).await;
    // Another's place in a list is no way into it.
    let place = world.states.list(&ann(), None, 10).await.unwrap().states[0].key;
    let mut before = *place.as_bytes();
    before[15] = before[15].wrapping_sub(1);
    for after in [place, tenure_session::SessionKey::from_bytes(before)] {
        assert!(world.states.list(&bob(), Some(after), 10).await.unwrap().states.is_empty());
    }
    assert_eq!(increment(&hers).await.unwrap(), 2);
}

async fn a_stranger_learns_nothing_of_an_expired_or_ended_state(engine: Engine) {
    let world = World::new(engine);
    let (expired, deleted) = (world.make(&ann(), "1").await, world.make(&ann(), "2").await);
    deleted.delete().await.unwrap();
    world.clock.turn(HOUR - crate::state::support::SECOND);
    assert_eq!(lost(world.states.find(&ann(), expired.id()).await), Lost::Expired);
    assert_eq!(lost(world.states.find(&ann(), deleted.id()).await), Lost::Deleted);
    for stranger in [bob(), Principal::ANONYMOUS] {
        nothing_is_told(&world, &stranger, expired.id()).await;
        nothing_is_told(&world, &stranger, deleted.id()).await;
    }
    assert!(world.states.recover(&ann(), expired.id()).await.unwrap().1);
}

async fn an_anonymous_state_answers_to_all_who_have_its_name_and_is_listed_to_no_client(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&Principal::ANONYMOUS, "1").await;
    increment(&world.states.find(&Principal::ANONYMOUS, state.id()).await.unwrap()).await.unwrap();
    assert!(world.states.list(&Principal::ANONYMOUS, None, 10).await.unwrap().states.is_empty());
    let [listed] = &world.states.list_all(None, 10).await.unwrap().states[..] else { panic!("one state") };
    assert!(listed.id.is_none() && listed.owner.is_none(), "no list may tell its name");
    let space = tenure_session::port::store::Space::State;
    let records = tenure_session::port::store::Store::list(&*world.store, space, None, 10).await.unwrap();
    let kept = String::from_utf8_lossy(&records[0].1.value).into_owned();
    assert!(!kept.contains(&state.id().cookie()), "a reader of the store cannot use it: {kept}");
}
