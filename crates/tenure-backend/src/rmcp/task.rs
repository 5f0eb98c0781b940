//! A call that can become a task, as an argument for tools written for rmcp.
//!
//! Tenure keeps the task in its store; the handler itself keeps nothing. Handlers that keep tasks of their own, with
//! rmcp's means, do not need this. If rmcp alone serves the handler, no call becomes a task.

use std::sync::Arc;

use ::rmcp::ErrorData;
use ::rmcp::handler::server::common::{AsRequestContext, FromContextPart};
use ::rmcp::model::ClientCapabilities;
use ::rmcp::service::{RequestContext, RoleServer};
use tenure_session::call::{Became, CallContext, TaskWish};

use super::convert::error_data;

/// The call that a tool answers. It can become a task: the client gets an id at once, and fetches the outcome later.
///
/// ```
/// use std::time::Duration;
///
/// use rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
/// use tenure_backend::rmcp::ToolTask;
///
/// struct Survey;
///
/// #[tool_router]
/// impl Survey {
///     #[tool(description = "Takes its time")]
///     async fn survey(&self, task: ToolTask) -> Result<String, ErrorData> {
///         task.begin(Duration::from_secs(600)).await?;
///         // From here on the client does not wait. The answer is kept until the client fetches it.
///         Ok("no oil".to_owned())
///     }
/// }
///
/// #[tool_handler]
/// impl ServerHandler for Survey {}
/// ```
#[derive(Clone, Debug)]
pub struct ToolTask(Option<Arc<CallContext>>);

impl ToolTask {
    /// The call of this context, for handlers that are not made of `#[tool]` functions.
    pub fn of(context: &RequestContext<RoleServer>) -> Self {
        Self(context.extensions.get::<Arc<CallContext>>().cloned())
    }

    /// Makes a task of the call, which may take this long. From then on the handler's questions wait until the client
    /// fetches them, its progress and log messages are dropped, and its return value is the outcome. A handler may ask
    /// the client something before it calls this.
    ///
    /// Returns [`Became::No`], and the client waits as for any call, if the call is in a session, the client does not
    /// declare the extension, the server has no tasks, or the handler keeps its own tasks. A tool may ignore the
    /// returned value.
    ///
    /// # Errors
    /// When there are too many tasks, or the store fails. The call continues as before.
    ///
    /// # Cancel safety
    /// Dropped early, the call may or may not have become a task.
    pub async fn begin(&self, wish: impl Into<TaskWish>) -> Result<Became, ErrorData> {
        match &self.0 {
            Some(context) => context.become_task(wish.into()).await.map_err(|error| error_data(&error)),
            None => Ok(Became::No),
        }
    }

    /// For tools that can only work as a task: checks that the client knows tasks.
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

impl<C: AsRequestContext> FromContextPart<C> for ToolTask {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        Ok(Self::of(context.as_request_context()))
    }
}
