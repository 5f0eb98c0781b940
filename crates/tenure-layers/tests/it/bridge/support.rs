//! Shared by these tests: modern clients in front of a scripted server that knows only sessions.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_layers::bridge::{ExchangesOnSessions, PoolLimits};
use tenure_protocol::{Reply, Request};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{CallContext, Caller, Fanout};
use tenure_session::{Principal, Route};
use tenure_testkit::fake_backend::{BackendEvent, FakeBackend, FakeCall, NewLink, Script};
use tenure_testkit::fake_client::FakeClient;
use tokio::task::JoinHandle;

pub(crate) struct World {
    pub(crate) bridge: ExchangesOnSessions,
    pub(crate) backend: Arc<FakeBackend>,
    pub(crate) script: Script,
    pub(crate) fanout: Fanout,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(PoolLimits::default())
    }

    pub(crate) fn with(limits: PoolLimits) -> Self {
        let (backend, script) = FakeBackend::new();
        let bridge = ExchangesOnSessions::new(backend.clone(), limits);
        let fanout = Fanout::new(Route::MAIN);
        bridge.begin(fanout.clone());
        Self { bridge, backend, script, fanout }
    }

    /// Starts a request; the test goes on while it is answered.
    pub(crate) fn start(&self, call: Call) -> JoinHandle<Reply> {
        tokio::spawn(self.bridge.respond(call))
    }

    /// A call of a tool by a client without capabilities.
    pub(crate) fn call(&self, name: &str) -> JoinHandle<Reply> {
        self.start(tool(&FakeClient::new(json!({})), name))
    }

    /// Makes a call that the server answers with an empty result, and returns the number of its link.
    pub(crate) async fn done(&mut self, call: Call) -> u64 {
        let answer = self.start(call);
        let asked = self.script.call().await;
        let link = asked.link;
        asked.answer(&json!({ "content": [] }));
        answer.await.unwrap().unwrap();
        link
    }

    /// The next request. Links that are opened for it are skipped; anything else fails the test.
    pub(crate) async fn asked(&mut self) -> (FakeCall, Option<NewLink>) {
        let mut opened = None;
        loop {
            match self.script.next().await {
                BackendEvent::Call(call) => return (call, opened),
                BackendEvent::Opened(link) => opened = Some(link),
                BackendEvent::Heard(heard) => assert_eq!(heard.method.as_str(), "notifications/initialized"),
                BackendEvent::Closed => panic!("a link was closed"),
            }
        }
    }
}

/// A call of a tool.
pub(crate) fn tool(client: &Arc<FakeClient>, name: &str) -> Call {
    client.call(1, "tools/call", json!({ "name": name, "arguments": { "a": 1 } }))
}

/// The same call by a named principal.
pub(crate) fn by(name: &str, client: &Arc<FakeClient>, call: Call) -> Call {
    let Call { request, .. } = call;
    let request = Request { ..request };
    let caller = Caller { principal: Principal::named(name), ..Caller::anonymous("test") };
    let context = CallContext::new(Arc::clone(client) as _, &request, caller);
    Call { request, context }
}

pub(crate) fn value(reply: Reply) -> Value {
    match reply {
        Ok(result) => result.read().unwrap(),
        Err(error) => json!({ "error": error.raw().read::<Value>().unwrap() }),
    }
}

pub(crate) fn params(call: &FakeCall) -> Value {
    call.request.params.as_ref().map_or(Value::Null, |params| params.read().unwrap())
}
