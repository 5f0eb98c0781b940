//! A responder whose answers the test gives by hand.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RequestId, RpcError};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;
use tokio::sync::{mpsc, oneshot};

/// A responder that passes every request to the test.
#[derive(Debug)]
pub struct FakeResponder {
    requests: mpsc::Sender<FakeRequest>,
}

/// A request that waits for the test's answer.
#[derive(Debug)]
pub struct FakeRequest {
    /// The request.
    pub request: Request,
    /// Its context.
    pub context: CallContext,
    answer: oneshot::Sender<Reply>,
}

/// The test's side: receives the requests of the responder, in order.
#[derive(Debug)]
pub struct Exchanged {
    requests: mpsc::Receiver<FakeRequest>,
}

impl FakeResponder {
    /// A responder, and the receiver of its requests.
    pub fn new() -> (Arc<Self>, Exchanged) {
        let (sender, receiver) = mpsc::channel(1024);
        (Arc::new(Self { requests: sender }), Exchanged { requests: receiver })
    }
}

impl Responder for FakeResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let requests = self.requests.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let gone = || RpcError::of(Reason::BackendUnavailable, "the fake responder hung up");
            requests
                .send(FakeRequest { request: call.request, context: call.context, answer })
                .await
                .map_err(|_| gone())?;
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn keeps_request_states(&self) -> bool {
        true
    }
}

impl Exchanged {
    /// The next request.
    ///
    /// # Panics
    /// When none comes for ten seconds.
    pub async fn next(&mut self) -> FakeRequest {
        let next = tokio::time::timeout(Duration::from_secs(10), self.requests.recv()).await;
        next.expect("the responder is asked something in time").expect("the responder lives")
    }

    /// The next request, which must have this method.
    ///
    /// # Panics
    /// When it has another method.
    pub async fn expect(&mut self, method: &str) -> FakeRequest {
        let asked = self.next().await;
        assert_eq!(asked.request.method.as_str(), method);
        asked
    }

    /// Answers the next request, which must be a discovery.
    pub async fn discovered(&mut self) {
        self.expect("server/discover").await.answer(&discovery());
    }

    /// Whether no request waits in the queue.
    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty()
    }
}

/// The discovery result of a modern server.
pub fn discovery() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": [MODERN],
        "capabilities": {
            "tools": { "listChanged": true },
            "resources": { "subscribe": true, "listChanged": true },
            "prompts": {},
            "logging": {},
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        },
        "instructions": "ask nicely",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "modern", "version": "1" } },
    })
}

impl FakeRequest {
    /// The params.
    ///
    /// # Panics
    /// When they are not JSON.
    pub fn params(&self) -> Value {
        self.request.params.as_ref().map_or(Value::Null, |params| params.read().expect("params are JSON"))
    }

    /// The value of this name in the `_meta` of the request.
    pub fn meta(&self, name: &str) -> Value {
        self.params()["_meta"][&format!("io.modelcontextprotocol/{name}")].clone()
    }

    /// The id of the request.
    pub fn id(&self) -> &RequestId {
        &self.request.id
    }

    /// Answers with a result.
    pub fn answer(self, result: &Value) {
        // Fails if the caller has dropped its request; then the answer is not needed.
        let _ = self.answer.send(Ok(RawJson::of(result)));
    }

    /// Answers with an error.
    pub fn fail(self, error: RpcError) {
        let _ = self.answer.send(Err(error));
    }

    /// Sends a notification that belongs to the request.
    ///
    /// # Panics
    /// When the client does not listen any more.
    pub async fn say(&self, method: &Method, params: &Value) {
        self.context.notify(method, Some(&RawJson::of(params))).await.expect("the client listens");
    }

    /// Acknowledges a listen with all its notifications, except for these resources.
    pub async fn acknowledge(&self, but_for: &[&str]) {
        let mut honoured = self.params()["notifications"].clone();
        if let Some(uris) = honoured.get_mut("resourceSubscriptions").and_then(Value::as_array_mut) {
            uris.retain(|uri| !but_for.iter().any(|denied| uri == denied));
        }
        let params = json!({ "notifications": honoured, "_meta": self.subscription() });
        self.say(&Method::Acknowledged, &params).await;
    }

    /// The `_meta` of a listen's messages.
    pub fn subscription(&self) -> Value {
        json!({ "io.modelcontextprotocol/subscriptionId": self.request.id.as_number() })
    }

    /// Waits until the caller has dropped its request.
    ///
    /// # Panics
    /// When that takes longer than ten seconds.
    pub async fn dropped(mut self) {
        let dropped = tokio::time::timeout(Duration::from_secs(10), self.answer.closed()).await;
        dropped.expect("the request is given up in time");
    }

    /// Whether the caller has dropped its request.
    pub fn is_dropped(&self) -> bool {
        self.answer.is_closed()
    }
}
