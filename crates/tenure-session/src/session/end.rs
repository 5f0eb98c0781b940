//! Ends a session: answers all open requests, replaces the record by a tombstone, drops the events.
//!
//! A tombstone is a record with a deadline; the sweep removes it when that has passed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::{Error, Kind, RpcError, message};
use tokio::task::JoinHandle;

use crate::backoff::Backoff;
use crate::finish::finish;
use crate::id::{Principal, SessionId, SessionKey, StreamId};
use crate::port::clock::Time;
use crate::port::observer::Happened;
use crate::port::store::{Expected, RecordKey, StoreError, Version};
use crate::record::{EndCause, StoredSession, Tombstone, UnreadableRecord};
use crate::session::claim::{ClaimGuard, NotClaimed, TRIES, elsewhere};
use crate::session::deadline::Due;
use crate::session::live_session::{Session, SessionState, Settled, ended_error};
use crate::session::operator;
use crate::session::phase::Step;
use crate::session::sessions::{SessionRuntime, Sessions, store_failed};
use crate::session::wake::{self, Dormant, DormantHold};

/// First and longest back-off between attempts to write a tombstone: a store may take no writes until it is restarted.
const END_RETRY_FIRST: Duration = Duration::from_secs(1);
const END_RETRY_LAST: Duration = Duration::from_secs(30);

/// The task that writes a tombstone.
type EndWrite = JoinHandle<Result<(), StoreError>>;

impl Sessions {
    /// Ends a session.
    ///
    /// # Cancel safety
    /// The first poll ends the session. Dropping the future later only stops waiting for the store.
    ///
    /// # Errors
    /// When it had ended already, or its tombstone could not be written yet.
    pub async fn end(&self, session: &Arc<Session>, end: EndCause) -> Result<(), Error> {
        let Some(end_write) = self.0.end(session, end) else {
            let earlier = session.state.lock().end;
            return Err(earlier.map_or_else(elsewhere, ended_error));
        };
        match end_write.await {
            Ok(written) => written.map_err(store_failed),
            // Fails only if the runtime is aborted; then no caller waits any more.
            Err(_) => Ok(()),
        }
    }

    /// Ends a session of this principal by its id. A dormant session is not woken for it.
    ///
    /// # Errors
    /// As for [`Sessions::find`], or when the store fails; a dormant session then goes on.
    ///
    /// # Cancel safety
    /// An end that has started is finished.
    pub async fn delete(&self, id: &SessionId, principal: &Principal) -> Result<(), Error> {
        loop {
            if let Some(session) = self.0.awake(id) {
                if !session.is_of(principal, &self.1) {
                    return Err(wake::not_theirs(&self.0, id.key()).await);
                }
                return self.end(&session, EndCause::Deleted).await;
            }
            let dormant = wake::dormant(&self.0, id.key(), principal, &self.1).await?;
            if self.0.end_dormant(&dormant, EndCause::Deleted).await.map_err(store_failed)? {
                return Ok(());
            }
            // The session was woken or ended meanwhile: try again.
        }
    }

    /// Ends any session by its hashed id, for operators. Returns whether there was one.
    ///
    /// # Errors
    /// When the store fails; a dormant session then goes on.
    ///
    /// # Cancel safety
    /// An end that has started is finished.
    pub async fn revoke(&self, key: &SessionKey) -> Result<bool, Error> {
        loop {
            if let Some(session) = self.0.awake_by_key(key) {
                return match self.end(&session, EndCause::Revoked).await {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == Kind::Gone => Ok(false),
                    Err(error) => Err(error),
                };
            }
            let Some(dormant) = wake::any_dormant(&self.0, *key).await? else { return Ok(false) };
            if self.0.end_dormant(&dormant, EndCause::Revoked).await.map_err(store_failed)? {
                return Ok(true);
            }
        }
    }
}

impl SessionRuntime {
    /// Ends a session now; a tracked task writes its tombstone. Until then the ended session stays in the registry, so
    /// that no request wakes it from its record. Returns `None` if it had ended already.
    pub(super) fn end(self: &Arc<Self>, session: &Arc<Session>, end: EndCause) -> Option<EndWrite> {
        let (link, version) = {
            let mut state = session.state.lock();
            if state.end.is_some() || state.is_given_up {
                return None;
            }
            state.end = Some(end);
            state.step(Step::Stopped, self.limits.gate);
            session.settle(&mut state, &ended_error(end).to_rpc());
            for uri in &std::mem::take(&mut state.subscriptions) {
                self.watchers.remove(uri, &session.id);
            }
            if let Some(due) = state.due.take() {
                self.deadlines.remove(due, Due::Session(session.id));
            }
            state.count_guard = None;
            (state.link.take(), state.version)
        };
        session.flush();
        self.ended.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(session = %session.label, how = ?end, "session ended");
        session.tell_ended(end);
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        let end_write = self.tasks.spawn(async move { inner.finish_end(session, end, version).await });
        // In another task: a server that is slow to exit delays neither DELETE nor the store.
        if let Some(link) = link {
            self.closing.spawn(async move { link.close().await });
        }
        Some(end_write)
    }

    /// Replaces the record by a tombstone and drops the events. If the store fails, a background task tries again until
    /// it works.
    async fn finish_end(
        self: Arc<Self>,
        session: Arc<Session>,
        end: EndCause,
        version: Version,
    ) -> Result<(), StoreError> {
        let until = self.clock.now().after(self.limits.tombstone_ttl);
        let mut version = version;
        match self.write_end(&session, end, until, &mut version).await {
            Ok(true) => {
                self.end_written(&session, until).await;
                Ok(())
            }
            Ok(false) => {
                self.forget_lost(&session);
                // It has not expired; but a client that wants it ended has to ask its owner.
                if end == EndCause::Expired { Ok(()) } else { Err(StoreError::Fenced) }
            }
            Err(error) => {
                tracing::error!(session = %session.label, %error, "could not record the end of a session; will try again");
                let inner = Arc::clone(&self);
                self.tasks.spawn(async move {
                    let mut backoff = Backoff::new(END_RETRY_FIRST, END_RETRY_LAST);
                    let trying = async {
                        loop {
                            tokio::time::sleep(backoff.next()).await;
                            match inner.write_end(&session, end, until, &mut version).await {
                                Ok(true) => break inner.end_written(&session, until).await,
                                Ok(false) => break inner.forget_lost(&session),
                                Err(_) => {}
                            }
                        }
                    };
                    inner.stop.run_until_cancelled(trying).await;
                });
                Err(error)
            }
        }
    }

    /// Writes the tombstone. False if the session goes on at another node.
    async fn write_end(
        &self,
        session: &Session,
        end: EndCause,
        until: Time,
        version: &mut Version,
    ) -> Result<bool, StoreError> {
        let key = RecordKey::session(session.key);
        let value = Tombstone::new(&session.owner, end, self.clock.now()).encode();
        loop {
            if !session.may_act() {
                // Another node may have the session, and has it for certain if this one's name is lost.
                if self.claimant() != session.by {
                    return Ok(false);
                }
                return Err(StoreError::Busy);
            }
            match self.store.put(key, value.clone(), Expected::Version(*version), Some(until)).await {
                Ok(_) => return Ok(true),
                // Another node has taken it over meanwhile, and does not know of this end.
                Err(StoreError::Conflict { current: Some(_) }) if self.has_later_owner(session).await? => {
                    return Ok(false);
                }
                // The session was saved meanwhile; the tombstone replaces that version.
                Err(StoreError::Conflict { current: Some(current) }) => *version = current,
                Err(StoreError::Conflict { current: None }) => return Ok(true),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the record is that of a later owner.
    async fn has_later_owner(&self, session: &Session) -> Result<bool, StoreError> {
        let record = self.store.get(RecordKey::session(session.key)).await?;
        let kept = record.map(|record| StoredSession::decode(&record.value));
        Ok(match kept {
            Some(Ok(StoredSession::Session(record))) => {
                self.roster.is_some() && record.epoch.is_some_and(|at| at > session.fence().0)
            }
            // Its writer is of a newer version, and so not this process.
            Some(Err(UnreadableRecord::Newer(_))) => true,
            _ => false,
        })
    }

    /// Whether another node has claimed the session. False outside of a cluster.
    async fn has_another_owner(&self, session: &Session) -> bool {
        if self.roster.is_none() {
            return false;
        }
        match self.store.owner(session.key).await {
            Ok(owner) => owner.is_some_and(|(node, _)| node != session.by.node),
            Err(_) => {
                self.unreleased.add(session.key);
                true
            }
        }
    }

    /// Removes an ended session from the registry. If its name was lost meanwhile, it may have been woken again.
    fn forget(&self, session: &Arc<Session>) {
        self.live.remove_if(&session.id, |live| Arc::ptr_eq(live, session));
    }

    /// The same if it goes on at another node.
    fn forget_lost(&self, session: &Arc<Session>) {
        self.forget(session);
        if self.claimant() == session.by {
            // This node may be its owner all the same.
            self.give_back_later(session.key);
        }
    }

    async fn end_written(&self, session: &Arc<Session>, until: Time) {
        self.forget(session);
        self.remember_end(session.key, until).await;
        if self.has_another_owner(session).await {
            // That node finds the tombstone, and drops them.
            return;
        }
        self.drop_log(session.key).await;
    }

    /// Drops the events of an ended session. If that fails, the sweep does it with the tombstone; in a cluster not before
    /// the session has no owner, so it is tried again there.
    async fn drop_log(&self, key: SessionKey) {
        if let Err(error) = self.store.drop_session(key).await {
            tracing::warn!(session = %key.label(), %error, "could not drop the events of an ended session");
            self.give_back_later(key);
        }
    }

    /// Keeps a tombstone until its deadline, or until there are too many: then the oldest is deleted. Its session stays
    /// ended, but clients are no longer told why.
    async fn remember_end(&self, key: SessionKey, until: Time) {
        let forgotten = {
            let mut tombstones = self.tombstones.lock();
            let now = self.clock.now();
            // The sweep removes tombstones after their deadline.
            while tombstones.front().is_some_and(|(until, _)| *until <= now) {
                tombstones.pop_front();
            }
            tombstones.push_back((until, key));
            if tombstones.len() > self.limits.max_tombstones { tombstones.pop_front() } else { None }
        };
        if let Some((_, key)) = forgotten {
            let key = RecordKey::session(key);
            // An operator may have restored a session under that key.
            if let Ok(Some(record)) = self.store.get(key).await
                && matches!(StoredSession::decode(&record.value), Ok(StoredSession::Tombstone(_)))
            {
                drop(self.store.delete(key, record.version).await);
            }
        }
    }

    /// Ends a dormant session. Returns false if its record changed meanwhile. Goes on if the future is dropped.
    pub(super) async fn end_dormant(
        self: &Arc<Self>,
        dormant: &Dormant,
        end: EndCause,
    ) -> Result<bool, StoreError> {
        let (inner, key, version) = (Arc::clone(self), dormant.key, dormant.version);
        let owner = dormant.owner();
        finish(&self.tasks, async move { inner.write_dormant_end(key, version, owner, end).await }).await
    }

    /// In a cluster: claims a session that is to be ended here. Otherwise a node that wakes it in the same moment would
    /// not learn of its end. `Fenced` if a living node owns it: then that node has to end it.
    async fn claim_to_end(
        self: &Arc<Self>,
        key: SessionKey,
        hold: DormantHold,
    ) -> Result<ClaimGuard, StoreError> {
        let mut tries = 0;
        loop {
            match self.claim(key).await {
                Ok(claimed) => return Ok(ClaimGuard::held(self, claimed.epoch, key, hold)),
                Err(NotClaimed::Elsewhere) => return Err(StoreError::Fenced),
                Err(NotClaimed::Again(error)) => {
                    tries += 1;
                    if tries >= TRIES {
                        tracing::debug!(session = %key.label(), %error, "could not claim a session that is to be ended");
                        return Err(StoreError::Busy);
                    }
                }
                Err(NotClaimed::Failed(error)) => return Err(StoreError::Unavailable(error.to_string())),
            }
        }
    }

    async fn write_dormant_end(
        self: &Arc<Self>,
        key: SessionKey,
        version: Version,
        owner: Principal,
        end: EndCause,
    ) -> Result<bool, StoreError> {
        let claim = match self.roster {
            None => None,
            Some(_) => {
                let Some(hold) = self.try_hold(key) else {
                    // The record was read before that wake, perhaps of another node, wrote it: begin anew. A session
                    // that is being woken has not expired.
                    if end != EndCause::Expired {
                        self.no_flight(&key).await;
                    }
                    return Ok(false);
                };
                match self.claim_to_end(key, hold).await {
                    // Its owner knows of uses that are not in the record yet.
                    Err(StoreError::Fenced) if end == EndCause::Expired => return Ok(false),
                    claim => Some(claim?),
                }
            }
        };
        let now = self.clock.now();
        let until = now.after(self.limits.tombstone_ttl);
        let tombstone = Tombstone::new(&owner, end, now);
        let whose = owner.clone();
        let leaving = self.counts.leaving(key, owner);
        if !operator::put_tombstone(self.store.as_ref(), key, version, &tombstone, until).await? {
            return Ok(false);
        }
        let _hold = claim.and_then(ClaimGuard::keep);
        if self.tombstone_written(&key, end) {
            // It was woken just before; ending it in memory does the rest.
            return Ok(true);
        }
        leaving.left();
        tracing::debug!(session = ?key, how = ?end, "dormant session ended");
        // The record of a dormant session is not read again for the name of its endpoint.
        if self.hub.observer.is_set() {
            let (lived, client, how) = (None, None, end.word());
            let what = Happened::Ended { how, lived, client, requests: 0, errors: 0 };
            self.hub.observer.tell_of((&key.label(), &key), &whose, None, what);
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.remember_end(key, until).await;
        self.drop_log(key).await;
        Ok(true)
    }
}

impl Session {
    /// Answers all open requests with an error and completes their streams. The caller flushes.
    pub(super) fn settle(&self, state: &mut SessionState, error: &RpcError) {
        let calls = state.calls.values().map(|call| call.number).collect();
        state.settled = Some(Settled { error: error.clone(), calls });
        state.asks.clear();
        state.outbox.make_room();
        for (id, call) in std::mem::take(&mut state.calls) {
            if let Some(cancel) = call.cancel {
                cancel.cancel();
            }
            // Through the outbox, so that the error comes after the events that are already queued.
            if let Some(stream) = call.stream {
                self.answer_on(state, stream, &id, message::write_error(Some(&id), error));
            }
            if let Some(waiter) = call.waiter {
                waiter.wake();
            }
        }
        let over = state.end.is_some();
        for (id, stream) in &mut state.streams {
            // The standalone stream ends only with the session. A request stream with queued events is completed by the
            // last of them.
            let goes_on = if *id == StreamId::STANDALONE { !over } else { stream.queued > 0 };
            if goes_on {
                continue;
            }
            stream.ended = true;
            if let Some(waker) = stream.reader.as_mut().and_then(|attached| attached.waker.take()) {
                waker.wake();
            }
        }
    }
}
