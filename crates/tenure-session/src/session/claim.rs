//! Takes a session for this node, and gives it back.
//!
//! In a cluster a session is claimed from no owner, from this node itself, or from a node that is gone, and only while
//! this node is confirmed. Outside of a cluster it is claimed from any owner, because earlier processes are gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_protocol::{Error, Reason};

use crate::cluster::LeaseTerm;
use crate::id::{NodeId, SessionId, SessionKey};
use crate::port::observer::SessionMove;
use crate::port::store::{Epoch, StoreError};
use crate::session::live_session::Session;
use crate::session::sessions::{SessionRuntime, Sessions, store_failed};
use crate::session::wake::DormantHold;

/// How often a step is tried again after another writer has made it fail.
pub(super) const TRIES: usize = 3;

/// The name under which this process claims sessions, and the time for which it has that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claimant {
    pub(super) node: NodeId,
    pub(super) term: LeaseTerm,
}

/// A claim that worked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    pub(super) by: Claimant,
    pub(super) epoch: Epoch,
    /// The previous owner.
    pub(super) from: Option<NodeId>,
}

impl Claimed {
    /// How the session came to this node; `None` if this node had it already.
    pub(super) fn moved(&self) -> Option<SessionMove> {
        match self.from {
            None => Some(SessionMove::GivenBack),
            Some(node) if node != self.by.node => Some(SessionMove::TakenOver),
            Some(_) => None,
        }
    }
}

/// Why a claim did not work.
#[derive(Debug)]
pub(super) enum NotClaimed {
    /// A living node owns the session.
    Elsewhere,
    /// The owner changed meanwhile, or the outcome is unknown: another try may work.
    Again(StoreError),
    /// This node may not act, or the store failed.
    Failed(Error),
}

/// A claim of a session that is not in memory yet. Drop gives the session back, so that any node can wake it.
pub(super) struct ClaimGuard {
    inner: Arc<SessionRuntime>,
    claim: Option<(SessionKey, Epoch)>,
    /// No wake begins before the session is given back.
    hold: Option<DormantHold>,
}

impl ClaimGuard {
    pub(super) fn new(inner: &Arc<SessionRuntime>, key: SessionKey, epoch: Epoch) -> Self {
        Self { inner: Arc::clone(inner), claim: Some((key, epoch)), hold: None }
    }

    /// A claim by a task that holds the session.
    pub(super) fn held(
        inner: &Arc<SessionRuntime>,
        epoch: Epoch,
        key: SessionKey,
        hold: DormantHold,
    ) -> Self {
        let mut guard = Self::new(inner, key, epoch);
        guard.hold = Some(hold);
        guard
    }

    /// Keeps the claim, because the session is in memory or has ended. Returns the hold of the task, if it has one.
    pub(super) fn keep(mut self) -> Option<DormantHold> {
        self.claim = None;
        self.hold.take()
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let Some((key, epoch)) = self.claim.take().filter(|_| self.inner.roster.is_some()) else { return };
        let (inner, hold) = (Arc::clone(&self.inner), self.hold.take());
        self.inner.tasks.spawn(async move {
            inner.release(key, epoch).await;
            drop(hold);
        });
    }
}

impl Sessions {
    /// Gives a session back, so that another node can take it: a quiet one is saved and released. Returns false if it
    /// is in use here.
    ///
    /// # Errors
    /// When the store fails; the session then stays here.
    ///
    /// # Cancel safety
    /// It may stay here, or be released.
    pub async fn give_back(&self, key: &SessionKey) -> Result<bool, Error> {
        if let Some(session) = self.0.awake_by_key(key) {
            return session.sleep().await.map_err(store_failed);
        }
        self.0.give_back_dormant(key).await.map_err(store_failed)
    }
}

impl SessionRuntime {
    pub(super) fn claimant(&self) -> Claimant {
        match &self.roster {
            None => Claimant { node: self.node, term: LeaseTerm::default() },
            Some(roster) => {
                let (node, term) = roster.name();
                Claimant { node, term }
            }
        }
    }

    /// A session in memory that this node owns. If this node has lost the name of its claim, another node may have the
    /// session: then it is given up here at once, without waiting for the loop that does so.
    pub(super) fn awake(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.live.get(id).filter(Session::check_term)
    }

    /// The same by the hashed id.
    pub(super) fn awake_by_key(&self, key: &SessionKey) -> Option<Arc<Session>> {
        self.live.by_key(key).filter(Session::check_term)
    }

    /// Waits until this node may act; outside of a cluster it always may.
    pub(super) async fn confirmed(&self) -> Result<(), Error> {
        match &self.roster {
            None => Ok(()),
            Some(roster) => roster.confirmed().await,
        }
    }

    /// Gives back a session that is not in memory. Returns false if another task has it. No wake begins meanwhile, so
    /// this cannot take the session from one.
    pub(super) async fn give_back_dormant(self: &Arc<Self>, key: &SessionKey) -> Result<bool, StoreError> {
        let Some(_hold) = self.try_hold(*key) else { return Ok(false) };
        match self.store.owner(*key).await? {
            Some((node, epoch)) if node == self.node() => match self.store.release(*key, epoch).await {
                Ok(()) | Err(StoreError::Fenced) => Ok(true),
                Err(error) => {
                    self.unreleased.add(*key);
                    Err(error)
                }
            },
            _ => Ok(true),
        }
    }

    /// Claims a dormant session.
    pub(super) async fn claim(&self, key: SessionKey) -> Result<Claimed, NotClaimed> {
        self.confirmed().await.map_err(NotClaimed::Failed)?;
        let by = self.claimant();
        let failed = |error| NotClaimed::Failed(store_failed(error));
        let owned = self.store.owner(key).await.map_err(failed)?;
        if let (Some((node, _)), Some(roster)) = (owned, &self.roster)
            && node != by.node
            && !roster.find_gone(node).await.map_err(failed)?
        {
            return Err(NotClaimed::Elsewhere);
        }
        let (from, last) = owned.unzip();
        match self.store.claim(key, by.node, last).await {
            Ok(epoch) => Ok(Claimed { by, epoch, from }),
            Err(error @ (StoreError::Fenced | StoreError::Unknown)) => {
                if error == StoreError::Unknown {
                    // The claim may still happen, and then this node would own a session that it does not have.
                    self.give_back_later(key);
                }
                Err(NotClaimed::Again(error))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// In a cluster: gives back later what this node may own without having it.
    pub(super) fn give_back_later(&self, key: SessionKey) {
        if self.roster.is_some() {
            self.unreleased.add(key);
        }
    }

    /// Gives back a session that is not in memory; later, if that fails.
    pub(super) async fn release(self: &Arc<Self>, key: SessionKey, epoch: Epoch) {
        if self.roster.is_none() {
            return;
        }
        match self.store.release(key, epoch).await {
            // It was claimed again meanwhile, or has ended.
            Ok(()) | Err(StoreError::Fenced) => {}
            Err(error) => {
                tracing::info!(session = %key.label(), %error, "could not release a session; will try again");
                self.unreleased.add(key);
            }
        }
    }
}

impl Session {
    /// The epoch that its writes carry.
    pub(super) fn fence(&self) -> Epoch {
        Epoch(self.fence.load(Ordering::Acquire))
    }

    /// Whether this node may act for the session now: send its calls to a server, and its answers to clients. Outside
    /// of a cluster it always may.
    pub(super) fn may_act(&self) -> bool {
        match &self.inner.roster {
            None => true,
            Some(roster) => roster.is_confirmed_in(self.by.term),
        }
    }

    /// Gives the session back, which is no longer in memory here.
    pub(super) async fn release(&self) {
        if self.claim_in_doubt.load(Ordering::Acquire) {
            // It may have a later epoch than the one that is known.
            self.inner.give_back_later(self.key);
        } else {
            self.inner.release(self.key, self.fence()).await;
        }
    }

    /// Claims the session again, so that no earlier write to its log can still happen.
    pub(super) async fn claim_again(self: &Arc<Self>) -> Result<(), StoreError> {
        let (store, fence) = (&self.inner.store, self.fence());
        let epoch = match store.claim(self.key, self.by.node, Some(fence)).await {
            Ok(epoch) => epoch,
            Err(StoreError::Fenced) if self.claim_in_doubt.load(Ordering::Acquire) => {
                match store.owner(self.key).await? {
                    // An own claim, whose answer was lost.
                    Some((node, epoch)) if node == self.by.node && epoch > fence => epoch,
                    _ => return Err(StoreError::Fenced),
                }
            }
            Err(error) => {
                if error == StoreError::Unknown {
                    self.claim_in_doubt.store(true, Ordering::Release);
                }
                return Err(error);
            }
        };
        self.claim_in_doubt.store(false, Ordering::Release);
        self.fence.store(epoch.0, Ordering::Release);
        Ok(())
    }
}

/// The error for a session that another node serves.
pub(super) fn elsewhere() -> Error {
    Error::new(Reason::StoreUnavailable, "The session is at another node; try again")
}
