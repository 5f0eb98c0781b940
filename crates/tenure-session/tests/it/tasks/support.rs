//! What these tests share: exchanges with tasks on an engine, behind a store that can fail, with a clock that stands
//! still.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_protocol::modern::{self, Caching, StreamSupport};
use tenure_protocol::{Eras, Method, RawJson, Reply, Request, RequestId};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{Became, Caller, Fanout, TaskWish};
use tenure_session::exchange::{ExchangeAnswer, ExchangeLimits, ExchangeParts, Exchanges};
use tenure_session::port::BoxFuture;
use tenure_session::port::seal::Seal;
use tenure_session::port::store::{Space, Store};
use tenure_session::task::{TaskLimits, Tasks};
use tenure_session::{Principal, Route};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::fake_responder::{Exchanged, FakeRequest, FakeResponder};
use tenure_testkit::faulty::Faulty;
use tokio::task::JoinHandle;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Where tasks are kept.
pub(crate) enum Engine {
    Memory(Arc<dyn Store>),
    Disk(TempDir),
}

impl Engine {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::new(Memory::new()))
    }

    pub(crate) fn disk() -> Self {
        Self::Disk(TempDir::new().unwrap())
    }

    fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store),
            Self::Disk(folder) => Arc::new(Disk::open(folder.path(), Sync::Os).unwrap()),
        }
    }
}

/// Makes each of these functions a test on every engine.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::tasks::support::Engine::memory()).await;
            })+
        }
        mod disk {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::tasks::support::Engine::disk()).await;
            })+
        }
    };
}
pub(crate) use on_every_engine;

/// A process.
pub(crate) struct World {
    pub(crate) exchanges: Exchanges,
    pub(crate) tasks: Tasks,
    pub(crate) server: Exchanged,
    pub(crate) store: Arc<Faulty>,
    pub(crate) clock: Arc<HandClock>,
    limits: TaskLimits,
    engine: Engine,
}

impl World {
    pub(crate) fn new(engine: Engine) -> Self {
        Self::with(engine, TaskLimits::default())
    }

    pub(crate) fn with(engine: Engine, limits: TaskLimits) -> Self {
        Self::at(engine, Arc::new(HandClock::start()), limits)
    }

    fn at(engine: Engine, clock: Arc<HandClock>, limits: TaskLimits) -> Self {
        let store = Arc::new(Faulty::new(engine.open()));
        let tasks = Tasks::start(store.clone(), clock.clone(), limits.clone());
        let (responder, server) = FakeResponder::new();
        let exchanges = exchanges(responder, &clock).with_tasks(tasks.clone());
        Self { exchanges, tasks, server, store, clock, limits, engine }
    }

    /// Another process on the same engine, while this one lives. Only an engine in memory can be shared.
    pub(crate) fn beside(&self) -> Self {
        let Engine::Memory(store) = &self.engine else { panic!("an engine that two processes can open") };
        Self::at(Engine::Memory(Arc::clone(store)), Arc::clone(&self.clock), self.limits.clone())
    }

    /// Another process on the same engine, after this one was killed: nothing of it is told that it ends.
    pub(crate) async fn killed(self) -> Self {
        let Self { exchanges, tasks, server, store, clock, limits, engine } = self;
        // After a kill no write goes through.
        store.set_broken(true);
        exchanges.shut_down(Duration::ZERO).await;
        tasks.stop().await;
        drop((exchanges, tasks, server, store));
        clock.turn(SECOND);
        Self::at(engine, clock, limits)
    }

    /// Another process on the same engine, after this one was stopped.
    pub(crate) async fn stopped(self) -> Self {
        let Self { exchanges, tasks, server, store, clock, limits, engine } = self;
        exchanges.shut_down(Duration::ZERO).await;
        drop((exchanges, tasks, server, store));
        clock.turn(SECOND);
        Self::at(engine, clock, limits)
    }

    /// Sends a request.
    pub(crate) fn send(&self, who: &Principal, request: Request) -> JoinHandle<Value> {
        send(self.exchanges.clone(), who.clone(), request)
    }

    /// Sends a request of a client that knows tasks, and waits for the response.
    pub(crate) async fn ask(&self, who: &Principal, method: &str, params: Value) -> Value {
        self.send(who, request(method, params)).await.unwrap()
    }

    /// What the client is told of a task.
    pub(crate) async fn get(&self, who: &Principal, id: &str) -> Value {
        self.ask(who, "tasks/get", json!({ "taskId": id })).await
    }

    /// Answers questions of a task.
    pub(crate) async fn update(&self, who: &Principal, id: &str, responses: Value) -> Value {
        self.ask(who, "tasks/update", json!({ "taskId": id, "inputResponses": responses })).await
    }

    pub(crate) async fn cancel(&self, who: &Principal, id: &str) -> Value {
        self.ask(who, "tasks/cancel", json!({ "taskId": id })).await
    }

    /// A call that has become a task: its id, and the server's side.
    pub(crate) async fn task(&mut self, who: &Principal) -> (String, FakeRequest) {
        self.task_with(who, TaskWish::default()).await
    }

    pub(crate) async fn task_with(&mut self, who: &Principal, wish: TaskWish) -> (String, FakeRequest) {
        let answer = self.send(who, request("tools/call", json!({ "name": "dig" })));
        let asked = self.server.expect("tools/call").await;
        assert_eq!(asked.context.become_task(wish).await, Ok(Became::Task));
        let created = answer.await.unwrap();
        assert_eq!(created["result"]["resultType"], "task", "{created}");
        (id(&created), asked)
    }

    /// Waits until a task is as described.
    pub(crate) async fn until(&self, who: &Principal, id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let seen = async {
            loop {
                let task = self.get(who, id).await["result"].take();
                if is(&task) {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(10 * SECOND, seen).await.expect("the task gets there in time")
    }

    pub(crate) async fn until_status(&self, who: &Principal, id: &str, status: &str) -> Value {
        self.until(who, id, |task| task["status"] == status).await
    }

    /// How many records of tasks there are.
    pub(crate) async fn records(&self) -> usize {
        self.store.inner().list(Space::Task, None, usize::MAX).await.unwrap().len()
    }
}

pub(crate) fn exchanges(responder: Arc<dyn Responder>, clock: &Arc<HandClock>) -> Exchanges {
    Exchanges::start(ExchangeParts {
        responder,
        clock: Arc::clone(clock) as _,
        limits: ExchangeLimits::default(),
        seal: Arc::new(Plain),
        fanout: Fanout::new(Route::MAIN),
        eras: Eras::Both,
        caching: Caching::AsSaid,
    })
}

/// Sends a request, and waits for the response in JSON.
pub(crate) fn send(exchanges: Exchanges, who: Principal, request: Request) -> JoinHandle<Value> {
    send_as(exchanges, Caller { principal: who, ..Caller::anonymous("test") }, request)
}

pub(crate) fn send_as(exchanges: Exchanges, caller: Caller, request: Request) -> JoinHandle<Value> {
    tokio::spawn(async move {
        let mut checked = modern::check(request, None, Eras::Both).unwrap();
        checked.streams = StreamSupport::No;
        match exchanges.request(checked, caller).await {
            ExchangeAnswer::Json { body, .. } => serde_json::from_slice(&body).unwrap(),
            ExchangeAnswer::Refused(error) => {
                json!({ "error": error.to_rpc().raw().read::<Value>().unwrap() })
            }
            ExchangeAnswer::Stream(_) => panic!("a stream for a client that takes none"),
        }
    })
}

pub(crate) fn caller(who: &Principal) -> Caller {
    Caller { principal: who.clone(), ..Caller::anonymous("test") }
}

/// A request of a client that knows tasks, and can show forms.
pub(crate) fn request(method: &str, params: Value) -> Request {
    let tasks = json!({ "io.modelcontextprotocol/tasks": {} });
    request_of(method, params, json!({ "elicitation": {}, "extensions": tasks }))
}

/// A request of a client that can do this much.
pub(crate) fn request_of(method: &str, mut params: Value, capabilities: Value) -> Request {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    Request { id: RequestId::from_number(1), method: Method::new(method), params: Some(RawJson::of(&params)) }
}

pub(crate) fn id(created: &Value) -> String {
    created["result"]["taskId"].as_str().unwrap_or_else(|| panic!("a task: {created}")).to_owned()
}

pub(crate) fn ann() -> Principal {
    Principal::named("ann")
}

pub(crate) fn bob() -> Principal {
    Principal::named("bob")
}

/// No encryption: these tests do not attack the seal.
struct Plain;

impl Seal for Plain {
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        Some([bound, plain].concat())
    }

    fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        sealed.strip_prefix(bound).map(<[u8]>::to_vec)
    }
}

/// A server that is a function.
pub(crate) struct By<F>(pub(crate) F);

impl<F: Fn(Call) -> BoxFuture<Reply> + Send + std::marker::Sync + 'static> Responder for By<F> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        (self.0)(call)
    }
}
