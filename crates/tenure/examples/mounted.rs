//! A node inside a server of your own: an axum router with pages of its own and an MCP endpoint.
//!
//! The server is an rmcp handler. Its sessions are kept on disk: stop or kill the program, start it again on the same port
//! and store, and its clients go on.
//!
//! `cargo run --example mounted -- --listen 127.0.0.1:8484 --store FOLDER`

#![expect(clippy::print_stdout, reason = "the first line on standard output is the endpoint")]

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::routing::get;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{ServerCapabilities, ServerConfig};
use rmcp::{ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use tenure::Node;
use tenure::config::Config;
use tenure_backend::rmcp::RmcpBackend;
use tenure_store::disk::{Disk, Sync};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The server behind.
#[derive(Debug, Clone, Copy)]
struct Greeter;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct GreetArguments {
    name: String,
}

#[tool_router]
impl Greeter {
    #[tool(description = "Greets somebody")]
    fn greet(&self, Parameters(arguments): Parameters<GreetArguments>) -> String {
        format!("Hello, {}!", arguments.name)
    }
}

#[tool_handler]
impl ServerHandler for Greeter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let argument = |name: &str| std::env::args().skip_while(|argument| argument != name).nth(1);
    let listen = argument("--listen").unwrap_or("127.0.0.1:0".to_owned());
    let folder = argument("--store").context("say where to keep sessions: --store FOLDER")?;

    let node = Node::builder(&Config::default())
        .with_backend(Arc::new(RmcpBackend::new(|| Greeter)))
        .with_store(Arc::new(Disk::open(Path::new(&folder), Sync::Os)?)) // any store will do
        .mount()
        .await?;
    let router = Router::new()
        .route("/", get(|| async { "a page" }))
        .route_service("/agents", node.endpoint()) // the endpoint alone, at any path
        .fallback_service(node.service()); // all that `tenure serve` answers, at its own paths

    let listener = TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    println!("http://{}/mcp", listener.local_addr()?);
    let mut terminated = signal(SignalKind::terminate())?;
    let stopped = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        // The node first, while its clients can still be answered; that ends their streams too.
        node.stop().await;
    };
    axum::serve(listener, router).with_graceful_shutdown(stopped).await?;
    Ok(())
}
