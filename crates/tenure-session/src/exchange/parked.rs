//! Parked calls: they wait for their clients to come back with answers.
//!
//! A parked call runs in its own runtime task, for as long as its client may take. Its client gets a sealed state with
//! the secret name of the call.
//!
//! Each parked call takes a permit from the share of its client, and its outcome takes memory while it waits. If no
//! permit is left, a call that has waited for long is given up: a call of the same peer, if that peer's share is full.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use hashbrown::HashMap;
use tenure_protocol::{Error, Reason, Reply, Request, RpcError};
use tokio::time::Instant;

use crate::budget::{Full, Peer, Resource, Share};
use crate::call::Client;
use crate::cluster::Roster;
use crate::exchange::attempt::{Run, Source, panicked};
use crate::exchange::call::{ActiveCall, ClientAttempt, Tasked};
use crate::exchange::exchanges::{ExchangesInner, LEAVING, RunningGuard};
use crate::exchange::finish;
use crate::exchange::request_state::{self, Bound, ParkedName, SealedContent};
use crate::id::Principal;
use crate::port::BoxFuture;

impl ExchangesInner {
    /// Goes on with a parked call.
    pub(super) fn resume(
        self: &Arc<Self>,
        name: u128,
        attempt: ClientAttempt,
        request: Request,
        running: RunningGuard,
    ) -> Result<Run, Error> {
        let work = self.parked.lock().get(&name).cloned().ok_or_else(request_state::invalid)?;
        let generation = work.resume(attempt).ok_or_else(request_state::invalid)?;
        Ok(Run::new(self, work, request, (generation, Source::Elsewhere), running))
    }

    /// Parks a call until its client's next attempt. Returns the state that the attempt has to bring.
    pub(super) fn park(&self, work: &Arc<ActiveCall>, request: &Request) -> Result<String, Error> {
        let name = *work.park.get_or_init(|| {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).expect("the system gives random bytes");
            u128::from_le_bytes(bytes)
        });
        let given_up = {
            let mut parked = self.parked.lock();
            if self.stage.load(Ordering::SeqCst) > LEAVING {
                return Err(finish::draining());
            }
            let given_up = match parked.contains_key(&name) {
                true => None,
                false => self.make_room(&mut parked, work)?,
            };
            parked.insert(name, Arc::clone(work));
            given_up
        };
        if let Some(work) = given_up {
            tracing::debug!(exchange = %work.label(), "given up to make room: its client did not come back");
            work.close();
        }
        let bound = Bound::new(request, work.fanout.route(), &work.caller.principal);
        let expires = self.clock.now().after(self.limits.ask_timeout);
        let node = self.roster.get().map(Roster::node);
        let parked = ParkedName { name, process: self.process, node };
        bound.seal(&*self.seal, &SealedContent::Parked(parked), expires)
    }

    /// Takes a permit for a call. If none was left, removes another call and returns it.
    fn make_room(
        &self,
        parked: &mut ParkedCalls,
        work: &Arc<ActiveCall>,
    ) -> Result<Option<Arc<ActiveCall>>, Error> {
        let (limit, share) = (self.limits.max_parked, work.caller.share());
        let full = match &share {
            _ if parked.len() >= limit => Full::InAll,
            None => return Ok(None),
            Some(share) => match share.take(Resource::Parked, 1) {
                Ok(place) => {
                    work.state.lock().place = Some(place);
                    return Ok(None);
                }
                Err(full) => full,
            },
        };
        let among = share.as_ref().map(Share::peer).filter(|_| full == Full::OfPeer);
        let Some(given_up) = call_to_give_up(parked, among).and_then(|name| parked.remove(&name)) else {
            let message = match full {
                Full::InAll => "Too many calls wait for answers of their clients; try again later",
                Full::OfPeer => {
                    "Too many of your calls wait for your answers; answer one, or try again later"
                }
            };
            return Err(Error::new(Reason::TooManyRequests, message).with("limit", limit));
        };
        given_up.state.lock().place = None;
        // The permit moves from one call to the other, so the number of parked calls stays the same.
        work.state.lock().place = share.map(|share| share.take_anyway(Resource::Parked, 1));
        Ok(Some(given_up))
    }

    pub(super) fn unpark(&self, work: &ActiveCall) {
        if let Some(name) = work.park.get() {
            self.parked.lock().remove(name);
            work.state.lock().place = None;
        }
    }

    /// Runs a call whose attempt has ended, in its own runtime task.
    pub(super) fn go_on(self: &Arc<Self>, work: &Arc<ActiveCall>, reply: BoxFuture<Reply>) {
        let (work, over) = (Arc::clone(work), work.token());
        let mut parked = ParkedGuard { inner: Arc::clone(self), work: Arc::clone(&work), is_task: false };
        self.tasks.spawn(async move {
            let became = {
                let mut reply = AssertUnwindSafe(reply).catch_unwind();
                let became = tokio::select! {
                    became = carried_out(&work, &mut reply) => became,
                    () = over.cancelled() => None,
                };
                became.map(|(task, replied)| {
                    let label = Arc::clone(&work);
                    let reply: BoxFuture<Reply> = match replied {
                        Some(reply) => Box::pin(std::future::ready(reply)),
                        None => {
                            Box::pin(reply.map(move |reply| reply.unwrap_or_else(|_| Err(panicked(&label)))))
                        }
                    };
                    (task, reply)
                })
            };
            // The server's future is dropped or moved by now.
            let inner = Arc::clone(&parked.inner);
            parked.is_task = became.is_some();
            drop(parked);
            if let Some((task, reply)) = became {
                inner.carried_out(work, task, reply).await;
            }
        });
    }
}

/// Runs a parked call until it becomes a task, or its client has not come back in time.
async fn carried_out(
    work: &ActiveCall,
    reply: &mut (impl Future<Output = std::thread::Result<Reply>> + Unpin),
) -> Option<(Tasked, Option<Reply>)> {
    tokio::select! {
        task = work.became() => return Some((task, None)),
        reply = &mut *reply => {
            let reply = reply.unwrap_or_else(|_| Err(panicked(work)));
            if let Some((task, reply)) = work.settle(reply) {
                return Some((task, Some(reply)));
            }
        }
        () = abandoned(work) => {
            tracing::debug!(exchange = %work.label(), method = %work.request.method, "the client did not come back in time");
            work.give_up();
            // The server should get the error before its future is dropped.
            drop(tokio::time::timeout(CANCEL_GRACE, reply).await);
            return None;
        }
    }
    // The reply waits for the client too.
    abandoned(work).await;
    None
}

/// Cleans up when the runtime task of a parked call ends, also by a panic in the server's destructors.
struct ParkedGuard {
    inner: Arc<ExchangesInner>,
    work: Arc<ActiveCall>,
    /// Whether the call has become a task, and goes on.
    is_task: bool,
}

impl Drop for ParkedGuard {
    fn drop(&mut self) {
        self.inner.unpark(&self.work);
        if self.is_task {
            return;
        }
        // For an attempt that came back at the last moment.
        let late = Err(RpcError::of(Reason::TimedOut, "The client came back too late"));
        match self.work.settle(late) {
            None => self.work.close(),
            // That attempt turned the call into a task, and the client knows it: the task has to end too.
            Some((task, late)) => {
                self.inner.carry_out(&self.work, task, Box::pin(std::future::ready(late)));
            }
        }
    }
}

/// A call that has waited for less than this is not given up. Most clients answer within this time, and clients that
/// never come back cannot block others for longer.
const UNDISTURBED: Duration = Duration::from_secs(30);

/// Parked calls, by their secret names.
type ParkedCalls = HashMap<u128, Arc<ActiveCall>>;

/// The call to give up when there is no room: the longest waiting call of the caller that has most calls, only among
/// the calls of one peer if `among` is set.
fn call_to_give_up(parked: &ParkedCalls, among: Option<Peer>) -> Option<u128> {
    let peer_of = |work: &ActiveCall| work.caller.share().map(|share| share.peer());
    // Without authentication all callers are one principal, and only their addresses differ.
    let mut held: HashMap<(&Principal, Option<Peer>), usize> = HashMap::new();
    for work in parked.values() {
        *held.entry((&work.caller.principal, peer_of(work))).or_default() += 1;
    }
    let now = Instant::now();
    let waiting = parked.iter().filter_map(|(name, work)| {
        let peer = peer_of(work);
        if among.is_some() && peer != among {
            return None;
        }
        let until = work.state.lock().parked_until?;
        let waited = work.limits.ask_timeout.saturating_sub(until.saturating_duration_since(now));
        (waited >= UNDISTURBED).then_some((held[&(&work.caller.principal, peer)], waited, *name))
    });
    waiting.max_by_key(|(held, waited, _)| (*held, *waited)).map(|(_, _, name)| name)
}

/// How long a cancelled call may take to end by itself.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(1);

/// Resolves when a call has waited for its client for too long.
async fn abandoned(work: &ActiveCall) {
    loop {
        let until = work.state.lock().parked_until;
        match until {
            Some(until) if until <= Instant::now() => return,
            Some(until) => tokio::time::sleep_until(until).await,
            None => tokio::time::sleep(work.limits.ask_timeout).await,
        }
    }
}
