//! An ordinary rmcp server, on rmcp's own HTTP service, whose sessions and streams outlive its process.
//!
//! Two lines in `main` make it so. Kill it, start it again on the same port and store, and its clients go on:
//! with the session they had, and with `Last-Event-ID` from the event they saw last. A call that was cut off is answered
//! with an error that says so.
//!
//! `cargo run --example rmcp_durable -- --listen 127.0.0.1:8484 --store FOLDER`

#![expect(clippy::print_stdout, reason = "the first line on standard output is the endpoint")]

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResult, ContentBlock, ProgressNotificationParam, RequestMetaObject,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig,
};
use rmcp::service::ServiceError;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use tenure_store::disk::{Disk, Sync};
use tenure_store::rmcp::{RmcpSessions, RmcpStore};
use tokio::net::TcpListener;

/// One tool table for all sessions and calls: by default the macro builds one per call.
static TOOLS: LazyLock<ToolRouter<Desk>> = LazyLock::new(Desk::tool_router);

/// rmcp makes a new handler for a session that it wakes, so it keeps nothing itself.
#[derive(Debug, Clone, Copy)]
struct Desk;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct AnnounceArguments {
    uris: Vec<String>,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct CountArguments {
    to: u32,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct WorkArguments {
    seconds: u64,
}

#[tool_router]
impl Desk {
    #[tool(description = "Says who the client is, as it introduced itself when the session began")]
    #[expect(clippy::needless_pass_by_value, reason = "rmcp hands it over")]
    fn whoami(&self, peer: Peer<RoleServer>) -> CallToolResult {
        let client = peer.peer_info().map(|info| info.client_info.name.clone());
        CallToolResult::success(vec![ContentBlock::text(client.unwrap_or_default())])
    }

    #[tool(description = "Announces that resources have changed, on the session's own stream")]
    async fn announce(
        &self,
        Parameters(arguments): Parameters<AnnounceArguments>,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        for uri in arguments.uris {
            let params = ResourceUpdatedNotificationParam::new(uri);
            peer.notify_resource_updated(params).await.map_err(unsent)?;
        }
        Ok(CallToolResult::success(Vec::new()))
    }

    #[tool(description = "Counts aloud, on the stream of the call")]
    async fn count(
        &self,
        Parameters(arguments): Parameters<CountArguments>,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        if let Some(token) = meta.get_progress_token() {
            for number in 1..=arguments.to {
                let params = ProgressNotificationParam::new(token.clone(), f64::from(number));
                peer.notify_progress(params).await.map_err(unsent)?;
            }
        }
        Ok(CallToolResult::success(vec![ContentBlock::text(arguments.to.to_string())]))
    }

    #[tool(description = "Works for a while, and says on the stream of the call that it began")]
    async fn work(
        &self,
        Parameters(arguments): Parameters<WorkArguments>,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        if let Some(token) = meta.get_progress_token() {
            peer.notify_progress(ProgressNotificationParam::new(token, 0.0)).await.map_err(unsent)?;
        }
        tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err wants")]
fn unsent(error: ServiceError) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[tool_handler(router = TOOLS)]
impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().build())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let argument = |name: &str| std::env::args().skip_while(|argument| argument != name).nth(1);
    let listen = argument("--listen").unwrap_or("127.0.0.1:0".to_owned());
    let folder = argument("--store").context("say where to keep sessions: --store FOLDER")?;

    let mut config = StreamableHttpServerConfig::default();
    let sessions = LocalSessionManager::default();

    let store = Arc::new(RmcpStore::new(Arc::new(Disk::open(Path::new(&folder), Sync::Os)?)));
    let sessions = RmcpSessions::new(sessions, &store); // 1. events are in the store before they are sent
    config.session_store = Some(store); // 2. sessions are woken from the store

    let service = StreamableHttpService::new(|| Ok(Desk), Arc::new(sessions), config);
    let listener = TcpListener::bind(&listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    println!("http://{}/mcp", listener.local_addr()?);
    let serving = axum::serve(listener, Router::new().route_service("/mcp", service));
    tokio::select! {
        served = serving => served?,
        stopped = tokio::signal::ctrl_c() => stopped?,
    }
    Ok(())
}
