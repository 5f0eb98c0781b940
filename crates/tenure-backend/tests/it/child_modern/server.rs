//! The server of an SDK as a child process: the test program itself, started in another mode.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ServerCapabilities, ServerConfig,
    SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::json;
use tenure_backend::child::{ChildCommand, ChildLimits, ChildResponder};
use tokio::sync::{Notify, Semaphore, watch};

const IS_SERVER: &str = "SERVES_MCP";

/// A responder that runs it.
pub(crate) fn responder(limits: ChildLimits) -> ChildResponder {
    // With one thread, the test runner prints the start of a line, and the first message would end up on that line.
    let arguments = ["--exact", "child_modern::server::serves", "--nocapture", "--test-threads=2"];
    let mut command = ChildCommand::new(std::env::current_exe().unwrap(), arguments);
    command.environment.push((IS_SERVER.to_owned(), "1".to_owned()));
    // The output of the test runner comes between the messages, and is not a message.
    command.limits = limits;
    ChildResponder::new(command, None)
}

/// Not a test: the main function of the child. Does nothing unless the environment says so.
#[tokio::test]
async fn serves() {
    if std::env::var_os(IS_SERVER).is_none() {
        return;
    }
    let serving = Tools::default().serve(rmcp::transport::stdio()).await.expect("a client that speaks first");
    drop(serving.waiting().await);
    std::process::exit(0);
}

struct Tools {
    /// One for each request that was cancelled.
    cancelled: Semaphore,
    /// How often the tools changed.
    changes: watch::Sender<u32>,
    close: Arc<Notify>,
}

impl Default for Tools {
    fn default() -> Self {
        Self { cancelled: Semaphore::new(0), changes: watch::Sender::new(0), close: Arc::default() }
    }
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_logging();
        ServerConfig::new(capabilities.build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let token = context.meta.get_progress_token();
        let progress = async |step: f64| {
            let progress = ProgressNotificationParam::new(token.clone().expect("a token"), step);
            context.peer.notify_progress(progress).await.expect("sent");
        };
        let text = match &*request.name {
            "pid" => std::process::id().to_string(),
            "arguments" => json!(request.arguments).to_string(),
            "token" => json!(token).to_string(),
            "progress" => {
                for step in [1.0, 2.0, 3.0] {
                    progress(step).await;
                }
                String::new()
            }
            "hang" => {
                progress(1.0).await;
                context.ct.cancelled().await;
                self.cancelled.add_permits(1);
                String::new()
            }
            // Waits until a request was cancelled.
            "cancelled" => {
                self.cancelled.acquire().await.expect("open").forget();
                String::new()
            }
            "log" => {
                let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!("said"));
                context.peer.notify_logging_message(message).await.expect("sent");
                String::new()
            }
            "change" => {
                self.changes.send_modify(|changes| *changes += 1);
                String::new()
            }
            "close" => {
                self.close.notify_waiters();
                String::new()
            }
            "die" => std::process::exit(7),
            _ => return Err(ErrorData::invalid_params("no such tool", None)),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        // The client has the acknowledgement of its listen before we get here.
        if *changes.borrow() > 0 {
            changes.mark_changed();
        }
        let close = Arc::clone(&self.close);
        let closed = close.notified();
        tokio::pin!(closed);
        closed.as_mut().enable();
        loop {
            tokio::select! {
                changed = changes.changed() => {
                    changed.expect("open");
                    context.sink().notify_tool_list_changed().await.expect("sent");
                }
                () = &mut closed => return Ok(()),
                () = context.cancelled() => {
                    self.cancelled.add_permits(1);
                    return Ok(());
                }
            }
        }
    }
}
