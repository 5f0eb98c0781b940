//! Asks the other nodes, and remembers which of them did not answer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_session::cluster::Roster;
use tenure_session::id::NodeId;
use tenure_transport::cluster::{Relay, Unanswered};
use tokio::time::Instant;

use super::question::{Answered, Question};
use crate::failure::Failure;

/// How long a node may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How long a node that did not answer is not asked again for what is only looked at: a list asks for many things.
const SILENCE: Duration = Duration::from_secs(5);

/// Most nodes whose silence is remembered.
const MOST_SILENT: usize = 1024;

/// A node that did not answer.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct MissingNode {
    /// Its name.
    pub(crate) node: String,
    /// Where it should be reached.
    pub(crate) address: String,
    /// Why it is missing, as a fragment.
    pub(crate) why: String,
}

/// The other nodes of the cluster, for one operation of an operator. A clone is for the same operation.
#[derive(Clone)]
pub(crate) struct Others {
    roster: Roster,
    relay: Relay,
    /// When nodes did not answer last, and why.
    silent: Arc<Mutex<HashMap<NodeId, (Instant, Unanswered)>>>,
    /// Those that did not answer in this operation.
    missing: Arc<Mutex<BTreeMap<NodeId, MissingNode>>>,
}

/// Why a node has not done what it was asked for.
#[derive(Debug)]
pub(super) enum NotDone {
    /// There is no answer. It may have done it.
    Unanswered(Unanswered),
    /// It could not.
    Failed(Failure),
}

impl Others {
    pub(crate) fn new(roster: Roster, relay: Relay) -> Self {
        Self { roster, relay, silent: Arc::default(), missing: Arc::default() }
    }

    /// The same nodes for another operation.
    pub(crate) fn for_one(&self) -> Self {
        Self { missing: Arc::default(), ..self.clone() }
    }

    /// The nodes that did not answer in this operation, by name.
    pub(crate) fn missing(&self) -> Vec<MissingNode> {
        self.missing.lock().values().cloned().collect()
    }

    pub(in crate::operator) fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Asks one node.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        node: NodeId,
        question: &Question,
    ) -> Result<T, NotDone> {
        let asked = serde_json::to_vec(question).expect("a question has a JSON form");
        let answer = self.relay.ask(node, asked.into(), PATIENCE).await;
        match answer.and_then(|answer| read(&answer)) {
            Ok(Answered::Done(done)) => {
                self.silent.lock().remove(&node);
                self.missing.lock().remove(&node);
                Ok(done)
            }
            Ok(Answered::Failed(failure)) => Err(NotDone::Failed(failure)),
            Err(why) => {
                self.note(node, why);
                Err(NotDone::Unanswered(why))
            }
        }
    }

    /// Asks one node for something to look at. A node that was silent just now is not asked again.
    pub(super) async fn look<T: DeserializeOwned>(
        &self,
        node: NodeId,
        question: &Question,
    ) -> Result<T, NotDone> {
        let silent = self.silent.lock().get(&node).copied();
        match silent {
            Some((when, why)) if when.elapsed() < SILENCE => {
                self.note_missing(node, why);
                Err(NotDone::Unanswered(why))
            }
            _ => self.ask(node, question).await,
        }
    }

    /// Asks all other nodes for something to look at. Those that do not answer are noted.
    pub(super) async fn look_at_all<T: DeserializeOwned>(&self, question: &Question) -> Vec<(NodeId, T)> {
        let all = self.roster.peers().into_iter().map(|(node, _)| async move {
            match self.look(node, question).await {
                Ok(answer) => Some((node, answer)),
                Err(NotDone::Unanswered(_)) => None,
                Err(NotDone::Failed(failure)) => {
                    self.note_failed(node, &failure);
                    None
                }
            }
        });
        futures_util::future::join_all(all).await.into_iter().flatten().collect()
    }

    /// Asks all other nodes to do something. Returns what they did, and those that did not.
    pub(super) async fn order_all<T: DeserializeOwned>(&self, question: &Question) -> Vec<(NodeId, T)> {
        let all = self.roster.peers().into_iter().map(|(node, _)| async move {
            match self.ask(node, question).await {
                Ok(answer) => Some((node, answer)),
                Err(NotDone::Unanswered(_)) => None,
                Err(NotDone::Failed(failure)) => {
                    self.note_failed(node, &failure);
                    None
                }
            }
        });
        futures_util::future::join_all(all).await.into_iter().flatten().collect()
    }

    fn note(&self, node: NodeId, why: Unanswered) {
        {
            let mut silent = self.silent.lock();
            silent.retain(|_, (when, _)| when.elapsed() < SILENCE);
            if silent.len() < MOST_SILENT {
                silent.insert(node, (Instant::now(), why));
            }
        }
        self.note_missing(node, why);
    }

    fn note_missing(&self, node: NodeId, why: Unanswered) {
        self.note_why(node, why.to_string());
    }

    fn note_failed(&self, node: NodeId, failure: &Failure) {
        self.note_why(node, failure.what().to_owned());
    }

    fn note_why(&self, node: NodeId, why: String) {
        // A node that is gone by now owns nothing, and nothing of it is missing.
        let Some(info) = self.roster.peer(node) else { return };
        let missing = MissingNode { node: format!("{node:?}"), address: info.peer_address, why };
        self.missing.lock().insert(node, missing);
    }
}

fn read<T: DeserializeOwned>(answer: &Bytes) -> Result<Answered<T>, Unanswered> {
    serde_json::from_slice(answer).map_err(|error| {
        tracing::debug!(%error, "the answer of a node cannot be read");
        Unanswered::NotUnderstood
    })
}

impl std::fmt::Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others").field("missing", &self.missing()).finish_non_exhaustive()
    }
}
