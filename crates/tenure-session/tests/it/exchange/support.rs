//! What these tests share: the runtime over a server that is steered by hand, and clients that come back.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::modern::{self, Caching, Checked, StreamSupport};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Eras, Message, Method, RawJson, Reply, Request, RpcError};
use tenure_session::backend::{Call, Responder};
use tenure_session::budget::{Resource, Share};
use tenure_session::call::{Caller, Fanout};
use tenure_session::exchange::{
    ExchangeAnswer, ExchangeLimits, ExchangeParts, ExchangeTallies, Exchanges, Flow,
};
use tenure_session::fingerprint::Fingerprints;
use tenure_session::port::BoxFuture;
use tenure_session::port::seal::Seal;
use tenure_session::port::store::Store;
use tenure_session::{Principal, Route};
use tenure_store::sealed::keys::{self, SealKeys};
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::fake_responder::{Exchanged, FakeRequest, FakeResponder};
use tokio::task::JoinHandle;

pub(crate) struct World {
    pub(crate) exchanges: Exchanges,
    pub(crate) server: Exchanged,
    pub(crate) fanout: Fanout,
}

/// What a world is made of.
pub(crate) struct Making {
    pub(crate) limits: ExchangeLimits,
    pub(crate) eras: Eras,
    pub(crate) caching: Caching,
    pub(crate) seal: Arc<dyn Seal>,
    pub(crate) clock: Arc<TurnableClock>,
    /// Whether the server seals its states itself.
    pub(crate) keeps_states: bool,
    /// Where calls are noted, and what tells the servers behind from others.
    pub(crate) store: Option<(Arc<dyn Store>, Fingerprints)>,
}

impl Default for Making {
    fn default() -> Self {
        Self {
            limits: ExchangeLimits::default(),
            eras: Eras::Both,
            caching: Caching::AsSaid,
            seal: key(),
            clock: Arc::new(TurnableClock::start()),
            keeps_states: false,
            store: None,
        }
    }
}

/// A key of its own.
pub(crate) fn key() -> Arc<dyn Seal> {
    Arc::new(SealKeys::parse(&keys::generate()).unwrap())
}

/// The fake responder, but for what becomes of states.
struct Steered(Arc<FakeResponder>, bool);

impl Responder for Steered {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        self.0.respond(call)
    }

    fn keeps_request_states(&self) -> bool {
        self.1
    }

    fn server_info(&self) -> Option<RawJson> {
        Some(RawJson::of(&json!({ "name": "steered", "version": "1" })))
    }
}

/// A responder that is a function.
struct Acting<F>(F);

impl<F: Fn(Call) -> BoxFuture<Reply> + Send + Sync + 'static> Responder for Acting<F> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        (self.0)(call)
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(Making::default())
    }

    pub(crate) fn with(change: impl FnOnce(&mut ExchangeLimits)) -> Self {
        let mut making = Making::default();
        change(&mut making.limits);
        Self::of(making)
    }

    pub(crate) fn of(making: Making) -> Self {
        let (fake, server) = FakeResponder::new();
        let keeps = making.keeps_states;
        Self::over(making, Arc::new(Steered(fake, keeps)), server)
    }

    /// With a server that does this.
    pub(crate) fn acting(act: impl Fn(Call) -> BoxFuture<Reply> + Send + Sync + 'static) -> Self {
        Self::served_by(Making::default(), Arc::new(Acting(act)))
    }

    pub(crate) fn served_by(making: Making, responder: Arc<dyn Responder>) -> Self {
        let (_, server) = FakeResponder::new();
        Self::over(making, responder, server)
    }

    fn over(making: Making, responder: Arc<dyn Responder>, server: Exchanged) -> Self {
        let Making { limits, eras, caching, seal, clock, store, .. } = making;
        let fanout = Fanout::new(Route::MAIN);
        let parts = ExchangeParts { responder, clock, limits, seal, fanout: fanout.clone(), eras, caching };
        let exchanges = Exchanges::start(parts);
        let exchanges = match store {
            Some((store, servers)) => exchanges.with_store(store, servers),
            None => exchanges,
        };
        Self { exchanges, server, fanout }
    }

    /// Sends a request; the test goes on while it is answered.
    pub(crate) fn send(&self, attempt: &Try) -> JoinHandle<ExchangeAnswer> {
        let exchanges =
            attempt.route.clone().map_or(self.exchanges.clone(), |route| self.exchanges.on(route));
        let (checked, caller) = (attempt.checked(), attempt.caller());
        tokio::spawn(async move { exchanges.request(checked, caller).await })
    }

    /// Sends a request and waits for its answer, which is one message.
    pub(crate) async fn ask(&self, attempt: &Try) -> Value {
        json_of(self.send(attempt).await.unwrap())
    }

    /// Sends a request that the server sees.
    pub(crate) async fn begin(&mut self, attempt: &Try) -> (JoinHandle<ExchangeAnswer>, FakeRequest) {
        let waiting = self.send(attempt);
        (waiting, self.server.next().await)
    }

    /// A call whose server has asked this: what the client was told, and the server's side.
    pub(crate) async fn asking(
        &mut self,
        attempt: &Try,
        method: &str,
    ) -> (Value, FakeRequest, JoinHandle<Reply>) {
        let (waiting, call) = self.begin(attempt).await;
        let question = question(&call, method, json!({ "message": "who?" }));
        (json_of(waiting.await.unwrap()), call, question)
    }

    pub(crate) fn tallies(&self) -> ExchangeTallies {
        self.exchanges.tallies()
    }

    /// That nothing is going on.
    pub(crate) fn assert_idle(&self) {
        let ExchangeTallies { running, parked, .. } = self.tallies();
        assert_eq!((running, parked), (0, 0), "running and parked");
    }
}

/// An attempt at a request.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    message: Value,
    streams: StreamSupport,
    principal: Principal,
    route: Option<Route>,
    share: Option<Share>,
}

impl Try {
    pub(crate) fn of(method: &str, mut params: Value) -> Self {
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
        let capabilities = json!({ "elicitation": {}, "sampling": {}, "roots": {} });
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Self {
            message,
            streams: StreamSupport::Allowed,
            principal: Principal::ANONYMOUS,
            route: None,
            share: None,
        }
    }

    /// A call of a tool by a client that can do everything.
    pub(crate) fn tool() -> Self {
        Self::of("tools/call", json!({ "name": "t", "arguments": { "a": 1 } }))
    }

    pub(crate) fn listen(notifications: &Value) -> Self {
        Self::of("subscriptions/listen", json!({ "notifications": notifications }))
    }

    pub(crate) fn id(mut self, id: impl Into<Value>) -> Self {
        self.message["id"] = id.into();
        self
    }

    /// With another value of a member of the params.
    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.message["params"][name] = value;
        self
    }

    pub(crate) fn meta(mut self, name: &str, value: Value) -> Self {
        self.message["params"]["_meta"][name] = value;
        self
    }

    pub(crate) fn can(self, capabilities: Value) -> Self {
        self.meta("io.modelcontextprotocol/clientCapabilities", capabilities)
    }

    pub(crate) fn level(self, level: &str) -> Self {
        self.meta("io.modelcontextprotocol/logLevel", json!(level))
    }

    pub(crate) fn token(self, token: impl Into<Value>) -> Self {
        self.meta("progressToken", token.into())
    }

    pub(crate) fn json_only(self) -> Self {
        Self { streams: StreamSupport::No, ..self }
    }

    /// By a client that can come back for a stream.
    pub(crate) fn resumable(self) -> Self {
        Self { streams: StreamSupport::Resumable, ..self }
    }

    pub(crate) fn by(self, name: &str) -> Self {
        Self { principal: Principal::named(name), ..self }
    }

    /// By a client whose share is counted.
    pub(crate) fn within(self, share: Share) -> Self {
        Self { share: Some(share), ..self }
    }

    pub(crate) fn at(self, route: &str) -> Self {
        Self { route: Some(Route::named(route)), ..self }
    }

    /// The next attempt, with the state that came with the questions, and these answers.
    pub(crate) fn again(&self, asked: &Value, answers: &Value) -> Self {
        let id = self.message["id"].as_u64().unwrap_or(100) + 1;
        let state = asked["result"]["requestState"].clone();
        assert!(state.is_string(), "{asked}");
        self.clone().id(id).with("requestState", state).with("inputResponses", answers.clone())
    }

    pub(crate) fn caller(&self) -> Caller {
        let held = self.share.as_ref().map(|share| Arc::new(share.take_anyway(Resource::Memory, 100)));
        Caller { principal: self.principal.clone(), held, ..Caller::anonymous("test") }
    }

    pub(crate) fn checked(&self) -> Checked {
        let checked = modern::check(self.request(), None, Eras::Both).unwrap();
        Checked { streams: self.streams, ..checked }
    }

    fn request(&self) -> Request {
        match Message::parse(&self.message.to_string().into()) {
            Ok(Message::Request(request)) => request,
            other => panic!("a request, not {other:?}"),
        }
    }
}

/// The server asks the client something, in a task of its own.
pub(crate) fn question(call: &FakeRequest, method: &str, params: Value) -> JoinHandle<Reply> {
    let (context, method) = (call.context.clone(), Method::new(method));
    tokio::spawn(async move { context.ask(&method, Some(&RawJson::of(&params))).await })
}

/// The server says something, in a task of its own.
pub(crate) fn saying(call: &FakeRequest, text: &str) -> JoinHandle<Result<(), tenure_protocol::Error>> {
    let (context, params) = (call.context.clone(), RawJson::of(&json!({ "level": "info", "data": text })));
    tokio::spawn(async move { context.notify(&Method::LogMessage, Some(&params)).await })
}

/// The server says something, which is taken at once.
pub(crate) async fn say(call: &FakeRequest, text: &str) {
    call.say(&Method::LogMessage, &json!({ "level": "info", "data": text })).await;
}

pub(crate) fn value(reply: Reply) -> Value {
    match reply {
        Ok(result) => result.read().unwrap(),
        Err(error) => json!({ "error": error.raw().read::<Value>().unwrap() }),
    }
}

/// The one message of an answer.
pub(crate) fn json_of(answer: ExchangeAnswer) -> Value {
    match answer {
        ExchangeAnswer::Json { body, code } => {
            let message: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(message["error"]["code"].as_i64(), code, "{message}");
            message
        }
        ExchangeAnswer::Refused(error) => json!({ "refused": error.reason().as_str() }),
        ExchangeAnswer::Stream(_) => panic!("one message, not a stream"),
    }
}

pub(crate) fn flow_of(answer: ExchangeAnswer) -> Flow {
    match answer {
        ExchangeAnswer::Stream(flow) => *flow,
        other => panic!("a stream, not {other:?}"),
    }
}

/// The next message of a stream.
pub(crate) async fn next(flow: &mut Flow) -> Value {
    serde_json::from_slice(&flow.next().await.expect("a message")).unwrap()
}

/// All messages until the stream ends, in short.
pub(crate) async fn rest(flow: &mut Flow) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(body) = flow.next().await {
        all.push(gist(&serde_json::from_slice(&body).unwrap()));
    }
    all
}

/// Whether a stream has nothing to say now.
pub(crate) async fn is_quiet(flow: &mut Flow) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(flow.poll_next(cx).is_pending())).await
}

/// The text of a log message, the id of an answer and what it is, the reason of an error.
pub(crate) fn gist(message: &Value) -> String {
    if let Some(data) = message["params"]["data"].as_str() {
        return data.to_owned();
    }
    if let Some(kind) = message["result"]["resultType"].as_str() {
        return format!("{kind} {}", message["id"]);
    }
    let error = &message["error"];
    match error["data"]["reason"].as_str() {
        Some(reason) => format!("error {} {reason}", message["id"]),
        None => message.to_string(),
    }
}

/// The keys of the questions that an answer asks.
pub(crate) fn keys_of(asked: &Value) -> Vec<&str> {
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    asked["result"]["inputRequests"].as_object().unwrap().keys().map(String::as_str).collect()
}

pub(crate) fn error_of(message: &Value) -> (i64, &str) {
    let error = &message["error"];
    (error["code"].as_i64().unwrap_or_default(), error["data"]["reason"].as_str().unwrap_or_default())
}

/// An answer of a user.
pub(crate) fn accepted(name: &str) -> Value {
    json!({ "action": "accept", "content": { "name": name } })
}

/// Lets every task do what it can do now.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Lets time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
    settle().await;
}

pub(crate) const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Withdraws a request that waits for its answer.
pub(crate) async fn hang_up(waiting: JoinHandle<ExchangeAnswer>) {
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
}

pub(crate) fn failure(reason: tenure_protocol::Reason) -> RpcError {
    RpcError::of(reason, "no")
}
