//! A cluster: several nodes on one engine of three servers, with a proxy on every link.
//!
//! Code map, in reading order: `run` (what happens when), `outages` (what can be done to a cluster, and the schedule),
//! `nodes` and `engine` (the processes), `links` over `proxy` and `sockets` (the network), `probes` (what is measured).

mod run;
mod outages;
mod nodes;
mod engine;
mod links;
mod proxy;
mod sockets;
mod probes;

pub(crate) use run::run;
