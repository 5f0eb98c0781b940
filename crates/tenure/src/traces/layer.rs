//! Where spans begin and end: a layer in front of everything for the SERVER span, and one right in front of each server for the CLIENT
//! span.
//!
//! The first puts its own `traceparent` into `_meta` of the requests that it traces; the second takes that for its parent, and puts its own
//! there. A request that is not traced passes as it is.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure_protocol::json::{object, scan};
use tenure_protocol::message::says_it_failed;
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RpcError, params};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::port::BoxFuture;
use tenure_session::{forward_link, forward_responder};
use tokio::time::Instant;

use super::context::{SpanContext, number_of, span_of, trace_of};
use super::export::Tracer;
use super::span::{Span, SpanKind};
use crate::url_text::public_name;

/// Where `_meta` has it.
const TRACEPARENT: [&str; 2] = ["_meta", "traceparent"];

/// A traced call that takes longer leaves a line in the log.
const LONG: Duration = Duration::from_secs(10);

/// The longest name of a tool or resource in a span.
const LONGEST: usize = 256;

/// Which of the two layers it is.
#[derive(Clone)]
enum Place {
    Front,
    /// In front of the server of this name, at this program or address.
    Server(Arc<str>, Arc<str>),
}

/// A server whose calls are traced.
struct Traced<S: ?Sized> {
    tracer: Tracer,
    place: Place,
    inner: Arc<S>,
}

impl Tracer {
    /// Traces the requests of clients. In front of everything else.
    pub(crate) fn in_front(&self, backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
        Arc::new(Traced { tracer: self.clone(), place: Place::Front, inner: backend })
    }

    /// Traces what goes to one server. Right in front of it.
    pub(crate) fn in_front_of_server(
        &self,
        backend: Arc<dyn Backend>,
        name: Option<&str>,
        target: &str,
    ) -> Arc<dyn Backend> {
        let place = Place::Server(name.unwrap_or("main").into(), target.into());
        Arc::new(Traced { tracer: self.clone(), place, inner: backend })
    }
}

impl Backend for Traced<dyn Backend> {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let opening = self.inner.open(open);
        let (tracer, place) = (self.tracer.clone(), self.place.clone());
        Box::pin(async move {
            let Opened { link, result } = opening.await?;
            let inner: Arc<dyn Link> = link.into();
            Ok(Opened { link: Box::new(Traced { tracer, place, inner }), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = Arc::clone(&self.inner).responder()?;
        Some(Arc::new(Traced { tracer: self.tracer.clone(), place: self.place.clone(), inner }))
    }
}

impl Link for Traced<dyn Link> {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let inner = &self.inner;
        traced(&self.tracer, &self.place, call, |call| inner.call(call))
    }

    fn notify(&self, notification: Notification) {
        self.inner.notify(notification);
    }

    forward_link!(inner);
}

impl Responder for Traced<dyn Responder> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let inner = &self.inner;
        traced(&self.tracer, &self.place, call, |call| inner.respond(call))
    }

    forward_responder!(inner);
}

/// Passes a call on, with a span if it is traced.
fn traced(
    tracer: &Tracer,
    place: &Place,
    mut call: Call,
    pass: impl FnOnce(Call) -> BoxFuture<Reply>,
) -> BoxFuture<Reply> {
    let begun = match place {
        _ if call.context.is_our_own() || call.request.method == Method::Listen => None,
        Place::Front => begin_server(tracer, &call),
        Place::Server(..) => begin_client(&call),
    };
    let Some((context, parent, links)) = begun else { return pass(call) };
    let Some(span) = OpenSpan::begin(tracer, place, &mut call, (context, parent, links)) else {
        return pass(call);
    };
    // Called here, so that calls go out in the order in which they came.
    let reply = pass(call);
    Box::pin(async move {
        let reply = reply.await;
        span.end(&reply);
        reply
    })
}

/// A span's own context, its parent, and its links.
type Begun = (SpanContext, u64, Vec<SpanContext>);

/// Decides whether a request is traced. Nothing is allocated if it is not.
fn begin_server(tracer: &Tracer, call: &Call) -> Option<Begun> {
    let parent = parent_in(call.request.params.as_ref());
    let is_modern = call.context.protocol() == MODERN;
    let session = (!is_modern).then(|| call.context.session_label());
    let number = match parent {
        Some(parent) if !parent.is_sampled => return None,
        _ => number_of(session, call.request.id.raw()),
    };
    let (trace, above) = match parent {
        Some(parent) => (parent.trace, parent.span),
        None if tracer.ratio().takes(number) => (trace_of(number), 0),
        None => return None,
    };
    let first = SpanContext { trace, span: span_of(trace, number), is_sampled: true };
    let caller = call.context.caller();
    // A request that was open when the process ended, and runs again: a span of its own, with a link to that of the first run.
    let is_again = caller.transport == "wake";
    let of_http = caller.traceparent.as_deref().and_then(SpanContext::parse);
    let links = is_again.then_some(first).into_iter().chain(of_http.filter(|of_http| of_http.trace != trace));
    let context = if is_again || is_modern { first.child() } else { first };
    Some((context, above, links.collect()))
}

/// A call that the front has traced has its span for a parent.
fn begin_client(call: &Call) -> Option<Begun> {
    let parent = parent_in(call.request.params.as_ref()).filter(|parent| parent.is_sampled)?;
    Some((parent.child(), parent.span, Vec::new()))
}

/// The span in `_meta` of params.
fn parent_in(params: Option<&RawJson>) -> Option<SpanContext> {
    params::has_meta(params).then_some(())?;
    let text = std::str::from_utf8(params?.bytes()).ok()?;
    SpanContext::parse(&scan::unquoted(scan::at(text, &TRACEPARENT)?)?)
}

/// A traced call that has not ended. If this is dropped, its answer is no longer wanted.
struct OpenSpan {
    tracer: Tracer,
    began: Instant,
    is_tool: bool,
    span: Option<Box<Span>>,
}

impl OpenSpan {
    /// Begins a span, and puts its name into the request. `None` if the params are no object.
    fn begin(tracer: &Tracer, place: &Place, call: &mut Call, begun: Begun) -> Option<Self> {
        let (context, parent, links) = begun;
        let request = &mut call.request;
        let text = request.params.as_ref().map_or("{}", object::text);
        let written = object::quoted(&context.write());
        let params = RawJson::trusted(object::set_at(text, &TRACEPARENT, &written)?.into_owned());
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(tracer.now().0);
        let name = name_of(request);
        let method = request.method.as_str();
        let mut span = Span {
            context,
            parent,
            name: match &name {
                // A URI has no place in the name of a span.
                Some(name) if request.method != Method::ResourcesRead => format!("{method} {name}"),
                _ => method.to_owned(),
            },
            kind: match place {
                Place::Front => SpanKind::Server,
                Place::Server(..) => SpanKind::Client,
            },
            began: now,
            ended: now,
            attributes: Vec::with_capacity(14),
            links,
            error: None,
        };
        describe(&mut span, place, call, name);
        call.request.params = Some(params);
        call.context.set_traceparent(context.write());
        let is_tool = call.request.method == Method::ToolsCall;
        Some(Self { tracer: tracer.clone(), began: Instant::now(), is_tool, span: Some(Box::new(span)) })
    }

    fn end(mut self, reply: &Reply) {
        let Some(mut span) = self.span.take() else { return };
        let is_client = span.kind == SpanKind::Client;
        match reply {
            Ok(result) if self.is_tool && says_it_failed(result.bytes()) => {
                span.text("error.type", "tool_error");
                span.error = Some("the tool failed".to_owned());
            }
            Ok(_) => {}
            Err(error) => {
                let code = error.code();
                span.text("rpc.response.status_code", code.to_string());
                let kind = error
                    .reason()
                    .map_or_else(|| code.to_string(), |reason| Reason::as_str(reason).to_owned());
                span.text("error.type", kind);
                // These say that the client asked for something that there is not: the server did well.
                let is_of_client = matches!(code, -32_700 | -32_600 | -32_601 | -32_602 | -32_002);
                if is_client || !is_of_client {
                    span.error = Some(error.to_string());
                }
            }
        }
        self.close(*span);
    }

    fn close(&self, mut span: Span) {
        let took = self.began.elapsed();
        span.ended = span.began + took;
        if span.kind == SpanKind::Server && (span.error.is_some() || took > LONG) {
            let trace = format!("{:032x}", span.context.trace);
            tracing::info!(trace, call = %span.name, ?took, error = span.error, "a traced call failed or took long");
        }
        self.tracer.ended(span);
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.text("error.type", "cancelled");
            self.close(*span);
        }
    }
}

/// The tool, prompt or resource that a request names.
fn name_of(request: &Request) -> Option<String> {
    let params = request.params.as_ref();
    let mut name = match request.method {
        Method::ToolsCall | Method::PromptsGet => params::tool_name(params)?,
        Method::ResourcesRead => params::text_member(params, "uri")?,
        _ => return None,
    };
    name.truncate(name.floor_char_boundary(LONGEST));
    Some(name)
}

fn describe(span: &mut Span, place: &Place, call: &Call, name: Option<String>) {
    let (request, context) = (&call.request, &call.context);
    span.text("mcp.method.name", request.method.as_str());
    if let Some(name) = name {
        let attribute = match request.method {
            Method::ToolsCall => "gen_ai.tool.name",
            Method::PromptsGet => "gen_ai.prompt.name",
            _ => "mcp.resource.uri",
        };
        span.text(attribute, public_name(Some(&request.method), &name).into_owned());
    }
    if request.method == Method::ToolsCall {
        span.text("gen_ai.operation.name", "execute_tool");
    }
    let id = request
        .id
        .as_text()
        .map_or_else(|| String::from_utf8_lossy(request.id.raw()).into_owned(), str::to_owned);
    span.text("jsonrpc.request.id", id);
    span.text("mcp.protocol.version", context.protocol());
    if context.protocol() != MODERN {
        span.text("mcp.session.id", context.session_label());
    }
    let caller = context.caller();
    match place {
        Place::Front => {
            span.text("network.transport", if caller.transport == "stdio" { "pipe" } else { "tcp" });
            if let Some(remote) = caller.remote {
                span.text("client.address", remote.ip().to_string());
                span.number("client.port", remote.port().into());
            }
            if let Some(correlation) = context.correlation() {
                span.text("tenure.correlation.id", correlation);
            }
        }
        Place::Server(name, target) => {
            span.text("tenure.backend", &**name);
            span.text("server.address", &**target);
        }
    }
}

impl<S: ?Sized> fmt::Debug for Traced<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traced")
    }
}
