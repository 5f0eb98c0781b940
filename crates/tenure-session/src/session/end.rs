//! The end of a session: everything that waits is answered, a tombstone follows the record, the events go.
//!
//! A tombstone is a record with a deadline; the sweep removes it when its time has come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::{Error, Kind, RpcError, message};
use tokio::task::JoinHandle;

use crate::finish::finish;
use crate::id::{Principal, SessionId, SessionKey, StreamId};
use crate::port::clock::Time;
use crate::port::store::{Expected, RecordKey, StoreError, Version};
use crate::record::{End, Kept, Tombstone};
use crate::session::deadline::Due;
use crate::session::operator;
use crate::session::phase::Step;
use crate::session::session::{Session, State, ended_error};
use crate::session::sessions::{Inner, Sessions, store_failed};
use crate::session::wake::{self, Dormant};

/// How long to wait before an end that could not be written is written again, at first, and at last: a store that
/// takes nothing until it is restarted is not asked all the time.
const BURY_FIRST: Duration = Duration::from_secs(1);
const BURY_LAST: Duration = Duration::from_secs(30);

type Burial = JoinHandle<Result<(), StoreError>>;

impl Sessions {
    /// Ends a session.
    ///
    /// # Cancel safety
    /// The session is over when the first poll returns; only the wait for the store can be dropped.
    ///
    /// # Errors
    /// When it has ended before, or its end could not be written down yet.
    pub async fn end(&self, session: &Arc<Session>, end: End) -> Result<(), Error> {
        let Some(burial) = self.0.end(session, end) else {
            let earlier = session.state.lock().end.unwrap_or(end);
            return Err(ended_error(earlier));
        };
        match burial.await {
            Ok(written) => written.map_err(store_failed),
            // Only an aborted runtime makes this fail, and then nobody is left to be told.
            Err(_) => Ok(()),
        }
    }

    /// Ends a session of the caller's by its id. One that is dormant is not woken for it.
    ///
    /// # Errors
    /// As for [`Sessions::find`], or when the store fails; the session then goes on.
    ///
    /// # Cancel safety
    /// An end that was begun is finished.
    pub async fn delete(&self, id: &SessionId, principal: &Principal) -> Result<(), Error> {
        loop {
            if let Some(session) = self.0.live.get(id) {
                if !session.is_of(principal, &self.1) {
                    return Err(crate::session::session::unknown_error());
                }
                return self.end(&session, End::Deleted).await;
            }
            let dormant = wake::dormant(&self.0, id.key(), principal, &self.1).await?;
            if self.0.end_dormant(&dormant, End::Deleted).await.map_err(store_failed)? {
                return Ok(());
            }
            // It was woken or ended meanwhile: look again.
        }
    }

    /// Ends any session by its hashed id, for operators. Returns whether there was one.
    ///
    /// # Errors
    /// When the store fails; the session then goes on.
    ///
    /// # Cancel safety
    /// An end that was begun is finished.
    pub async fn revoke(&self, key: &SessionKey) -> Result<bool, Error> {
        loop {
            if let Some(session) = self.0.live.by_key(key) {
                return match self.end(&session, End::Revoked).await {
                    Ok(()) => Ok(true),
                    Err(error) if error.kind() == Kind::Gone => Ok(false),
                    Err(error) => Err(error),
                };
            }
            let Some(dormant) = wake::any_dormant(&self.0, *key).await? else { return Ok(false) };
            if self.0.end_dormant(&dormant, End::Revoked).await.map_err(store_failed)? {
                return Ok(true);
            }
        }
    }
}

impl Inner {
    /// Ends a session now; its tombstone follows in a tracked task. Until that is written the dead session
    /// stays in memory, so that nobody wakes it from its record.
    pub(super) fn end(self: &Arc<Self>, session: &Arc<Session>, end: End) -> Option<Burial> {
        let (link, version) = {
            let mut state = session.state.lock();
            if state.end.is_some() {
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
            state.seat = None;
            (state.link.take(), state.version)
        };
        session.flush();
        self.ended.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(session = %session.label, how = ?end, "session ended");
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        let burial = self.tasks.spawn(async move { inner.bury(session, end, version).await });
        // Apart from the burial: a server that is slow to leave holds up neither DELETE nor the store.
        if let Some(link) = link {
            self.closing.spawn(async move { link.close().await });
        }
        Some(burial)
    }

    /// Leaves a tombstone where the record was, and forgets the events. If the store fails, it is tried again
    /// in the background until it works.
    async fn bury(
        self: Arc<Self>,
        session: Arc<Session>,
        end: End,
        version: Version,
    ) -> Result<(), StoreError> {
        let until = self.clock.now().after(self.limits.tombstone_ttl);
        let mut version = version;
        match self.write_end(&session, end, until, &mut version).await {
            Ok(()) => {
                self.buried(&session, until).await;
                Ok(())
            }
            Err(error) => {
                tracing::error!(session = %session.label, %error, "could not record the end of a session; trying on");
                let inner = Arc::clone(&self);
                self.tasks.spawn(async move {
                    let trying = async {
                        let mut again = BURY_FIRST;
                        loop {
                            tokio::time::sleep(again).await;
                            again = (again * 2).min(BURY_LAST);
                            if inner.write_end(&session, end, until, &mut version).await.is_ok() {
                                break inner.buried(&session, until).await;
                            }
                        }
                    };
                    tokio::select! {
                        () = trying => {}
                        () = inner.stop.cancelled() => {}
                    }
                });
                Err(error)
            }
        }
    }

    async fn write_end(
        &self,
        session: &Session,
        end: End,
        until: Time,
        version: &mut Version,
    ) -> Result<(), StoreError> {
        let key = RecordKey::session(session.key);
        let value = Tombstone::new(session.owner.name(), end, self.clock.now()).encode();
        loop {
            match self.store.put(key, value.clone(), Expected::Version(*version), Some(until)).await {
                Ok(_) => return Ok(()),
                // The session was saved meanwhile; its end comes after whatever that was.
                Err(StoreError::Conflict { current: Some(current) }) => *version = current,
                Err(StoreError::Conflict { current: None }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    async fn buried(&self, session: &Session, until: Time) {
        self.live.remove(&session.id);
        self.remember_end(session.key, until).await;
        if let Err(error) = self.store.drop_session(session.key).await {
            tracing::warn!(session = %session.label, %error, "could not drop the events of an ended session");
        }
    }

    /// Keeps a tombstone until its time, or until there are too many: then the oldest is forgotten. Its id
    /// stays dead all the same, it is only no longer known why.
    async fn remember_end(&self, key: SessionKey, until: Time) {
        let forgotten = {
            let mut tombstones = self.tombstones.lock();
            let now = self.clock.now();
            // Those whose time has come are removed by the sweep.
            while tombstones.front().is_some_and(|(until, _)| *until <= now) {
                tombstones.pop_front();
            }
            tombstones.push_back((until, key));
            if tombstones.len() > self.limits.max_tombstones { tombstones.pop_front() } else { None }
        };
        if let Some((_, key)) = forgotten {
            let key = RecordKey::session(key);
            // An operator may have put a session back under that name.
            if let Ok(Some(record)) = self.store.get(key).await
                && matches!(Kept::decode(&record.value), Ok(Kept::Tombstone(_)))
            {
                drop(self.store.delete(key, record.version).await);
            }
        }
    }

    /// Ends a session that is not in memory. Returns false if it was changed meanwhile. Goes on if its caller leaves.
    pub(super) async fn end_dormant(
        self: &Arc<Self>,
        dormant: &Dormant,
        end: End,
    ) -> Result<bool, StoreError> {
        let (inner, key, version) = (Arc::clone(self), dormant.key, dormant.version);
        let owner = dormant.owner();
        finish(&self.tasks, async move { inner.bury_dormant(key, version, owner, end).await }).await
    }

    async fn bury_dormant(
        self: &Arc<Self>,
        key: SessionKey,
        version: Version,
        owner: Principal,
        end: End,
    ) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let until = now.after(self.limits.tombstone_ttl);
        let tombstone = Tombstone::new(owner.name(), end, now);
        let leaving = self.census.leaving(key, owner);
        if !operator::entomb(self.store.as_ref(), key, version, &tombstone, until).await? {
            return Ok(false);
        }
        if self.entombed(&key, end) {
            // It rose just before; its end in memory does the rest.
            return Ok(true);
        }
        leaving.left();
        tracing::debug!(session = ?key, how = ?end, "dormant session ended");
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.remember_end(key, until).await;
        if let Err(error) = self.store.drop_session(key).await {
            tracing::warn!(session = ?key, %error, "could not drop the events of an ended session");
        }
        Ok(true)
    }
}

impl Session {
    /// Answers everything that waits with an error and completes all streams. The caller flushes.
    pub(super) fn settle(&self, state: &mut State, error: &RpcError) {
        state.settled = Some(error.clone());
        state.asks.clear();
        state.outbox.make_room();
        for (id, call) in std::mem::take(&mut state.calls) {
            if let Some(cancel) = call.cancel {
                cancel.cancel();
            }
            // Through the outbox like everything else, so that it comes after what is already on its way.
            if let Some(stream) = call.stream {
                self.answer_on(state, stream, &id, message::write_error(Some(&id), error));
            }
            if let Some(waiter) = call.waiter {
                waiter.wake();
            }
        }
        let over = state.end.is_some();
        for (id, stream) in &mut state.streams {
            // The standalone stream ends with the session and not before; what is still on its way comes first.
            // On the others that completes the stream itself.
            let goes_on = if *id == StreamId::STANDALONE { !over } else { stream.queued > 0 };
            if goes_on {
                continue;
            }
            stream.ended = true;
            if let Some(waker) = stream.reader.as_mut().and_then(|slot| slot.waker.take()) {
                waker.wake();
            }
        }
    }
}
