//! Turns a handler's panic into an error, and drops a cancelled handler that does not stop.
//!
//! rmcp's loop runs each handler call in its own task. Without this, a request whose handler panics has no answer.

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{ProtocolVersion, ServerResult};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, Service, ServiceRole};
use rmcp::{ErrorData, ServerHandler};
use serde_json::json;
use tenure_protocol::Reason;

use crate::rmcp::attempt::attempt;

/// How long a cancelled handler may clean up before it is dropped.
const GRACE: Duration = Duration::from_secs(5);

/// A handler whose panics are errors.
pub(super) struct PanicGuard<H>(pub(super) Arc<H>);

impl<H: ServerHandler> Service<RoleServer> for PanicGuard<H> {
    async fn handle_request(
        &self,
        request: <RoleServer as ServiceRole>::PeerReq,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let cancelled = context.ct.clone();
        let answer = AssertUnwindSafe(attempt(&*self.0, request, context)).catch_unwind();
        let given_up = async {
            cancelled.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        let answer = tokio::select! {
            answer = answer => answer,
            () = given_up => return Err(ErrorData::internal_error("The request was cancelled", None)),
        };
        match answer {
            Ok(answer) => answer,
            Err(_) => {
                tracing::error!("an rmcp handler panicked");
                let reason = json!({ "reason": Reason::Internal.as_str() });
                Err(ErrorData::internal_error("The server failed while handling the request", Some(reason)))
            }
        }
    }

    async fn handle_notification(
        &self,
        notification: <RoleServer as ServiceRole>::PeerNot,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.0.handle_notification(notification, context).await
    }

    fn get_info(&self) -> <RoleServer as ServiceRole>::Info {
        ServerHandler::get_info(&*self.0)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        ServerHandler::supported_protocol_versions(&*self.0)
    }
}
