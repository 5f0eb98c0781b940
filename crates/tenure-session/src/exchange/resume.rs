//! Serves clients that come back for the rest of a broken stream, with an event id.
//!
//! | the call | the client gets |
//! |---|---|
//! | runs in this process | the rest of its messages, on the new connection |
//! | has an answer in its note | the answer |
//! | was never started | the answer: it is started now |
//! | was cut off, and may run twice | the answer: it is started again |
//! | is a listen that was cut off | a new listen, which first reports everything as changed |
//! | was cut off, and must not run twice | the error `interrupted` |
//! | is not known | the error `interrupted` |
//!
//! Messages that were lost with the old connection are not repeated; the client comes back for the response.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::modern::meta::{self, Meta};
use tenure_protocol::modern::validate::StreamSupport;
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RpcError, message};

use super::exchanges::{Exchanges, ExchangesInner, LEFT, OPEN, RunningGuard};
use super::flow::{Flow, FlowItem};
use crate::backend::Call;
use crate::call::{Caller, Client, Outlet};
use crate::exchange::attempt::{AttemptStep, Run, Source};
use crate::exchange::call::{ActiveCall, CallOrigin, ClientAttempt};
use crate::exchange::finish;
use crate::fingerprint::{self, Fingerprints, Relation, SeenServer};
use crate::id::Route;
use crate::kept::{CallId, CallNote, FoundCall, KeptCalls, Noted, NotedServer};
use crate::limits::OtherServer;
use crate::port::store::Store;

/// The longest retry time if the next process already has the socket.
const NEXT_IS_THERE: Duration = Duration::from_secs(1);

/// How long a server may take to answer `server/discover`.
const NAME_WITHIN: Duration = Duration::from_secs(10);

impl Exchanges {
    /// Notes calls that become streams in a store, so that their clients can come back for them, also to another
    /// process with the same store. Called once, before the first request.
    #[must_use]
    pub fn with_store(self, store: Arc<dyn Store>, servers: Fingerprints) -> Self {
        let limits = &self.0.limits;
        if limits.max_kept > 0 {
            let bounds = (limits.max_kept, limits.max_request_time);
            let calls = KeptCalls::start(store, Arc::clone(&self.0.clock), servers, bounds, &self.0.loops);
            drop(self.0.kept_calls.set(calls));
        }
        self
    }

    /// Goes on with a call whose stream broke, for a client that comes back with an event id. `None` if it is not the
    /// event id of a call.
    ///
    /// # Errors
    /// When too many requests are running, or the store fails.
    ///
    /// # Cancel safety
    /// If it is dropped early, nothing changes. Dropping the flow withdraws the request.
    pub async fn resume(&self, event_id: &[u8], caller: Caller) -> Option<Result<Flow, Error>> {
        let calls = self.0.kept_calls.get()?;
        let id = CallId::parse(event_id)?;
        Some(self.take_up(calls, id, caller).await)
    }

    async fn take_up(
        &self,
        calls: &Arc<KeptCalls<ActiveCall>>,
        id: CallId,
        caller: Caller,
    ) -> Result<Flow, Error> {
        let (inner, route) = (&self.0, &self.1);
        // The method is not known yet, so this counts as a call.
        let running = RunningGuard::new(inner, &Method::ToolsCall, caller.share())?;
        let resumable = FlowItem::Resumable { id: id.expose(), retry: inner.retry(&id) };
        let stage = inner.stage.load(Ordering::SeqCst);
        let send_away = || Flow::of([resumable.clone(), FlowItem::ComeBack(inner.stop_retry(&id))]);
        if stage >= LEFT {
            return Ok(send_away());
        }
        let lost = |why: &'static str| {
            let error = RpcError::of(Reason::Interrupted, why);
            Flow::of([resumable.clone(), FlowItem::Message(message::write_error(Some(&id.request), &error))])
        };
        // Twice, because a call may end between `find` and `reconnect`.
        for _ in 0..2 {
            match calls.find(&id, &caller.principal, route).await? {
                FoundCall::Live(work, kept) => {
                    if let Some(generation) = work.reconnect(&kept) {
                        tracing::debug!(exchange = %work.label(), "the client came back on another connection");
                        let mut run = Run::new(
                            inner,
                            work,
                            kept.request.clone(),
                            (generation, Source::Elsewhere),
                            running,
                        );
                        run.keep(kept);
                        return Ok(run.into_flow(None));
                    }
                    // The call has just ended, and its answer is being noted.
                    kept.noted().await;
                }
                FoundCall::Noted(noted) if !noted.outcome.is_empty() => {
                    return Ok(Flow::of([resumable, FlowItem::Message(noted.outcome)]));
                }
                // Left to the next process, because this one may have no time left.
                FoundCall::Noted(_) if stage != OPEN => return Ok(send_away()),
                FoundCall::Noted(noted) => {
                    let run = inner.carry_out_noted(calls, id.clone(), *noted, caller, (route, running));
                    return Ok(match run {
                        Some(run) => run.into_flow(None),
                        None => lost("The call was cut off, and its request cannot be read"),
                    });
                }
                FoundCall::Nothing => break,
            }
        }
        Ok(lost("The call was cut off, and no record of it is left; it may or may not have been carried out"))
    }
}

impl ExchangesInner {
    /// Whether calls are noted in a store that the next process can read.
    pub(super) fn are_noted(&self) -> bool {
        self.kept_calls.get().is_some_and(|calls| calls.outlives_us())
    }

    /// How long a client should wait before it comes back for a broken stream.
    pub(super) fn retry(&self, id: &CallId) -> Duration {
        id.spread(self.limits.retry_jitter, self.limits.retry)
    }

    /// The same when this process stops.
    pub(super) fn stop_retry(&self, id: &CallId) -> Duration {
        let is_followed = self.is_followed.load(Ordering::Relaxed);
        let retry = self.limits.stop_retry;
        let retry = if is_followed { retry.min(NEXT_IS_THERE) } else { retry };
        id.spread(self.limits.retry_jitter, retry)
    }

    /// Runs a call that another connection or process left. `None` if its request cannot be read.
    fn carry_out_noted(
        self: &Arc<Self>,
        calls: &Arc<KeptCalls<ActiveCall>>,
        id: CallId,
        noted: Noted,
        caller: Caller,
        (route, running): (&Route, RunningGuard),
    ) -> Option<Run> {
        let Noted { request, is_begun, server, version, .. } = noted;
        let request = request?;
        let meta = Meta::read(request.params.as_ref()).ok()?;
        let responses = finish::responses(request.params.as_ref());
        let attempt = ClientAttempt { meta, streams: StreamSupport::Resumable, responses, used: Vec::new() };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let world = (self.fanout.on(route.clone()), Arc::clone(&self.limits), self.clock.now());
        let origin = CallOrigin { is_resumed: true, ..CallOrigin::default() };
        let principal = caller.principal.clone();
        let work = ActiveCall::new(number, (request.clone(), caller), attempt, world, origin);
        let begun = (is_begun, server.clone());
        let kept = calls.enter(&work, (id, &principal, route), request.clone(), begun, version);
        let reply = Arc::clone(self).go_on_noted(Arc::clone(&work), Arc::clone(&kept), is_begun, server);
        let mut run = Run::new(self, work, request, (1, Source::Here(Box::pin(reply))), running);
        run.keep(kept);
        Some(run)
    }

    /// The reply to a call that another connection or process left.
    async fn go_on_noted(
        self: Arc<Self>,
        work: Arc<ActiveCall>,
        kept: Arc<CallNote<ActiveCall>>,
        is_begun: bool,
        server: Option<NotedServer>,
    ) -> Reply {
        if work.is_listen() {
            if self.roster.get().is_some() {
                // From now on its client is sent here. If that fails, it is opened anew once more.
                drop(kept.begins().await);
            }
            return self.respond_again(&work).await;
        }
        if is_begun
            && self.roster.get().is_some()
            && let Err(error) = kept.begins().await
        {
            // Another node may run it.
            tracing::warn!(exchange = %work.label(), %error, "a call could not be taken over: the store did not note it");
            return Err(not_taken());
        }
        if !is_begun {
            // Noted before a server gets the call: if this process is killed too, the server may have handled it.
            if let Err(error) = kept.begins().await {
                tracing::warn!(exchange = %work.label(), %error, "a call could not be started: the store did not note it");
                return Err(not_taken());
            }
            tracing::info!(exchange = %work.label(), method = %work.request.method, "started a call that an earlier process left");
            let reply = self.respond_again(&work).await;
            return self.once_more(work, reply).await;
        }
        if !self.is_repeatable(&work).await {
            return Err(RpcError::of(
                Reason::Interrupted,
                "The call was cut off before its answer came; it may or may not have been carried out",
            ));
        }
        if !self.is_same_server(&work, server.as_ref()).await {
            return Err(other_server());
        }
        tracing::info!(exchange = %work.label(), method = %work.request.method, "running a call again: its client came back");
        let reply = self.respond_again(&work).await;
        self.once_more(work, reply).await
    }

    /// Whether the current server is still the one that a call was for. A server with another configuration is asked
    /// for its name.
    pub(super) async fn is_same_server(&self, work: &Arc<ActiveCall>, then: Option<&NotedServer>) -> bool {
        let now = self.kept_calls.get().and_then(|calls| calls.fingerprint(work.fanout.route()));
        let (Some(then), Some(now)) = (then, now) else { return true };
        let then = SeenServer { fingerprint: &then.fingerprint, name: then.name.as_deref() };
        let mut name = None;
        let mut relation = fingerprint::compare(then, SeenServer { fingerprint: now, name: None });
        if relation == Relation::Other && then.name.is_some() {
            name = tokio::time::timeout(NAME_WITHIN, self.name_now(work)).await.ok().flatten();
            relation = fingerprint::compare(then, SeenServer { fingerprint: now, name: name.as_deref() });
        }
        if relation != Relation::Other {
            return true;
        }
        let (was, is) = (then.fingerprint.shown.as_str(), now.shown.as_str());
        let name = name.unwrap_or_default();
        match self.limits.other_server {
            OtherServer::Warn => {
                tracing::warn!(exchange = %work.label(), was, is, name, "a call goes on with another server than it was begun with");
                true
            }
            OtherServer::Refuse => {
                tracing::warn!(exchange = %work.label(), was, is, name, "a call of another server was refused");
                false
            }
        }
    }

    /// The server of an endpoint, for a record.
    pub(super) fn server_at(&self, route: &Route) -> Option<NotedServer> {
        let fingerprint = self.kept_calls.get()?.fingerprint(route)?.clone();
        Some(NotedServer { fingerprint, name: self.known_name() })
    }

    /// The name that the server gives itself, if it is known without a request.
    pub(super) fn known_name(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct NamedServer {
            name: String,
        }
        self.responder.server_info()?.read::<NamedServer>().ok().map(|server| server.name)
    }

    async fn name_now(&self, work: &Arc<ActiveCall>) -> Option<String> {
        let meta = work.request.params.as_ref().and_then(meta::of_client);
        let params = RawJson::of(&serde_json::json!({ "_meta": meta.unwrap_or_default() }));
        let request = Request { id: work.request.id.clone(), method: Method::Discover, params: Some(params) };
        let client = Arc::clone(work) as Arc<dyn Client>;
        let context = Outlet::to(&client).inquiry(&request).ok()?;
        let discovered = self.responder.respond(Call { request, context }).await.ok()?;
        meta::server_name(&discovered).or_else(|| self.known_name())
    }
}

impl Run {
    /// Notes an attempt that becomes a stream, if its client can come back for it.
    pub(super) async fn note_unless_done(&mut self, first: &AttemptStep) {
        let Some(calls) = self.inner.kept_calls.get() else { return };
        if matches!(first, AttemptStep::Done { .. }) || self.kept.is_some() {
            return;
        }
        if self.work.is_resumable() {
            let request = Request { params: self.work.request.params.clone(), ..self.request.clone() };
            let whose = (&self.work.caller.principal, self.work.fanout.route());
            let name = self.inner.known_name();
            let noted = calls.note(&self.work, whose, request, !self.work.is_held, name).await;
            noted.into_iter().for_each(|kept| self.keep(kept));
        }
    }

    /// Sets the note with which the client can come back for this attempt.
    fn keep(&mut self, kept: Arc<CallNote<ActiveCall>>) {
        self.work.state.lock().kept = Some(Arc::clone(&kept));
        self.kept = Some(kept);
    }

    /// Ends the attempt without an answer: the next process runs the call.
    pub(super) fn send_away(&mut self) -> AttemptStep {
        tracing::debug!(exchange = %self.work.label(), method = %self.work.request.method, "left to the next process");
        self.close();
        AttemptStep::SentAway
    }

    /// Tells the client when to come back. `None` if the call has no note, so that the client cannot come back.
    pub(super) fn come_back_later(&self) -> Option<FlowItem> {
        let kept = self.kept.as_ref()?;
        kept.left();
        Some(FlowItem::ComeBack(self.inner.stop_retry(&kept.id)))
    }
}

impl ActiveCall {
    /// Whether its client can come back for the rest of a stream.
    pub(super) fn is_resumable(&self) -> bool {
        self.state.lock().attempt.streams == StreamSupport::Resumable
    }
}

/// The error for a call that could not be noted before it is sent to a server.
fn not_taken() -> RpcError {
    RpcError::of(Reason::StoreUnavailable, "The store did not take the call; send it again")
}

/// The error for a call that would go to another server than it was for.
pub(super) fn other_server() -> RpcError {
    RpcError::of(
        Reason::Interrupted,
        "The call was cut off, and another server has taken the place of its own; it may or may not have been carried out",
    )
}
