//! Shared by these tests: a runtime over the bridge, and a server that each test controls.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_layers::bridge::SessionsOnExchanges;
use tenure_protocol::{Message, Method, Notification};
use tenure_session::backend::Backend;
use tenure_session::port::store::Store;
use tenure_session::session::{Answer, Reader};
use tenure_session::{Limits, Principal, Session, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::fake_responder::{Exchanged, FakeResponder};
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime;
use tokio::task::JoinHandle;

pub(crate) struct World {
    pub(crate) sessions: Sessions,
    pub(crate) server: Exchanged,
    store: Arc<Faulty>,
    clock: Arc<TurnableClock>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::at(Arc::new(TurnableClock::start()), Arc::new(Memory::new()))
    }

    fn at(clock: Arc<TurnableClock>, store: Arc<dyn Store>) -> Self {
        let (responder, server) = FakeResponder::new();
        let bridge: Arc<dyn Backend> = Arc::new(SessionsOnExchanges::new(responder, clock.clone()));
        let store = Arc::new(Faulty::new(store));
        let sessions = runtime::start_at(store.clone(), bridge, Arc::clone(&clock), Limits::default());
        Self { sessions, server, store, clock }
    }

    /// Another process on the same store. The requests in flight of this one are lost, as after a kill.
    pub(crate) fn killed(self) -> Self {
        self.store.set_broken(true);
        Self::at(self.clock, self.store.inner())
    }

    /// A session of a client with these capabilities, and a server with this discovery result. Also returns the
    /// `initialize` result.
    pub(crate) async fn introduced(
        &mut self,
        revision: &str,
        capabilities: &Value,
        discovery: &Value,
    ) -> (Arc<Session>, Value) {
        let mut params = runtime::initialize(revision);
        params["capabilities"] = capabilities.clone();
        let creating =
            self.sessions.create(runtime::request(0, "initialize", &params), &Principal::ANONYMOUS);
        let discovered = async { self.server.expect("server/discover").await.answer(discovery) };
        let (created, ()) = tokio::join!(creating, discovered);
        let created = created.unwrap();
        let session = created.session.unwrap();
        session.notification(Notification { method: Method::Initialized, params: None }).unwrap();
        session.saved().await;
        (session, runtime::parse(&created.answer)["result"].clone())
    }

    /// A session whose server sends no notifications.
    pub(crate) async fn session(&mut self) -> Arc<Session> {
        self.session_of("2025-11-25").await
    }

    pub(crate) async fn session_of(&mut self, revision: &str) -> Arc<Session> {
        let capabilities = json!({ "roots": {}, "sampling": {}, "elicitation": { "form": {}, "url": {} } });
        self.introduced(revision, &capabilities, &quiet()).await.0
    }
}

/// The discovery result of a server that sends no notifications.
pub(crate) fn quiet() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": { "tools": {}, "resources": {}, "prompts": {}, "logging": {} },
        "ttlMs": 0,
        "cacheScope": "private",
    })
}

/// Sends a request without waiting for its answer.
pub(crate) fn send(session: &Arc<Session>, id: u64, method: &str, params: &Value) -> JoinHandle<Answer> {
    runtime::send(session, runtime::request(id, method, params))
}

/// The next message of a stream.
pub(crate) async fn next(reader: &mut Reader) -> Value {
    runtime::event(reader).await.expect("an event").1
}

/// The client's answer to a question.
pub(crate) fn respond(session: &Arc<Session>, answer: &Value) {
    let Ok(Message::Response(response)) = Message::parse(&serde_json::to_vec(answer).unwrap().into()) else {
        panic!("a response")
    };
    session.response(response).unwrap();
}

/// The client's result in answer to a question.
pub(crate) fn reply(session: &Arc<Session>, question: &Value, result: &Value) {
    respond(session, &json!({ "jsonrpc": "2.0", "id": question["id"], "result": result }));
}
