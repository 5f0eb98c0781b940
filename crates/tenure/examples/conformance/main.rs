//! A server with everything that the official MCP conformance suite asks of one, on our stack.
//!
//! Run it with `cargo run --release --example conformance -- --listen 127.0.0.1:3103`; `./dev
//! conformance` does, and runs the suite against it. `--backend rmcp` serves the same fixtures from an
//! rmcp `ServerHandler` instead of a native one. `--backend rmcp-alone` serves that on rmcp's own service, with
//! nothing of ours but the fixtures: a server to stand behind the gateway. For that there are also `--eras
//! legacy|modern`, to know only one era, and `--stdio`, to serve the process that started it. `--nodes 3` serves from as many
//! nodes that share a store in memory: each request goes to the next one, whatever session it belongs to.

#![expect(clippy::print_stdout, reason = "the first line on standard output is the endpoint")]

mod catalog;
mod native;
mod nodes;
mod rmcp_handler;

use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use rmcp::ServiceExt;
use rmcp::model::ProtocolVersion;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tenure::config::{Config, Sources};
use tenure::{Node, StdioNode};
use tenure_backend::native::Native;
use tenure_backend::rmcp::RmcpBackend;
use tenure_session::backend::Backend;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use rmcp_handler::Newsroom;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::read()?;
    if options.is_alone {
        return alone(&options).await;
    }
    let backend: Arc<dyn Backend> = match options.is_rmcp {
        true => Arc::new(RmcpBackend::new(rmcp_handler::Fixtures::new)),
        false => Arc::new(Native::new(|made| native::Fixtures::new(made.fanout().clone()))),
    };
    let mut flags = vec![("listen".to_owned(), options.listen), ("store".to_owned(), options.store)];
    flags.extend(options.eras.map(|eras| ("eras".to_owned(), eras)));
    let sources = Sources { flags, ..Sources::default() };
    let (config, _) = Config::load(&sources)?;
    tenure::logs::start(&config.log)?;
    if options.is_stdio {
        let node = StdioNode::with_backend(&config, backend).await?;
        node.run(tokio::io::stdin(), tokio::io::stdout(), CancellationToken::new()).await;
        return Ok(());
    }
    if let Some(count) = options.nodes {
        return nodes::serve(&config, &backend, count).await;
    }
    let node = Node::with_backend(&config, backend).await?;
    println!("{}", node.url());
    tokio::signal::ctrl_c().await?;
    node.stop().await;
    Ok(())
}

struct Options {
    listen: String,
    store: String,
    eras: Option<String>,
    is_rmcp: bool,
    is_alone: bool,
    is_stdio: bool,
    nodes: Option<usize>,
}

impl Options {
    fn read() -> anyhow::Result<Self> {
        let (listen, store) = ("127.0.0.1:0".to_owned(), "memory:".to_owned());
        let (is_rmcp, is_alone, is_stdio) = (false, false, false);
        let mut read = Self { listen, store, eras: None, is_rmcp, is_alone, is_stdio, nodes: None };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            if arg == "--stdio" {
                read.is_stdio = true;
                continue;
            }
            let value = args.next().with_context(|| format!("{arg} needs a value"))?;
            match (arg.as_str(), value.as_str()) {
                ("--listen", _) => read.listen = value,
                ("--store", _) => read.store = value,
                ("--eras", "both" | "legacy" | "modern") => read.eras = Some(value),
                ("--nodes", _) => read.nodes = Some(value.parse().context("--nodes needs a number")?),
                ("--backend", "native") => {}
                ("--backend", "rmcp") => read.is_rmcp = true,
                ("--backend", "rmcp-alone") => read.is_alone = true,
                _ => bail!(
                    "use --listen ADDRESS, --store URL, --backend native|rmcp|rmcp-alone, --eras both|legacy|modern, \
                     --nodes NUMBER and --stdio"
                ),
            }
        }
        Ok(read)
    }
}

/// Serves the fixtures with rmcp's own means.
async fn alone(options: &Options) -> anyhow::Result<()> {
    let is_served = |version: &ProtocolVersion| match options.eras.as_deref() {
        Some("legacy") => *version < ProtocolVersion::V_2026_07_28,
        Some("modern") => *version >= ProtocolVersion::V_2026_07_28,
        _ => true,
    };
    let versions =
        ProtocolVersion::KNOWN_VERSIONS.iter().filter(|version| is_served(version)).cloned().collect();
    let fixtures = rmcp_handler::Fixtures::alone(Newsroom::new(), versions);
    if options.is_stdio {
        fixtures.serve((tokio::io::stdin(), tokio::io::stdout())).await?.waiting().await?;
        return Ok(());
    }
    let (sessions, config) =
        (Arc::new(LocalSessionManager::default()), StreamableHttpServerConfig::default());
    let service = StreamableHttpService::new(move || Ok(fixtures.clone()), sessions, config);
    let listen = &options.listen;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    println!("http://{}/mcp", listener.local_addr()?);
    let serving = axum::serve(listener, Router::new().route_service("/mcp", service));
    tokio::select! {
        served = serving => served?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    Ok(())
}
