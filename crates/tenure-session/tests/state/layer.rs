//! The data layer at the wrong moment, and in front of those who mean harm.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_session::data::{DataLayer, KindOfState, Policy, Required};
use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Backend, Open, Opened};
use tenure_session::port::seal::Seal;
use tenure_session::runtime::{Answer, Caller, Parts};
use tenure_session::state::{Kind, NewState, StateLimits};
use tenure_session::{
    Limits, Method, Notification, Principal, RawJson, Request, RequestId, RpcError, Session, Sessions, States,
};
use tenure_store::memory::Memory;
use tenure_testkit::clock::{HandClock, TurnableClock};
use tenure_testkit::fake_backend::{FakeBackend, Script, Seen};
use tenure_testkit::runtime::{self, json_of, request};

const MINUTE: Duration = Duration::from_secs(60);

/// Seals nothing, but binds.
struct Bound;

impl Seal for Bound {
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        Some([&(bound.len() as u32).to_be_bytes()[..], bound, plain].concat())
    }

    fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let rest = sealed.strip_prefix(&(bound.len() as u32).to_be_bytes()[..])?;
        rest.strip_prefix(bound).map(<[u8]>::to_vec)
    }
}

/// Says `"experimental": null`, as some servers do.
struct Nothing(Arc<FakeBackend>);

impl Backend for Nothing {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let opened = self.0.open(open);
        Box::pin(async move {
            let mut opened = opened.await?;
            let mut result: Value = opened.result.read().unwrap();
            result["capabilities"]["experimental"] = Value::Null;
            opened.result = RawJson::of(&result);
            Ok(opened)
        })
    }
}

struct World {
    sessions: Sessions,
    states: States,
    clock: Arc<HandClock>,
    script: Script,
}

fn world(policy: Policy, kinds: Vec<KindOfState>, null: bool) -> World {
    let clock = Arc::new(HandClock::start());
    let store = Arc::new(Memory::new());
    let states = States::start(store.clone(), clock.clone(), StateLimits::default());
    let (fake, script) = FakeBackend::new();
    let inner: Arc<dyn Backend> = if null { Arc::new(Nothing(fake)) } else { fake };
    let backend = Arc::new(DataLayer::new(inner, states.clone(), policy, kinds));
    let parts = Parts { store, backend, clock: Arc::new(TurnableClock::start()), limits: Limits::default() };
    World { sessions: Sessions::start(parts), states, clock, script }
}

fn call(session: &Arc<Session>, id: u64, cookie: &Value) -> tokio::task::JoinHandle<Answer> {
    let params = json!({ "name": "any", "_meta": { "mcp/session": cookie } });
    runtime::send(session, request(id, "tools/call", &params))
}

async fn answer(answer: tokio::task::JoinHandle<Answer>) -> Value {
    match answer.await.unwrap() {
        Answer::Stream(mut reader) => runtime::events(&mut reader).await.pop().unwrap(),
        answer => json_of(answer),
    }
}

/// Whether a call reaches the server although every tool needs a session and it names none.
async fn slips_through(params: &str, null: bool) -> bool {
    let mut world = world(Policy { required: Required::All, ..Policy::default() }, Vec::new(), null);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let params = Some(RawJson::trusted(params.to_owned()));
    let request = Request { id: RequestId::from_number(1), method: Method::ToolsCall, params };
    let mut sent = runtime::send(&session, request);
    loop {
        tokio::select! {
            refused = &mut sent => {
                assert!(json_of(refused.unwrap())["error"].is_object());
                return false;
            }
            seen = world.script.next() => if matches!(seen, Seen::Call(_)) { return true },
        }
    }
}

#[tokio::test]
async fn params_that_make_no_sense_do_not_get_past_the_guard() {
    for params in [
        r#"{"name":"t","arguments":{}}"#,
        r#"{"name":"t","arguments":{},"meta":1}"#,
        r#"{"name":"t","name":"t"}"#,
        r#"{"name":"t","_meta":1}"#,
        r#"{"\ud800":1,"name":"t"}"#,
        r#"{"name":null,"n\u0061me":"t"}"#,
        r#"{"name":"t","_meta":{"mcp/session":null,"mcp/session":null}}"#,
    ] {
        assert!(!slips_through(params, false).await, "{params}");
    }
    assert!(!slips_through(r#"{"name":"t"}"#, true).await, "a server that says null");
}

#[tokio::test]
async fn a_long_call_does_not_take_back_the_cookie_of_a_state_that_lives() {
    let mut world = world(Policy::default(), Vec::new(), false);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let new = NewState::of(Kind::new("session").unwrap());
    let state = world.states.create(&Principal::ANONYMOUS, new).await.unwrap();
    let cookie = json!({ "id": state.id().cookie() });
    let long = call(&session, 1, &cookie);
    let waiting = world.script.call().await;
    for n in 2..6 {
        world.clock.turn(10 * MINUTE);
        let short = call(&session, n, &cookie);
        world.script.call().await.answer(&json!({}));
        assert!(answer(short).await["result"]["_meta"]["mcp/session"].is_object());
    }
    waiting.answer(&json!({}));
    let answer = answer(long).await;
    assert!(answer["result"]["_meta"]["mcp/session"].is_object(), "{answer}");
}

#[tokio::test]
async fn a_cookie_that_was_sealed_after_the_end_is_good_for_nothing() {
    let mut world = world(Policy { seal: Some(Arc::new(Bound)), ..Policy::default() }, Vec::new(), false);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let new = NewState { idle_ttl: Some(24 * 60 * MINUTE), ..NewState::of(Kind::new("session").unwrap()) };
    let state = world.states.create(&Principal::ANONYMOUS, new).await.unwrap();
    let id = state.id().cookie();
    let long = call(&session, 1, &json!({ "id": id }));
    let waiting = world.script.call().await;
    let deleted = answer(runtime::send(&session, request(2, "session/delete", &json!({ "id": id })))).await;
    assert_eq!(deleted["result"]["deleted"], true);
    world.clock.turn(2 * MINUTE);
    waiting.answer(&json!({}));
    assert_eq!(answer(long).await["result"]["_meta"], json!({ "mcp/session": null }));
}

#[tokio::test]
async fn a_list_of_one_kind_is_not_hidden_by_another() {
    let kind = |name| Kind::new(name).unwrap();
    let world = world(Policy::default(), vec![KindOfState::new(kind("basket"), "a basket")], false);
    let ann = Principal::named("ann");
    for _ in 0..400 {
        world.states.create(&ann, NewState::of(kind("session"))).await.unwrap();
    }
    world.states.create(&ann, NewState::of(kind("basket"))).await.unwrap();
    let created =
        world.sessions.create(request(0, "initialize", &runtime::initialize("2025-11-25")), &ann).await;
    let session = created.unwrap().session.unwrap();
    session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
    let caller = Caller { principal: ann, ..Caller::anonymous("test") };
    let listed = session.request(request(1, "tools/call", &json!({ "name": "list_baskets" })), caller).await;
    let listed = json_of(listed.unwrap());
    assert_eq!(listed["result"]["structuredContent"]["baskets"].as_array().unwrap().len(), 1, "{listed}");
}
