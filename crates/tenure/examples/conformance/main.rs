//! A server with everything that the official MCP conformance suite asks of one, on our stack.
//!
//! Run it with `cargo run --release --example conformance -- --listen 127.0.0.1:3103`; `./dev
//! conformance` does, and runs the suite against it. `--backend rmcp` serves the same fixtures from an
//! rmcp `ServerHandler` instead of a native one. `--backend rmcp-alone` serves that on rmcp's own HTTP service, with
//! nothing of ours but the fixtures: a server to stand behind the gateway.

#![expect(clippy::print_stdout, reason = "the first line on standard output is the endpoint")]

mod catalog;
mod native;
mod rmcp_handler;

use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_backend::native::Native;
use tenure_backend::rmcp::RmcpBackend;
use tenure_session::port::backend::Backend;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut listen = "127.0.0.1:0".to_owned();
    let mut store = "memory:".to_owned();
    let mut backend: Arc<dyn Backend> = Arc::new(Native::new(|_| native::Fixtures));
    let mut is_alone = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().with_context(|| format!("{arg} needs a value"))?;
        match (arg.as_str(), value.as_str()) {
            ("--listen", _) => listen = value,
            ("--store", _) => store = value,
            ("--backend", "native") => {}
            ("--backend", "rmcp") => backend = Arc::new(RmcpBackend::new(|| rmcp_handler::Fixtures)),
            ("--backend", "rmcp-alone") => is_alone = true,
            _ => bail!("use --listen ADDRESS, --store URL and --backend native|rmcp|rmcp-alone"),
        }
    }
    if is_alone {
        return serve_alone(&listen).await;
    }
    let flags = vec![("listen".to_owned(), listen), ("store".to_owned(), store)];
    let sources = Sources { flags, ..Sources::default() };
    let (config, _) = Config::load(&sources)?;
    tenure::logs::start(&config.log)?;
    let node = Node::with_backend(&config, backend).await?;
    println!("{}", node.url());
    tokio::signal::ctrl_c().await?;
    node.stop().await;
    Ok(())
}

async fn serve_alone(listen: &str) -> anyhow::Result<()> {
    let (sessions, config) =
        (Arc::new(LocalSessionManager::default()), StreamableHttpServerConfig::default());
    let service = StreamableHttpService::new(|| Ok(rmcp_handler::Fixtures), sessions, config);
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    println!("http://{}/mcp", listener.local_addr()?);
    let serving = axum::serve(listener, Router::new().route_service("/mcp", service));
    tokio::select! {
        served = serving => served?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    Ok(())
}
