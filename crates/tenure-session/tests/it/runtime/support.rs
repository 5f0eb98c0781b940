//! What these tests share: a runtime with a scripted backend.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_protocol::Error;
use tenure_session::call::Caller;
use tenure_session::fingerprint::Fingerprints;
use tenure_session::port::store::Store;
use tenure_session::session::{Answer, Item, Reader};
use tenure_session::{Limits, Principal, Session, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::fake_backend::{FakeBackend, FakeCall, Script};
use tenure_testkit::faulty::Faulty;
use tenure_testkit::runtime;

pub(crate) struct World {
    pub(crate) sessions: Sessions,
    pub(crate) backend: Arc<FakeBackend>,
    pub(crate) script: Script,
    pub(crate) store: Arc<Faulty>,
    pub(crate) clock: Arc<TurnableClock>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        Self::on(Arc::new(Memory::new()), limits)
    }

    /// On a store of the test's own.
    pub(crate) fn on(store: Arc<dyn Store>, limits: Limits) -> Self {
        Self::at(Arc::new(TurnableClock::start()), store, limits)
    }

    fn at(clock: Arc<TurnableClock>, store: Arc<dyn Store>, limits: Limits) -> Self {
        Self::serving(Fingerprints::default(), clock, store, limits)
    }

    /// A process that knows which servers are behind it.
    pub(crate) fn serving(
        servers: Fingerprints,
        clock: Arc<TurnableClock>,
        store: Arc<dyn Store>,
        limits: Limits,
    ) -> Self {
        let (backend, script) = FakeBackend::new();
        let store = Arc::new(Faulty::new(store));
        let sessions =
            runtime::start_with_servers(store.clone(), backend.clone(), Arc::clone(&clock), limits, servers);
        Self { sessions, backend, script, store, clock }
    }

    /// Another process on the same store; what this one was doing is lost, as after a kill.
    pub(crate) fn killed(mut self, limits: Limits) -> Self {
        self.kill(limits);
        self
    }

    /// Puts another process on the same store in the place of this one.
    pub(crate) fn kill(&mut self, limits: Limits) {
        // The old process may still do something, but nothing of it reaches the store.
        self.store.set_broken(true);
        *self = Self::at(Arc::clone(&self.clock), self.store.inner(), limits);
    }

    /// The same session in the world of another process.
    pub(crate) async fn find(&self, session: &Session) -> Result<Arc<Session>, Error> {
        self.sessions.find(session.id(), &Principal::ANONYMOUS).await
    }

    /// A session of the newest revision.
    pub(crate) async fn session(&self) -> Arc<Session> {
        runtime::session(&self.sessions, "2025-11-25").await
    }

    /// A call that has said something, and so become a stream.
    pub(crate) async fn streaming_call(&mut self, session: &Arc<Session>, id: u64) -> (FakeCall, Reader) {
        let waiting = runtime::send(session, runtime::request(id, "tools/call", &json!({})));
        let call = self.script.call().await;
        say(&call, "hello").await;
        (call, runtime::reader_of(waiting.await.unwrap()))
    }
}

/// Lets everything go on that can without waiting for time or a thread.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Sends a log message on a call's stream.
pub(crate) async fn say(call: &FakeCall, text: &str) {
    let params = tenure_protocol::RawJson::of(&json!({ "level": "info", "data": text }));
    call.context.notify(&tenure_protocol::Method::LogMessage, Some(&params)).await.unwrap();
}

/// The texts of log messages, `"result"` or `"error"` for answers.
pub(crate) fn gist(message: &Value) -> String {
    if let Some(data) = message["params"]["data"].as_str() {
        return data.to_owned();
    }
    if message["result"].is_object() {
        return format!("result {}", message["id"]);
    }
    if let Some(reason) = message["error"]["data"]["reason"].as_str() {
        return format!("error {} {reason}", message["id"]);
    }
    message.to_string()
}

/// Everything a reader gives until its stream ends, in short.
pub(crate) async fn all(reader: &mut Reader) -> Vec<String> {
    let mut items = Vec::new();
    while let Some(item) = reader.next().await {
        items.push(short(&item));
    }
    items
}

pub(crate) fn short(item: &Item) -> String {
    match item {
        Item::Prime(_) => "prime".to_owned(),
        Item::Gap => "gap".to_owned(),
        Item::Close(_) => "close".to_owned(),
        Item::Event { body, .. } => gist(&runtime::parse(body)),
    }
}

/// The next message of a stream, in short, with its id.
pub(crate) async fn next(reader: &mut Reader) -> (String, String) {
    let (id, message) = runtime::event(reader).await.expect("an event");
    (id.expect("with an id"), gist(&message))
}

pub(crate) async fn resume(session: &Arc<Session>, after: &str) -> Result<Reader, Error> {
    session.listen(Some(after.as_bytes())).await
}

pub(crate) async fn request(session: &Arc<Session>, id: u64, method: &str) -> Result<Answer, Error> {
    session.request(runtime::request(id, method, &json!({})), Caller::anonymous("test")).await
}
