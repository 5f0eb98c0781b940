//! A whole node, talked to over real sockets: what clients, operators and attackers see.
//!
//! Every test starts a node of its own on a free port. The client in `support` writes exact bytes, so
//! that nothing between a test and the wire mends or hides anything.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start tasks, look at the clock, and fail by panicking"
)]

mod admin;
mod audit;
mod auth;
mod bounds;
mod cli;
mod client;
mod cluster;
mod compat;
mod data;
mod delete;
mod demo;
mod doors;
mod figures;
mod flood;
mod gateway;
mod handshake;
mod health;
mod http2_and_tls;
mod isolation;
mod limits;
mod modern;
mod mount;
mod operator;
mod rates;
mod readiness;
mod rmcp_client;
mod rmcp_durable;
mod rmcp_tasks;
mod shutdown;
mod statuses;
mod stdio;
mod streams;
mod support;
mod tasks;
mod tidy;
mod upstream;
mod upstream_auth;
mod use_cases;
