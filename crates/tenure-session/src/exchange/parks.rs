//! Calls that wait for their clients to come back with answers.
//!
//! Such a call is carried out by a task of its own, for as long as its client may take. Its client knows it by a state
//! that is sealed around its secret name.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::answers;
use super::exchanges::{Inner, OPEN, Running};
use super::run::{Run, Source, panicked};
use super::states::{self, Bound, Held};
use super::work::{Attempt, Work};
use crate::call::Stage;
use crate::error::{Error, Reason, RpcError};
use crate::message::Request;
use crate::port::BoxFuture;
use crate::port::backend::Reply;

impl Inner {
    /// Goes on with a call that waited.
    pub(super) fn resume(
        self: &Arc<Self>,
        name: u128,
        attempt: Attempt,
        request: Request,
        running: Running,
    ) -> Result<Run, Error> {
        let work = self.parked.lock().get(&name).cloned().ok_or_else(states::invalid)?;
        let turn = work.resume(attempt).ok_or_else(states::invalid)?;
        Ok(Run::new(self, work, request, (turn, Source::Elsewhere), running))
    }

    /// Lets a call wait for its client's next attempt. Returns the state that the attempt has to bring.
    pub(super) fn park(&self, work: &Arc<Work>, request: &Request) -> Result<String, Error> {
        let name = *work.park.get_or_init(|| {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).expect("the system gives random bytes");
            u128::from_le_bytes(bytes)
        });
        {
            let mut parked = self.parked.lock();
            if self.stage.load(Ordering::SeqCst) != OPEN {
                return Err(answers::draining());
            }
            let limit = self.limits.max_parked;
            if parked.len() >= limit && !parked.contains_key(&name) {
                let message = "Too many calls wait for answers of their clients; try again later";
                return Err(Error::new(Reason::TooManyRequests, message).with("limit", limit));
            }
            parked.insert(name, Arc::clone(work));
        }
        let bound = Bound::new(request, work.fanout.route(), &work.principal);
        let expires = self.clock.now().after(self.limits.ask_timeout);
        bound.seal(&*self.seal, &Held::Parked(name), expires)
    }

    pub(super) fn unpark(&self, work: &Work) {
        if let Some(name) = work.park.get() {
            self.parked.lock().remove(name);
        }
    }

    /// Carries a call out whose attempt has ended.
    pub(super) fn go_on(self: &Arc<Self>, work: &Arc<Work>, reply: BoxFuture<Reply>) {
        let (work, over) = (Arc::clone(work), work.cancellation());
        let parked = Parked { inner: Arc::clone(self), work: Arc::clone(&work) };
        self.tasks.spawn(async move {
            // Dropped last, after the server's future.
            let _parked = parked;
            let carried_out = async {
                let mut reply = AssertUnwindSafe(reply).catch_unwind();
                tokio::select! {
                    reply = &mut reply => work.settle(reply.unwrap_or_else(|_| Err(panicked(&work)))),
                    () = abandoned(&work) => {
                        tracing::debug!(exchange = %work.label(), method = %work.method, "its client did not come back");
                        work.give_up();
                        // The server should hear it before it is cut off.
                        drop(tokio::time::timeout(LAST_WORDS, &mut reply).await);
                        return;
                    }
                }
                // The answer waits for the client too.
                abandoned(&work).await;
            };
            tokio::select! {
                () = carried_out => {}
                () = over.cancelled() => {}
            }
        });
    }
}

/// A call as long as its task lasts. That may end with a panic too, of a server that is dropped.
struct Parked {
    inner: Arc<Inner>,
    work: Arc<Work>,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.inner.unpark(&self.work);
        // For an attempt that came at the last moment.
        self.work.settle(Err(RpcError::of(Reason::TimedOut, "The client came back too late")));
        self.work.close();
    }
}

/// What a server has to end a call whose client did not come back.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Resolves when a call has waited for its client for too long.
async fn abandoned(work: &Work) {
    loop {
        let until = work.state.lock().parked_until;
        match until {
            Some(until) if until <= Instant::now() => return,
            Some(until) => tokio::time::sleep_until(until).await,
            None => tokio::time::sleep(work.limits.ask_timeout).await,
        }
    }
}
