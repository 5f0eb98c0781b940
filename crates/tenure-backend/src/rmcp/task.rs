//! The call as something that can become a task, as tools written for rmcp get it: as one of their arguments.
//!
//! The task is kept by whoever serves the handler, in the store; the handler itself keeps nothing. Handlers that keep
//! tasks of their own, the way of rmcp, do without this. Where a handler is served by rmcp alone nothing becomes a task.

use std::sync::Arc;

use ::rmcp::ErrorData;
use ::rmcp::handler::server::common::{AsRequestContext, FromContextPart};
use ::rmcp::model::ClientCapabilities;
use ::rmcp::service::{RequestContext, RoleServer};
use tenure_session::call::{Became, CallContext, TaskWish};

use super::convert::error_data;

/// The call that a tool answers, which can become a task: its client gets an id at once, and comes back for the outcome.
///
/// ```
/// use std::time::Duration;
///
/// use rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
/// use tenure_backend::rmcp::Task;
///
/// struct Survey;
///
/// #[tool_router]
/// impl Survey {
///     #[tool(description = "Takes its time")]
///     async fn survey(&self, task: Task) -> Result<String, ErrorData> {
///         task.begin(Duration::from_secs(600)).await?;
///         // From here on nobody waits for the answer. It is kept for whoever comes for it.
///         Ok("no oil".to_owned())
///     }
/// }
///
/// #[tool_handler]
/// impl ServerHandler for Survey {}
/// ```
#[derive(Clone, Debug)]
pub struct Task(Option<Arc<CallContext>>);

impl Task {
    /// The call of this context, for handlers that are not made of `#[tool]` functions.
    pub fn of(context: &RequestContext<RoleServer>) -> Self {
        Self(context.extensions.get::<Arc<CallContext>>().cloned())
    }

    /// Makes a task of the call, which may take this long. From then on what the handler asks through its `Peer` waits
    /// until the client comes for it, progress and log messages reach nobody, and what it returns is the outcome. A
    /// handler may ask first and begin then.
    ///
    /// It says [`Became::No`], and the client waits as for any call, in a session, for a client that does not declare
    /// the extension, on a server without tasks, and for a handler that keeps its own. A tool may go on without
    /// looking at it.
    ///
    /// # Errors
    /// When there are too many tasks, or the store fails. The call goes on as it was.
    ///
    /// # Cancel safety
    /// Dropped early, the call may or may not have become a task.
    pub async fn begin(&self, wish: impl Into<TaskWish>) -> Result<Became, ErrorData> {
        match &self.0 {
            Some(context) => context.become_task(wish.into()).await.map_err(|error| error_data(&error)),
            None => Ok(Became::No),
        }
    }

    /// For tools that can only work as a task: checks that the client can deal with one.
    ///
    /// # Errors
    /// The client does not declare the extension, or is in a session (-32021).
    pub fn require(&self) -> Result<(), ErrorData> {
        match &self.0 {
            Some(context) => context.requires_task().map_err(|error| error_data(&error)),
            None => {
                let needed = ClientCapabilities::builder().enable_tasks().build();
                Err(ErrorData::missing_required_client_capability(needed))
            }
        }
    }
}

impl<C: AsRequestContext> FromContextPart<C> for Task {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        Ok(Self::of(context.as_request_context()))
    }
}
