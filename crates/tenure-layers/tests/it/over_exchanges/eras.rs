//! Servers of either era, and of both, for clients of either.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_layers::bridge::{ERA_TTL, EitherEra, ExchangesOnSessions, Halves, PoolLimits};
use tenure_protocol::translate::evidence::{AnsweredOver, ServerTransport};
use tenure_protocol::{Era, Error, Method, Notification, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::probe::{Probe, ProbeAnswer, ProbeAttempt};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::port::BoxFuture;
use tenure_session::{Limits, Principal, Session, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::fake_client::FakeClient;
use tenure_testkit::runtime::{self, json_of};
use tokio::sync::Semaphore;

/// One half of a server: its answer to the first request of its era, and how often it was asked.
#[derive(Default)]
struct Half {
    refuses: Mutex<Option<RpcError>>,
    fails_calls: Mutex<Option<RpcError>>,
    asked: AtomicUsize,
    calls: AtomicUsize,
    over: Mutex<Option<ServerTransport>>,
    /// Holds answers back until the test adds a permit. `None`: it answers at once.
    gate: Mutex<Option<Arc<Semaphore>>>,
}

impl Half {
    fn refuse(&self, error: RpcError) {
        *self.refuses.lock() = Some(error);
    }

    fn agree(&self) {
        *self.refuses.lock() = None;
    }

    fn fail_calls(&self, error: Option<RpcError>) {
        *self.fails_calls.lock() = error;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    async fn answer(&self, is_first: bool, result: Value) -> Reply {
        let counter = if is_first { &self.asked } else { &self.calls };
        counter.fetch_add(1, Ordering::SeqCst);
        let gate = self.gate.lock().clone();
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        let failed = self.fails_calls.lock().clone().filter(|_| !is_first);
        match self.refuses.lock().clone().or(failed) {
            Some(error) => Err(error),
            None => Ok(RawJson::of(&result)),
        }
    }
}

struct Legacy(Arc<Half>);

impl Backend for Legacy {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let half = Arc::clone(&self.0);
        Box::pin(async move {
            let result = json!({
                "protocolVersion": open.revision.as_str(),
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "legacy", "version": "1" },
            });
            let result = half.answer(true, result).await.inspect_err(|_| open.outlet.link_lost())?;
            Ok(Opened { link: Box::new(Legacy(half)), result })
        })
    }
}

impl Link for Legacy {
    fn call(&self, _: Call) -> BoxFuture<Reply> {
        let half = Arc::clone(&self.0);
        Box::pin(async move { half.answer(false, json!({ "by": "legacy" })).await })
    }

    fn notify(&self, _: Notification) {}

    fn close(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

struct Modern(Arc<Half>);

impl Responder for Modern {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let half = Arc::clone(&self.0);
        Box::pin(async move {
            match call.request.method {
                Method::Discover => half.answer(true, crate::over_exchanges::support::quiet()).await,
                _ => half.answer(false, json!({ "by": "modern" })).await,
            }
        })
    }
}

impl Probe for Modern {
    fn probe(&self, call: Call) -> BoxFuture<ProbeAttempt> {
        let (reply, over) = (self.respond(call), self.0.over.lock().unwrap_or(ServerTransport::Http));
        Box::pin(async move {
            // As the real halves do: an error that the server did not write is not an answer.
            let reply = reply.await;
            let status = reply.as_ref().err().and_then(|error| error.raw().read::<Value>().ok());
            let status = status.and_then(|error| error["data"]["status"].as_u64());
            let is = |reason| reply.as_ref().is_err_and(|error: &RpcError| error.is(reason));
            let way = match over {
                ServerTransport::Pipes => AnsweredOver::Pipes,
                ServerTransport::Http if is(Reason::TimedOut) => AnsweredOver::Http(None),
                ServerTransport::Http if is(Reason::BackendUnavailable) => {
                    AnsweredOver::Http(status.and_then(|it| it.try_into().ok()))
                }
                ServerTransport::Http => AnsweredOver::Http(Some(200)),
            };
            let answer = match reply {
                Err(error) if error.is(Reason::TooManyProcesses) => ProbeAnswer::NotAsked(error),
                Err(error) if error.is(Reason::BackendUnavailable) || error.is(Reason::TimedOut) => {
                    ProbeAnswer::Nothing(error)
                }
                reply => ProbeAnswer::Said(reply),
            };
            ProbeAttempt { way, answer }
        })
    }
}

/// Stands in for the bridge from exchanges to sessions.
struct Bridge;

impl Responder for Bridge {
    fn respond(&self, _: Call) -> BoxFuture<Reply> {
        Box::pin(std::future::ready(Ok(RawJson::trusted(r#"{"by":"bridge"}"#))))
    }
}

struct World {
    legacy: Arc<Half>,
    modern: Arc<Half>,
    sessions: Sessions,
    exchanges: Arc<dyn Responder>,
}

impl World {
    fn new() -> Self {
        Self::with(ServerTransport::Http, None)
    }

    fn with(over: ServerTransport, only: Option<Era>) -> Self {
        Self::over(over, only, |_| Arc::new(Bridge))
    }

    /// With the real bridge from exchanges to sessions.
    fn bridged(over: ServerTransport) -> Self {
        Self::over(over, None, |legacy| Arc::new(ExchangesOnSessions::new(legacy, PoolLimits::default())))
    }

    fn over(
        over: ServerTransport,
        only: Option<Era>,
        bridge: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Responder>,
    ) -> Self {
        let (legacy, modern) = (Arc::<Half>::default(), Arc::<Half>::default());
        *modern.over.lock() = Some(over);
        let halves = Halves {
            legacy: Arc::new(Legacy(Arc::clone(&legacy))),
            modern: Arc::new(Modern(Arc::clone(&modern))),
            over,
            only,
            ttl: ERA_TTL,
        };
        let clock = Arc::new(TurnableClock::start());
        let eras = Arc::new(EitherEra::new(halves, clock.clone(), bridge));
        let exchanges = Arc::clone(&eras).responder().unwrap();
        let limits = Limits { idle_ttl: None, max_lifetime: None, dormant_after: None, ..Limits::default() };
        let sessions = runtime::start_at(Arc::new(Memory::new()), eras, clock, limits);
        Self { legacy, modern, sessions, exchanges }
    }

    /// A new session, or the error in its place.
    async fn open(&self) -> Result<Arc<Session>, Value> {
        let request = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
        let created = self.sessions.create(request, &Principal::ANONYMOUS).await.unwrap();
        let Some(session) = created.session else {
            return Err(runtime::parse(&created.answer)["error"].clone());
        };
        session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
        Ok(session)
    }

    /// Which half answers a new session, and which an exchange.
    async fn session(&self) -> String {
        match self.open().await {
            Ok(session) => by(&call(&session).await["result"]),
            Err(error) => format!("error {}", error["code"]),
        }
    }

    async fn exchange(&self, method: &str) -> String {
        match self.exchanges.respond(FakeClient::new(json!({})).call(1, method, json!({}))).await {
            Ok(result) => by(&result.read().unwrap()),
            Err(error) => format!("error {}", error.code()),
        }
    }

    /// How often each half got the first request of its era.
    fn asked(&self) -> (usize, usize) {
        (self.legacy.asked(), self.modern.asked())
    }
}

async fn call(session: &Arc<Session>) -> Value {
    json_of(runtime::send(session, runtime::request(1, "tools/list", &json!({}))).await.unwrap())
}

fn by(result: &Value) -> String {
    result["by"].as_str().unwrap_or("discovery").to_owned()
}

fn not_served() -> RpcError {
    RpcError::from_raw(RawJson::trusted(
        r#"{"code":-32022,"message":"m","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}"#,
    ))
}

fn no_method() -> RpcError {
    RpcError::new(-32601, "no such method")
}

/// A half's own error for an answer with this status and nothing else.
fn status(status: u16) -> RpcError {
    Error::new(Reason::BackendUnavailable, "no JSON-RPC").with("status", status).to_rpc()
}

#[tokio::test]
async fn a_server_of_both_eras_is_never_bridged() {
    let world = World::new();
    for _ in 0..2 {
        assert_eq!(world.session().await, "legacy");
        assert_eq!(world.exchange("tools/list").await, "modern");
        assert_eq!(world.exchange("server/discover").await, "discovery");
    }
    // The modern half was probed once; all other requests are the clients' own.
    assert_eq!(world.asked(), (2, 3));
}

#[tokio::test]
async fn sessions_of_a_modern_server_go_over_the_bridge() {
    for refusal in [not_served(), no_method()] {
        let world = World::new();
        world.legacy.refuse(refusal);
        assert_eq!(world.session().await, "modern");
        assert_eq!(world.session().await, "modern");
        assert_eq!(world.legacy.asked(), 1, "what is known is not asked again");
        assert_eq!(world.exchange("tools/list").await, "modern");
    }
}

#[tokio::test]
async fn exchanges_of_a_legacy_server_go_over_the_bridge() {
    let without = RpcError::from_raw(RawJson::trusted(
        r#"{"code":-32022,"message":"m","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}"#,
    ));
    for refusal in [no_method(), without, status(404), status(400), RpcError::new(-32600, "no session")] {
        let world = World::new();
        world.modern.refuse(refusal.clone());
        for method in ["tools/list", "server/discover", "tools/call"] {
            assert_eq!(world.exchange(method).await, "bridge", "{method} {refusal:?}");
        }
        assert_eq!(world.asked(), (0, 1));
        assert_eq!(world.modern.calls.load(Ordering::SeqCst), 0, "only a discovery finds out");
        assert_eq!(world.session().await, "legacy");
    }
}

#[tokio::test]
async fn what_tells_nothing_is_an_error_and_no_verdict() {
    let silent = RpcError::of(Reason::BackendUnavailable, "no answer");
    let late = RpcError::of(Reason::TimedOut, "no answer");
    for refusal in [status(401), status(403), status(500), status(503), status(429), silent, late] {
        let world = World::new();
        world.legacy.refuse(refusal.clone());
        world.modern.refuse(refusal.clone());
        let code = format!("error {}", refusal.code());
        assert_eq!((world.session().await, world.exchange("tools/list").await), (code.clone(), code));
        assert_eq!(world.asked(), (1, 1), "{refusal:?}");
        world.legacy.agree();
        world.modern.agree();
        assert_eq!(world.session().await, "legacy");
        assert_eq!(world.exchange("tools/list").await, "modern");
    }
}

#[tokio::test]
async fn an_answer_that_says_nothing_of_eras_is_tried_in_the_other_words() {
    let world = World::new();
    world.legacy.refuse(status(405));
    assert_eq!(world.session().await, "modern");
    // The refusal was not a verdict, so the legacy half is tried again.
    assert_eq!(world.session().await, "modern");
    assert_eq!(world.legacy.asked(), 2);
    world.modern.refuse(no_method());
    assert_eq!(world.session().await, "error -31011", "the error of its own era is told");
}

#[tokio::test]
async fn silence_on_pipes_is_an_answer() {
    let world = World::with(ServerTransport::Pipes, None);
    world.modern.refuse(RpcError::of(Reason::TimedOut, "no answer"));
    assert_eq!(world.exchange("tools/list").await, "bridge");
    let world = World::with(ServerTransport::Pipes, None);
    world.modern.refuse(RpcError::of(Reason::TooManyProcesses, "later"));
    assert_eq!(world.exchange("tools/list").await, "error -31029");
    world.modern.agree();
    assert_eq!(world.exchange("tools/list").await, "modern");
}

#[tokio::test(start_paused = true)]
async fn verdicts_expire() {
    let world = World::new();
    world.legacy.refuse(not_served());
    assert_eq!(world.session().await, "modern");
    world.legacy.agree();
    tokio::time::sleep(Duration::from_secs(59 * 60)).await;
    assert_eq!(world.session().await, "modern");
    tokio::time::sleep(Duration::from_secs(2 * 60)).await;
    assert_eq!(world.session().await, "legacy");
}

#[tokio::test]
async fn a_server_that_is_replaced_by_one_of_the_other_era_is_found_out() {
    let gone =
        r#"{"code":-32022,"message":"m","data":{"supported":["2025-11-25"],"requested":"2026-07-28"}}"#;
    let gone = RpcError::from_raw(RawJson::trusted(gone));
    for refusal in [gone, RpcError::new(-32000, "No valid session ID provided"), status(405)] {
        let world = World::new();
        world.legacy.refuse(not_served());
        let session = world.open().await.unwrap();
        assert_eq!(by(&call(&session).await["result"]), "modern");
        assert_eq!(world.exchange("tools/list").await, "modern");
        // Now it is of the legacy era only.
        world.legacy.agree();
        world.modern.refuse(refusal.clone());
        // The session goes on with its next request, and so do exchanges.
        let answer = call(&session).await;
        assert_eq!(by(&answer["result"]), "legacy", "{refusal:?} {answer}");
        assert_eq!(world.exchange("tools/list").await, "bridge");
        assert_eq!(world.session().await, "legacy");
        // And back again.
        world.modern.agree();
        world.legacy.refuse(not_served());
        assert_eq!(world.session().await, "modern");
        assert_eq!(world.exchange("tools/list").await, "modern");
    }
}

#[tokio::test]
async fn exchanges_notice_by_themselves_that_a_server_was_replaced() {
    for refusal in [RpcError::new(-32000, "No valid session ID provided"), status(405)] {
        let world = World::new();
        assert_eq!(world.exchange("tools/list").await, "modern");
        world.modern.refuse(refusal);
        assert_eq!(world.exchange("tools/list").await, "bridge");
        assert_eq!(world.modern.calls.load(Ordering::SeqCst), 2);
        assert_eq!(world.exchange("tools/list").await, "bridge");
        assert_eq!(world.modern.calls.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn an_error_of_a_modern_server_is_no_reason_to_leave_it() {
    let world = World::new();
    world.legacy.refuse(not_served());
    let session = world.open().await.unwrap();
    world.modern.fail_calls(Some(RpcError::new(-32000, "a tool's own")));
    assert_eq!(call(&session).await["error"]["code"], -32000);
    assert_eq!(world.exchange("tools/list").await, "error -32000");
    world.modern.fail_calls(None);
    assert_eq!(by(&call(&session).await["result"]), "modern");
    assert_eq!(world.exchange("tools/list").await, "modern");
    assert_eq!(world.legacy.asked(), 1);
}

#[tokio::test]
async fn a_hundred_clients_find_out_once() {
    let world = Arc::new(World::new());
    world.legacy.refuse(not_served());
    world.modern.refuse(no_method());
    let gate = Arc::new(Semaphore::new(0));
    *world.legacy.gate.lock() = Some(Arc::clone(&gate));
    *world.modern.gate.lock() = Some(Arc::clone(&gate));
    let exchanges: Vec<_> = (0..100)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.exchange("tools/list").await })
        })
        .collect();
    // All requests have arrived before the first is answered.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.modern.asked(), 1);
    gate.add_permits(1000);
    for exchange in exchanges {
        assert_eq!(exchange.await.unwrap(), "bridge");
    }
    assert_eq!(world.modern.asked(), 1);
    let world = Arc::new(World::new());
    world.legacy.refuse(not_served());
    let gate = Arc::new(Semaphore::new(0));
    *world.legacy.gate.lock() = Some(Arc::clone(&gate));
    let opening: Vec<_> = (0..100)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.session().await })
        })
        .collect();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.legacy.asked(), 1);
    gate.add_permits(1000);
    for session in opening {
        assert_eq!(session.await.unwrap(), "modern");
    }
    assert_eq!(world.legacy.asked(), 1);
}

#[tokio::test]
async fn a_caller_that_leaves_while_finding_out_lets_the_next_one() {
    let world = Arc::new(World::new());
    let gate = Arc::new(Semaphore::new(0));
    *world.modern.gate.lock() = Some(Arc::clone(&gate));
    let start = |world: &Arc<World>| {
        let world = Arc::clone(world);
        tokio::spawn(async move { world.exchange("tools/list").await })
    };
    let first = start(&world);
    while world.modern.asked() == 0 {
        tokio::task::yield_now().await;
    }
    let second = start(&world);
    tokio::task::yield_now().await;
    first.abort();
    gate.add_permits(10);
    assert_eq!(second.await.unwrap(), "modern");
}

#[tokio::test]
async fn an_era_that_is_forced_is_the_only_one() {
    let world = World::with(ServerTransport::Http, Some(Era::Modern));
    assert_eq!(
        (world.session().await, world.exchange("tools/list").await),
        ("modern".into(), "modern".into())
    );
    assert_eq!(world.legacy.asked(), 0);
    let world = World::with(ServerTransport::Http, Some(Era::Legacy));
    assert_eq!(
        (world.session().await, world.exchange("tools/list").await),
        ("legacy".into(), "bridge".into())
    );
    assert_eq!(world.modern.asked(), 0);
}

#[tokio::test]
async fn a_modern_server_that_was_away_for_a_moment_is_found_again() {
    let meta_is_missing = RpcError::new(-32602, "_meta is missing");
    for (over, refusal) in [
        (ServerTransport::Http, meta_is_missing.clone()),
        (ServerTransport::Http, RpcError::new(-32600, "no such request")),
        (ServerTransport::Http, status(400)),
        (ServerTransport::Pipes, meta_is_missing),
    ] {
        let world = World::bridged(over);
        world.legacy.refuse(refusal.clone());
        // A proxy in front of the server shows its own page, or the server starts slowly.
        world.modern.refuse(status(404));
        let answer = world.exchange("tools/list").await;
        assert!(answer.starts_with("error"), "{answer}");
        world.modern.agree();
        assert_eq!(world.exchange("tools/list").await, "modern", "{over:?} {refusal:?}");

        let world = World::bridged(over);
        world.legacy.refuse(refusal.clone());
        world.modern.refuse(status(404));
        let answer = world.exchange("tools/list").await;
        assert!(answer.starts_with("error"), "{answer}");
        world.modern.agree();
        assert_eq!(world.session().await, "modern", "{over:?} {refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_attempt_to_find_out_delays_others_only_briefly() {
    let world = Arc::new(World::new());
    let gate = Arc::new(Semaphore::new(0));
    *world.legacy.gate.lock() = Some(gate);
    let first = Arc::clone(&world);
    let first = tokio::spawn(async move { first.session().await });
    while world.legacy.asked() == 0 {
        tokio::task::yield_now().await;
    }
    *world.legacy.gate.lock() = None;
    assert_eq!(world.session().await, "legacy");
    assert!(!first.is_finished());
}
