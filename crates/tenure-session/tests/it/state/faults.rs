//! What happens when the store fails, or loses its answer.

use bytes::Bytes;
use tenure_protocol::Reason;
use tenure_session::port::store::StoreError;
use tenure_session::state::{Edition, Fault, Lost, StateLimits, States};
use tenure_testkit::crash::Last;

use crate::state::expiry::limits;
use crate::state::support::{
    Engine, HOUR, MINUTE, SECOND, World, ann, holding, increment, lost, number, on_every_engine,
};

on_every_engine!(
    a_write_whose_answer_is_lost_is_done_once,
    a_change_whose_answer_is_lost_is_not_repeated_over_anothers,
    a_change_that_only_uses_came_after_is_done_once,
    a_late_answer_does_not_bring_back_what_was,
    an_end_whose_answer_is_lost_is_the_end,
    a_caller_is_told_if_the_outcome_of_its_write_is_unknown,
    a_failed_touch_does_not_fail_the_find,
    what_fails_changes_nothing,
    what_is_due_is_removed_when_the_store_works_again,
    a_store_that_never_knows_is_not_asked_forever,
    a_state_whose_making_has_an_unknown_outcome_is_taken_back,
    a_removal_whose_answer_is_lost_is_counted_once,
    a_state_is_not_removed_because_a_list_says_that_it_is_due,
);

const BOTH: [Last; 2] = [Last::Done, Last::Undone];

fn unavailable<T: std::fmt::Debug>(outcome: Result<T, Fault>) {
    match outcome {
        Err(fault @ Fault::Store(_)) => assert_eq!(fault.to_error().reason(), Reason::StoreUnavailable),
        other => panic!("a failed store, not {other:?}"),
    }
}

async fn a_write_whose_answer_is_lost_is_done_once(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "0").await;
    for (n, put) in (1..).zip(BOTH) {
        world.store.lose_answer_of_next_put(put);
        assert_eq!(increment(&state).await.unwrap(), n, "{put:?}");
        let found = world.states.find(&ann(), state.id()).await.unwrap();
        assert_eq!(found.get::<u64>().unwrap(), (n, Edition(n + 1)), "{put:?}");
    }
    for (seen, put) in (3..).map(Edition).zip(BOTH) {
        world.store.lose_answer_of_next_put(put);
        let now = state.replace(seen, Bytes::from_static(b"9")).await.unwrap();
        assert_eq!(now, Edition(seen.0 + 1), "{put:?}");
    }
    for put in BOTH {
        world.clock.turn(HOUR);
        world.store.lose_answer_of_next_put(put);
        let (found, recovered) = world.states.recover(&ann(), state.id()).await.unwrap();
        assert_eq!((found.data().1, recovered), (Edition(5), true), "{put:?}");
        world.clock.turn(20 * MINUTE);
        world.store.lose_answer_of_next_put(put);
        let found = world.states.find(&ann(), state.id()).await.unwrap();
        assert_eq!(found.expiry(), Some(world.now().after(30 * MINUTE)), "{put:?}");
    }
    // One that was made is there; one that was not is made by the repeated write.
    for put in BOTH {
        world.store.lose_answer_of_next_put(put);
        let made = world.states.create(&ann(), holding("1")).await.unwrap();
        assert_eq!(number(&world.states.find(&ann(), made.id()).await.unwrap()), 1, "{put:?}");
    }
    assert_eq!(world.states.count(), 3);
    assert_eq!(world.states.list_all(None, 10).await.unwrap().states.len(), 3);
}

/// Another process changes the state between a write and the moment its writer looks for it.
async fn overtaken<T>(
    world: &World,
    put: Last,
    writing: impl Future<Output = T>,
    overtake: impl AsyncFnOnce(&States),
) -> T {
    let others = States::start(world.store.inner(), world.clock.clone(), StateLimits::default());
    world.store.hold_answers_of_puts();
    world.store.lose_answer_of_next_put(put);
    let puts = world.store.puts();
    let between = async {
        // The write is under way, and its answer is held back.
        while world.store.puts() == puts {
            tokio::task::yield_now().await;
        }
        overtake(&others).await;
        world.store.answer_puts();
        others.stop().await;
    };
    tokio::join!(writing, between).0
}

async fn a_change_whose_answer_is_lost_is_not_repeated_over_anothers(engine: Engine) {
    let world = World::new(engine);
    for put in BOTH {
        let state = world.make(&ann(), "0").await;
        let id = state.id();
        let outcome = overtaken(&world, put, increment(&state), async |others: &States| {
            // Not before the write, in whose middle the answer is lost, is done.
            while put == Last::Done && number(&others.find(&ann(), id).await.unwrap()) == 0 {}
            increment(&others.find(&ann(), id).await.unwrap()).await.unwrap();
        });
        // The outcome may be unknown. Then the change was done once or not at all, but never twice.
        let (outcome, now) = (outcome.await, number(&world.states.find(&ann(), id).await.unwrap()));
        let done = 1 + u64::from(put == Last::Done);
        match outcome {
            Ok(_) => assert_eq!(now, 2, "{put:?}"),
            Err(Fault::Store(StoreError::Unknown)) => assert_eq!(now, done, "{put:?}"),
            Err(fault) => panic!("{fault:?}"),
        }
    }
}

async fn a_change_that_only_uses_came_after_is_done_once(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "0").await;
    world.clock.turn(20 * MINUTE);
    let id = state.id();
    let outcome = overtaken(&world, Last::Undone, increment(&state), async |others: &States| {
        assert!(others.find(&ann(), id).await.unwrap().was_written(), "a use that is written down");
    });
    assert_eq!(outcome.await.unwrap(), 1);
    assert_eq!(number(&world.states.find(&ann(), id).await.unwrap()), 1);
}

async fn a_late_answer_does_not_bring_back_what_was(engine: Engine) {
    let world = World::new(engine);
    let (state, clone) = {
        let state = world.make(&ann(), "0").await;
        (state.clone(), state)
    };
    world.store.hold_answer_of_next_put();
    let puts = world.store.puts();
    let overtake = async {
        while world.store.puts() == puts {
            tokio::task::yield_now().await;
        }
        while number(&world.states.find(&ann(), clone.id()).await.unwrap()) == 0 {}
        assert_eq!(increment(&clone).await.unwrap(), 2);
        world.store.answer_puts();
    };
    let (late, ()) = tokio::join!(state.replace(Edition(1), Bytes::from_static(b"1")), overtake);
    assert_eq!(late.unwrap(), Edition(2), "the edition of its own change");
    assert_eq!(state.data(), (Bytes::from_static(b"2"), Edition(3)), "what is held is the newest");
}

async fn an_end_whose_answer_is_lost_is_the_end(engine: Engine) {
    let world = World::new(engine);
    for put in BOTH {
        let state = world.make(&ann(), "0").await;
        world.store.lose_answer_of_next_put(put);
        state.delete().await.unwrap();
        assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Deleted, "{put:?}");
        assert_eq!(world.states.count(), 0, "{put:?}");
    }
    // Another changes it meanwhile: it ends all the same.
    let state = world.make(&ann(), "0").await;
    let id = state.id();
    let ended = overtaken(&world, Last::Undone, state.delete(), async |others: &States| {
        increment(&others.find(&ann(), id).await.unwrap()).await.unwrap();
    });
    ended.await.unwrap();
    assert_eq!(lost(world.states.find(&ann(), id).await), Lost::Deleted);
}

async fn a_caller_is_told_if_the_outcome_of_its_write_is_unknown(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "0").await;
    world.store.lose_answer_of_next_put(Last::Done);
    // The write is the first call, its repetition the second, the look for it the third.
    world.store.fail_nth(2);
    let outcome = increment(&state).await;
    assert!(matches!(outcome, Err(Fault::Store(StoreError::Unknown))), "{outcome:?}");
    unavailable(outcome);
    assert_eq!(number(&world.states.find(&ann(), state.id()).await.unwrap()), 1);
    assert_eq!(increment(&state).await.unwrap(), 2, "it goes on from what is there");
}

async fn a_failed_touch_does_not_fail_the_find(engine: Engine) {
    let world = World::with(engine, limits(Some(16 * MINUTE), None));
    let state = world.make(&ann(), "1").await;
    let kept = world.now().after(17 * MINUTE);
    world.store.fail_puts(true);
    for _ in 0..15 {
        world.clock.turn(MINUTE);
        let found = world.states.find(&ann(), state.id()).await.unwrap();
        assert_eq!(number(&found), 1);
        assert!(!found.was_written());
        assert_eq!(found.expiry(), Some(kept.min(world.now().after(16 * MINUTE))), "what was written holds");
    }
    world.store.fail_puts(false);
    world.clock.turn(MINUTE);
    let found = world.states.find(&ann(), state.id()).await.unwrap();
    assert_eq!(found.expiry(), Some(world.now().after(16 * MINUTE)));
    world.clock.turn(15 * MINUTE);
    world.store.fail_puts(true);
    world.states.recover(&ann(), state.id()).await.expect("what lives needs no write to be recovered");
}

async fn what_fails_changes_nothing(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "1").await;
    world.store.fail_puts(true);
    unavailable(world.states.create(&ann(), holding("2")).await);
    unavailable(increment(&state).await);
    unavailable(state.replace(Edition(1), Bytes::new()).await);
    unavailable(state.delete().await);
    unavailable(state.fork(None).await);
    assert_eq!(world.states.count(), 1, "what was not made takes no place");
    assert_eq!(state.data(), (Bytes::from_static(b"1"), Edition(1)));
    assert!(state.is_alive() && !state.was_written());
    world.clock.turn(HOUR);
    unavailable(world.states.recover(&ann(), state.id()).await);
    world.store.set_broken(true);
    unavailable(world.states.find(&ann(), state.id()).await);
    unavailable(world.states.recover(&ann(), state.id()).await);
    unavailable(world.states.list(&ann(), None, 10).await);
    unavailable(world.states.list_all(None, 10).await);
    world.store.set_broken(false);
    world.store.fail_puts(false);
    let (found, _) = world.states.recover(&ann(), state.id()).await.unwrap();
    assert_eq!(increment(&found).await.unwrap(), 2);
}

async fn what_is_due_is_removed_when_the_store_works_again(engine: Engine) {
    let limits = StateLimits { max_lifetime: Some(HOUR), ..StateLimits::default() };
    let world = World::with(engine, limits);
    for _ in 0..10 {
        world.make(&ann(), "1").await;
    }
    world.store.fail_puts(true);
    world.clock.turn(HOUR);
    let looks = world.store.looks();
    while world.store.looks() < looks + 3 {
        tokio::time::sleep(MINUTE).await;
    }
    assert_eq!(world.states.count(), 10);
    world.store.fail_puts(false);
    world.store.swept().await;
    assert_eq!(world.states.count(), 0);
}

async fn a_store_that_never_knows_is_not_asked_forever(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "1").await;
    world.store.fail_puts_with(StoreError::Unknown);
    let puts = world.store.puts();
    unavailable(state.delete().await);
    assert!((2..20).contains(&(world.store.puts() - puts)), "{} writes", world.store.puts() - puts);
    world.store.fail_puts(false);
    assert_eq!(world.states.count(), 1);
    state.delete().await.unwrap();
    assert_eq!(world.states.count(), 0);
}

async fn a_state_is_not_removed_because_a_list_says_that_it_is_due(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "1").await;
    world.store.say_that_all_is_due();
    let looks = world.store.looks();
    while world.store.looks() < looks + 3 {
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(world.states.count(), 1);
    assert_eq!(number(&world.states.find(&ann(), state.id()).await.unwrap()), 1);
}

async fn a_state_whose_making_has_an_unknown_outcome_is_taken_back(engine: Engine) {
    let world = World::new(engine);
    for put in BOTH {
        world.store.lose_answer_of_next_put(put);
        // A write that is done is the first call, its repetition the next, and the look for it the last. A repetition of
        // one that was not done would make the state, so that one fails.
        world.store.fail_nth(if put == Last::Done { 2 } else { 0 });
        unavailable(world.states.create(&ann(), holding("1")).await);
        while world.states.count() > 0 {
            tokio::time::sleep(SECOND).await;
        }
        assert_eq!(world.states.list_all(None, 10).await.unwrap().states.len(), 0, "{put:?}");
    }
}

async fn a_removal_whose_answer_is_lost_is_counted_once(engine: Engine) {
    let world = World::new(engine);
    for delete in BOTH {
        world.make(&ann(), "1").await;
        world.clock.turn(48 * HOUR);
        world.store.lose_answer_of_next_delete(delete);
        world.store.swept().await;
        assert_eq!(world.states.count(), 0, "{delete:?}");
        assert_eq!(world.states.list_all(None, 10).await.unwrap().states.len(), 0, "{delete:?}");
    }
}
