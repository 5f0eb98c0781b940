//! For tests only: contract suites that every engine, backend and responder passes, and fakes that a test controls.

pub mod store_contract;
pub mod members_contract;
pub mod memory_members;
pub mod backend_contract;
pub mod responder_contract;
pub mod runtime;
pub mod exchanges;
pub mod fake_backend;
pub mod fake_responder;
pub mod fake_client;
pub mod faulty;
pub mod issuer;
pub mod token_server;
pub mod span_sink;
mod one_request;
pub mod late;
pub mod node_view;
pub mod crash;
pub mod nats_servers;
pub mod clock;
pub mod sse;
pub mod wire;
