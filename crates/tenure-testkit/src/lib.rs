//! For tests only: contract suites that every engine and backend passes, and fakes that can be steered.

pub mod backend_contract;
pub mod clock;
pub mod crash;
pub mod exchanges;
pub mod fake_backend;
pub mod fake_client;
pub mod fake_responder;
pub mod faulty;
pub mod late;
pub mod responder_contract;
pub mod runtime;
pub mod sse;
pub mod store_contract;
