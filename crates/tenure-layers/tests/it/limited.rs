//! Limits of calls, in front of a server that counts what it gets.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use serde_json::json;
use tenure_layers::limited::{
    CallLimitSettings, CallLimits, CallPattern, OverLimit, PatternLimit, PrincipalGrants, QueueBounds,
    Shedding, Signs,
};
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RequestId, RpcError};
use tenure_session::Principal;
use tenure_session::backend::{Backend, Call, Open, Opened, Responder};
use tenure_session::call::{CallContext, Caller, Client};
use tenure_session::port::BoxFuture;
use tenure_session::rate::Rate;
use tenure_testkit::fake_client::FakeClient;
use tokio::time::Instant;

/// How long the server takes for a call.
const SERVICE: Duration = Duration::from_millis(50);

/// A server that takes its time, and knows how many calls it has at once.
#[derive(Default)]
struct Slow {
    running: AtomicUsize,
    most: AtomicUsize,
    calls: AtomicUsize,
    forgotten: AtomicUsize,
}

struct Standing(Arc<Slow>);

impl Backend for Standing {
    fn open(&self, _: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let refusal = RpcError::of(Reason::BackendUnavailable, "there are no sessions here");
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Some(Arc::new(Self(Arc::clone(&self.0))))
    }
}

/// Counts a call down, also when it is dropped.
struct Running(Arc<Slow>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Responder for Standing {
    fn respond(&self, _: Call) -> BoxFuture<Reply> {
        let slow = Arc::clone(&self.0);
        Box::pin(async move {
            slow.calls.fetch_add(1, Ordering::SeqCst);
            let running = slow.running.fetch_add(1, Ordering::SeqCst) + 1;
            slow.most.fetch_max(running, Ordering::SeqCst);
            let _running = Running(Arc::clone(&slow));
            tokio::time::sleep(SERVICE).await;
            Ok(RawJson::EMPTY_OBJECT)
        })
    }

    fn forget(&self, _: &Principal) {
        self.0.forgotten.fetch_add(1, Ordering::SeqCst);
    }
}

struct World {
    limits: CallLimits,
    server: Arc<Slow>,
    front: Arc<dyn Responder>,
    client: Arc<FakeClient>,
}

impl World {
    fn new(settings: CallLimitSettings) -> Self {
        let (limits, server) = (CallLimits::new(settings), Arc::<Slow>::default());
        let backend = limits.in_front_of_server(Arc::new(Standing(Arc::clone(&server))), Some("files"));
        let front = limits.in_front(backend).responder().unwrap();
        Self { limits, server, front, client: FakeClient::new(json!({})) }
    }

    fn call(&self, principal: &str, tool: &str) -> BoxFuture<Reply> {
        self.ask("tools/call", principal, tool)
    }

    fn ask(&self, method: &str, principal: &str, tool: &str) -> BoxFuture<Reply> {
        let params = Some(RawJson::of(&json!({ "name": tool })));
        let request = Request { id: RequestId::from_number(1), method: Method::new(method), params };
        let caller = Caller { principal: Principal::named(principal), ..Caller::anonymous("test") };
        let client: Arc<dyn Client> = Arc::clone(&self.client) as _;
        let context = CallContext::new(client, &request, caller);
        self.front.respond(Call { request, context })
    }
}

fn settings() -> CallLimitSettings {
    CallLimitSettings::default()
}

/// What the error says: whose limit it was, and when to come back.
fn told(reply: &Reply) -> (String, u64) {
    let error: serde_json::Value = reply.as_ref().unwrap_err().raw().read().unwrap();
    assert_eq!((&error["code"], &error["data"]["reason"]), (&json!(-31029), &json!("rate_limited")));
    let per = error["data"]["per"].as_str().unwrap().to_owned();
    (per, error["data"]["retryAfterMs"].as_u64().unwrap())
}

fn pattern<T>(text: &str, limit: T) -> Vec<PatternLimit<T>> {
    vec![PatternLimit { pattern: CallPattern::parse(text).unwrap(), limit }]
}

#[tokio::test(start_paused = true)]
async fn rl3_a_flood_of_one_principal_costs_another_at_most_two_service_times() {
    let world =
        World::new(CallLimitSettings { servers_concurrent: vec![("files".to_owned(), 4)], ..settings() });
    let mut flood = join_all((0..10_000).map(|_| world.call("flood", "read")));
    assert!(poll!(&mut flood).is_pending());
    for _ in 0..5 {
        let began = Instant::now();
        let mut single = world.call("ann", "read");
        let single = async { (&mut single).await.map(|_| began.elapsed()) };
        tokio::select! {
            biased;
            _ = &mut flood => panic!("the flood is longer"),
            took = single => assert!(took.unwrap() <= 3 * SERVICE, "two service times of waiting, and its own"),
        }
    }
    assert_eq!(world.server.most.load(Ordering::SeqCst), 4);
    // Every call of the flood is answered too: those beyond the queue at once, those beyond their time late.
    let replies = flood.await;
    let refused =
        replies.iter().filter(|reply| reply.is_err()).inspect(|reply| assert_eq!(told(reply).0, "backend"));
    assert!(refused.count() >= 10_000 - 4 - 64);
    assert_eq!(world.server.running.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn rl4_a_hundred_thousand_principals_leave_nothing_behind() {
    let world = World::new(CallLimitSettings {
        principal: Some(Rate::per_second(10)),
        principal_concurrent: Some(2),
        tools: pattern("*", Rate::per_second(5)),
        ..settings()
    });
    for number in 0..100_000 {
        let reply = world.call(&number.to_string(), "read");
        drop(reply);
    }
    assert!(world.limits.count() > 50_000);
    // Two windows.
    tokio::time::advance(Duration::from_secs(2)).await;
    world.limits.tend().await;
    assert_eq!(world.limits.count(), 0);
    assert!(world.call("ann", "read").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_principal_has_its_rate_and_waits_for_it_within_the_time_that_is_allowed() {
    let rate = Rate::new(10, Duration::from_secs(1), 5);
    let world = World::new(CallLimitSettings {
        principal: Some(rate),
        max_wait: Duration::from_millis(300),
        ..settings()
    });
    let calls = join_all((0..10).map(|_| async {
        let began = Instant::now();
        world.call("ann", "read").await.map(|_| began.elapsed().as_millis())
    }));
    let took: Vec<_> = calls.await.into_iter().collect();
    let waited: Vec<u128> = took.iter().flatten().map(|took| took - SERVICE.as_millis()).collect();
    assert_eq!(waited, [0, 0, 0, 0, 0, 100, 200, 300]);
    assert!(world.call("bob", "read").await.is_ok(), "each principal has its own");
    assert!(world.ask("ping", "ann", "").await.is_ok(), "a ping is free");
    let other =
        World::new(CallLimitSettings { principal: Some(rate), max_wait: Duration::ZERO, ..settings() });
    let replies = join_all((0..6).map(|_| other.call("ann", "read"))).await;
    assert_eq!(
        told(&replies[5]),
        ("principal".to_owned(), 100),
        "there is no wait that is allowed, and nothing has passed yet"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_its_rate_for_each_principal_and_for_all_and_what_is_refused_takes_nothing() {
    let world = World::new(CallLimitSettings {
        tools: pattern("files/write_*", Rate::new(1, Duration::from_secs(1000), 2)),
        tools_in_all: pattern("write_*", Rate::new(1, Duration::from_secs(1), 3)),
        max_wait: Duration::ZERO,
        ..settings()
    });
    assert!(world.call("ann", "write_a").await.is_ok() && world.call("ann", "write_b").await.is_ok());
    let refused = world.call("ann", "write_a").await;
    assert_eq!(told(&refused).0, "tool");
    assert!(world.call("ann", "read").await.is_ok(), "other tools are free");
    assert!(world.call("bob", "write_a").await.is_ok());
    assert_eq!(told(&world.call("bob", "write_a").await).0, "tool", "all together had three");
    // The refused call has taken nothing of bob's own two.
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(world.call("bob", "write_a").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn so_many_at_once_and_no_more_of_a_principal_and_of_a_tool() {
    let world = World::new(CallLimitSettings {
        principal_concurrent: Some(2),
        tools_in_all_concurrent: pattern("write", 3),
        ..settings()
    });
    let of_ann = (0..6).map(|_| world.call("ann", "read"));
    assert!(join_all(of_ann).await.iter().all(Result::is_ok), "they wait for each other");
    assert_eq!(world.server.most.swap(0, Ordering::SeqCst), 2);
    let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    assert!(join_all(names.iter().map(|name| world.call(name, "write"))).await.iter().all(Result::is_ok));
    assert_eq!(world.server.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_withdrawn_while_it_waits_never_reaches_the_server() {
    let queue = QueueBounds { of_principal: 1, in_all: 1 };
    let world =
        World::new(CallLimitSettings { servers_concurrent: vec![("*".to_owned(), 1)], queue, ..settings() });
    let mut first = world.call("ann", "read");
    let mut second = world.call("ann", "read");
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    assert_eq!(told(&world.call("ann", "read").await).0, "backend", "the queue is full");
    world.client.cancel();
    assert!(second.await.unwrap_err().is(Reason::Cancelled));
    first.await.unwrap();
    assert_eq!(world.server.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_model_reads_that_it_has_to_slow_down_if_that_is_configured() {
    let rate = Rate::new(1, Duration::from_secs(1), 1);
    let over_limit = OverLimit::ToolResult;
    let world = World::new(CallLimitSettings {
        principal: Some(rate),
        max_wait: Duration::ZERO,
        over_limit,
        ..settings()
    });
    world.call("ann", "read").await.unwrap();
    let result: serde_json::Value = world.call("ann", "read").await.unwrap().read().unwrap();
    assert_eq!(result["isError"], true);
    let text = "Rate limit reached (1/s per principal): retry in 1 s";
    assert_eq!(result["content"], json!([{ "type": "text", "text": text }]));
    let data = json!({ "reason": "rate_limited", "retryAfterMs": 950, "limit": "1/s", "per": "principal" });
    assert_eq!(result["_meta"], json!({ "dev.tenure/refused": data }), "for programs");
    assert_eq!(told(&world.ask("resources/read", "ann", "").await).0, "principal", "only tools have results");
}

#[tokio::test(start_paused = true)]
async fn a_principal_of_greater_weight_gets_more_of_a_server_at_its_limit() {
    let grants = PrincipalGrants { weights: vec![("heavy-*".to_owned(), 3)], ..PrincipalGrants::default() };
    let servers_concurrent = vec![("files".to_owned(), 1)];
    let max_wait = Duration::from_secs(60);
    let world = World::new(CallLimitSettings { servers_concurrent, grants, max_wait, ..settings() });
    let calls = ["heavy-1", "ann"].into_iter().flat_map(|name| (0..40).map(move |_| name));
    let mut calls: Vec<_> = calls.map(|name| (name, world.call(name, "read"))).collect();
    let mut first = calls.remove(0).1;
    assert!(poll!(&mut first).is_pending());
    let order = parking_lot::Mutex::new(Vec::new());
    let order = &order;
    let all = join_all(calls.into_iter().map(|(name, call)| async move {
        call.await.unwrap();
        order.lock().push(name);
    }));
    let (_, _) = tokio::join!(first, all);
    let early = &order.lock()[..24];
    assert_eq!(early.iter().filter(|name| **name == "ann").count(), 6, "{early:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_keep_up_refuses_the_heaviest_principal_alone() {
    for over_limit in [OverLimit::Error, OverLimit::ToolResult] {
        let shedding = Shedding::new(Duration::from_millis(100), over_limit);
        let mut world = World::new(settings());
        let standing: Arc<dyn Backend> = Arc::new(Standing(Arc::clone(&world.server)));
        world.front = shedding.in_front(standing).responder().unwrap();
        for _ in 0..8 {
            drop(join_all((0..200).map(|_| world.call("flood", "read"))));
            world.call("ann", "read").await.unwrap();
            shedding.look(Signs { lag: Duration::from_millis(150), memory_percent: 0 });
        }
        let before = world.server.calls.load(Ordering::SeqCst);
        let refused = world.call("flood", "read").await;
        match over_limit {
            OverLimit::Error => assert_eq!(told(&refused), ("server".to_owned(), 2000)),
            OverLimit::ToolResult => {
                let result: serde_json::Value = refused.unwrap().read().unwrap();
                assert_eq!(result["_meta"]["dev.tenure/refused"]["reason"], "rate_limited");
            }
        }
        assert_eq!(world.server.calls.load(Ordering::SeqCst), before, "it does not reach the server");
        world.call("ann", "read").await.unwrap();
        world.ask("ping", "flood", "").await.unwrap();
        for _ in 0..4 {
            shedding.look(Signs::default());
        }
        world.call("flood", "read").await.unwrap();
    }
}

#[tokio::test]
async fn without_limits_there_is_no_layer() {
    let limits = CallLimits::new(settings());
    let backend: Arc<dyn Backend> = Arc::new(Standing(Arc::default()));
    let layered = limits.in_front(limits.in_front_of_server(Arc::clone(&backend), Some("files")));
    assert!(Arc::ptr_eq(&backend, &layered));
}

#[tokio::test]
async fn a_server_behind_limits_is_told_to_forget_a_principal() {
    let world = World::new(CallLimitSettings {
        principal: Some(Rate::per_second(1000)),
        servers_concurrent: vec![("files".into(), 4)],
        ..settings()
    });
    world.front.forget(&Principal::named("corp:alice"));
    assert_eq!(world.server.forgotten.load(Ordering::SeqCst), 1, "once, through both wrappers");
}
