//! Calls that wait for their clients to come back with answers.
//!
//! Such a call is carried out by a task of its own, for as long as its client may take. Its client knows it by a state
//! that is sealed around its secret name.
//!
//! Each takes a place from the share of its client, and its outcome takes memory while it waits. If there is no place left,
//! a call that has waited for long makes room: of the same peer, if that holds as many as it may.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use hashbrown::HashMap;
use tenure_protocol::{Error, Reason, Reply, Request, RpcError};
use tokio::time::Instant;

use crate::budget::{Full, Peer, Resource, Share};
use crate::call::Stage;
use crate::exchange::attempt::{Run, Source, panicked};
use crate::exchange::call::{Attempt, Tasked, Work};
use crate::exchange::exchanges::{Inner, LEAVING, Running};
use crate::exchange::finish;
use crate::exchange::request_state::{self, Bound, Held, Parked as Name};
use crate::id::Principal;
use crate::port::BoxFuture;

impl Inner {
    /// Goes on with a call that waited.
    pub(super) fn resume(
        self: &Arc<Self>,
        name: u128,
        attempt: Attempt,
        request: Request,
        running: Running,
    ) -> Result<Run, Error> {
        let work = self.parked.lock().get(&name).cloned().ok_or_else(request_state::invalid)?;
        let turn = work.resume(attempt).ok_or_else(request_state::invalid)?;
        Ok(Run::new(self, work, request, (turn, Source::Elsewhere), running))
    }

    /// Lets a call wait for its client's next attempt. Returns the state that the attempt has to bring.
    pub(super) fn park(&self, work: &Arc<Work>, request: &Request) -> Result<String, Error> {
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
            tracing::debug!(exchange = %work.label(), "made room for others: its client does not come back");
            work.close();
        }
        let bound = Bound::new(request, work.fanout.route(), &work.caller.principal);
        let expires = self.clock.now().after(self.limits.ask_timeout);
        bound.seal(&*self.seal, &Held::Parked(Name { name, process: self.process }), expires)
    }

    /// Takes a place for a call. Returns the call that makes room for it, if none was left.
    fn make_room(&self, parked: &mut Calls, work: &Arc<Work>) -> Result<Option<Arc<Work>>, Error> {
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
        let Some(given_up) = forsaken(parked, among).and_then(|name| parked.remove(&name)) else {
            let message = match full {
                Full::InAll => "Too many calls wait for answers of their clients; try again later",
                Full::OfPeer => {
                    "Too many of your calls wait for your answers; answer one, or try again later"
                }
            };
            return Err(Error::new(Reason::TooManyRequests, message).with("limit", limit));
        };
        given_up.state.lock().place = None;
        // The place goes from one call to the other, so their number stays the same.
        work.state.lock().place = share.map(|share| share.take_anyway(Resource::Parked, 1));
        Ok(Some(given_up))
    }

    pub(super) fn unpark(&self, work: &Work) {
        if let Some(name) = work.park.get() {
            self.parked.lock().remove(name);
            work.state.lock().place = None;
        }
    }

    /// Carries a call out whose attempt has ended.
    pub(super) fn go_on(self: &Arc<Self>, work: &Arc<Work>, reply: BoxFuture<Reply>) {
        let (work, over) = (Arc::clone(work), work.cancellation());
        let mut parked = Parked { inner: Arc::clone(self), work: Arc::clone(&work), is_task: false };
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
            // After the server's future was dropped, if it is.
            let inner = Arc::clone(&parked.inner);
            parked.is_task = became.is_some();
            drop(parked);
            if let Some((task, reply)) = became {
                inner.carried_out(work, task, reply).await;
            }
        });
    }
}

/// Carries a call out until it has become a task, or its client has not come back in time.
async fn carried_out(
    work: &Work,
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
            tracing::debug!(exchange = %work.label(), method = %work.request.method, "its client did not come back");
            work.give_up();
            // The server should hear it before it is cut off.
            drop(tokio::time::timeout(LAST_WORDS, reply).await);
            return None;
        }
    }
    // The answer waits for the client too.
    abandoned(work).await;
    None
}

/// A call as long as its task lasts. That may end with a panic too, of a server that is dropped.
struct Parked {
    inner: Arc<Inner>,
    work: Arc<Work>,
    /// It has become one that its client asks about, and goes on.
    is_task: bool,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.inner.unpark(&self.work);
        if self.is_task {
            return;
        }
        // For an attempt that came at the last moment.
        let late = Err(RpcError::of(Reason::TimedOut, "The client came back too late"));
        match self.work.settle(late) {
            None => self.work.close(),
            // It even made a task of the call, of which its client has heard: that has to end too.
            Some((task, late)) => {
                self.inner.carry_out(&self.work, task, Box::pin(std::future::ready(late)));
            }
        }
    }
}

/// How long a call may wait for its client whoever else wants to. Most clients answer within it, and those who ask a lot
/// and never come back cannot keep others out for longer.
const UNDISTURBED: Duration = Duration::from_secs(30);

/// Calls that wait, by their secret names.
type Calls = HashMap<u128, Arc<Work>>;

/// The call that makes room when there is none: of those of whoever has most, the one that has waited longest; or of those of
/// one peer.
fn forsaken(parked: &Calls, among: Option<Peer>) -> Option<u128> {
    let peer_of = |work: &Work| work.caller.share().map(|share| share.peer());
    // Without authentication all are one principal, and their addresses tell them apart.
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

/// What a server has to end a call whose client did not come back.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

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
