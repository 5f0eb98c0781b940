//! A responder whose every answer the test gives by hand.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RequestId, RpcError};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;
use tokio::sync::{mpsc, oneshot};

/// A responder that asks the test.
#[derive(Debug)]
pub struct FakeResponder {
    seen: mpsc::Sender<Asked>,
}

/// A request that waits for the test's answer.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub request: Request,
    /// Its context.
    pub context: CallContext,
    answer: oneshot::Sender<Reply>,
}

/// What the test holds: it sees what the responder is asked.
#[derive(Debug)]
pub struct Exchanged {
    seen: mpsc::Receiver<Asked>,
}

impl FakeResponder {
    /// A responder and what steers it.
    pub fn new() -> (Arc<Self>, Exchanged) {
        let (sender, receiver) = mpsc::channel(1024);
        (Arc::new(Self { seen: sender }), Exchanged { seen: receiver })
    }
}

impl Responder for FakeResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let seen = self.seen.clone();
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let gone = || RpcError::of(Reason::BackendUnavailable, "the fake responder hung up");
            seen.send(Asked { request: call.request, context: call.context, answer })
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
    pub async fn next(&mut self) -> Asked {
        let next = tokio::time::timeout(Duration::from_secs(10), self.seen.recv()).await;
        next.expect("the responder is asked something in time").expect("the responder lives")
    }

    /// The next request, which is of this method.
    ///
    /// # Panics
    /// When it is another.
    pub async fn expect(&mut self, method: &str) -> Asked {
        let asked = self.next().await;
        assert_eq!(asked.request.method.as_str(), method);
        asked
    }

    /// Answers the next request, a discovery.
    pub async fn discovered(&mut self) {
        self.expect("server/discover").await.answer(&discovery());
    }

    /// Whether nothing was asked since.
    pub fn is_quiet(&self) -> bool {
        self.seen.is_empty()
    }
}

/// What a modern server says of itself.
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

impl Asked {
    /// The params.
    ///
    /// # Panics
    /// When they are no JSON.
    pub fn params(&self) -> Value {
        self.request.params.as_ref().map_or(Value::Null, |params| params.read().expect("params are JSON"))
    }

    /// What the request says of its client under this name.
    pub fn meta(&self, name: &str) -> Value {
        self.params()["_meta"][&format!("io.modelcontextprotocol/{name}")].clone()
    }

    /// The id of the request.
    pub fn id(&self) -> &RequestId {
        &self.request.id
    }

    /// Answers with a result.
    pub fn answer(self, result: &Value) {
        // Whoever asked may have gone; then nobody wants the answer.
        let _ = self.answer.send(Ok(RawJson::of(result)));
    }

    /// Answers with an error.
    pub fn fail(self, error: RpcError) {
        let _ = self.answer.send(Err(error));
    }

    /// Says something that belongs to the request.
    ///
    /// # Panics
    /// When nobody hears it any more.
    pub async fn say(&self, method: &Method, params: &Value) {
        self.context.notify(method, Some(&RawJson::of(params))).await.expect("somebody hears it");
    }

    /// Acknowledges a listen: with all that it asks for, but for these resources.
    pub async fn acknowledge(&self, but_for: &[&str]) {
        let mut honoured = self.params()["notifications"].clone();
        if let Some(uris) = honoured.get_mut("resourceSubscriptions").and_then(Value::as_array_mut) {
            uris.retain(|uri| !but_for.iter().any(|denied| uri == denied));
        }
        let params = json!({ "notifications": honoured, "_meta": self.subscription() });
        self.say(&Method::Acknowledged, &params).await;
    }

    /// What messages of a listen carry in `_meta`.
    pub fn subscription(&self) -> Value {
        json!({ "io.modelcontextprotocol/subscriptionId": self.request.id.as_number() })
    }

    /// Waits until nobody wants the answer any more.
    ///
    /// # Panics
    /// When that takes longer than ten seconds.
    pub async fn dropped(mut self) {
        let dropped = tokio::time::timeout(Duration::from_secs(10), self.answer.closed()).await;
        dropped.expect("the request is given up in time");
    }

    /// Whether nobody wants the answer any more.
    pub fn is_dropped(&self) -> bool {
        self.answer.is_closed()
    }
}
