//! Calls whose server was lost: they go to another server if that is safe.
//!
//! A server is lost when it is gone without an answer (`backend_unavailable`, or `interrupted` if it had the request).
//! A request that the server did not take can always be sent once more. A request that it took can be sent once more if its method only reads, or if its tool
//! says that calling it twice does no harm. Any other may have been carried out: its client is told `interrupted`.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::modern::meta;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RpcError};

use super::exchanges::Inner;
use crate::backend::Call;
use crate::call::{CallContext, Outlet, Stage};
use crate::exchange::call::Work;
use crate::port::BoxFuture;

/// How long to wait before each further attempt. The first comes at once: most servers are back by then.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(300), Duration::from_secs(2)];

/// Pages of a tools list that are looked at for a tool's hints.
const MAX_PAGES: usize = 64;

/// The longest that a server may take to list its tools for this, and how often it, or the next one, is asked: servers
/// that die together do not die at the same moment.
const LIST_WITHIN: Duration = Duration::from_secs(30);
const LIST_TRIES: usize = 3;

/// Whether a reply says that the server of the call was lost.
pub(super) fn is_lost(work: &Work, reply: &Reply) -> bool {
    let Err(error) = reply else { return false };
    let is_lost = error.is(Reason::BackendUnavailable) || error.is(Reason::Interrupted);
    // The client of a listen has to know that it may have missed something. A call that its server made a task of is
    // never sent again.
    is_lost && !work.is_listen() && work.task().is_none_or(|task| task.live.params().is_some())
}

impl Inner {
    /// The reply of a call that is carried out away from its attempt, whichever server it comes from.
    pub(super) fn see_through(
        self: &Arc<Self>,
        work: &Arc<Work>,
        reply: BoxFuture<Reply>,
    ) -> BoxFuture<Reply> {
        let (inner, work) = (Arc::clone(self), Arc::clone(work));
        Box::pin(async move { inner.once_more(work, reply.await).await })
    }

    /// Sends a call to another server if the reply says that its server was lost.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request.
    pub(super) async fn once_more(self: Arc<Self>, work: Arc<Work>, mut reply: Reply) -> Reply {
        for pause in PAUSES {
            let refused = match &reply {
                Err(error) if is_lost(&work, &reply) && !work.is_over() => error.is_refused(),
                _ => return reply,
            };
            tokio::time::sleep(pause).await;
            if !refused && !self.is_repeatable(&work).await {
                return Err(RpcError::server_lost());
            }
            tracing::info!(exchange = %work.label(), method = %work.request.method, "run again on another server");
            work.begins_again();
            reply = self.respond_again(&work).await;
        }
        match &reply {
            Err(error) if is_lost(&work, &reply) && !error.is_refused() && !work.only_reads() => {
                Err(RpcError::server_lost())
            }
            _ => reply,
        }
    }

    /// Gives the call to the server from its beginning.
    pub(super) fn respond_again(self: &Arc<Self>, work: &Arc<Work>) -> BoxFuture<Reply> {
        let stage = Arc::clone(work) as Arc<dyn Stage>;
        let context = CallContext::staged(stage, &work.request, work.caller.clone());
        self.respond(work, Call { request: work.request.clone(), context })
    }

    /// Carries out a call that waited for its client in a process that is gone, if that is safe.
    pub(super) async fn recover(self: Arc<Self>, work: Arc<Work>) -> Reply {
        match self.is_repeatable(&work).await {
            true => {
                let reply = self.respond_again(&work).await;
                self.once_more(work, reply).await
            }
            false => Err(RpcError::of(
                Reason::Interrupted,
                "The server was restarted before the answer came; the request may or may not have been carried out",
            )),
        }
    }

    /// Whether the call may be carried out twice. For a tool the server has to say so, now: it may be another one.
    pub(super) async fn is_repeatable(&self, work: &Arc<Work>) -> bool {
        match params::repeat(&work.request.method) {
            Repeat::Safe => true,
            Repeat::Never => false,
            Repeat::AskTool => self.is_repeatable_tool(work).await,
        }
    }

    async fn is_repeatable_tool(&self, work: &Arc<Work>) -> bool {
        let Some(name) = params::tool_name(work.request.params.as_ref()) else { return false };
        for _ in 0..LIST_TRIES {
            match tokio::time::timeout(LIST_WITHIN, self.repeatable_tools(work)).await {
                Ok(Some(tools)) => return tools.contains(&name),
                Ok(None) => tokio::time::sleep(PAUSES[1]).await,
                Err(_) => {
                    tracing::warn!(exchange = %work.label(), "the server did not list its tools in time")
                }
            }
        }
        false
    }

    /// The tools that say of themselves that calling them twice does no harm. `None`: the server did not say.
    pub(super) async fn repeatable_tools(&self, work: &Arc<Work>) -> Option<Vec<String>> {
        let (mut found, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let listed = match self.list_tools(work, cursor.as_deref()).await {
                Ok(listed) => listed,
                Err(error) => {
                    tracing::warn!(exchange = %work.label(), %error, "the server did not list its tools");
                    return None;
                }
            };
            let (tools, next) = params::repeatable_tools(&listed);
            found.extend(tools);
            let Some(next) = next else { break };
            cursor = Some(next);
        }
        Some(found)
    }

    /// A page of the server's tools, as the caller sees them. The caller knows nothing of this request.
    async fn list_tools(&self, work: &Arc<Work>, cursor: Option<&str>) -> Reply {
        let meta = work.request.params.as_ref().and_then(meta::of_client);
        let mut params = serde_json::json!({ "_meta": meta.unwrap_or_default() });
        if let Some(cursor) = cursor {
            params["cursor"] = cursor.into();
        }
        let (id, params) = (work.request.id.clone(), Some(RawJson::of(&params)));
        let request = Request { id, method: Method::ToolsList, params };
        let stage = Arc::clone(work) as Arc<dyn Stage>;
        let context = Outlet::of_stage(&stage).inquiry(&request).map_err(|error| error.to_rpc())?;
        self.responder.respond(Call { request, context }).await
    }
}

impl Work {
    fn only_reads(&self) -> bool {
        params::repeat(&self.request.method) == Repeat::Safe
    }
}
