//! Principals that are revoked at one node are refused at all: what a node was not told of, it reads in the store.
//!
//! The node at which a principal is revoked tells the others. A node that could not be reached learns from the records of
//! nodes that something has changed, within about a second; what was written without any node is read in [`EVERY`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_auth::UnixSeconds;
use tenure_session::Principal;
use tenure_session::port::store::StoreError;
use tenure_session::revocation::{self, Revocation};
use tenure_session::supervise::Loops;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::question::{EndedHere, Question};
use crate::failure::Failure;
use crate::operator::commands::{Operator, Revoked, now};

/// How often the records of nodes are looked at, and how often the store is read anyway.
const LOOK: Duration = Duration::from_millis(250);
const EVERY: Duration = Duration::from_secs(10);

/// The principals that are known to be revoked, and until when what was issued to them is refused.
#[derive(Clone, Default, Debug)]
pub(in crate::operator) struct Known(Arc<Mutex<HashMap<String, u64>>>);

impl Known {
    /// Remembers a revocation. False if it was known.
    fn learn(&self, principal: &str, not_before: u64) -> bool {
        let mut known = self.0.lock();
        match known.get(principal) {
            Some(before) if *before >= not_before => false,
            _ => {
                known.insert(principal.to_owned(), not_before);
                true
            }
        }
    }

    fn forget(&self, principal: &str) {
        self.0.lock().remove(principal);
    }

    /// Those that are known and not among these.
    fn others_than(&self, revoked: &[Revocation]) -> Vec<String> {
        let known = self.0.lock();
        let is_there = |name: &&String| revoked.iter().any(|revoked| revoked.principal == **name);
        known.keys().filter(|name| !is_there(name)).cloned().collect()
    }
}

impl Operator {
    /// Refuses what was issued to a principal up to this moment, and ends what it has in the memory of this node. What was
    /// known already is not done again: the principal may have new credentials since.
    pub(super) async fn end_principal_here(&self, name: &str, not_before: u64) -> Result<EndedHere, Failure> {
        let mut ended = EndedHere::default();
        if !self.known().learn(name, not_before) {
            return Ok(ended);
        }
        self.refuse(name, not_before);
        let owner = Principal::named(name);
        for key in self.awake_sessions_of(&owner) {
            let revoked = self.revoke_here(key).await.inspect_err(|_| self.known().forget(name))?;
            ended.sessions += usize::from(revoked == Revoked::Now);
        }
        ended.calls = self.end_calls_of(&owner);
        Ok(ended)
    }

    /// Ends what a principal has in the memory of any node. Returns how many sessions and calls there were.
    pub(in crate::operator) async fn end_principal_everywhere(
        &self,
        name: &str,
        not_before: u64,
    ) -> Result<(usize, usize), Failure> {
        let question = Question::EndPrincipal { principal: name.to_owned(), not_before };
        let elsewhere = async {
            let Some(others) = self.others() else { return Vec::new() };
            others.roster().set_revocations(not_before.max(now().0));
            others.order_all::<EndedHere>(&question).await
        };
        // What was begun by an earlier order, and not finished, is finished now.
        self.known().forget(name);
        let (here, elsewhere) = tokio::join!(self.end_principal_here(name, not_before), elsewhere);
        let here = here?;
        let all = || elsewhere.iter().map(|(_, ended)| ended).chain(std::iter::once(&here));
        Ok((all().map(|ended| ended.sessions).sum(), all().map(|ended| ended.calls).sum()))
    }

    /// Lets a principal in again at every node.
    pub(in crate::operator) async fn reinstate_everywhere(&self, name: &str) {
        self.reinstate_here(name);
        if let Some(others) = self.others() {
            others.roster().set_revocations(now().0);
            others.order_all::<()>(&Question::Reinstate { principal: name.to_owned() }).await;
        }
    }

    pub(super) fn reinstate_here(&self, name: &str) {
        self.known().forget(name);
        for authenticator in self.authenticators() {
            authenticator.reinstate(name);
        }
    }

    fn refuse(&self, name: &str, not_before: u64) {
        for authenticator in self.authenticators() {
            // Streams, sockets and listens of the principal hear of it, and end.
            authenticator.revoke(name, UnixSeconds(not_before / 1000));
        }
    }

    /// Follows revocations of other nodes until it is stopped; `None` without a cluster.
    pub(crate) fn follow_revocations(
        &self,
        loops: &Loops,
        stop: CancellationToken,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        self.others()?;
        let (operator, stopped) = (self.clone(), stop.clone());
        Some(loops.keep("revocations of other nodes", stop, move || {
            let (operator, stop) = (operator.clone(), stopped.clone());
            async move {
                let following = operator.follow();
                stop.run_until_cancelled(following).await;
            }
        }))
    }

    async fn follow(&self) {
        let Some(others) = self.others() else { return };
        let (mut seen, mut due, mut is_first) = (0, Instant::now(), true);
        loop {
            let marked = others.roster().revocations();
            if marked > seen || Instant::now() >= due {
                match self.read_revocations(is_first).await {
                    Ok(()) => {
                        (seen, is_first) = (marked, false);
                        // A node that starts later has to learn of it too.
                        others.roster().set_revocations(marked);
                        due = Instant::now() + EVERY;
                    }
                    Err(error) => tracing::debug!(%error, "could not read who is revoked; will try again"),
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn read_revocations(&self, is_first: bool) -> Result<(), StoreError> {
        let (revoked, _) = revocation::all(self.store()).await?;
        for name in self.known().others_than(&revoked) {
            self.reinstate_here(&name);
        }
        for Revocation { principal, not_before } in &revoked {
            if is_first {
                // From before this process began: nothing of it is in memory.
                if self.known().learn(principal, *not_before) {
                    self.refuse(principal, *not_before);
                }
                continue;
            }
            match self.end_principal_here(principal, *not_before).await {
                Ok(EndedHere { sessions: 0, calls: 0 }) => {}
                Ok(ended) => tracing::info!(
                    principal,
                    sessions = ended.sessions,
                    calls = ended.calls,
                    "a principal was revoked at another node; what it had here has ended"
                ),
                Err(failure) => {
                    let error = failure.what();
                    tracing::warn!(
                        principal,
                        error,
                        "could not end what a revoked principal has; will try again"
                    );
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revocation_counts_once_and_again_only_if_it_moves_on() {
        let known = Known::default();
        assert!(known.learn("corp:ann", 5));
        assert!(!known.learn("corp:ann", 5) && !known.learn("corp:ann", 4));
        assert!(known.learn("corp:ann", 6) && known.learn("corp:bob", 1));
        let left = [Revocation { principal: "corp:bob".to_owned(), not_before: 1 }];
        assert_eq!(known.others_than(&left), ["corp:ann"]);
        known.forget("corp:ann");
        assert!(known.learn("corp:ann", 6), "it was reinstated meanwhile");
    }
}
