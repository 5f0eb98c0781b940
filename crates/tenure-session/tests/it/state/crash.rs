//! What survives: a store that is closed and opened again, and a process that dies in the middle of every write
//! there is, both ways. A state is then as before the change or as after it, and what was deleted stays so.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_session::port::clock::Clock;
use tenure_session::port::store::Store;
use tenure_session::state::{Edition, Fault, Lost, State, StateId, StateLimits, States};
use tenure_testkit::clock::HandClock;
use tenure_testkit::crash::{Crashing, Last};

use crate::state::support::{
    Engine, HOUR, MINUTE, SECOND, World, ann, bob, holding, increment, lost, number, on_every_engine,
};

on_every_engine!(states_survive_the_process, a_client_is_never_lied_to_whenever_the_process_dies);

async fn states_survive_the_process(engine: Engine) {
    let mut world = World::new(engine);
    let mut ids = Vec::new();
    for n in 0..50u64 {
        let state = world.make(&ann(), "0").await;
        for _ in 0..n % 4 {
            increment(&state).await.unwrap();
        }
        ids.push((state.id(), n % 4));
    }
    let (deleted, forked) = {
        let parent = world.make(&bob(), "7").await;
        let child = parent.fork(None).await.unwrap();
        parent.delete().await.unwrap();
        (parent.id(), child.id())
    };
    let expired = world.make(&bob(), "8").await.id();
    for _ in 0..3 {
        world = world.reopened().await;
        for (id, value) in &ids {
            let (found, edition) = world.states.find(&ann(), *id).await.unwrap().get::<u64>().unwrap();
            assert_eq!((found, edition), (*value, Edition(value + 1)));
        }
        assert_eq!(lost(world.states.find(&bob(), deleted).await), Lost::Deleted);
        assert_eq!(number(&world.states.find(&bob(), forked).await.unwrap()), 7);
        assert_eq!(world.states.list(&ann(), None, 100).await.unwrap().states.len(), 50);
        world.clock.turn(15 * MINUTE);
        for id in ids.iter().map(|(id, _)| id) {
            world.states.find(&ann(), *id).await.unwrap();
        }
        world.states.find(&bob(), forked).await.unwrap();
    }
    assert_eq!(lost(world.states.find(&bob(), expired).await), Lost::Expired);
    let world = world.reopened().await;
    let (found, recovered) = world.states.recover(&bob(), expired).await.unwrap();
    assert_eq!((number(&found), recovered), (8, true));
}

/// What a client knows, because it was told.
#[derive(Default, Debug)]
struct Told {
    /// How far it came, for those who read a failure.
    at: &'static str,
    state: Option<StateId>,
    /// What the state holds, and what it may hold instead, if the last change came through.
    value: u64,
    trying: Option<u64>,
    child: Option<StateId>,
    /// It was told of the expiry, and asked for the state back.
    expired: bool,
    recovered: bool,
    ending: bool,
    ended: bool,
}

/// A value in which a mix of two would show.
fn document(n: u64) -> Value {
    json!({ "n": n, "filling": n.to_string().repeat(3_000) })
}

async fn write(state: &State, n: u64) {
    let written = state.change(|value| {
        *value = document(n);
        Ok::<_, ()>(())
    });
    written.await.unwrap().unwrap();
}

async fn live(states: &States, clock: &HandClock, told: &mut Told) {
    told.at = "create";
    let state = states.create(&ann(), holding("")).await.unwrap();
    told.state = Some(state.id());
    for n in 1..=3 {
        told.at = "change";
        told.trying = Some(n);
        write(&state, n).await;
        told.value = n;
    }
    told.at = "touch";
    clock.turn(15 * MINUTE);
    let state = states.find(&ann(), state.id()).await.unwrap();
    told.at = "fork";
    told.child = Some(state.fork(None).await.unwrap().id());
    clock.turn(HOUR);
    told.at = "recover";
    told.expired = true;
    assert!(states.recover(&ann(), state.id()).await.unwrap().1);
    told.recovered = true;
    told.at = "replace";
    told.trying = Some(4);
    state.update(Edition(4), &document(4)).await.unwrap();
    told.value = 4;
    told.at = "delete";
    told.ending = true;
    state.delete().await.unwrap();
    told.ended = true;
}

fn whole(state: &State) -> u64 {
    let (value, edition) = state.get::<Value>().unwrap();
    let n = value["n"].as_u64().unwrap_or(0);
    if n > 0 {
        assert_eq!(value, document(n), "torn");
    }
    assert_eq!(edition, Edition(n + 1));
    n
}

/// What must hold in the next process, given what the client was told.
async fn check(states: &States, told: &Told) {
    let Some(id) = told.state else { return };
    let found = match states.find(&ann(), id).await {
        Err(Fault::Lost(Lost::Expired)) => {
            assert!(told.expired && !told.recovered, "it expired too soon: {told:?}");
            states.recover(&ann(), id).await.map(|(state, _)| state)
        }
        found => found,
    };
    match found {
        Ok(state) => {
            assert!(!told.ended, "resurrected: {told:?}");
            let n = whole(&state);
            assert!(n == told.value || Some(n) == told.trying, "lost or made up: {n}, {told:?}");
            // And it can be used.
            write(&state, n + 1).await;
            assert_eq!(whole(&states.find(&ann(), id).await.unwrap()), n + 1);
        }
        Err(fault) => {
            assert!(told.ending, "lost: {fault:?}, {told:?}");
            assert_eq!(lost(Err::<(), _>(fault)), Lost::Deleted);
        }
    }
    if let Some(child) = told.child {
        let (child, _) = states.recover(&ann(), child).await.unwrap();
        assert_eq!(whole_of_child(&child), 3, "a fork has what its parent had: {told:?}");
    }
}

/// A fork begins with its parent's data, at its own first edition.
fn whole_of_child(child: &State) -> u64 {
    let (value, edition) = child.get::<Value>().unwrap();
    let n = value["n"].as_u64().unwrap();
    assert_eq!((value, edition), (document(n), Edition(1)));
    n
}

async fn a_client_is_never_lied_to_whenever_the_process_dies(engine: Engine) {
    let mut writes = 0;
    loop {
        let mut survived = true;
        for last in [Last::Undone, Last::Done] {
            // Each round on an engine of its own, of the same sort.
            let engine = match &engine {
                Engine::Memory(_) => Engine::memory(),
                Engine::Disk(_) => Engine::disk(),
            };
            let clock = Arc::new(HandClock::start());
            let store = Arc::new(Crashing::after(engine.open(), writes, last));
            let states = start(store.clone(), &clock);
            let mut told = Told::default();
            tokio::select! {
                () = live(&states, &clock, &mut told) => {}
                () = store.died() => {}
            }
            survived &= !store.is_dead();
            states.stop().await;
            drop((states, store));
            clock.turn(SECOND);
            let states = start(engine.open(), &clock);
            check(&states, &told).await;
            states.stop().await;
        }
        if survived {
            break;
        }
        writes += 1;
    }
    assert_eq!(writes, 9, "made, changed thrice, touched, forked, recovered, replaced, deleted");
}

fn start(store: Arc<dyn Store>, clock: &Arc<HandClock>) -> States {
    let clock: Arc<dyn Clock> = clock.clone();
    States::start(store, clock, StateLimits::default())
}
