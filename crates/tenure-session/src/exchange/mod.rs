//! The modern era: a request that stands alone, with its response, is an exchange.
//!
//! It belongs to no session. What it has to say, and when it is refused, is in [`tenure_protocol::modern`].
//!
//! [`Exchanges`] carries requests out: `run` says how an attempt ends, `work` is the call and `speech` what its server
//! says and asks, `parks` keeps calls that wait for their clients, `states` seals what a client carries to its next
//! attempt, `listen` serves those who want news, `tasked` lets a call become a task, and `about_tasks` answers what
//! clients then ask. `resume` goes on with calls whose clients come back. `list` tells operators what is under way. Nothing here knows of sessions.

mod about_tasks;
mod answers;
mod catalog;
mod exchanges;
mod flow;
mod leave;
mod limits;
mod list;
mod listen;
mod parks;
mod repeat;
mod resume;
mod run;
mod speech;
pub(crate) mod states;
mod tasked;
mod work;

pub use exchanges::{Exchanges, Parts, Tallies};
pub use flow::{Flow, FlowItem};
pub use limits::ExchangeLimits;
pub use list::{ExchangeInfo, Standing, WaitsFor};
pub use listen::Listens;
pub use run::Answer;
