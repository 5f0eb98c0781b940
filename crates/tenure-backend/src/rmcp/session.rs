//! The session that a call belongs to, as tools written for rmcp get it: as one of their arguments.
//!
//! Its metadata and its idle time are kept in the session's record, so they outlive the handler, the process and the
//! link. Data that a client needs in all of its sessions belongs in a data session instead (`state`).

use std::sync::Arc;
use std::time::Duration;

use ::rmcp::ErrorData;
use rmcp::handler::server::common::{AsRequestContext, FromContextPart};
use rmcp::service::{RequestContext, RoleServer};
use tenure_protocol::{Error, Reason, RpcError};
use tenure_session::call::{CallContext, CallSession};
use tenure_session::port::store::Version;
use tenure_session::settings::{IdleTtl, Metadata};

use super::convert::error_data;

/// The session that a call belongs to. A tool with this argument is only called in a session.
///
/// ```
/// use std::time::Duration;
///
/// use rmcp::{ErrorData, ServerHandler, tool, tool_handler, tool_router};
/// use tenure_backend::rmcp::ToolSession;
/// use tenure_session::settings::IdleTtl;
///
/// struct Desk;
///
/// #[tool_router]
/// impl Desk {
///     #[tool(description = "Counts how often it was called in this session, which lives for two hours from then on")]
///     async fn count(&self, session: ToolSession) -> Result<String, ErrorData> {
///         let count = session.change_metadata(|metadata| {
///             let count = metadata.get("count").and_then(|count| count.as_u64()).unwrap_or(0) + 1;
///             metadata.insert("count".to_owned(), count.into());
///             Ok(count)
///         });
///         let count = count.await?;
///         session.set_ttl(IdleTtl::After(Duration::from_secs(2 * 60 * 60))).await?;
///         Ok(count.to_string())
///     }
/// }
///
/// #[tool_handler]
/// impl ServerHandler for Desk {}
/// ```
#[derive(Clone, Debug)]
pub struct ToolSession(CallSession);

/// The session that a call belongs to, if there is one: calls of revision 2026-07-28 have none.
#[derive(Clone, Debug)]
pub struct MaybeSession(pub Option<ToolSession>);

impl ToolSession {
    /// The session of this context, for handlers that are not made of `#[tool]` functions.
    pub fn of(context: &RequestContext<RoleServer>) -> Option<Self> {
        context.extensions.get::<Arc<CallContext>>()?.session().map(Self)
    }

    /// The metadata, and the version of the session that they belong to.
    pub fn metadata(&self) -> (Metadata, Version) {
        self.0.metadata()
    }

    /// Replaces the metadata, if the session still has the version that the caller saw.
    ///
    /// # Errors
    /// When it has another (`data.reason` is `conflict`), when the metadata are too large (`metadata_too_large`), when
    /// the session is over, or the store fails. Nothing is changed then.
    pub async fn set_metadata(&self, seen: Version, metadata: Metadata) -> Result<Version, ErrorData> {
        self.0.set_metadata(seen, metadata).await.map_err(|error| told(&error))
    }

    /// Changes the metadata; if another change comes first, tries again.
    ///
    /// # Errors
    /// The error of `change`, and then nothing is changed; or as for [`ToolSession::set_metadata`].
    pub async fn change_metadata<R>(
        &self,
        change: impl FnMut(&mut Metadata) -> Result<R, ErrorData> + Send,
    ) -> Result<R, ErrorData> {
        self.0.change_metadata(change).await.map_err(|error| told(&error))?
    }

    /// How long the session lives without use. `None`: for ever.
    pub fn idle_ttl(&self) -> Option<Duration> {
        self.0.idle_ttl()
    }

    /// Sets how long the session lives without use, from now on.
    ///
    /// # Errors
    /// When the session is over, or the store fails. Nothing is changed then.
    pub async fn set_ttl(&self, ttl: IdleTtl) -> Result<(), ErrorData> {
        self.0.set_ttl(ttl).await.map_err(|error| told(&error))
    }
}

fn told(error: &Error) -> ErrorData {
    error_data(&error.to_rpc())
}

impl<C: AsRequestContext> FromContextPart<C> for ToolSession {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        let sentence = "This tool works in a session only";
        Self::of(context.as_request_context())
            .ok_or_else(|| error_data(&RpcError::of(Reason::SessionRequired, sentence)))
    }
}

impl<C: AsRequestContext> FromContextPart<C> for MaybeSession {
    fn from_context_part(context: &mut C) -> Result<Self, ErrorData> {
        Ok(Self(ToolSession::of(context.as_request_context())))
    }
}
