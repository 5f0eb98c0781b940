//! The loop that renews this node's record, reads the others', and removes those of silent nodes.
//!
//! A renewal whose answer is lost may happen later, so a conflict after it does not mean that the node was removed: the
//! list then shows the own record with a higher renewal, which only this node can have written. In every other case a
//! conflict means that the node was removed, or may have been. It then gives up its name: that is always safe.
//!
//! The first record of a name expects none, so it is written once: others may have seen the first try, and removed it as
//! silent. A second try would bring back a name that they hold gone for ever. So a first record in doubt costs the name.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::fitness::{ClockSample, Fitness};
use super::node_info::NodeRecord;
use super::peers::ahead_ms;
use super::roster::{ANSWER, Acked, RosterInner, RosterState};
use crate::id::NodeId;
use crate::port::members::{Member, Renewal};
use crate::port::store::StoreError;

/// The time from one renewal to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Most silent nodes that are removed in one round.
const MOST_REMOVED: usize = 8;

/// Runs until the node leaves, or its owner is dropped.
pub(super) async fn run(roster: Weak<RosterInner>) {
    loop {
        let next = Instant::now() + EVERY;
        let Some(inner) = roster.upgrade() else { return };
        let (stop, renew_now) = (inner.stop.clone(), Arc::clone(&inner.renew_now));
        if stop.run_until_cancelled(inner.round()).await.is_none() {
            return;
        }
        // Not held while it waits: a roster that is dropped without `leave` ends the loop.
        drop(inner);
        let woken = async {
            tokio::select! {
                () = sleep_until(next) => {}
                () = renew_now.notified() => {}
            }
        };
        if stop.run_until_cancelled(woken).await.is_none() {
            return;
        }
    }
}

/// This node's own record in a list. The mark that it is gone is under the same name, but was written by another node.
fn own_renewal(list: &[Member], own: NodeId) -> Option<Renewal> {
    let own = list.iter().find(|member| member.node == own)?;
    matches!(NodeRecord::decode(&own.info), Ok(NodeRecord::Node(_))).then_some(own.renewal)
}

/// Compares the own clock with the engine's, by a renewal whose time is known.
fn clock_sample(acked: &[Option<Acked>], own: &Member) -> Option<ClockSample> {
    let listed = |acked: &&Acked| acked.renewal == own.renewal;
    // A slow renewal is too inexact: the process may have been paused meanwhile.
    let Acked { wall_ms, took, .. } =
        acked.iter().flatten().find(listed).filter(|acked| acked.took <= ANSWER)?;
    let within_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    Some(ClockSample { ahead_ms: ahead_ms(*wall_ms, own.stored?), within_ms })
}

/// How a renewal ended.
enum Renewed {
    Yes,
    /// No answer, or an answer without a meaning.
    NotNow,
    /// The record is not as this node left it.
    Conflict,
}

impl RosterInner {
    /// Renews once, and looks at the others. Both at the same time, so that a slow list delays no renewal.
    async fn round(&self) {
        self.leave_doubtful_name();
        let (node, is_judged) = {
            let state = self.state.lock();
            (state.node, state.fitness.may_act)
        };
        let listing = || timeout(ANSWER, self.members.members());
        let (renewed, list) = match is_judged {
            true => tokio::join!(self.renew(node), listing()),
            // Its own record has to be in the list by which it is judged.
            false => (self.renew(node).await, listing().await),
        };
        let now = Instant::now();
        let list = match list {
            Ok(Ok(list)) => Some(list),
            Ok(Err(error)) => {
                tracing::debug!(%error, "could not list the nodes");
                None
            }
            Err(_) => None,
        };
        // Read once more: the list may be from before the renewal that is in doubt. Without one the node stays unconfirmed
        // until the next round.
        if matches!(renewed, Renewed::Conflict)
            && let Ok(Ok(list)) = timeout(ANSWER, self.members.members()).await
        {
            self.settle_conflict(node, &list);
        }
        if let Some(list) = list {
            let own_record = {
                let mut state = self.state.lock();
                let own = state.node;
                // The renewal that had no answer happened. The next one has to name it.
                let listed = own_renewal(&list, own);
                if state.is_in_doubt && listed > state.last {
                    (state.last, state.is_in_doubt) = (listed, false);
                }
                let own_record = list.iter().find(|member| member.node == own).cloned();
                state.peers.listed(list, own, now);
                own_record
            };
            self.judge(own_record).await;
            self.changed();
            self.remove_silent().await;
        }
    }

    /// Takes another name if it is unknown whether there was a first record under this one.
    fn leave_doubtful_name(&self) {
        {
            let mut state = self.state.lock();
            if state.last.is_some() || !state.is_in_doubt {
                return;
            }
            let fresh = NodeId::random();
            tracing::info!(was = ?state.node, now = ?fresh, "the engine did not say whether it took this node's first record; it joins under another name");
            self.lease.end_term();
            (state.node, state.is_in_doubt) = (fresh, false);
            (state.acked, state.held, state.fitness) = ([None; 2], None, Fitness::default());
        }
        self.changed();
    }

    async fn renew(&self, node: NodeId) -> Renewed {
        let (info, last, wall_ms) = {
            let mut state = self.state.lock();
            state.info.wall_ms = self.clock.now().0;
            (state.info.encode(), state.last, state.info.wall_ms)
        };
        let sent = self.clock.uptime();
        let outcome = timeout(ANSWER, self.members.renew(node, info, last)).await;
        let mut state = self.state.lock();
        let renewed = match outcome {
            Ok(Ok(renewal)) => {
                state.last = Some(renewal);
                state.is_in_doubt = false;
                state.peers.own_renewal();
                state.acked = [
                    Some(Acked { renewal, wall_ms, took: self.clock.uptime().saturating_sub(sent) }),
                    state.acked[0],
                ];
                match state.fitness.may_act {
                    true => self.lease.renewed(sent),
                    false => state.held = Some(sent),
                }
                Renewed::Yes
            }
            Ok(Err(StoreError::Conflict { .. })) => Renewed::Conflict,
            Ok(Err(StoreError::Unknown)) | Err(_) => {
                state.is_in_doubt = true;
                Renewed::NotNow
            }
            Ok(Err(error)) => {
                tracing::debug!(?node, %error, "could not renew the node's record");
                Renewed::NotNow
            }
        };
        drop(state);
        if matches!(renewed, Renewed::Yes) {
            self.changed();
        }
        renewed
    }

    /// Finds out why a renewal was refused.
    fn settle_conflict(&self, node: NodeId, list: &[Member]) {
        let listed = own_renewal(list, node);
        let mut state = self.state.lock();
        let is_own = |renewal: Renewal| state.last.is_none_or(|last| renewal > last);
        match listed {
            Some(renewal) if state.is_in_doubt && is_own(renewal) => {
                // The renewal that had no answer. The next one replaces it, and only that one confirms the node.
                state.last = Some(renewal);
                state.is_in_doubt = false;
                drop(state);
                self.renew_now.notify_one();
            }
            // A late list: it shows the record as it was before the renewal that is in doubt.
            Some(_) if state.is_in_doubt => {}
            _ => {
                let fresh = NodeId::random();
                tracing::error!(was = ?node, now = ?fresh, "this node was removed from the cluster; it gives up its sessions and comes back under another name");
                self.come_back_as(&mut state, fresh);
                drop(state);
                self.changed();
                self.renew_now.notify_one();
            }
        }
    }

    /// Gives up the node's name, with everything that it owned under it, and takes another one.
    fn come_back_as(&self, state: &mut RosterState, fresh: NodeId) {
        self.lease.end_term();
        let lost = state.node;
        state.peers.is_gone_now(lost);
        (state.node, state.last, state.is_in_doubt) = (fresh, None, false);
        (state.acked, state.held) = ([None; 2], None);
        // Among the others it is a new node, and is judged like one.
        state.fitness = Fitness::default();
    }

    /// Judges whether this node may act among the others. If it may no longer, it gives up its sessions.
    async fn judge(&self, own: Option<Member>) {
        let given_up = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let sample = own.as_ref().and_then(|member| clock_sample(&state.acked, member));
            let before = state.info.unfit.clone();
            let others = state.peers.others(Instant::now());
            let unfit = state.fitness.judge((state.node, &state.info), sample, &others);
            drop(others);
            let is_new = before != unfit;
            state.info.unfit.clone_from(&unfit);
            self.is_unfit.store(unfit.is_some(), Ordering::Release);
            match &unfit {
                None if !state.fitness.may_act => {
                    state.fitness.may_act = true;
                    if let Some(sent) = state.held.take() {
                        self.lease.renewed(sent);
                    }
                    tracing::debug!(node = ?state.node, "this node may act in its cluster");
                    self.renew_now.notify_one();
                    None
                }
                None => None,
                Some(why) if state.fitness.may_act => {
                    let (was, last, fresh) = (state.node, state.last, NodeId::random());
                    tracing::error!(?was, now = ?fresh, why, "this node must not act in its cluster; it gives up its sessions, and is not ready");
                    self.come_back_as(state, fresh);
                    self.renew_now.notify_one();
                    last.map(|last| (was, last))
                }
                Some(why) => {
                    if is_new {
                        tracing::error!(node = ?state.node, why, "this node must not act in its cluster, and is not ready");
                    }
                    None
                }
            }
        };
        if let Some((was, last)) = given_up {
            // If this fails, the others notice within seconds.
            drop(timeout(ANSWER, self.members.remove(was, last)).await);
        }
    }

    /// Removes the records of nodes that are silent for too long.
    async fn remove_silent(&self) {
        if !self.lease.is_confirmed(self.clock.uptime()) {
            return;
        }
        let silent = self.state.lock().peers.silent(Instant::now());
        let removals = silent.into_iter().take(MOST_REMOVED).map(|(node, seen)| async move {
            match timeout(ANSWER, self.members.remove(node, seen)).await {
                Ok(Ok(())) => {
                    tracing::warn!(?node, "a node is gone: it has not renewed its record");
                    self.state.lock().peers.is_gone_now(node);
                    self.changed();
                }
                // It was renewed meanwhile, or another node removed it: the next list says more.
                Ok(Err(error)) => tracing::debug!(?node, %error, "could not remove a silent node"),
                Err(_) => {}
            }
        });
        futures_util::future::join_all(removals).await;
    }
}
