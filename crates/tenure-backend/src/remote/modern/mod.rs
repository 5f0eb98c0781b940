//! Remote servers of the modern era: every request is independent, and is posted on its own.
//!
//! The client's request passes unchanged, with its id and its `_meta`. Ids need not be ours, since a connection
//! carries only one request, and news that names a listen by its id stays valid. We write the headers that repeat the
//! body (`headers`), and those of a tool's arguments by the schema of the tool's last listing (`tools`). An answer is
//! JSON or a stream of events (`post`); notifications before the answer go through the call's context in order.
//! Streams are not resumed, because there is no id to resume them by. Dropping the future closes the connection, which
//! cancels the request at the server.
//!
//! While a server is away, a request waits. It is sent again if it was not sent before, or if it is safe to repeat.
//! Otherwise it ends as interrupted.
//!
//! A server that refuses the headers of a `tools/call` (-32020) did not carry it out. Then we list the tools again and
//! retry the call once.
//!
//! [`Probe::probe`] asks the server which era it knows; [`tenure_session::backend::probe`] says how to use it.
//! The legacy half is [`RemoteBackend`](super::RemoteBackend).

mod post;

mod headers;
mod tools;

use std::sync::Arc;

use tenure_protocol::Reply;
use tenure_protocol::modern::Meta;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::translate::codes::HEADER_MISMATCH;
use tenure_protocol::translate::evidence::AnsweredOver;
use tenure_protocol::translate::result;
use tenure_protocol::{Method, RawJson, Reason, Request, RequestId, RpcError};
use tenure_session::Route;
use tenure_session::backend::Call;
use tenure_session::backend::Responder;
use tenure_session::backend::probe::{Probe, ProbeAnswer, ProbeAttempt};
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;

use self::tools::ToolHeaders;
use super::Upstream;
use super::outage::{Away, Reached, Waits};
use crate::remote::credentials::OnBehalf;
use crate::remote::http_client::HttpClient;

/// How many pages of tools are listed to find one tool.
const PAGES: usize = 32;

/// A responder in front of a remote server.
pub struct RemoteResponder {
    server: Arc<ModernRemote>,
}

struct ModernRemote {
    http: Arc<HttpClient>,
    tools: ToolHeaders,
}

impl RemoteResponder {
    /// A responder in front of this server.
    ///
    /// # Errors
    /// When the URL or a header is invalid.
    pub fn new(upstream: &Upstream) -> Result<Self, String> {
        Ok(Self::at(Arc::new(HttpClient::new(upstream)?)))
    }

    pub(super) fn at(http: Arc<HttpClient>) -> Self {
        Self { server: Arc::new(ModernRemote { http, tools: ToolHeaders::default() }) }
    }

    /// # Cancel safety
    /// Dropping it closes the connection.
    fn ask(&self, call: Call) -> impl Future<Output = ProbeAttempt> + Send + use<> {
        let server = Arc::clone(&self.server);
        async move {
            let cancelled = call.context.cancellation();
            match cancelled.run_until_cancelled(server.ask(&call)).await {
                Some(attempt) => attempt,
                None => not_asked(RpcError::of(Reason::Cancelled, "The request was cancelled")),
            }
        }
    }
}

impl Responder for RemoteResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let asking = self.ask(call);
        Box::pin(async move { asking.await.into_reply() })
    }

    fn keeps_request_states(&self) -> bool {
        true
    }

    fn keeps_tasks(&self, _: &Route) -> bool {
        true
    }
}

impl Probe for RemoteResponder {
    fn probe(&self, call: Call) -> BoxFuture<ProbeAttempt> {
        Box::pin(self.ask(call))
    }
}

impl std::fmt::Debug for RemoteResponder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RemoteResponder").field(&self.server.http.place()).finish()
    }
}

impl ModernRemote {
    async fn ask(&self, call: &Call) -> ProbeAttempt {
        let Call { request, context } = call;
        let meta = match Meta::read(request.params.as_ref()) {
            Ok(meta) => meta,
            Err(error) => return not_asked(error.to_rpc()),
        };
        let mut attempt = self.once(request, &meta, context).await;
        if request.method == Method::ToolsCall && is_mismatch(&attempt) {
            tracing::debug!(
                url = self.http.place(),
                "the server upstream refused the headers of a call; listing its tools again"
            );
            self.list_anew(request, &meta, context).await;
            attempt = self.once(request, &meta, context).await;
        }
        match &mut attempt.answer {
            ProbeAnswer::Said(reply) => self.understand(request, context, reply),
            ProbeAnswer::Nothing(_) | ProbeAnswer::NotAsked(_) => {}
        }
        attempt
    }

    /// Sends a request, and retries while the server is away and a retry is safe.
    async fn once(&self, request: &Request, meta: &Meta, context: &CallContext) -> ProbeAttempt {
        let (mut waits, mut is_safe) = (self.http.waits(), false);
        loop {
            let tool = self.tools.of_call(&context.caller().principal, request);
            let traceparent = context.caller().traceparent.as_deref();
            let headers = match headers::write(request, &meta.version, tool.as_ref(), traceparent) {
                Ok(headers) => headers,
                Err(error) => return not_asked(error),
            };
            let whom = OnBehalf::caller(context.caller());
            let away = match self.post(request, headers, &whom, Some(context)).await {
                Ok(attempt) => return attempt,
                Err(away) => away,
            };
            let status = away.status;
            if let Err(error) = self.wait((request, meta, context), away, &mut waits, &mut is_safe).await {
                return ProbeAttempt { way: AnsweredOver::Http(status), answer: ProbeAnswer::Nothing(error) };
            }
            context.begins_again();
        }
    }

    /// Waits until a request may be sent again to a server that is away.
    ///
    /// # Errors
    /// When the request must not be sent again, or the patience is over.
    async fn wait(
        &self,
        (request, meta, context): (&Request, &Meta, &CallContext),
        away: Away,
        waits: &mut Waits<'_>,
        is_safe: &mut bool,
    ) -> Result<(), RpcError> {
        let repeat = match away.reached {
            Reached::NotSent => Repeat::Safe,
            // End the listen: its client has to know that it may have missed something.
            Reached::Perhaps | Reached::Server if request.method == Method::Listen => return Err(away.error),
            Reached::Perhaps | Reached::Server if *is_safe => Repeat::Safe,
            Reached::Perhaps | Reached::Server => repeat(&request.method),
        };
        let Some(pause) = waits.pause(&away).filter(|_| repeat != Repeat::Never) else {
            return Err(if repeat == Repeat::Safe { away.error } else { away.unrepeated() });
        };
        tokio::time::sleep(pause).await;
        if repeat == Repeat::AskTool {
            let name = params::tool_name(request.params.as_ref());
            let is_it = |page: &RawJson| {
                name.as_ref().is_some_and(|name| params::repeatable_tools(page).0.contains(name))
            };
            if !self.find_page(meta, context, is_it).await {
                return Err(away.unrepeated());
            }
            *is_safe = true;
        }
        tracing::info!(
            method = %request.method, url = self.http.place(),
            "sending a request again to a server that was away"
        );
        Ok(())
    }

    /// A result of an unknown type becomes an error. Tools with invalid annotations are removed from a list of tools.
    fn understand(&self, request: &Request, context: &CallContext, reply: &mut Reply) {
        let Ok(found) = reply else { return };
        if let Err(error) = result::kind(&request.method, found) {
            *reply = Err(error);
        } else if request.method == Method::ToolsList {
            *found = self.tools.learn(&context.caller().principal, found, self.http.place());
        }
    }

    /// Lists tools until the called tool is among them. The retry of the call shows whether that helped.
    async fn list_anew(&self, call: &Request, meta: &Meta, context: &CallContext) {
        self.find_page(meta, context, |page| tools::names(page, call)).await;
    }

    /// Lists tools until a page is as wanted; returns whether there is such a page. Learns from all pages.
    async fn find_page(
        &self,
        meta: &Meta,
        context: &CallContext,
        is_wanted: impl Fn(&RawJson) -> bool,
    ) -> bool {
        let principal = &context.caller().principal;
        let (mut cursor, mut waits) = (None, self.http.waits());
        for _ in 0..PAGES {
            let request = Request {
                id: RequestId::from_text("tools"),
                method: Method::ToolsList,
                params: Some(tools::listing(meta, cursor.as_deref())),
            };
            let traceparent = context.caller().traceparent.as_deref();
            let page = loop {
                let Ok(headers) = headers::write(&request, &meta.version, None, traceparent) else {
                    return false;
                };
                // No context: notifications here do not belong to the client's request.
                match self.post(&request, headers, &OnBehalf::caller(context.caller()), None).await {
                    Ok(ProbeAttempt { answer: ProbeAnswer::Said(Ok(page)), .. }) => break page,
                    Ok(_) => return false,
                    Err(away) => match waits.pause(&away) {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => return false,
                    },
                }
            };
            self.tools.learn(principal, &page, self.http.place());
            if is_wanted(&page) {
                return true;
            }
            cursor = match tools::next_page(&page) {
                Some(next) if Some(&next) != cursor.as_ref() => Some(next),
                Some(_) | None => return false,
            };
        }
        false
    }
}

/// Whether a request that the server may have carried out may be sent to it once more.
fn repeat(method: &Method) -> Repeat {
    match method {
        Method::Discover | Method::TasksGet => Repeat::Safe,
        method => params::repeat(method),
    }
}

fn is_mismatch(attempt: &ProbeAttempt) -> bool {
    matches!(&attempt.answer, ProbeAnswer::Said(Err(error)) if error.code() == HEADER_MISMATCH)
}

fn not_asked(error: RpcError) -> ProbeAttempt {
    ProbeAttempt { way: AnsweredOver::Http(None), answer: ProbeAnswer::NotAsked(error) }
}
