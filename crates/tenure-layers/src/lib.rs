//! Layers that wrap a server: a backend around a backend, a responder around a responder.
//!
//! A layer knows the ports of `tenure-session` and nothing else: no transport, no store, no kind of server. So any
//! server can have any of them, in the order that the builder of a node chooses. Here two servers become one, with data
//! sessions in front of them:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//!
//! use tenure_layers::data::{DataLayer, Policy};
//! use tenure_layers::merge::{MergedBackend, MergedMember};
//! use tenure_session::{Limits, Principal, port::clock::SystemClock, state::{StateLimits, States}};
//! use tenure_store::memory::Memory;
//! use tenure_testkit::{fake_backend::FakeBackend, runtime};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let server = |name: &str| {
//!     let (backend, _script) = FakeBackend::new(); // any backend
//!     MergedMember { name: name.to_owned(), prefix: name.to_owned(), backend }
//! };
//! let merged = MergedBackend::new([server("files"), server("notes")], Duration::from_secs(30), 1 << 20);
//! let store = Arc::new(Memory::new());
//! let states = States::start(store.clone(), Arc::new(SystemClock), StateLimits::default());
//! let layered = DataLayer::new(Arc::new(merged), states, Policy::default(), Vec::new());
//!
//! let sessions = runtime::start(store, Arc::new(layered), Limits::default());
//! let initialize = runtime::request(0, "initialize", &runtime::initialize("2025-11-25"));
//! let created = sessions.create(initialize, &Principal::ANONYMOUS).await.unwrap();
//! let result = &runtime::parse(&created.answer)["result"];
//! assert!(result["capabilities"]["sessions"].is_object(), "clients are offered data sessions");
//! # }
//! ```
//!
//! - [`data`]: data sessions and handles, which name state that outlives connections;
//! - [`bridge`]: a client of one era in front of a server of the other;
//! - [`restricted`]: only the tools that the scopes of the caller cover;
//! - [`limited`]: limits of calls, and a fair queue in front of each server;
//! - [`revisions`]: a client of an older revision of sessions in front of a newer server;
//! - [`merge`]: several servers as one;
//! - [`routes`]: several servers, each at an endpoint of its own.

pub mod data;
pub mod bridge;
pub mod restricted;
pub mod limited;
pub mod revisions;
pub mod merge;
pub mod routes;
