//! An rmcp server on our stack: the two lines that matter are the backend and the node.
//!
//! The benchmarks compare it with rmcp's own HTTP service around the same handler.

#![expect(clippy::print_stdout, reason = "the first line on standard output is the endpoint")]

use std::sync::{Arc, LazyLock};

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock, ServerCapabilities, ServerConfig};
use rmcp::{ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_backend::rmcp::RmcpBackend;

/// One tool table for all sessions and calls: by default the macro builds one per call.
static TOOLS: LazyLock<ToolRouter<Echo>> = LazyLock::new(Echo::tool_router);

#[derive(Debug, Clone, Copy)]
struct Echo;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct EchoArguments {
    text: String,
}

#[tool_router]
impl Echo {
    #[tool(description = "Says back what you say")]
    fn public_echo(&self, Parameters(arguments): Parameters<EchoArguments>) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::text(arguments.text)])
    }
}

#[tool_handler(router = TOOLS)]
impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let flag = |name: &str, default: &str| {
        std::env::args().skip_while(|arg| arg != name).nth(1).unwrap_or(default.to_owned())
    };
    // In memory unless asked otherwise: an example leaves nothing in the user's own folder.
    let (listen, store) = (flag("--listen", "127.0.0.1:0"), flag("--store", "memory:"));
    let flags = [
        ("listen", listen.as_str()),
        ("store", store.as_str()),
        // All clients of a benchmark are on one machine.
        ("http.max_connections_per_peer", "20000"),
        ("log.level", "warn"),
    ];
    let flags = flags.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let (config, _) = Config::load(&Sources { flags, ..Sources::default() })?;
    tenure::logs::start(&config.log)?;
    let node = Node::with_backend(&config, Arc::new(RmcpBackend::new(|| Echo))).await?;
    println!("{}", node.url());
    tokio::signal::ctrl_c().await?;
    node.stop().await;
    Ok(())
}
