//! Clients that hang up while a state is written: whatever the moment, the count says how many states there are.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tenure_layers::data::{DataLayer, Policy};
use tenure_protocol::{Method, RawJson, Reply};
use tenure_session::Principal;
use tenure_session::backend::{Backend, Call, Responder};
use tenure_session::port::BoxFuture;
use tenure_session::port::seal::Seal;
use tenure_session::state::{Fault, Lost, State, StateInfo, StateLimits, States};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::fake_backend::FakeBackend;
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::late::{Late, leave_after, let_others_run};

use crate::state::support::{HOUR, MINUTE, ann, bob, holding, lost};

/// More steps than anything here takes.
const MANY: usize = 60;

/// A process with one state, on a store whose writes take effect when they are let go.
struct Scene {
    states: States,
    state: State,
    late: Arc<Late>,
    clock: Arc<HandClock>,
}

/// The outcome of a call.
struct Outcome {
    scene: Scene,
    /// Every state that the store has, ended ones too.
    there: Vec<StateInfo>,
    /// The caller was answered before it could leave.
    answered: bool,
}

impl Outcome {
    fn living(&self) -> usize {
        self.there.iter().filter(|listed| listed.end.is_none() || listed.is_recoverable).count()
    }
}

/// Lets a caller leave at every moment there is, and checks the outcome each time.
async fn at_every_moment(call: impl AsyncFn(&Scene) -> Result<(), Fault>, check: impl AsyncFn(&Outcome)) {
    for steps in 0..MANY {
        let (late, clock) = (Arc::new(Late::new(Arc::new(Memory::new()))), Arc::new(HandClock::start()));
        let states = States::start(late.clone(), clock.clone(), StateLimits::default());
        let state = states.create(&ann(), holding("1")).await.unwrap();
        let_others_run().await;
        let scene = Scene { states, state, late, clock };
        scene.late.hold();
        let answer = leave_after(steps, &scene.late, call(&scene)).await;
        scene.late.let_go().await;
        // Waits for all that still runs.
        scene.states.stop().await;
        let there = scene.states.list_all(None, 100).await.unwrap().states;
        let outcome = Outcome { scene, there, answered: answer.is_some() };
        assert_eq!(outcome.scene.states.count(), outcome.living(), "the caller left after {steps} steps");
        check(&outcome).await;
        if let Some(answer) = answer {
            answer.unwrap();
            assert!(steps > 2, "nothing was waited for, so nothing was tried");
            return;
        }
    }
    panic!("the caller is never answered");
}

/// A state that its caller has not heard of is gone.
async fn nothing_is_left(outcome: &Outcome) {
    assert_eq!(outcome.there.len(), 1 + usize::from(outcome.answered));
}

/// The state in hand is as new as the store, so that the next change builds on it.
async fn the_state_in_hand_is_the_newest(outcome: &Outcome) {
    let Scene { states, state, .. } = &outcome.scene;
    match states.recover(&ann(), state.id()).await {
        Ok((stored, _)) => assert_eq!(state.data(), stored.data()),
        Err(fault) => assert_eq!(lost(Err::<(), _>(fault)), Lost::Deleted),
    }
}

#[tokio::test]
async fn a_state_whose_maker_leaves_is_not_there_and_does_not_count() {
    let make = async |scene: &Scene| scene.states.create(&bob(), holding("2")).await.map(drop);
    at_every_moment(make, nothing_is_left).await;
}

#[tokio::test]
async fn a_fork_whose_maker_leaves_is_not_there_and_does_not_count() {
    let fork = async |scene: &Scene| scene.state.fork(None).await.map(drop);
    at_every_moment(fork, nothing_is_left).await;
}

#[tokio::test]
async fn a_state_whose_deleter_leaves_counts_as_long_as_it_is_there() {
    at_every_moment(async |scene: &Scene| scene.state.delete().await, the_state_in_hand_is_the_newest).await;
}

#[tokio::test]
async fn a_state_whose_operator_leaves_counts_as_long_as_it_is_there() {
    let revoke = async |scene: &Scene| {
        let key = scene.states.list_all(None, 1).await.unwrap().states[0].key;
        scene.states.revoke(key).await
    };
    at_every_moment(revoke, async |_: &Outcome| {}).await;
}

#[tokio::test]
async fn a_state_whose_changer_leaves_holds_what_was_written() {
    let replace = async |scene: &Scene| {
        let (_, edition) = scene.state.data();
        scene.state.replace(edition, Bytes::from_static(b"2")).await.map(drop)
    };
    at_every_moment(replace, the_state_in_hand_is_the_newest).await;
}

#[tokio::test]
async fn a_state_whose_finder_leaves_counts_once() {
    let find = async |scene: &Scene| {
        scene.clock.turn(20 * MINUTE);
        scene.states.find(&ann(), scene.state.id()).await.map(drop)
    };
    at_every_moment(find, the_state_in_hand_is_the_newest).await;
    let recover = async |scene: &Scene| {
        scene.clock.turn(HOUR);
        scene.states.recover(&ann(), scene.state.id()).await.map(drop)
    };
    at_every_moment(recover, the_state_in_hand_is_the_newest).await;
}

/// Seals nothing.
struct Plain;

impl Seal for Plain {
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        Some([bound, plain].concat())
    }

    fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        sealed.strip_prefix(bound).map(<[u8]>::to_vec)
    }
}

/// A server that has nothing to say.
struct Quiet;

impl Responder for Quiet {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let result = match call.request.method {
            Method::Discover => json!({ "capabilities": { "tools": {} } }),
            _ => json!({ "content": [] }),
        };
        Box::pin(std::future::ready(Ok(RawJson::of(&result))))
    }
}

/// Calls a tool with a cookie, and returns the cookie that comes back.
async fn call_with(states: &States, cookie: &Value) -> Value {
    let policy = Policy { seal: Some(Arc::new(Plain)), ..Policy::default() };
    let layer = DataLayer::new(FakeBackend::new().0, states.clone(), policy, Vec::new());
    let layer = Arc::new(layer.with_responder(Arc::new(Quiet))).responder().unwrap();
    let params = json!({ "name": "any", "_meta": { "dev.tenure/session": cookie } });
    let reply = layer.respond(FakeClient::new(json!({})).call(1, "tools/call", params)).await.unwrap();
    reply.read::<Value>().unwrap()["_meta"]["dev.tenure/session"].take()
}

#[tokio::test]
async fn a_state_that_is_put_back_from_what_its_client_carries_counts_also_if_the_client_leaves() {
    let elsewhere =
        States::at_rest(Arc::new(Memory::new()), Arc::new(HandClock::start()), StateLimits::default());
    let state = elsewhere.create(&Principal::ANONYMOUS, holding("2")).await.unwrap();
    let cookie = call_with(&elsewhere, &json!({ "sessionId": state.id().cookie() })).await;
    assert!(cookie["state"].is_string(), "the client carries its state: {cookie}");
    let call = async |scene: &Scene| {
        let back = call_with(&scene.states, &cookie).await;
        assert_eq!(back["sessionId"], cookie["sessionId"]);
        Ok(())
    };
    at_every_moment(call, async |_: &Outcome| {}).await;
}

#[tokio::test]
async fn clients_that_hang_up_do_not_use_up_what_a_principal_may_have() {
    let late = Arc::new(Late::new(Arc::new(Memory::new())));
    let limits = StateLimits { max_states_per_principal: 2, ..StateLimits::default() };
    let states = States::start(late.clone(), Arc::new(HandClock::start()), limits);
    for _ in 0..10 {
        late.hold();
        let made = leave_after(1, &late, states.create(&ann(), holding("1"))).await;
        assert!(made.is_none(), "the store has not answered");
        late.let_go().await;
        let_others_run().await;
    }
    assert_eq!(states.count(), 0);
    for _ in 0..10 {
        let state = states.create(&Principal::ANONYMOUS, holding("1")).await.unwrap();
        late.hold();
        leave_after(1, &late, state.delete()).await;
        late.let_go().await;
        let_others_run().await;
    }
    assert_eq!((states.count(), states.list_all(None, 100).await.unwrap().states.len()), (0, 10));
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_store_that_never_answers() {
    let late = Arc::new(Late::new(Arc::new(Memory::new())));
    let states = States::start(late.clone(), Arc::new(HandClock::start()), StateLimits::default());
    late.hold();
    assert!(leave_after(1, &late, states.create(&ann(), holding("1"))).await.is_none());
    tokio::time::timeout(MINUTE, states.stop()).await.expect("it stops in time");
}
