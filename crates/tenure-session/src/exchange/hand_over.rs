//! Leaves the calls of a process to the next one, so that a deploy does not fail them.
//!
//! Calls that must not run twice are finished, up to a deadline. The clients of all other calls come back, and the
//! process that then answers runs the call. There are two ways to make a client come back:
//!
//! - The client gets `input_required` with a state and no questions, and sends the same request again at once. So
//!   another process must have the socket already.
//! - The client's stream ends without an answer, after an event with an id. The client comes back for the rest of the
//!   stream after the retry time.
//!
//! There are two steps, because other parts of the process have to finish their calls too:
//!
//! 1. [`finish`](crate::exchange::Exchanges::finish): running calls are finished. New calls are served if they may run
//!    twice, and held otherwise, because a call that starts now could be cut off.
//! 2. [`leave`](crate::exchange::Exchanges::leave): no new call starts, calls that started during step 1 are finished,
//!    and the clients of all others are told to come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::modern::validate::StreamSupport;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::translate::questions;
use tenure_protocol::{Method, Request};
use tokio::time::Instant;

use crate::call::Client;
use crate::exchange::attempt::{AttemptStep, Run};
use crate::exchange::call::{ActiveCall, ForcedEnd};
use crate::exchange::exchanges::{Exchanges, ExchangesInner, FINISHING, LEAVING, LEFT, OPEN};
use crate::exchange::finish;
use crate::exchange::request_state::{Bound, SealedContent};
use crate::id::{Principal, Route};

/// How long the last answers may take to be sent.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How long a server may take to list the tools that may be called twice.
const HINTS_WITHIN: Duration = Duration::from_secs(5);

/// The tools that may be called twice, by endpoint and caller. `None`: the server did not answer.
pub(super) type RepeatHints = HashMap<(Route, Principal), Option<Vec<String>>>;

/// The decision on a new request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExchangeAdmission {
    /// It is started.
    Begin,
    /// It is left to the next process.
    Hold,
    /// It is refused.
    Refuse,
}

impl Exchanges {
    /// Tells this process that another process has the socket, and takes over as soon as this one has left.
    pub fn are_followed(&self) {
        self.0.is_followed.store(true, Ordering::Relaxed);
    }

    /// Waits until every call that runs now and must not run twice has been answered, or the deadline. New requests
    /// that may run twice are still served.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn finish(&self, until: Instant) {
        let _ = self.0.stage.compare_exchange(OPEN, FINISHING, Ordering::SeqCst, Ordering::SeqCst);
        let before = self.0.numbers.load(Ordering::Relaxed);
        let done = self.0.finished(|work| work.number < before);
        drop(tokio::time::timeout_at(until, done).await);
    }

    /// Starts no new calls, waits until the calls that must not run twice are answered, or the deadline, and tells the
    /// clients of all others to come back. Returns how many calls were interrupted.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn leave(&self, until: Instant) -> usize {
        let inner = &self.0;
        inner.stage.store(LEAVING, Ordering::SeqCst);
        let done = async {
            loop {
                let changed = inner.idle.notified();
                tokio::pin!(changed);
                // Registered before the checks, so that no change is missed.
                changed.as_mut().enable();
                inner.finished(|_| true).await;
                // Attempts that are not listed are being answered right now, or are about to be listed.
                if inner.running.load(Ordering::SeqCst) <= inner.listed.lock().len() {
                    return;
                }
                changed.await;
            }
        };
        drop(tokio::time::timeout_at(until, done).await);
        inner.stage.store(LEFT, Ordering::SeqCst);
        let mut interrupted = 0;
        for work in inner.listed() {
            let end = inner.end_at_leaving(&work);
            interrupted += usize::from(work.end(end) && end == ForcedEnd::Interrupt);
        }
        let parked = std::mem::take(&mut *inner.parked.lock());
        for work in parked.into_values() {
            // Its client has the state, and the next process decides whether the call can run again.
            if work.state.lock().parked_until.is_some() {
                work.close();
            }
        }
        inner.stop_tasks().await;
        drop(tokio::time::timeout(LAST_ANSWERS, inner.unused()).await);
        inner.stop_noting().await;
        interrupted
    }
}

impl ExchangesInner {
    /// Decides on a new request at a stage of the drain or hand-over.
    pub(super) fn admission(
        &self,
        stage: u8,
        request: &Request,
        route: &Route,
        principal: &Principal,
        streams: StreamSupport,
    ) -> ExchangeAdmission {
        if stage == OPEN {
            return ExchangeAdmission::Begin;
        }
        let is_call = ActiveCall::may_ask(&request.method);
        let is_followed = self.is_followed.load(Ordering::Relaxed);
        let is_resumable = streams == StreamSupport::Resumable && self.are_noted();
        let can_come_back = is_call && (is_followed || is_resumable);
        match stage {
            FINISHING if self.is_known_to_be_safe(request, route, principal) => ExchangeAdmission::Begin,
            FINISHING | LEAVING | LEFT if can_come_back => ExchangeAdmission::Hold,
            FINISHING => ExchangeAdmission::Begin,
            LEAVING if !is_call => ExchangeAdmission::Begin,
            // So that a client that polls its task does not notice the change of processes.
            LEFT if request.method == Method::TasksGet => ExchangeAdmission::Begin,
            _ => ExchangeAdmission::Refuse,
        }
    }

    /// Whether a request is known to be safe to run twice, without asking a server.
    fn is_known_to_be_safe(&self, request: &Request, route: &Route, principal: &Principal) -> bool {
        match params::repeat(&request.method) {
            Repeat::Safe => true,
            Repeat::Never => false,
            Repeat::AskTool => {
                let hints = self.hints.lock();
                let tools = hints.get(&(route.clone(), principal.clone())).and_then(Option::as_ref);
                let name = params::tool_name(request.params.as_ref());
                name.is_some_and(|name| tools.is_some_and(|tools| tools.contains(&name)))
            }
        }
    }

    /// Waits until all calls that match `concerns` and have to be finished here are over.
    async fn finished(&self, concerns: impl Fn(&ActiveCall) -> bool) {
        loop {
            let parked: Vec<_> = self.parked.lock().values().cloned().collect();
            let mut unfinished = Vec::new();
            for work in self.listed().into_iter().chain(parked) {
                // Decided for all calls before waiting for any, because later there may be no time to ask a server.
                if concerns(&work) && self.has_to_be_finished(&work).await {
                    unfinished.push(work);
                }
            }
            if unfinished.is_empty() {
                return;
            }
            for work in unfinished {
                work.over().await;
            }
        }
    }

    async fn has_to_be_finished(&self, work: &Arc<ActiveCall>) -> bool {
        if work.is_over() || work.is_listen() || work.is_held {
            return false;
        }
        if work.is_repeatable.get().is_none() {
            let is_repeatable = match params::repeat(&work.request.method) {
                Repeat::Safe => true,
                Repeat::Never => false,
                Repeat::AskTool => self.is_hinted(work).await,
            };
            let _ = work.is_repeatable.set(is_repeatable);
        }
        self.end_at_leaving(work) == ForcedEnd::Interrupt
    }

    async fn is_hinted(&self, work: &Arc<ActiveCall>) -> bool {
        let whose = (work.fanout.route().clone(), work.caller.principal.clone());
        let is_asked = self.hints.lock().contains_key(&whose);
        if !is_asked {
            let listed = tokio::time::timeout(HINTS_WITHIN, self.repeatable_tools(work)).await;
            self.hints.lock().insert(whose.clone(), listed.ok().flatten());
        }
        self.is_known_to_be_safe(&work.request, &whose.0, &whose.1)
    }

    /// How a call ends when this process leaves.
    pub(super) fn end_at_leaving(&self, work: &ActiveCall) -> ForcedEnd {
        let is_followed = self.is_followed.load(Ordering::Relaxed);
        if work.is_listen() {
            // After a normal end clients open another listen at once, and some fail if no process accepts it. So
            // without a process that follows, they are told to come back later.
            let comes_back = !is_followed && work.is_resumable() && self.are_noted();
            return if comes_back { ForcedEnd::Resume } else { ForcedEnd::Leave };
        }
        if !work.may_be_left() {
            return ForcedEnd::Interrupt;
        }
        if work.task().is_some() || is_followed && ActiveCall::may_ask(&work.request.method) {
            ForcedEnd::ComeBack
        } else if work.is_resumable() && self.are_noted() {
            ForcedEnd::Resume
        } else {
            ForcedEnd::Interrupt
        }
    }

    /// Waits until no attempt is running.
    async fn unused(&self) {
        loop {
            let changed = self.idle.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            changed.await;
        }
    }
}

impl ActiveCall {
    /// Whether the next process can run it again.
    fn may_be_left(&self) -> bool {
        let is_safe = self.is_held || self.is_repeatable.get() == Some(&true);
        // The client of a task comes back in any case. The next process can run its call if the params were kept.
        is_safe && self.task().is_none_or(|task| task.live.params().is_some())
    }

    /// Resolves when the call is over.
    async fn over(&self) {
        loop {
            let more = self.room.notified();
            tokio::pin!(more);
            // Registered before the check, so that no change is missed.
            more.as_mut().enable();
            if self.is_over() {
                return;
            }
            more.await;
        }
    }
}

impl Run {
    /// Ends the attempt with a state for the next one, which runs the call from its beginning.
    pub(super) fn come_back(&mut self) -> AttemptStep {
        let held = match self.work.recovers {
            Some(parked) => SealedContent::Parked(parked),
            None => SealedContent::Again(finish::brought(self.work.request.params.as_ref())),
        };
        let bound = Bound::new(&self.request, self.work.fanout.route(), &self.work.caller.principal);
        let expires = self.inner.clock.now().after(self.work.limits.ask_timeout);
        let reply = match bound.seal(&*self.inner.seal, &held, expires) {
            Ok(state) => Ok(questions::input_required(&[], Some(&state))),
            Err(error) => Err(error.to_rpc()),
        };
        tracing::debug!(exchange = %self.work.label(), method = %self.work.request.method, "left to the next process");
        self.close();
        self.respond(reply)
    }
}
