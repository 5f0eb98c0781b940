//! Servers elsewhere in the modern era: every request stands alone, and is posted alone.
//!
//! What the client sent passes as it is, its id and its `_meta` included; ids need not be ours, since nothing else is
//! on the request's connection, and what names a listen by its id stays right. The headers that repeat the body are
//! written here (`headers`), those of a tool's arguments by what the tool's schema said when it was last listed
//! (`tools`). An answer is JSON or a stream of events (`post`); what the server says before it goes through the
//! call's context in order. Streams are not resumed: there is nothing to resume them by. Dropping the future closes
//! the connection, and that is how the server hears that nobody waits any more.
//!
//! A server that is away is waited for, and gets the request again if it was not sent, or if doing it twice does no harm.
//! Otherwise the request ends as interrupted.
//!
//! A server that does not like the headers of a `tools/call` (-32020) did not carry it out. Then the tools are
//! listed anew and it is asked once more, and never more often.
//!
//! Which era the server is of is asked with [`Probe::probe`]; [`tenure_session::backend::probe`] says how to use it.
//! The legacy half is [`RemoteBackend`](super::RemoteBackend).

mod headers;
mod post;
mod tools;

use std::sync::Arc;

use tenure_protocol::Reply;
use tenure_protocol::modern::Meta;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::translate::codes::HEADER_MISMATCH;
use tenure_protocol::translate::evidence::Way;
use tenure_protocol::translate::result;
use tenure_protocol::{Method, RawJson, Reason, Request, RequestId, RpcError};
use tenure_session::Route;
use tenure_session::backend::Call;
use tenure_session::backend::Responder;
use tenure_session::backend::probe::{Answer, Attempt, Probe};
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;

use self::tools::Tools;
use super::Upstream;
use super::outage::{Away, Reached, Waits};
use crate::remote::http_client::Door;

/// How many pages of tools are asked for to find one.
const PAGES: usize = 32;

/// A responder in front of a server elsewhere.
pub struct RemoteResponder {
    server: Arc<Server>,
}

struct Server {
    door: Arc<Door>,
    tools: Tools,
}

impl RemoteResponder {
    /// A responder in front of this server.
    ///
    /// # Errors
    /// When the URL or a header makes no sense.
    pub fn new(upstream: &Upstream) -> Result<Self, String> {
        Ok(Self::at(Arc::new(Door::new(upstream)?)))
    }

    pub(super) fn at(door: Arc<Door>) -> Self {
        Self { server: Arc::new(Server { door, tools: Tools::default() }) }
    }

    /// # Cancel safety
    /// Dropping it closes the connection.
    fn ask(&self, call: Call) -> impl Future<Output = Attempt> + Send + use<> {
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
    fn probe(&self, call: Call) -> BoxFuture<Attempt> {
        Box::pin(self.ask(call))
    }
}

impl std::fmt::Debug for RemoteResponder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RemoteResponder").field(&self.server.door.place()).finish()
    }
}

impl Server {
    async fn ask(&self, call: &Call) -> Attempt {
        let Call { request, context } = call;
        let meta = match Meta::read(request.params.as_ref()) {
            Ok(meta) => meta,
            Err(error) => return not_asked(error.to_rpc()),
        };
        let mut attempt = self.once(request, &meta, context).await;
        if request.method == Method::ToolsCall && is_mismatch(&attempt) {
            tracing::debug!(
                url = self.door.place(),
                "the server upstream misses headers; its tools are listed anew"
            );
            self.list_anew(request, &meta, context).await;
            attempt = self.once(request, &meta, context).await;
        }
        match &mut attempt.answer {
            Answer::Said(reply) => self.understand(request, context, reply),
            Answer::Nothing(_) | Answer::NotAsked(_) => {}
        }
        attempt
    }

    /// Asks the server, again and again while it is away and that is safe.
    async fn once(&self, request: &Request, meta: &Meta, context: &CallContext) -> Attempt {
        let (mut waits, mut is_safe) = (self.door.waits(), false);
        loop {
            let tool = self.tools.of_call(&context.caller().principal, request);
            let traceparent = context.caller().traceparent.as_deref();
            let headers = match headers::write(request, &meta.version, tool.as_ref(), traceparent) {
                Ok(headers) => headers,
                Err(error) => return not_asked(error),
            };
            let away = match self.post(request, headers, Some(context)).await {
                Ok(attempt) => return attempt,
                Err(away) => away,
            };
            let status = away.status;
            if let Err(error) = self.wait((request, meta, context), away, &mut waits, &mut is_safe).await {
                return Attempt { way: Way::Http(status), answer: Answer::Nothing(error) };
            }
            context.begins_again();
        }
    }

    /// Waits for a server that is away, until a request may be sent again.
    ///
    /// # Errors
    /// When it must not be, or the patience is over.
    async fn wait(
        &self,
        (request, meta, context): (&Request, &Meta, &CallContext),
        away: Away,
        waits: &mut Waits<'_>,
        is_safe: &mut bool,
    ) -> Result<(), RpcError> {
        let repeat = match away.reached {
            Reached::Nobody => Repeat::Safe,
            // Its client has to know that it may have missed something.
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
        tracing::info!(method = %request.method, url = self.door.place(), "sent again to a server that was away");
        Ok(())
    }

    /// A result of a type that nobody knows is no result. Of a list of tools, those go that make no sense.
    fn understand(&self, request: &Request, context: &CallContext, reply: &mut Reply) {
        let Ok(found) = reply else { return };
        if let Err(error) = result::kind(&request.method, found) {
            *reply = Err(error);
        } else if request.method == Method::ToolsList {
            *found = self.tools.learn(&context.caller().principal, found, self.door.place());
        }
    }

    /// Lists tools until the one that is called is among them. What becomes of it is seen when it is called again.
    async fn list_anew(&self, call: &Request, meta: &Meta, context: &CallContext) {
        self.find_page(meta, context, |page| tools::names(page, call)).await;
    }

    /// Lists tools until a page is as wanted, and says whether one is. Learns from all of them.
    async fn find_page(
        &self,
        meta: &Meta,
        context: &CallContext,
        is_wanted: impl Fn(&RawJson) -> bool,
    ) -> bool {
        let principal = &context.caller().principal;
        let (mut cursor, mut waits) = (None, self.door.waits());
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
                // What is said meanwhile is not about the client's request.
                match self.post(&request, headers, None).await {
                    Ok(Attempt { answer: Answer::Said(Ok(page)), .. }) => break page,
                    Ok(_) => return false,
                    Err(away) => match waits.pause(&away) {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => return false,
                    },
                }
            };
            self.tools.learn(principal, &page, self.door.place());
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

fn is_mismatch(attempt: &Attempt) -> bool {
    matches!(&attempt.answer, Answer::Said(Err(error)) if error.code() == HEADER_MISMATCH)
}

fn not_asked(error: RpcError) -> Attempt {
    Attempt { way: Way::Http(None), answer: Answer::NotAsked(error) }
}
