//! Starts a session runtime for tests, and does the steps that every test of it needs.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tenure_protocol::{Message, Method, Notification, RawJson, Request, RequestId, message};
use tenure_session::backend::Backend;
use tenure_session::call::Caller;
use tenure_session::fingerprint::Fingerprints;
use tenure_session::port::store::Store;
use tenure_session::session::{Answer, Item, Reader, Session, SessionParts, Sessions};
use tenure_session::{Limits, Principal};

use crate::clock::TurnableClock;

/// Starts a runtime.
pub fn start(store: Arc<dyn Store>, backend: Arc<dyn Backend>, limits: Limits) -> Sessions {
    start_at(store, backend, Arc::new(TurnableClock::start()), limits)
}

/// Starts a runtime with the clock of an earlier runtime.
pub fn start_at(
    store: Arc<dyn Store>,
    backend: Arc<dyn Backend>,
    clock: Arc<TurnableClock>,
    limits: Limits,
) -> Sessions {
    start_with_servers(store, backend, clock, limits, Fingerprints::default())
}

/// Starts a runtime that knows which servers are behind it.
pub fn start_with_servers(
    store: Arc<dyn Store>,
    backend: Arc<dyn Backend>,
    clock: Arc<TurnableClock>,
    limits: Limits,
    servers: Fingerprints,
) -> Sessions {
    Sessions::start_with_servers(SessionParts { store, backend, clock, limits, roster: None }, servers)
}

/// A request with a number for an id.
pub fn request(id: u64, method: &str, params: &Value) -> Request {
    let (id, method, params) = (RequestId::from_number(id), Method::new(method), RawJson::of(params));
    read_request(&message::write_request(&id, &method, Some(&params)))
}

/// Parses a request from its bytes on the wire.
///
/// # Panics
/// When the bytes are not a request.
pub fn read_request(written: &Bytes) -> Request {
    match Message::parse(written) {
        Ok(Message::Request(request)) => request,
        other => panic!("not a request: {other:?}"),
    }
}

/// The params of an `initialize` of this revision, from a client with all capabilities.
pub fn initialize(revision: &str) -> Value {
    json!({
        "protocolVersion": revision,
        "capabilities": { "sampling": {}, "elicitation": {}, "roots": {} },
        "clientInfo": { "name": "test", "version": "1" },
    })
}

/// Creates a session and sends `notifications/initialized`.
///
/// # Panics
/// When that fails.
pub async fn session(sessions: &Sessions, revision: &str) -> Arc<Session> {
    let request = request(0, "initialize", &initialize(revision));
    let created = sessions.create(request, &Principal::ANONYMOUS).await.expect("a session");
    let session = created.session.expect("the backend agrees");
    session.notification(Notification { method: Method::Initialized, params: None }).expect("initialized");
    session.saved().await;
    session
}

/// Sends a request without waiting for its answer.
pub fn send(session: &Arc<Session>, request: Request) -> tokio::task::JoinHandle<Answer> {
    let session = Arc::clone(session);
    #[expect(clippy::disallowed_methods, reason = "a test holds the handle")]
    tokio::spawn(async move { session.request(request, Caller::anonymous("test")).await.expect("admitted") })
}

/// The JSON of an answer.
///
/// # Panics
/// When the answer is not JSON.
pub fn json_of(answer: Answer) -> Value {
    match answer {
        Answer::Json(body) | Answer::TryLater { body, .. } => parse(&body),
        other => panic!("an answer in JSON, not {other:?}"),
    }
}

/// The reader of an answer.
///
/// # Panics
/// When the answer is not a stream.
pub fn reader_of(answer: Answer) -> Reader {
    match answer {
        Answer::Stream(reader) => reader,
        other => panic!("a stream, not {other:?}"),
    }
}

/// Parses a message.
///
/// # Panics
/// When it is not JSON.
pub fn parse(body: &Bytes) -> Value {
    assert!(Message::parse(body).is_ok(), "not a message: {body:?}");
    serde_json::from_slice(body).expect("JSON")
}

/// The next message of a stream, with its id. Skips items that are not messages.
pub async fn event(reader: &mut Reader) -> Option<(Option<String>, Value)> {
    loop {
        match reader.next().await? {
            Item::Event { id, body } => return Some((id.map(|id| id.to_string()), parse(&body))),
            Item::Prime(_) | Item::Gap | Item::Close(_) => {}
        }
    }
}

/// All messages until the stream ends.
pub async fn events(reader: &mut Reader) -> Vec<Value> {
    let mut all = Vec::new();
    while let Some((_, message)) = event(reader).await {
        all.push(message);
    }
    all
}
