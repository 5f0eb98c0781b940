//! Records calls: a layer in front of the servers, so that every door, era and repetition is seen.
//!
//! In: calls with their context. Out: the same calls, and a record when one has ended; where records are required, also one
//! before it goes out, and no call goes out without it. Arguments are recorded as a digest, and as text only for the tools
//! that the configuration lists.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::json::members;
use tenure_protocol::message::{refusal_in, says_it_failed};
use tenure_protocol::{Method, Notification, Reason, Reply, RpcError, params};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::call::{CallContext, RefusalMark};
use tenure_session::port::BoxFuture;
use tenure_session::{forward_link, forward_responder};
use tokio::time::Instant;

use super::record::{Event, PrincipalRecord, Record, cut, millis, shortened};
use super::start::Audit;
use crate::url_text::public_name;

/// How long an answer waits for its record where records are not required.
const PATIENCE: Duration = Duration::from_secs(1);

/// A server whose calls are recorded.
pub(crate) struct Audited<S: ?Sized> {
    audit: Arc<Audit>,
    inner: Arc<S>,
}

impl<S: ?Sized> Audited<S> {
    pub(crate) fn new(inner: Arc<S>, audit: Arc<Audit>) -> Self {
        Self { audit, inner }
    }
}

impl<S: ?Sized> fmt::Debug for Audited<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audited")
    }
}

impl Backend for Audited<dyn Backend> {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (opening, audit) = (self.inner.open(open), Arc::clone(&self.audit));
        Box::pin(async move {
            let Opened { link, result } = opening.await?;
            Ok(Opened { link: Box::new(AuditedLink { audit, inner: link.into() }), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = Arc::clone(&self.inner).responder()?;
        Some(Arc::new(Audited { audit: Arc::clone(&self.audit), inner }))
    }
}

struct AuditedLink {
    audit: Arc<Audit>,
    inner: Arc<dyn Link>,
}

impl Link for AuditedLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let inner = Arc::clone(&self.inner);
        audited(&self.audit, call, move |call| inner.call(call))
    }

    fn notify(&self, notification: Notification) {
        self.inner.notify(notification);
    }

    forward_link!(inner);
}

impl Responder for Audited<dyn Responder> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let inner = Arc::clone(&self.inner);
        audited(&self.audit, call, move |call| inner.respond(call))
    }

    forward_responder!(inner);
}

fn audited(
    audit: &Arc<Audit>,
    mut call: Call,
    pass: impl FnOnce(Call) -> BoxFuture<Reply> + Send + 'static,
) -> BoxFuture<Reply> {
    let name = match call.request.method {
        Method::ToolsCall | Method::PromptsGet => params::tool_name(call.request.params.as_ref()),
        Method::ResourcesRead => params::text_member(call.request.params.as_ref(), "uri"),
        _ => return pass(call),
    };
    if call.context.is_our_own() {
        return pass(call);
    }
    let open = OpenCallRecord {
        record: Some(Box::new(describe(audit, &call, name.as_deref()))),
        began: Instant::now(),
        refusal: call.context.marks_refusal(),
        audit: Arc::clone(audit),
    };
    if !audit.is_required {
        // Called here, so that calls go out in the order in which they came.
        let reply = pass(call);
        return Box::pin(async move {
            let reply = reply.await;
            // A disk that hangs must not make the answer hang, so the wait has a limit.
            drop(tokio::time::timeout(PATIENCE, open.end(&reply)).await);
            reply
        });
    }
    // Each call makes two records here, so that a caller whose calls are refused again and again is refused before the first.
    if let Some(error) = open.record.as_ref().and_then(|record| audit.too_often(record)) {
        if let Some(record) = open.forget() {
            audit.refused_call(limited(record, error.reason()));
        }
        return Box::pin(std::future::ready(Err(error.to_rpc())));
    }
    Box::pin(async move {
        if !open.begin().await {
            drop(open.forget());
            return Err(unrecorded("The call cannot be recorded, so it was not carried out"));
        }
        let reply = pass(call).await;
        match open.end(&reply).await {
            true => reply,
            false => Err(unrecorded("The call was carried out, but its end cannot be recorded")),
        }
    })
}

fn unrecorded(text: &'static str) -> RpcError {
    RpcError::of(Reason::AuditUnavailable, text)
}

/// All that is known of a call before it goes out.
fn describe(audit: &Audit, call: &Call, name: Option<&str>) -> Record {
    let context: &CallContext = &call.context;
    let caller = context.caller();
    let mut record = audit.begin(Event::CallFinished);
    record.backend = context.route().name().map(cut);
    record.client = context.client_name().as_deref().map(cut);
    record.method = Some(call.request.method.as_str().into());
    record.name = name.map(|name| cut(&public_name(Some(&call.request.method), name)));
    record.principal = Some(PrincipalRecord::of(&caller.principal));
    record.remote = caller.remote.map(|remote| remote.ip().to_string().into());
    // A request that runs again, and one over stdio, may have none.
    let correlation = caller.correlation.as_deref();
    record.request_id = Some(correlation.map_or_else(|| own_id().into(), Box::from));
    record.session = Some(context.session_label().into());
    record.trace_id = caller.traceparent.as_deref().and_then(|parent| parent.split('-').nth(1)).map(cut);
    if let Some(params) = &call.request.params {
        record.bytes_in = Some(params.bytes().len() as u64);
        let arguments = match params.outline() {
            // Nearly always the parser has found them.
            Some(outline) => outline.arguments.filter(|arguments| *arguments != b"null"),
            None => members::find(params.bytes(), "arguments").value().map(|value| value.get().as_bytes()),
        };
        if let Some(arguments) = arguments {
            record.args_digest = Some(audit.key.digest(arguments));
            if call.request.method == Method::ToolsCall
                && name.is_some_and(|name| audit.has_arguments_of(context.route().name(), name))
            {
                record.args = Some(shown(arguments, &audit.redact));
            }
        }
    }
    record
}

/// An id for a call that has none from outside.
fn own_id() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("call-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Arguments as they are recorded: without what is redacted, and not too long.
fn shown(arguments: &[u8], redact: &[String]) -> Box<str> {
    let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(arguments) else { return "…".into() };
    for pointer in redact {
        if let Some(part) = value.pointer_mut(pointer) {
            *part = "(redacted)".into();
        }
    }
    shortened(value.to_string()).into()
}

/// A call that has not ended. If this is dropped, its answer is no longer wanted, or its process ends.
struct OpenCallRecord {
    record: Option<Box<Record>>,
    began: Instant,
    /// Set by the limit that refuses the call. What an answer says of itself does not count: a server could hide its calls so, or have
    /// all calls of a caller refused.
    refusal: RefusalMark,
    audit: Arc<Audit>,
}

impl OpenCallRecord {
    /// Records that the call is about to go out. Returns whether that is kept.
    async fn begin(&self) -> bool {
        let Some(record) = &self.record else { return false };
        let record = Record { event: Event::CallBegun, ..Record::clone(record) };
        self.audit.record(Box::new(record)).kept().await
    }

    /// Records how the call ended. Returns whether that is kept.
    async fn end(mut self, reply: &Reply) -> bool {
        let Some(mut record) = self.finished() else { return false };
        let claimed = limit_of(reply);
        match reply {
            Ok(result) => {
                record.bytes_out = Some(result.bytes().len() as u64);
                let has_failed = says_it_failed(result.bytes());
                record.outcome = Some(if has_failed { "tool_error" } else { "ok" });
            }
            Err(error) => {
                record.bytes_out = Some(error.raw().bytes().len() as u64);
                (record.outcome, record.code) = (Some("error"), Some(error.code()));
                record.reason = error.reason().map(|reason| reason.as_str().into());
            }
        }
        if let Some(reason) = claimed.filter(|_| self.refusal.is_set()) {
            let record = limited(*record, reason);
            if !self.audit.is_required {
                self.audit.refused_call(record);
                return true;
            }
            return self.audit.refused_after_all(record).kept().await;
        }
        if let Some(id) = record.request_id.as_ref().filter(|_| claimed.is_some()) {
            self.audit.was_told(id);
        }
        let receipt = self.audit.record(record);
        drop(self);
        receipt.kept().await
    }

    fn finished(&mut self) -> Option<Box<Record>> {
        let mut record = self.record.take()?;
        record.duration_ms = Some(millis(self.began.elapsed()));
        record.time = self.audit.stamp();
        Some(record)
    }

    /// Nothing more is recorded: the call did not go out.
    fn forget(mut self) -> Option<Record> {
        self.record.take().map(|record| *record)
    }
}

impl Drop for OpenCallRecord {
    fn drop(&mut self) {
        if let Some(mut record) = self.finished() {
            record.outcome = Some("given_up");
            self.audit.note(*record);
        }
    }
}

/// The limit that an answer names as the reason of a refusal, in whichever form; `None` if it names none.
fn limit_of(reply: &Reply) -> Option<Reason> {
    let reason = match reply {
        Ok(result) if says_it_failed(result.bytes()) => refusal_in(result.bytes()),
        Ok(_) => None,
        Err(error) => error.reason(),
    };
    reason.filter(|reason| matches!(reason, Reason::RateLimited | Reason::QuotaExceeded))
}

/// The record of a call that a limit has refused.
fn limited(record: Record, reason: Reason) -> Record {
    let (code, outcome, reason) = (Some(reason.code().into()), Some("limited"), Some(reason.as_str().into()));
    Record { event: Event::Refused, code, outcome, reason, ..record }
}

#[cfg(test)]
mod tests {
    use super::super::record::LONGEST_ARGUMENTS;
    use super::*;

    #[test]
    fn arguments_are_shown_without_what_is_redacted_and_not_whole_if_they_are_long() {
        let redact = ["/password".to_owned(), "/user/0/token".to_owned(), "/none".to_owned()];
        let arguments = r#"{"password":"geheim","text":"a","user":[{"token":[1,2]}]}"#;
        let expected = r#"{"password":"(redacted)","text":"a","user":[{"token":"(redacted)"}]}"#;
        assert_eq!(&*shown(arguments.as_bytes(), &redact), expected);
        let long = format!("\"{}\"", "ä".repeat(LONGEST_ARGUMENTS));
        let long = shown(long.as_bytes(), &[]);
        assert!(long.len() <= LONGEST_ARGUMENTS + 3 && long.ends_with('…'));
    }
}
