//! The modern era: a request that stands alone, with its response, is an exchange.
//!
//! It belongs to no session. It says in `_meta` which version it speaks and what its client can do, and over HTTP
//! some headers repeat what its body says. The rules for that are pure: [`ladder`] (is the request to be answered at
//! all), [`meta`] and [`capability`] (what it says of its client), [`sentinel`] and [`params`] (values in headers),
//! [`results`] (what every result has to carry), [`digest`] (whether a later attempt asks the same).
//!
//! [`Exchanges`] carries requests out: `run` says how an attempt ends, `work` is the call and `speech` what its server
//! says and asks, `parks` keeps calls that wait for their clients, `states` seals what a client carries to its next
//! attempt, `listen` serves those who want news, `tasked` lets a call become a task, and `about_tasks` answers what
//! clients then ask. `resume` goes on with calls whose clients come back. `list` tells operators what is under way. Nothing here knows of sessions.

mod about_tasks;
mod answers;
pub mod capability;
mod catalog;
pub mod digest;
mod exchanges;
mod flow;
pub mod ladder;
mod leave;
mod limits;
mod list;
mod listen;
pub mod meta;
pub mod params;
mod parks;
mod repeat;
pub mod results;
mod resume;
mod run;
pub mod sentinel;
mod speech;
pub(crate) mod states;
mod tasked;
mod work;

pub use capability::{Capabilities, Capability};
pub use digest::Digest;
pub use exchanges::{Exchanges, Parts, Tallies};
pub use flow::{Flow, FlowItem};
pub use ladder::{Checked, Header, Heads, Streams, check};
pub use limits::ExchangeLimits;
pub use list::{ExchangeInfo, Standing, WaitsFor};
pub use listen::Listens;
pub use meta::{Level, Meta};
pub use params::HeaderParams;
pub use results::{Caching, ResultType};
pub use run::Answer;
