//! The servers this binary carries: two floors and the rival, each with its best settings.
//!
//! Each runs as a process of its own (`tenure-bench server <name>`), on tokio's multi-threaded
//! runtime with its defaults, prints its endpoint as the first line, and serves until it is killed.

mod answer;
mod floor_axum;
mod floor_events;
mod floor_hyper;
mod rival_events;
mod rival_rmcp;
mod serve;

pub(crate) use serve::{exit_with_stdin, run};
