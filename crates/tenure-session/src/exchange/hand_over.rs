//! How a process leaves its calls to the next one, so that a deploy ends none of them.
//!
//! Calls that cannot be carried out twice are finished, up to a deadline. The clients of the others come back, and
//! whichever process answers then carries the call out. There are two ways to make a client come back:
//!
//! - It is answered `input_required` with a state and no questions, and sends the same request at once. So another process
//!   has to have the socket already.
//! - Its stream ends without an answer, after an event with an id. It comes back for the rest of the stream, after a time
//!   that it was told.
//!
//! Two steps, since other parts of the process have calls of their own to finish:
//!
//! 1. [`finish`](crate::exchange::Exchanges::finish): calls that were running are finished. Further calls are served if they may be
//!    carried out twice, and held otherwise: one that began now could be cut off.
//! 2. [`leave`](crate::exchange::Exchanges::leave): no further call is begun, what began meanwhile is finished, and the rest is
//!    told to come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::modern::validate::Streams;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::translate::questions;
use tenure_protocol::{Method, Request};
use tokio::time::Instant;

use crate::call::Stage;
use crate::exchange::attempt::{Run, Turn};
use crate::exchange::call::{End, Work};
use crate::exchange::exchanges::{Exchanges, FINISHING, Inner, LEAVING, LEFT, OPEN};
use crate::exchange::finish;
use crate::exchange::request_state::{Bound, Held};
use crate::id::{Principal, Route};

/// How long the last answers may take on their way out.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How long a server may take to say which of its tools may be called twice.
const HINTS_WITHIN: Duration = Duration::from_secs(5);

/// Tools that may be called twice, by whom they are offered to. `None`: the server did not say.
pub(super) type Hints = HashMap<(Route, Principal), Option<Vec<String>>>;

/// What becomes of a request that comes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// It is carried out.
    Begin,
    /// It is left to the next process.
    Hold,
    /// It is refused.
    Refuse,
}

impl Exchanges {
    /// Another process has the socket, and follows as soon as this one has left.
    pub fn are_followed(&self) {
        self.0.is_followed.store(true, Ordering::Relaxed);
    }

    /// Waits until every call that runs now and cannot be carried out twice has been answered, or the deadline.
    /// Meanwhile everything is served that may be carried out twice.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn finish(&self, until: Instant) {
        let _ = self.0.stage.compare_exchange(OPEN, FINISHING, Ordering::SeqCst, Ordering::SeqCst);
        let before = self.0.numbers.load(Ordering::Relaxed);
        let done = self.0.finished(|work| work.number < before);
        drop(tokio::time::timeout_at(until, done).await);
    }

    /// Begins no further calls, waits until those that cannot be carried out twice are answered, or the deadline, and
    /// tells the clients of all others to come back. Returns how many requests had to be interrupted.
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
                // Registered before anything is looked at, so that no change is missed.
                changed.as_mut().enable();
                inner.finished(|_| true).await;
                // Attempts that are not listed are being answered at this moment, or begin to wait.
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
            interrupted += usize::from(work.end(end) && end == End::Interrupt);
        }
        let parked = std::mem::take(&mut *inner.parked.lock());
        for work in parked.into_values() {
            // Its client has the state, and the next process finds out what can be done.
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

impl Inner {
    /// What becomes of a request at a stage of the end.
    pub(super) fn admission(
        &self,
        stage: u8,
        request: &Request,
        route: &Route,
        principal: &Principal,
        streams: Streams,
    ) -> Admission {
        if stage == OPEN {
            return Admission::Begin;
        }
        let is_call = Work::may_ask(&request.method);
        let is_followed = self.is_followed.load(Ordering::Relaxed);
        let is_resumable = streams == Streams::Resumable && self.are_noted();
        let can_come_back = is_call && (is_followed || is_resumable);
        match stage {
            FINISHING if self.is_known_to_be_safe(request, route, principal) => Admission::Begin,
            FINISHING | LEAVING | LEFT if can_come_back => Admission::Hold,
            FINISHING => Admission::Begin,
            LEAVING if !is_call => Admission::Begin,
            // A client that looks after its task need not notice that a process leaves.
            LEFT if request.method == Method::TasksGet => Admission::Begin,
            _ => Admission::Refuse,
        }
    }

    /// Whether a request may be carried out twice, as far as that is known without asking a server.
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

    /// Waits until no call is left that it concerns and that has to be finished here.
    async fn finished(&self, concerns: impl Fn(&Work) -> bool) {
        loop {
            let parked: Vec<_> = self.parked.lock().values().cloned().collect();
            let mut unfinished = Vec::new();
            for work in self.listed().into_iter().chain(parked) {
                // Found out for all before any is waited for: later there may be no time for it.
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

    async fn has_to_be_finished(&self, work: &Arc<Work>) -> bool {
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
        self.end_at_leaving(work) == End::Interrupt
    }

    async fn is_hinted(&self, work: &Arc<Work>) -> bool {
        let whose = (work.fanout.route().clone(), work.caller.principal.clone());
        let is_asked = self.hints.lock().contains_key(&whose);
        if !is_asked {
            let listed = tokio::time::timeout(HINTS_WITHIN, self.repeatable_tools(work)).await;
            self.hints.lock().insert(whose.clone(), listed.ok().flatten());
        }
        self.is_known_to_be_safe(&work.request, &whose.0, &whose.1)
    }

    /// How a call ends when this process leaves.
    pub(super) fn end_at_leaving(&self, work: &Work) -> End {
        let is_followed = self.is_followed.load(Ordering::Relaxed);
        if work.is_listen() {
            // Clients open another one at once, and some do not outlive that there is no process to open it at.
            let comes_back = !is_followed && work.is_resumable() && self.are_noted();
            return if comes_back { End::Resume } else { End::Leave };
        }
        if !work.may_be_left() {
            return End::Interrupt;
        }
        if work.task().is_some() || is_followed && Work::may_ask(&work.request.method) {
            End::ComeBack
        } else if work.is_resumable() && self.are_noted() {
            End::Resume
        } else {
            End::Interrupt
        }
    }

    /// Waits until nothing is being answered.
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

impl Work {
    /// Whether the next process can carry it out anew.
    fn may_be_left(&self) -> bool {
        let is_safe = self.is_held || self.is_repeatable.get() == Some(&true);
        // The client of a task comes back in any case; its call can be carried on if it was kept.
        is_safe && self.task().is_none_or(|task| task.live.params().is_some())
    }

    /// Resolves when the call is over.
    async fn over(&self) {
        loop {
            let more = self.room.notified();
            tokio::pin!(more);
            // Before it is looked at, so that it is not missed.
            more.as_mut().enable();
            if self.is_over() {
                return;
            }
            more.await;
        }
    }
}

impl Run {
    /// Ends the attempt with a state for the next one, which carries the call out from its beginning.
    pub(super) fn come_back(&mut self) -> Turn {
        let held = match self.work.recovers {
            Some(parked) => Held::Parked(parked),
            None => Held::Again(finish::brought(self.work.request.params.as_ref())),
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
