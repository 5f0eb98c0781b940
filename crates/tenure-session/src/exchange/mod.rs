//! The modern era: an exchange is one request without a session, with its response.
//!
//! [`tenure_protocol::modern`] owns its format and the checks that may refuse it.
//!
//! [`Exchanges`] runs the requests. `attempt` polls one attempt and decides how it ends. `call` is the call, and
//! `server_messages` its messages and questions to the client. `parked` keeps calls that wait for their clients.
//! `request_state` seals the data that a client carries to its next attempt. `listen` serves listens. `become_task`
//! turns a call into a task, `task_requests` answers requests about tasks, and `task_names`
//! seals the ids of those that a server behind keeps. `resume` serves clients that come back
//! for a broken stream. `hand_over` leaves calls to the next process. `place` says which node of a cluster has a call. `operator` lists the running calls. Nothing here
//! knows sessions.

mod exchanges;
mod attempt;
mod call;
mod server_messages;
mod finish;
mod flow;
mod resume;
mod repeat;
mod hand_over;
mod place;
mod parked;
pub mod request_state;
mod listen;
mod become_task;
mod task_requests;
mod task_names;
mod header_schemas;
mod operator;
mod limits;

pub use attempt::ExchangeAnswer;
pub use exchanges::{ExchangeParts, ExchangeTallies, Exchanges};
pub use flow::{Flow, FlowItem};
pub use limits::ExchangeLimits;
pub use listen::Listens;
pub use operator::{CallStanding, ExchangeInfo, WaitsFor};
