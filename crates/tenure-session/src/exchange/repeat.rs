//! Sends a call again after its server was lost, if that is safe.
//!
//! A server is lost when it ends without an answer (`backend_unavailable`, or `interrupted` if it had the request). A
//! request that the server did not accept can always be sent again. A request that it accepted can be sent again if its
//! method only reads, or if its tool declares that a second call does no harm. Any other request may have been handled:
//! its client gets `interrupted`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::modern::meta::{self, Meta};
use tenure_protocol::modern::validate::StreamSupport;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RpcError};

use super::exchanges::{Exchanges, ExchangesInner};
use crate::backend::{Call, repeatable_tools};
use crate::call::{CallContext, Caller, Client, Outlet};
use crate::exchange::call::{ActiveCall, CallOrigin, ClientAttempt};
use crate::port::BoxFuture;

/// The pauses before each retry. The first retry comes at once, because most servers are back by then.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(300), Duration::from_secs(2)];

/// How long a server may take to list its tools, and how often a server is asked: if several servers fail together, the
/// next one may fail a moment later.
const LIST_WITHIN: Duration = Duration::from_secs(30);
const LIST_TRIES: usize = 3;

/// Whether a reply says that the server of the call was lost.
pub(super) fn is_lost(work: &ActiveCall, reply: &Reply) -> bool {
    let Err(error) = reply else { return false };
    let is_lost = error.is(Reason::BackendUnavailable) || error.is(Reason::Interrupted);
    // The client of a listen has to learn that it may have missed something. A call that the server turned into a task
    // is never sent again.
    is_lost && !work.is_listen() && work.task().is_none_or(|task| task.live.params().is_some())
}

impl Exchanges {
    /// Whether a request may run twice that another node may have carried out. For a tool its server is asked.
    ///
    /// # Cancel safety
    /// Nothing happens.
    pub async fn is_repeatable(&self, request: &Request, caller: Caller) -> bool {
        let Ok(meta) = Meta::read(request.params.as_ref()) else { return false };
        let inner = &self.0;
        let attempt = ClientAttempt { meta, streams: StreamSupport::No, responses: None, used: Vec::new() };
        let number = inner.numbers.fetch_add(1, Ordering::Relaxed);
        let world = (inner.fanout.on(self.1.clone()), Arc::clone(&inner.limits), inner.clock.now());
        let call = (request.clone(), caller);
        let work = ActiveCall::new(number, call, attempt, world, CallOrigin::default());
        inner.is_repeatable(&work).await
    }
}

impl ExchangesInner {
    /// The reply of a call that runs in its own runtime task, with retries if its server is lost.
    pub(super) fn see_through(
        self: &Arc<Self>,
        work: &Arc<ActiveCall>,
        reply: BoxFuture<Reply>,
    ) -> BoxFuture<Reply> {
        let (inner, work) = (Arc::clone(self), Arc::clone(work));
        Box::pin(async move { inner.once_more(work, reply.await).await })
    }

    /// Sends a call again if the reply says that its server was lost.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request.
    pub(super) async fn once_more(self: Arc<Self>, work: Arc<ActiveCall>, mut reply: Reply) -> Reply {
        for pause in PAUSES {
            let refused = match &reply {
                Err(error) if is_lost(&work, &reply) && !work.is_over() => error.is_refused(),
                _ => return reply,
            };
            tokio::time::sleep(pause).await;
            if !refused && !self.is_repeatable(&work).await {
                return Err(RpcError::server_lost());
            }
            tracing::info!(exchange = %work.label(), method = %work.request.method, "running a call again: its server was lost");
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

    /// Sends the call to the server from its beginning.
    pub(super) fn respond_again(self: &Arc<Self>, work: &Arc<ActiveCall>) -> BoxFuture<Reply> {
        let client = Arc::clone(work) as Arc<dyn Client>;
        let context = CallContext::new(client, &work.request, work.caller.clone());
        self.respond(work, Call { request: work.request.clone(), context })
    }

    /// Runs a call again that was parked in another process, if that is safe.
    pub(super) async fn recover(self: Arc<Self>, work: Arc<ActiveCall>) -> Reply {
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

    /// Whether the call may run twice. For a tool the server is asked each time, because it may be another server now.
    pub(super) async fn is_repeatable(&self, work: &Arc<ActiveCall>) -> bool {
        match params::repeat(&work.request.method) {
            Repeat::Safe => true,
            Repeat::Never => false,
            Repeat::AskTool => self.is_repeatable_tool(work).await,
        }
    }

    async fn is_repeatable_tool(&self, work: &Arc<ActiveCall>) -> bool {
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

    /// The tools that declare that a second call does no harm. `None`: the server did not answer.
    pub(super) async fn repeatable_tools(&self, work: &Arc<ActiveCall>) -> Option<Vec<String>> {
        let (tools, error) = repeatable_tools(|cursor| self.list_tools(work, cursor)).await;
        if let Some(error) = error {
            tracing::warn!(exchange = %work.label(), %error, "the server did not list its tools");
            return None;
        }
        Some(tools)
    }

    /// A page of the server's tools, as the caller sees them. The caller does not see this request.
    async fn list_tools(&self, work: &Arc<ActiveCall>, cursor: Option<String>) -> Reply {
        let meta = work.request.params.as_ref().and_then(meta::of_client);
        let mut params = serde_json::json!({ "_meta": meta.unwrap_or_default() });
        if let Some(cursor) = cursor {
            params["cursor"] = cursor.into();
        }
        let (id, params) = (work.request.id.clone(), Some(RawJson::of(&params)));
        let request = Request { id, method: Method::ToolsList, params };
        let client = Arc::clone(work) as Arc<dyn Client>;
        let context = Outlet::to(&client).inquiry(&request).map_err(|error| error.to_rpc())?;
        self.responder.respond(Call { request, context }).await
    }
}

impl ActiveCall {
    fn only_reads(&self) -> bool {
        params::repeat(&self.request.method) == Repeat::Safe
    }
}
