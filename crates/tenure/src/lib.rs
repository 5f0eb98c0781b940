//! Tenure keeps MCP sessions: the parts of the binary, for tests and embedders.
//!
//! [`Node::start`] is a whole server in this process, [`StdioNode::start`] one with a single client; the command `tenure` is
//! that plus a command line, which an embedder leaves out (`default-features = false`).
//!
//! # Inside a server of your own
//!
//! A [`NodeBuilder`] makes a node of a configuration and of what you bring: a server to serve, the state that its tools work
//! on, a store. [`NodeBuilder::start`] gives it a socket of its own. [`NodeBuilder::mount`] leaves that to you: the node is a
//! `tower` service then, and goes into a router of axum. `examples/mounted.rs` is a whole program.
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::Router;
//! use axum::routing::get;
//! use tenure::config::Config;
//! use tenure::{Failure, Node};
//! use tenure_store::memory::Memory;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let node = Node::builder(&Config::default())
//!     .with_backend(Arc::new(tenure::demo::backend())) // such as `RmcpBackend::new(|| MyServer)`
//!     .with_kinds(vec![tenure::demo::workspace()])
//!     .with_store(Arc::new(Memory::new())) // without it, the one that the configuration names
//!     .mount()
//!     .await?;
//! let router: Router = Router::new()
//!     .route("/", get(|| async { "a page of yours" }))
//!     .route_service("/agents", node.endpoint()) // the endpoint at a path of your choice
//!     .fallback_service(node.service()); // or all of it: /mcp, /healthz, /readyz
//! // Serve it, and when that is to end, first the node and then the server around it.
//! node.stop().await;
//! # drop(router);
//! # Ok::<(), Failure>(())
//! # }).unwrap();
//! ```

#![cfg_attr(
    not(feature = "cli"),
    expect(
        dead_code,
        unused_imports,
        reason = "operators' side of stores and control sockets is used by commands alone"
    )
)]

#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
mod control;
pub mod demo;
mod descriptors;
mod failure;
mod foreign;
pub mod logs;
mod node;
mod operator;
mod servers;
mod socket;
mod stopping;
mod stores;
mod times;
mod wire;

pub use failure::Failure;
pub use node::{MountedNode, Node, NodeBuilder, StdioNode};
