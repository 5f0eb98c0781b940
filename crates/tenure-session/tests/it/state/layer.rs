//! The data layer at the wrong moment, and in front of those who mean harm.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_layers::data::{DataLayer, KindOfState, Policy, Required};
use tenure_protocol::{Method, Notification, RawJson, Request, RequestId, RpcError};
use tenure_session::backend::{Backend, Open, Opened};
use tenure_session::call::Caller;
use tenure_session::port::BoxFuture;
use tenure_session::port::seal::Seal;
use tenure_session::session::{Answer, SessionParts};
use tenure_session::state::{NewState, State, StateKind, StateLimits};
use tenure_session::{Limits, Principal, Session, Sessions, States};
use tenure_store::memory::Memory;
use tenure_testkit::clock::{HandClock, TurnableClock};
use tenure_testkit::fake_backend::{BackendEvent, FakeBackend, Script};
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
    let parts = SessionParts {
        store,
        backend,
        clock: Arc::new(TurnableClock::start()),
        limits: Limits::default(),
        roster: None,
    };
    World { sessions: Sessions::start(parts), states, clock, script }
}

/// An anonymous data session.
async fn state(world: &World) -> State {
    let new = NewState::of(StateKind::new("session").unwrap());
    world.states.create(&Principal::ANONYMOUS, new).await.unwrap()
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

/// Whether a call reaches the server although every tool needs a session and it names none. It may come from the wire,
/// or have been made.
async fn slips_through(params: &str, null: bool) -> bool {
    slips_past(Required::All, params, null).await
}

async fn slips_past(required: Required, params: &str, null: bool) -> bool {
    let written = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
    let read = runtime::read_request(&written.into());
    let made = Request {
        id: RequestId::from_number(1),
        method: Method::ToolsCall,
        params: Some(RawJson::trusted(params.to_owned())),
    };
    let read = reaches_the_server(read, required.clone(), null).await;
    assert_eq!(reaches_the_server(made, required, null).await, read, "{params}");
    read
}

async fn reaches_the_server(request: Request, required: Required, null: bool) -> bool {
    let mut world = world(Policy { required, ..Policy::default() }, Vec::new(), null);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let mut sent = runtime::send(&session, request);
    loop {
        tokio::select! {
            refused = &mut sent => {
                assert!(json_of(refused.unwrap())["error"].is_object());
                return false;
            }
            seen = world.script.next() => if matches!(seen, BackendEvent::Call(_)) { return true },
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
        r#"{"Name":"t"}"#,
    ] {
        assert!(!slips_through(params, false).await, "{params}");
    }
    let long = "x".repeat(70_000);
    let twice = format!(r#"{{"x":"{long}","name":"t","_meta":{{}},"_meta":{{}}}}"#);
    assert!(!slips_through(&twice, false).await, "far behind");
    assert!(!slips_through(r#"{"name":"t"}"#, true).await, "a server that says null");
    // Only one tool needs a session, and no other name hides it from those who do not mind the case.
    let required = || Required::Tools(["t".to_owned()].into_iter().collect());
    for (params, slips) in [
        (r#"{"name":"u"}"#, true),
        (r#"{"name":"t"}"#, false),
        (r#"{"name":"u","Name":"t"}"#, false),
        (r#"{"Name":"t"}"#, false),
    ] {
        assert_eq!(slips_past(required(), params, false).await, slips, "{params}");
    }
}

#[tokio::test]
async fn a_long_call_does_not_take_back_the_cookie_of_a_state_that_lives() {
    let mut world = world(Policy::default(), Vec::new(), false);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let cookie = json!({ "id": state(&world).await.id().cookie() });
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
async fn a_state_that_somebody_keeps_does_not_change_under_him_with_the_next_call() {
    let mut world = world(Policy::default(), Vec::new(), false);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let cookie = json!({ "id": state(&world).await.id().cookie() });
    let (mut kept, mut seen) = (Vec::new(), Vec::new());
    for n in 1..=3 {
        let called = call(&session, n, &cookie);
        let waiting = world.script.call().await;
        let state = waiting.context.state().unwrap().clone();
        let (before, edition) = state.get::<u64>().unwrap();
        seen.push(before);
        state.update(edition, &n).await.unwrap();
        kept.push(state);
        waiting.answer(&json!({}));
        answer(called).await;
    }
    assert_eq!(seen, [0, 1, 2]);
    let now: Vec<u64> = kept.iter().map(|state| state.get().unwrap().0).collect();
    assert_eq!(now, [1, 2, 3]);
}

#[tokio::test]
async fn a_state_without_holders_is_read_again_with_the_next_call() {
    let mut world = world(Policy::default(), Vec::new(), false);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let state = state(&world).await;
    let params = json!({
        "name": "any", "_meta": { "io.modelcontextprotocol/session": { "sessionId": state.id().cookie() } },
    });
    // The draft's clients hear of what a call changed, and of that alone.
    for (n, changes) in [(1, false), (2, true), (3, false), (4, true), (5, true), (6, false)] {
        let called = runtime::send(&session, request(n, "tools/call", &params));
        let waiting = world.script.call().await;
        let state = waiting.context.state().unwrap();
        let (before, edition) = state.get::<Vec<u64>>().unwrap();
        assert_eq!(before, [2, 4, 5].into_iter().filter(|change| *change < n).collect::<Vec<_>>());
        if changes {
            state.update(edition, &[&before[..], &[n]].concat()).await.unwrap();
        }
        waiting.answer(&json!({}));
        assert_eq!(answer(called).await["result"]["_meta"].is_object(), changes, "call {n}");
    }
}

#[tokio::test]
async fn a_cookie_is_recognized_whatever_stands_around_it_and_not_confused_with_another() {
    let mut world = world(Policy::default(), Vec::new(), false);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let ids = [state(&world).await.id(), state(&world).await.id()];
    let long = "x".repeat(100_000);
    for (n, (which, around)) in
        [(0, ""), (0, ""), (0, "a"), (1, "a"), (0, "a"), (0, &long), (1, &long), (1, ""), (0, "")]
            .into_iter()
            .enumerate()
    {
        let params = json!({
            "name": "any", "_meta": { "around": around, "mcp/session": { "id": ids[which].cookie() } },
        });
        let called = runtime::send(&session, request(n as u64 + 1, "tools/call", &params));
        let waiting = world.script.call().await;
        assert_eq!(waiting.context.state().unwrap().id(), ids[which], "call {n}");
        waiting.answer(&json!({}));
        assert_eq!(answer(called).await["result"]["_meta"]["mcp/session"]["id"], ids[which].cookie());
    }
}

#[tokio::test]
async fn the_same_cookie_under_another_name_is_another() {
    let mut world = world(Policy::default(), Vec::new(), false);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let ids = [state(&world).await.id(), state(&world).await.id()];
    let cookie = json!({ "id": ids[0].cookie(), "sessionId": ids[1].cookie() });
    for (n, key) in ["mcp/session", "io.modelcontextprotocol/session", "mcp/session"].into_iter().enumerate()
    {
        let params = json!({ "name": "any", "_meta": { key: cookie } });
        let called = runtime::send(&session, request(n as u64 + 1, "tools/call", &params));
        let waiting = world.script.call().await;
        assert_eq!(waiting.context.state().unwrap().id(), ids[n % 2], "call {n}");
        waiting.answer(&json!({}));
        answer(called).await;
    }
}

#[tokio::test]
async fn a_cookie_that_was_sealed_after_the_end_is_good_for_nothing() {
    let mut world = world(Policy { seal: Some(Arc::new(Bound)), ..Policy::default() }, Vec::new(), false);
    let session = runtime::session(&world.sessions, "2025-11-25").await;
    let new =
        NewState { idle_ttl: Some(24 * 60 * MINUTE), ..NewState::of(StateKind::new("session").unwrap()) };
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
    let kind = |name| StateKind::new(name).unwrap();
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
