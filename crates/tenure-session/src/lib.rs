//! MCP sessions, requests without a session, tasks and states: their rules and their runtime.
//!
//! A session begins with `initialize`, becomes usable with `notifications/initialized`, and ends by
//! DELETE, by expiry or by an operator. Between those moments it carries requests to a backend and
//! messages back on numbered streams that a client may resume. This crate holds the rules (pure),
//! the runtime (tasks and locks) and the ports (traits that stores, backends and clocks implement).
//! It knows no HTTP, no disk and no sockets.
//!
//! # How to begin
//!
//! Give [`Sessions`] a store and a server, and pass it the messages of clients. Here the store is in memory, and the
//! server is a [`backend::Backend`] that answers every request with its own params.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use serde_json::json;
//! use tenure_protocol::{Method, Notification, RawJson, Reply, Request, RequestId, RpcError};
//! use tenure_session::backend::{Backend, Call, Link, Open, Opened};
//! use tenure_session::call::Caller;
//! use tenure_session::port::BoxFuture;
//! use tenure_session::port::clock::SystemClock;
//! use tenure_session::session::SessionParts;
//! use tenure_session::{Answer, Limits, Principal, Sessions};
//! use tenure_store::memory::Memory;
//!
//! struct Echo;
//!
//! impl Backend for Echo {
//!     fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
//!         let result = RawJson::of(&json!({
//!             "protocolVersion": open.revision.as_str(),
//!             "capabilities": { "tools": {} },
//!             "serverInfo": { "name": "echo", "version": "1" },
//!         }));
//!         Box::pin(async { Ok(Opened { link: Box::new(Echo), result }) })
//!     }
//! }
//!
//! impl Link for Echo {
//!     fn call(&self, call: Call) -> BoxFuture<Reply> {
//!         Box::pin(async { Ok(call.request.params.unwrap_or(RawJson::EMPTY_OBJECT)) })
//!     }
//!     fn notify(&self, _: Notification) {}
//!     fn close(&self) -> BoxFuture<()> {
//!         Box::pin(async {})
//!     }
//! }
//!
//! fn request(id: u64, method: Method, params: serde_json::Value) -> Request {
//!     Request { id: RequestId::from_number(id), method, params: Some(RawJson::of(&params)) }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), tenure_protocol::Error> {
//!     let (store, backend, clock) = (Arc::new(Memory::new()), Arc::new(Echo), Arc::new(SystemClock));
//!     let sessions = Sessions::start(SessionParts { store, backend, clock, limits: Limits::default(), roster: None });
//!
//!     let initialize = json!({
//!         "protocolVersion": "2025-11-25",
//!         "capabilities": {},
//!         "clientInfo": { "name": "docs", "version": "1" },
//!     });
//!     let ann = Principal::named("ann");
//!     let created = sessions.create(request(1, Method::Initialize, initialize), &ann).await?;
//!     let id = *created.session.expect("the server agrees").id();
//!
//!     // With every later message, a transport finds the session by its id.
//!     let session = sessions.find(&id, &ann).await?;
//!     session.notification(Notification { method: Method::Initialized, params: None })?;
//!     let call = request(2, Method::ToolsCall, json!({ "name": "echo" }));
//!     match session.request(call, Caller { principal: ann.clone(), ..Caller::anonymous("docs") }).await? {
//!         Answer::Json(body) => assert_eq!(body, r#"{"jsonrpc":"2.0","id":2,"result":{"name":"echo"}}"#),
//!         // A server that sends other messages first, or takes long, is answered on a stream.
//!         other => panic!("{other:?}"),
//!     }
//!
//!     sessions.delete(&id, &ann).await?;
//!     assert!(sessions.find(&id, &ann).await.is_err());
//!     sessions.shut_down(Duration::from_secs(1)).await;
//!     Ok(())
//! }
//! ```
//!
//! # Reading order
//!
//! [`session`] (sessions and their streams), [`exchange`] (requests without a session), [`task`] (calls whose clients
//! come back for the outcome), [`state`] (application state that outlives sessions), [`call`] and [`backend`] (the side
//! of the server), [`port`] (traits for stores, clocks and seals), [`cluster`] (several processes on one store). Every kind of record has the same parts: `counts`
//! (limits), `finish`, `read_back` and `take_back` (writes that must not be lost or doubled), `sweep` (expiry).
//! `tenure-protocol` owns the wire format.

pub mod id;
pub mod limits;
pub mod port;
pub mod fingerprint;
pub mod figures;
pub mod record;
pub mod revocation;
pub mod settings;
mod usable_until;
mod framed;
pub mod budget;
pub mod rate;
mod finish;
mod backoff;
mod counts;
mod read_back;
mod take_back;
pub mod supervise;
pub mod single_flight;
mod sweep;
pub mod cluster;
pub mod state;
pub mod call;
pub mod backend;
pub mod session;
mod kept;
pub mod task;
pub mod exchange;

pub use id::{NodeId, Principal, Route, SessionId, SessionKey, StreamId};
pub use limits::Limits;
pub use session::{Answer, EventId, EventNames, EventSecret, Reader, Session, Sessions};
pub use state::{State, States};
pub use task::Tasks;
pub use usable_until::UsableUntil;
