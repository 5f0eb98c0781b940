//! The data layer in front of a responder: what it asks of it, and what becomes of its answers.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_layers::data::{DataLayer, Policy, Required};
use tenure_protocol::{RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Responder};
use tenure_session::port::BoxFuture;
use tenure_session::state::{NewState, StateKind, StateLimits};
use tenure_session::{Principal, Route, State, States};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::fake_backend::FakeBackend;
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::fake_responder::{Exchanged, FakeResponder};
use tokio::task::JoinHandle;

struct World {
    layer: Arc<dyn Responder>,
    server: Exchanged,
    states: States,
}

impl World {
    fn new(policy: Policy) -> Self {
        let states =
            States::start(Arc::new(Memory::new()), Arc::new(HandClock::start()), StateLimits::default());
        let (responder, server) = FakeResponder::new();
        let layer = DataLayer::new(FakeBackend::new().0, states.clone(), policy, Vec::new());
        let layer = Arc::new(layer.with_responder(responder));
        Self { layer: layer.responder().unwrap(), server, states }
    }

    async fn state(&self) -> State {
        let new = NewState::of(StateKind::new("session").unwrap());
        self.states.create(&Principal::ANONYMOUS, new).await.unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "the test holds the handle")]
    fn send(&self, call: Call) -> JoinHandle<Reply> {
        tokio::spawn(self.layer.respond(call))
    }

    /// A call of a tool, with the cookie of a state if there is one.
    fn call(&self, state: Option<&State>) -> JoinHandle<Reply> {
        let mut params = json!({ "name": "any" });
        if let Some(state) = state {
            params["_meta"] = json!({ "dev.tenure/session": { "sessionId": state.id().cookie() } });
        }
        self.send(FakeClient::new(json!({})).call(1, "tools/call", params))
    }

    /// Lets the server say that it knows nothing of data sessions.
    async fn discovered(&mut self) {
        self.server.discovered().await;
    }
}

async fn value(reply: JoinHandle<Reply>) -> Value {
    match reply.await.unwrap() {
        Ok(result) => result.read().unwrap(),
        Err(error) => json!({ "error": error.raw().read::<Value>().unwrap() }),
    }
}

fn required() -> Policy {
    Policy { required: Required::All, ..Policy::default() }
}

#[tokio::test]
async fn a_server_is_asked_once_what_it_is_and_only_if_that_matters() {
    let mut world = World::new(Policy::default());
    let plain = world.call(None);
    world.server.expect("tools/call").await.answer(&json!({ "content": [] }));
    assert_eq!(value(plain).await, json!({ "content": [] }), "to the byte");
    let listen = world.send(FakeClient::new(json!({})).call(1, "subscriptions/listen", json!({})));
    world.server.expect("subscriptions/listen").await.answer(&json!({}));
    assert_eq!(value(listen).await, json!({}));

    let state = world.state().await;
    let first = world.call(Some(&state));
    world.discovered().await;
    world.server.expect("tools/call").await.answer(&json!({}));
    assert!(value(first).await["_meta"]["dev.tenure/session"].is_object());
    let second = world.call(Some(&state));
    world.server.expect("tools/call").await.answer(&json!({}));
    assert!(value(second).await["_meta"]["dev.tenure/session"].is_object());
}

#[tokio::test]
async fn a_server_that_cannot_say_what_it_is_is_guarded() {
    let mut world = World::new(required());
    for _ in 0..2 {
        let refused = world.call(None);
        let asked = world.server.expect("server/discover").await;
        asked.fail(RpcError::of(Reason::BackendUnavailable, "gone"));
        assert_eq!(value(refused).await["error"]["code"], -31044);
    }
    // It is back, and says that it keeps its own: from now on that is its affair.
    let passed = world.call(None);
    let own = json!({ "capabilities": { "extensions": { "dev.tenure/sessions": {} } } });
    world.server.expect("server/discover").await.answer(&own);
    world.server.expect("tools/call").await.answer(&json!({}));
    assert_eq!(value(passed).await, json!({}));
    // And when another one takes its place, the first discovery tells.
    let found = world.send(FakeClient::new(json!({})).call(1, "server/discover", json!({})));
    world.discovered().await;
    assert!(value(found).await["capabilities"]["extensions"]["dev.tenure/sessions"].is_object());
    assert_eq!(value(world.call(None)).await["error"]["code"], -31044);
}

#[tokio::test]
async fn the_end_of_a_state_during_a_call_is_said_in_the_words_of_this_era() {
    let mut world = World::new(Policy::default());
    let state = world.state().await;
    let ended = world.call(Some(&state));
    world.discovered().await;
    let asked = world.server.expect("tools/call").await;
    state.revoke().await.unwrap();
    asked.fail(RpcError::of(Reason::SessionRevoked, "The state is gone"));
    let error = &value(ended).await["error"];
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-31043), &json!("data_session_revoked")));

    // An error that only looks like it, of a call that works on nothing, is the server's own.
    let read = FakeClient::new(json!({})).call(1, "resources/read", json!({ "uri": "a:b" }));
    let own = world.send(read);
    let asked = world.server.expect("resources/read").await;
    asked.fail(RpcError::of(Reason::SessionRevoked, "its own"));
    assert_eq!(value(own).await["error"]["code"], -32001);
}

#[tokio::test]
async fn a_resource_that_was_read_with_a_cookie_is_not_cached() {
    let mut world = World::new(Policy::default());
    let state = world.state().await;
    let meta = json!({ "dev.tenure/session": { "sessionId": state.id().cookie() } });
    let read = FakeClient::new(json!({})).call(1, "resources/read", json!({ "uri": "a:b", "_meta": meta }));
    let answer = world.send(read);
    world.discovered().await;
    let asked = world.server.expect("resources/read").await;
    asked.answer(&json!({ "contents": [], "ttlMs": 1000, "cacheScope": "public" }));
    let answer = value(answer).await;
    assert_eq!((&answer["ttlMs"], &answer["cacheScope"]), (&json!(0), &json!("private")), "{answer}");
}

/// A server that sees to everything itself.
struct Independent;

impl Responder for Independent {
    fn respond(&self, _: Call) -> BoxFuture<Reply> {
        Box::pin(std::future::ready(Ok(RawJson::EMPTY_OBJECT)))
    }

    fn keeps_request_states(&self) -> bool {
        true
    }

    fn keeps_tasks(&self, route: &Route) -> bool {
        *route == Route::named("own")
    }
}

#[tokio::test]
async fn what_a_server_sees_to_itself_stays_its_own_affair() {
    let states = States::start(Arc::new(Memory::new()), Arc::new(HandClock::start()), StateLimits::default());
    let layer = DataLayer::new(FakeBackend::new().0, states, Policy::default(), Vec::new());
    let layer = Arc::new(layer.with_responder(Arc::new(Independent))).responder().unwrap();
    assert!(layer.keeps_request_states());
    assert!(layer.keeps_tasks(&Route::named("own")));
    assert!(!layer.keeps_tasks(&Route::MAIN));
}
