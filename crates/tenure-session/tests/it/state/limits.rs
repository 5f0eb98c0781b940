//! How many states there may be, how large they may be, and that the count is right whatever happens.

use bytes::Bytes;
use tenure_protocol::Reason;
use tenure_session::Principal;
use tenure_session::state::{About, Edition, Fault, Lost, NewState, StateLimits};

use crate::state::support::{Engine, HOUR, World, ann, bob, holding, lost, on_every_engine};

on_every_engine!(
    there_are_only_so_many_states,
    a_principal_has_only_so_many_states,
    limits_hold_for_what_an_earlier_process_left,
    a_state_is_only_so_large,
    what_has_ended_counts_no_more_however_often_it_is_ended,
    a_place_is_free_again_when_what_expired_is_removed,
);

fn full<T: std::fmt::Debug>(outcome: Result<T, Fault>) {
    match outcome {
        Err(fault @ Fault::Full(_)) => assert_eq!(fault.to_error().reason(), Reason::TooManyStates),
        other => panic!("no room, not {other:?}"),
    }
}

async fn there_are_only_so_many_states(engine: Engine) {
    let world = World::with(engine, StateLimits { max_states: 3, ..StateLimits::default() });
    let first = world.make(&ann(), "1").await;
    world.make(&bob(), "2").await;
    let last = world.make(&Principal::ANONYMOUS, "3").await;
    full(world.states.create(&ann(), holding("4")).await);
    full(first.fork(None).await);
    assert_eq!(world.states.count(), 3);
    last.delete().await.unwrap();
    first.fork(None).await.unwrap();
    full(world.states.create(&ann(), holding("4")).await);
}

async fn a_principal_has_only_so_many_states(engine: Engine) {
    let world = World::with(engine, StateLimits { max_states_per_principal: 2, ..StateLimits::default() });
    let first = world.make(&ann(), "1").await;
    world.make(&ann(), "2").await;
    full(world.states.create(&ann(), holding("3")).await);
    full(first.fork(None).await);
    for _ in 0..2 {
        world.make(&bob(), "1").await;
        world.make(&Principal::ANONYMOUS, "1").await;
    }
    full(world.states.create(&Principal::ANONYMOUS, holding("3")).await);
    first.revoke().await.unwrap();
    world.make(&ann(), "3").await;
    full(world.states.create(&ann(), holding("4")).await);
}

async fn limits_hold_for_what_an_earlier_process_left(engine: Engine) {
    let world = World::with(engine, StateLimits { max_states_per_principal: 2, ..StateLimits::default() });
    let first = world.make(&ann(), "1").await.id();
    world.make(&ann(), "2").await;
    let world = world.reopened().await;
    world.store.swept().await;
    full(world.states.create(&ann(), holding("3")).await);
    world.states.find(&ann(), first).await.unwrap().delete().await.unwrap();
    world.make(&ann(), "3").await;
    full(world.states.create(&ann(), holding("4")).await);
}

async fn a_state_is_only_so_large(engine: Engine) {
    let limits = StateLimits { max_bytes: 10, max_about_bytes: 8, ..StateLimits::default() };
    let world = World::with(engine, limits);
    let too_large = |outcome: Result<_, Fault>, bytes, limit| match outcome {
        Err(Fault::TooLarge { bytes: had, limit: may }) => assert_eq!((had, may), (bytes, limit)),
        other => panic!("too large, not {other:?}"),
    };
    too_large(world.states.create(&ann(), holding("12345678901")).await.map(drop), 11, 10);
    let state = world.make(&ann(), "1234567890").await;
    too_large(state.replace(Edition(1), Bytes::from_static(b"12345678901")).await.map(drop), 11, 10);
    too_large(state.update(Edition(1), &"123456789").await.map(drop), 11, 10);
    let grown = state.change(|number: &mut u64| {
        *number *= 10;
        Ok::<_, ()>(())
    });
    too_large(grown.await.map(drop), 11, 10);
    state.replace(Edition(1), Bytes::from_static(b"0987654321")).await.unwrap();
    // The label and the data that its client gives it count together.
    let about =
        |label: &str| About { label: Some(label.into()), data: serde_json::from_str("{\"a\":1}").ok() };
    let owner = ann();
    let make = |label| world.states.create(&owner, NewState { about: about(label), ..holding("") });
    too_large(make("ab").await.map(drop), 9, 8);
    let named = make("a").await.unwrap();
    too_large(named.fork(Some("ab".into())).await.map(drop), 9, 8);
    assert_eq!(world.states.count(), 2, "what was refused takes no place");
    let found = world.states.find(&ann(), state.id()).await.unwrap();
    assert_eq!(found.data(), (Bytes::from_static(b"0987654321"), Edition(2)));
}

async fn what_has_ended_counts_no_more_however_often_it_is_ended(engine: Engine) {
    let limits = StateLimits { max_lifetime: Some(HOUR), ..StateLimits::default() };
    let world = World::with(engine, limits);
    let old = world.make(&ann(), "1").await;
    let deleted = world.make(&ann(), "2").await;
    world.clock.turn(HOUR / 2);
    let young = world.make(&ann(), "3").await;
    deleted.delete().await.unwrap();
    world.clock.turn(HOUR / 2);
    world.store.swept().await;
    assert_eq!(world.states.count(), 1);
    // It has an end already, and was counted out when that was written.
    assert_eq!(lost(old.delete().await), Lost::Expired);
    assert_eq!(lost(deleted.delete().await), Lost::Deleted);
    for listed in world.states.list_all(None, 10).await.unwrap().states {
        if listed.label() != young.label() {
            let why = listed.end.unwrap();
            assert_eq!(lost(world.states.revoke(listed.key).await).reason(), why);
        }
    }
    assert_eq!(world.states.count(), 1);
}

async fn a_place_is_free_again_when_what_expired_is_removed(engine: Engine) {
    let world = World::with(engine, StateLimits { max_states: 2, ..StateLimits::default() });
    let state = world.make(&ann(), "1").await;
    world.make(&ann(), "2").await;
    world.clock.turn(HOUR);
    // It expired, but its data are kept.
    full(world.states.create(&ann(), holding("3")).await);
    state.delete().await.unwrap();
    world.make(&ann(), "3").await;
    world.clock.turn(48 * HOUR);
    world.store.swept().await;
    assert_eq!(world.states.count(), 0);
    world.make(&ann(), "4").await;
}
