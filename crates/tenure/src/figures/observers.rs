//! Hears of every request and of what happens to sessions, and counts it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::{Method, Reason};
use tenure_session::StreamId;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::observer::{Happened, Resumption, SessionEvent, SessionMove, SessionObserver};
use tenure_transport::observe::{Outcome, RequestEnd, RequestObserver};

use super::calls::EndedCall;
use super::counted::{Counted, Figures};
use super::metrics::{AuthLabels, ByCause, ByKind, ByOutcome, ByReason, ClientLabels, OperationLabels};
use super::short_text::ShortText;
use super::tools::{CallKind, OTHER, Tool};
use super::uncounted::{EndedBehind, EndedRequests};
use super::view::{EndedRow, Live, LiveSession};

/// The label of the endpoint without a name.
pub(super) const MAIN: &str = "main";

/// Errors of servers behind with codes that are not of the protocol.
const OTHER_CODE: &str = "_other";

/// The longest name of a client that is kept.
const LONGEST_CLIENT: usize = 128;

/// Calls at a server behind have neither a revision nor a transport among their labels.
const AT_A_SERVER: CallKind = (None, "");

impl Figures {
    /// Hears of requests.
    pub(crate) fn of_requests(&self) -> Arc<dyn RequestObserver> {
        Arc::new(self.clone())
    }

    /// Hears of sessions.
    pub(crate) fn of_sessions(&self) -> Arc<dyn SessionObserver> {
        Arc::new(self.clone())
    }
}

impl RequestObserver for Figures {
    fn ended(&self, request: &RequestEnd<'_>) {
        let is_accepted = self.0.count_refusal(request);
        let call = request
            .method
            .filter(|_| request.is_call())
            .map(|method| EndedCall::of(request, method, SystemClock.now()));
        if call.is_none() && !is_accepted {
            return;
        }
        let full = self.0.uncounted.add(|ended| {
            ended.accepted += u64::from(is_accepted);
            ended.calls.extend(call);
        });
        self.0.count_full(full);
    }
}

impl Counted {
    /// Counts a refusal. Otherwise says whether credentials were accepted.
    fn count_refusal(&self, request: &RequestEnd<'_>) -> bool {
        let reason = match request.outcome {
            Outcome::Error { reason: Some(reason), .. } | Outcome::Limited { reason } => Some(reason),
            Outcome::None | Outcome::Result | Outcome::ToolError | Outcome::Error { reason: None, .. } => {
                None
            }
        };
        if let Some(reason) = reason {
            let labels = ByReason { reason: reason.as_str() };
            self.metrics.refused.get_or_create(&labels).inc();
            if matches!(reason, Reason::RateLimited | Reason::QuotaExceeded) {
                self.metrics.limited.get_or_create(&labels).inc();
            }
        }
        let is_refused =
            request.http.and_then(|http| http.status).is_some_and(|status| matches!(status, 401 | 403));
        if is_refused {
            let reason = reason.map_or("other", Reason::as_str);
            self.metrics.auth.get_or_create(&AuthLabels { result: "refused", reason }).inc();
        }
        !is_refused && request.principal.name().is_some()
    }

    /// A server behind has answered a request.
    pub(super) fn add_behind(&self, ended: EndedBehind) {
        let full = self.uncounted.add(|list| list.behind.push(ended));
        self.count_full(full);
    }

    fn count_full(&self, full: Option<EndedRequests>) {
        if let Some(mut full) = full {
            self.count(&mut full);
            self.uncounted.give_back(full);
        }
    }

    /// Counts all that has ended so far.
    pub(super) fn count_all(&self) {
        self.count(&mut self.uncounted.take());
    }

    /// Counts and empties a list.
    fn count(&self, ended: &mut EndedRequests) {
        let EndedRequests { calls, behind, accepted } = ended;
        let accepted = std::mem::take(accepted);
        if accepted > 0 {
            let labels = AuthLabels { result: "accepted", reason: "" };
            self.metrics.auth.get_or_create(&labels).inc_by(accepted);
        }
        for request in behind.drain(..) {
            self.count_behind(&request);
        }
        if calls.is_empty() {
            return;
        }
        let (is_followed, part) = (self.live.receiver_count() > 0, self.tools.part_now());
        let (mut failed, mut tools, mut reads, mut answered, mut took) = (0, 0, 0, 0, Duration::ZERO);
        for call in calls.iter() {
            failed += u64::from(call.has_failed);
            tools += u64::from(call.method == Method::ToolsCall);
            reads += u64::from(call.method == Method::ResourcesRead);
            // A listen ends when its client leaves, which says nothing of the server.
            if call.outcome != Outcome::None && call.method != Method::Listen {
                self.latency.add(call.took);
                answered += 1;
                took += call.took;
                self.count_operation(call, part);
            }
            if is_followed {
                // Fails only if the last subscriber has just left.
                drop(self.live.send(Live::Call(call.row())));
            }
        }
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        for (total, more) in [
            (&self.calls, calls.len() as u64),
            (&self.errors, failed),
            (&self.tool_calls, tools),
            (&self.resource_reads, reads),
            (&self.answered, answered),
            (&self.answered_us, took_us),
        ] {
            total.fetch_add(more, Ordering::Relaxed);
        }
        self.recent.extend(calls.drain(..));
    }

    fn count_operation(&self, call: &EndedCall, part: u64) {
        let endpoint = call.backend.as_ref().map(ShortText::as_str);
        let tool = match (&call.method, &call.name) {
            (Method::ToolsCall, Some(name)) => Some(self.tools.find(endpoint, name.as_str())),
            _ => None,
        };
        if let Some(tool) = &tool {
            tool.count(part, call.took, call.has_failed);
        }
        let error_type = error_type(call.outcome);
        let kind = (call.protocol, network(call.transport));
        let histogram = |tool: Option<&Tool>| {
            self.metrics.operations.get_or_create_owned(&OperationLabels {
                mcp_method_name: method_label(&call.method),
                gen_ai_tool_name: tool.map(|tool| Arc::clone(&tool.name)),
                error_type,
                mcp_protocol_version: kind.0,
                network_transport: kind.1,
                tenure_backend: self.servers.label(endpoint),
            })
        };
        match (&tool, error_type) {
            (Some(tool), None) => tool.observe_well(kind, call.took, || histogram(Some(tool))),
            _ => histogram(tool.as_deref()).observe(call.took.as_secs_f64()),
        }
    }

    fn count_behind(&self, ended: &EndedBehind) {
        let server = &ended.server;
        let tool = ended.tool.as_deref().map(|name| self.tools.find(Some(&server.own_tools), name));
        let histogram = |tool: Option<&Tool>| {
            self.metrics.client_operations.get_or_create_owned(&ClientLabels {
                mcp_method_name: ended.method,
                gen_ai_tool_name: tool.map(|tool| Arc::clone(&tool.name)),
                error_type: ended.error_type,
                tenure_backend: Arc::clone(&server.name),
            })
        };
        match (&tool, ended.error_type) {
            (Some(tool), None) => tool.observe_well(AT_A_SERVER, ended.took, || histogram(Some(tool))),
            _ => histogram(tool.as_deref()).observe(ended.took.as_secs_f64()),
        }
    }
}

/// The name of a method, if it is one of the protocol.
pub(super) fn method_label(method: &Method) -> &'static str {
    method.known_name().unwrap_or(OTHER)
}

/// What the conventions call the transport under ours.
fn network(transport: &str) -> &'static str {
    if transport == "stdio" { "pipe" } else { "tcp" }
}

/// The kind of an error.
fn error_type(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::None | Outcome::Result => None,
        Outcome::ToolError => Some("tool_error"),
        Outcome::Limited { reason } | Outcome::Error { reason: Some(reason), .. } => Some(reason.as_str()),
        Outcome::Error { code, reason: None } => Some(code_label(code)),
    }
}

/// The codes of the protocol as text.
pub(super) fn code_label(code: i64) -> &'static str {
    match code {
        -32_700 => "-32700",
        -32_600 => "-32600",
        -32_601 => "-32601",
        -32_602 => "-32602",
        -32_603 => "-32603",
        -32_000 => "-32000",
        -32_001 => "-32001",
        -32_002 => "-32002",
        -32_042 => "-32042",
        _ => OTHER_CODE,
    }
}

impl SessionObserver for Figures {
    fn happened(&self, event: &SessionEvent<'_>) {
        self.0.count_event(event);
        self.0.show_event(event);
    }
}

impl Counted {
    fn count_event(&self, event: &SessionEvent<'_>) {
        let metrics = &self.metrics;
        let by_outcome = |outcome| ByOutcome { outcome };
        match event.what {
            Happened::Created { .. } => _ = metrics.created.inc(),
            Happened::Woken { took } => {
                metrics.wakes.get_or_create(&by_outcome("woken")).inc();
                metrics.wake_duration.observe(took.as_secs_f64());
            }
            Happened::NotWoken { .. } => _ = metrics.wakes.get_or_create(&by_outcome("failed")).inc(),
            Happened::Moved { how: SessionMove::TakenOver } => _ = metrics.takeovers.inc(),
            Happened::GivenUp => _ = metrics.given_up.inc(),
            Happened::Ended { how, lived, .. } => {
                metrics.ended.get_or_create(&ByReason { reason: how }).inc();
                if let Some(lived) = lived {
                    metrics.session_duration.observe(lived.as_secs_f64());
                }
            }
            Happened::Resumed { how } => _ = metrics.resumes.get_or_create(&by_outcome(how.word())).inc(),
            Happened::Replayed { events } => _ = metrics.replayed.inc_by(events as u64),
            Happened::ReaderAttached { stream, .. } => {
                metrics.streams.get_or_create(&ByKind { kind: kind(stream) }).inc();
            }
            Happened::ReaderDetached { stream, is_broken } => {
                metrics.streams.get_or_create(&ByKind { kind: kind(stream) }).dec();
                let cause = if is_broken { "broken" } else { "done" };
                metrics.detached.get_or_create(&ByCause { cause }).inc();
            }
            Happened::Interrupted { .. } => _ = metrics.interrupted.get_or_create(&by_outcome("error")).inc(),
            Happened::RunAgain { .. } => _ = metrics.interrupted.get_or_create(&by_outcome("rerun")).inc(),
            Happened::Appended { events, took, is_logged } => {
                metrics.append_duration.observe(took.as_secs_f64());
                if !is_logged {
                    metrics.unlogged.inc_by(events as u64);
                }
            }
            Happened::Asked { .. } => _ = metrics.waiting.inc(),
            Happened::Answered { .. } | Happened::QuestionWithdrawn { .. } => _ = metrics.waiting.dec(),
            _ => {}
        }
    }

    /// Keeps the end of a session, and tells subscribers what happened.
    fn show_event(&self, event: &SessionEvent<'_>) {
        let Some(key) = event.session else { return };
        let is_followed = || self.live.receiver_count() > 0;
        // Most events are calls that begin or end, which are shown when they are counted.
        let row = words(&event.what).filter(|_| is_followed());
        if row.is_none() && !matches!(event.what, Happened::Ended { .. }) {
            return;
        }
        let at = SystemClock.now();
        if let Happened::Ended { how, lived, client, requests, errors } = event.what {
            self.ended.push(EndedRow {
                key: key.hex(),
                label: event.label.to_owned(),
                owner: event.owner.name().map(str::to_owned),
                client: client.map(|client| client[..client.floor_char_boundary(LONGEST_CLIENT)].to_owned()),
                backend: event.endpoint.map(str::to_owned),
                created: lived.map(|lived| at.before(lived).0),
                ended: at.0,
                end: how.to_owned(),
                requests: lived.map(|_| requests),
                errors: lived.map(|_| errors),
            });
        }
        if let Some(row) = row {
            drop(self.live.send(Live::Session(live_row(event, key.hex(), at, row))));
        }
    }
}

fn live_row(event: &SessionEvent<'_>, key: String, at: Time, (what, text): (&str, &str)) -> LiveSession {
    LiveSession { key, label: event.label.to_owned(), what: what.to_owned(), at: at.0, text: text.to_owned() }
}

/// The word and the sentence for what people follow; the rest is too frequent or too small.
fn words(what: &Happened<'_>) -> Option<(&'static str, &'static str)> {
    Some(match what {
        Happened::Created { .. } => ("created", "a client began the session"),
        Happened::Woken { .. } => ("woken", "a request woke the session"),
        Happened::NotWoken { .. } => ("not_woken", "the session could not be woken"),
        Happened::Slept => ("slept", "the session was not used and went dormant"),
        Happened::Moved { how: SessionMove::TakenOver } => {
            ("taken_over", "this node took the session over from another one")
        }
        Happened::GivenUp => ("given_up", "this node gave the session up to another one"),
        Happened::Ended { how: "deleted", .. } => ("ended", "the client ended the session"),
        Happened::Ended { how: "expired", .. } => ("ended", "the session expired"),
        Happened::Ended { .. } => ("ended", "an operator ended the session"),
        Happened::Resumed { how: Resumption::Replayed } => {
            ("resumed", "the client came back and missed nothing")
        }
        Happened::Resumed { .. } => ("resumed", "the client came back and missed events"),
        Happened::ReaderDetached { is_broken: true, .. } => {
            ("dropped", "a connection broke while its stream went on")
        }
        Happened::Interrupted { .. } => ("interrupted", "a request was interrupted by a restart"),
        Happened::RunAgain { .. } => ("rerun", "a request that was open at a restart was run again"),
        Happened::LinkFailed { .. } => ("link_failed", "the server behind could not be reached"),
        Happened::Asked { .. } => ("asked", "the server asked the client something"),
        Happened::Answered { how: "error", .. } => {
            ("answered", "the client did not answer, or with an error")
        }
        Happened::Answered { .. } => ("answered", "the client answered"),
        Happened::QuestionWithdrawn { .. } => ("answered", "the question was withdrawn"),
        _ => return None,
    })
}

fn kind(stream: StreamId) -> &'static str {
    if stream == StreamId::STANDALONE { "standalone" } else { "request" }
}
