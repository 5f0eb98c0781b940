//! Tenure keeps MCP sessions: the parts of the binary, for tests and embedders.
//!
//! [`Node::start`] runs a whole server in this process, [`StdioNode::start`] one with a single client. The command
//! `tenure` adds a command line, which an embedder leaves out (`default-features = false`).
//!
//! ```
//! use tenure::Node;
//! use tenure::config::Config;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let config = Config {
//!     listen: "127.0.0.1:0".parse().unwrap(), // any free port
//!     store: "memory:".to_owned(),            // `disk:PATH` keeps sessions when the process ends
//!     ..Config::default()
//! };
//! let node = Node::start(&config).await?; // in front of the demo server, because the configuration names none
//! println!("clients connect to {}", node.url());
//! node.stop().await;
//! # Ok::<(), tenure::Failure>(())
//! # }).unwrap();
//! ```
//!
//! # Inside your own server
//!
//! A [`NodeBuilder`] makes a node from a configuration and from your own parts: an MCP server, the state that its tools
//! work on, a store. [`NodeBuilder::start`] gives the node its own socket. With [`NodeBuilder::mount`] the node has no
//! socket: it is a `tower` service, which goes into a router of axum. `examples/mounted.rs` is a whole program.
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
//!     .with_store(Arc::new(Memory::new())) // default: the store that the configuration names
//!     .mount()
//!     .await?;
//! let router: Router = Router::new()
//!     .route("/", get(|| async { "your own page" }))
//!     .route_service("/agents", node.endpoint()) // the endpoint at a path of your choice
//!     .fallback_service(node.service()); // or all of it: /mcp, /healthz, /readyz
//! // Serve the router. To shut down, stop the node first, then the server around it.
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
        reason = "only commands use the operators' side of stores and control sockets"
    )
)]

#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
mod node;
mod wire;
mod socket;
mod shutdown;
mod control;
mod admin;
mod operator;
mod servers;
mod stores;
pub mod demo;
pub mod logs;
mod audit;
mod figures;
#[cfg(feature = "otlp")]
mod traces;
mod page;
mod failure;
mod escape;
mod descriptors;
mod time_text;
mod url_text;

pub use failure::Failure;
pub use node::{MountedNode, Node, NodeBuilder, StdioNode};
