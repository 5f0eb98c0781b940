//! The modern era: a request that stands alone, with its response, is an exchange.
//!
//! It belongs to no session. What it has to say, and when it is refused, is in [`tenure_protocol::modern`].
//!
//! [`Exchanges`] carries requests out: `attempt` says how an attempt ends, `call` is the call and `server_messages` what its server
//! says and asks, `parked` keeps calls that wait for their clients, `request_state` seals what a client carries to its next
//! attempt, `listen` serves those who want news, `become_task` lets a call become a task, and `task_requests` answers what
//! clients then ask. `resume` goes on with calls whose clients come back. `operator` tells operators what is under way. Nothing here knows of sessions.

mod attempt;
mod become_task;
mod call;
mod exchanges;
mod finish;
mod flow;
mod hand_over;
mod header_schemas;
mod limits;
mod listen;
mod operator;
mod parked;
mod repeat;
pub mod request_state;
mod resume;
mod server_messages;
mod task_requests;

pub use attempt::Answer;
pub use exchanges::{Exchanges, Parts, Tallies};
pub use flow::{Flow, FlowItem};
pub use limits::ExchangeLimits;
pub use listen::Listens;
pub use operator::{ExchangeInfo, Standing, WaitsFor};
