//! A client for a single request without a session: the `Client` that a responder or a link sees.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RequestId, Revision, RpcError};
use tenure_session::Route;
use tenure_session::backend::Call;
use tenure_session::call::{CallContext, Caller, Client, Origin};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The function that answers a question.
type AnswerFn = dyn Fn(&Method, Value) -> Reply + Send + Sync;

/// A client that records the notifications it gets, and answers questions with a function that the test sets.
pub struct FakeClient {
    capabilities: Value,
    route: Route,
    cancellation: CancellationToken,
    answers: Mutex<Arc<AnswerFn>>,
    heard: Mutex<VecDeque<(Method, Value)>>,
    more: Notify,
}

impl FakeClient {
    /// A client with these capabilities that refuses every question.
    pub fn new(capabilities: Value) -> Arc<Self> {
        Arc::new(Self {
            capabilities,
            route: Route::MAIN,
            cancellation: CancellationToken::new(),
            answers: Mutex::new(Arc::new(|method: &Method, _| {
                Err(RpcError::of(Reason::MethodNotFound, format!("the fake client does not answer {method}")))
            })),
            heard: Mutex::default(),
            more: Notify::new(),
        })
    }

    /// Answers questions with this function from now on.
    pub fn answer(&self, answers: impl Fn(&Method, Value) -> Reply + Send + Sync + 'static) {
        *self.answers.lock() = Arc::new(answers);
    }

    /// Withdraws the request.
    pub fn cancel(&self) {
        self.cancellation.cancel();
    }

    /// Waits for the next notification.
    ///
    /// # Panics
    /// When none comes for ten seconds.
    pub async fn hear(&self) -> (Method, Value) {
        let hear = async {
            loop {
                let more = self.more.notified();
                let heard = self.heard.lock().pop_front();
                if let Some(heard) = heard {
                    return heard;
                }
                more.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), hear).await.expect("something is heard in time")
    }

    /// All notifications that came and were not taken yet.
    pub fn heard(&self) -> Vec<(Method, Value)> {
        self.heard.lock().drain(..).collect()
    }

    /// A request of this client in the modern era. Adds the `_meta` members that a request needs, and keeps those that
    /// `params` already have.
    pub fn call(self: &Arc<Self>, id: u64, method: &str, mut params: Value) -> Call {
        let meta = [
            ("io.modelcontextprotocol/protocolVersion", json!(MODERN)),
            ("io.modelcontextprotocol/clientCapabilities", self.capabilities.clone()),
            ("io.modelcontextprotocol/clientInfo", json!({ "name": "fake", "version": "1" })),
        ];
        for (name, value) in meta {
            let member = &mut params["_meta"][name];
            if member.is_null() {
                *member = value;
            }
        }
        self.plain_call(id, method, &params)
    }

    /// A request with exactly these params.
    pub fn plain_call(self: &Arc<Self>, id: u64, method: &str, params: &Value) -> Call {
        let request = Request {
            id: RequestId::from_number(id),
            method: Method::new(method),
            params: (!params.is_null()).then(|| RawJson::of(params)),
        };
        let client: Arc<dyn Client> = Arc::clone(self) as _;
        let context = CallContext::new(client, &request, Caller::anonymous("test"));
        Call { request, context }
    }
}

impl std::fmt::Debug for FakeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeClient").field("capabilities", &self.capabilities).finish_non_exhaustive()
    }
}

fn value(params: Option<&RawJson>) -> Value {
    params.map_or(Value::Null, |params| params.read().expect("params are JSON"))
}

impl Client for FakeClient {
    fn notify(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<(), Error>> {
        self.heard.lock().push_back((method.clone(), value(params)));
        self.more.notify_one();
        Box::pin(std::future::ready(Ok(())))
    }

    fn ask(
        self: Arc<Self>,
        _: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<RawJson, RpcError>> {
        let answers = Arc::clone(&self.answers.lock());
        Box::pin(std::future::ready(answers(method, value(params))))
    }

    fn cancellation(&self, _: &RequestId, _: u64) -> Option<CancellationToken> {
        Some(self.cancellation.clone())
    }

    fn capabilities(&self) -> RawJson {
        RawJson::of(&self.capabilities)
    }

    fn client_info(&self) -> Option<RawJson> {
        Some(RawJson::of(&json!({ "name": "fake", "version": "1" })))
    }

    fn protocol(&self) -> &'static str {
        MODERN
    }

    fn revision(&self) -> Revision {
        Revision::LATEST
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn started(&self) -> Time {
        Time::default()
    }

    fn label(&self) -> &str {
        "s-fake"
    }

    fn route(&self) -> &Route {
        &self.route
    }
}
