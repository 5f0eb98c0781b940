//! How a process leaves its calls to the next one, so that a deploy ends none of them.
//!
//! Calls that cannot be carried out twice are finished, up to a deadline. The others are answered `input_required`
//! with a state and no questions: their clients come back at once, with the same request, and whichever process
//! answers then carries it out. Two steps, since other parts of the process have calls of their own to finish:
//!
//! 1. [`finish`](super::Exchanges::finish): everything is served; what was running is finished.
//! 2. [`leave`](super::Exchanges::leave): no further call is begun, what began meanwhile is finished, and the rest is
//!    told to come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::answers;
use super::exchanges::{Exchanges, Inner, LEAVING, LEFT};
use super::run::{Run, Turn};
use super::states::{Bound, Held};
use super::work::{End, Work};
use crate::bridge::rules::questions;
use crate::call::Stage;
use crate::id::{Principal, Route};
use crate::rules::{self, Repeat};

/// How long the last answers may take on their way out.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How long a server may take to say which of its tools may be called twice.
const HINTS_WITHIN: Duration = Duration::from_secs(5);

/// Tools that may be called twice, by whom they are offered to. `None`: the server did not say.
type Hints = HashMap<(Route, Principal), Option<Vec<String>>>;

impl Exchanges {
    /// Waits until every call that runs now and cannot be carried out twice has been answered, or the deadline.
    /// Everything is served meanwhile.
    ///
    /// # Cancel safety
    /// Nothing has happened.
    pub async fn finish(&self, until: Instant) {
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
            let end = work.end_at_leaving();
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
        interrupted
    }
}

impl Inner {
    /// Waits until no call is left that it concerns and that has to be finished here.
    async fn finished(&self, concerns: impl Fn(&Work) -> bool) {
        let mut hints = Hints::new();
        loop {
            let parked: Vec<_> = self.parked.lock().values().cloned().collect();
            let mut unfinished = Vec::new();
            for work in self.listed().into_iter().chain(parked) {
                // Found out for all before any is waited for: later there may be no time for it.
                if concerns(&work) && self.has_to_be_finished(&work, &mut hints).await {
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

    async fn has_to_be_finished(&self, work: &Arc<Work>, hints: &mut Hints) -> bool {
        if work.is_over() || work.is_listen() || work.is_held {
            return false;
        }
        if work.is_repeatable.get().is_none() {
            let is_repeatable = match rules::repeat(&work.request.method) {
                Repeat::Safe => true,
                Repeat::Never => false,
                Repeat::AskTool => self.is_hinted(work, hints).await,
            };
            let _ = work.is_repeatable.set(is_repeatable);
        }
        !work.may_come_back()
    }

    async fn is_hinted(&self, work: &Arc<Work>, hints: &mut Hints) -> bool {
        let whose = (work.fanout.route().clone(), work.caller.principal.clone());
        if !hints.contains_key(&whose) {
            let listed = tokio::time::timeout(HINTS_WITHIN, self.repeatable_tools(work)).await;
            hints.insert(whose.clone(), listed.ok().flatten());
        }
        let name = rules::tool_name(work.request.params.as_ref());
        let tools = hints.get(&whose).and_then(Option::as_ref);
        name.is_some_and(|name| tools.is_some_and(|tools| tools.contains(&name)))
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
    /// Whether its client can be told to come back: it would understand that, and the call can be carried out anew.
    fn may_come_back(&self) -> bool {
        let is_safe = self.is_held || self.is_repeatable.get() == Some(&true);
        // The client of a task comes back in any case; its call can be carried on if it was kept.
        let is_kept = self.task().is_none_or(|task| task.live.params().is_some());
        is_safe && is_kept && Self::may_ask(&self.request.method)
    }

    /// How it ends when its process leaves.
    pub(super) fn end_at_leaving(&self) -> End {
        if self.is_listen() {
            End::Leave
        } else if self.may_come_back() {
            End::ComeBack
        } else {
            End::Interrupt
        }
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
            None => Held::Again(answers::brought(self.work.request.params.as_ref())),
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
