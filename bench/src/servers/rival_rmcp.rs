//! The rival: rmcp's own Streamable HTTP service, mounted in axum, with its best settings.
//!
//! Its tools are shared by all sessions; timers that would wake or end idle sessions are off, and so
//! are the priming events, which would be a second event in every answer. Calls without a session are answered as JSON
//! and not as a stream of one event; for calls in a session there is no such setting.

use std::sync::{Arc, LazyLock};

use axum::Router;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResult, ContentBlock, ProgressNotificationParam, RequestMetaObject, ServerCapabilities,
    ServerConfig,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;

use crate::servers::rival_events::MemoryEvents;

pub(super) fn router(keep_events: bool) -> Router {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = None;
    sessions.session_config.init_timeout = None;
    sessions.session_config.sse_retry = None;
    if keep_events {
        sessions = sessions.with_event_store(Arc::new(MemoryEvents::default()));
    }
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let config = config.with_sse_keep_alive(None).with_sse_retry(None);
    Router::new().route_service("/mcp", StreamableHttpService::new(|| Ok(Echo), Arc::new(sessions), config))
}

/// One tool table for all sessions and calls: by default the macro builds one per call.
static TOOLS: LazyLock<ToolRouter<Echo>> = LazyLock::new(Echo::tool_router);

#[derive(Debug, Clone, Copy)]
struct Echo;

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct EchoArguments {
    text: String,
}

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct EmitArguments {
    count: usize,
}

#[tool_router]
impl Echo {
    #[tool(description = "Returns the text")]
    fn public_echo(&self, Parameters(arguments): Parameters<EchoArguments>) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::text(arguments.text)])
    }

    /// rmcp sends only progress on the stream of a call; other notifications go to the GET stream.
    #[tool(description = "Emits `count` progress notifications on the stream of the call")]
    async fn bench_emit(
        &self,
        Parameters(arguments): Parameters<EmitArguments>,
        meta: RequestMetaObject,
        peer: Peer<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let token = meta
            .get_progress_token()
            .ok_or_else(|| ErrorData::invalid_params("bench_emit needs a progress token", None))?;
        for place in 1..=arguments.count {
            let progress = ProgressNotificationParam::new(token.clone(), place as f64).with_message("event");
            peer.notify_progress(progress)
                .await
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
        Ok(CallToolResult::success(Vec::new()))
    }
}

#[tool_handler(router = TOOLS)]
impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}
