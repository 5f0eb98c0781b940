//! The nodes of the cluster, as operators see them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_session::cluster::{NodeInfo, SeenNode};
use tenure_session::port::members::Member;
use tokio::time::Instant;

use super::others::{NotDone, PATIENCE};
use super::question::{NodeNow, Question};
use crate::failure::Failure;
use crate::operator::commands::{Operator, cannot_read, now};

/// A node that runs renews its record within this time.
const RENEWED_IN: Duration = Duration::from_millis(2500);

/// How a node is.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeState {
    /// It serves.
    Serving,
    /// It stops soon, and takes no new sessions.
    Draining,
    /// It does not act; `why` says why.
    NotReady,
    /// It did not answer; `why` says why.
    Silent,
    /// It has a record, and was not asked: no server answers here.
    Recorded,
}

/// A node in a list.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeRow {
    /// All digits of its name.
    pub(crate) node: String,
    /// Its name in logs.
    pub(crate) label: String,
    /// Where other nodes reach it.
    pub(crate) address: String,
    pub(crate) version: String,
    pub(crate) state: NodeState,
    /// Why it does not serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// How long ago its last renewal was sent or, if it is not the node that was asked, first seen by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lease_age_ms: Option<u64>,
    /// Sessions in its memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sessions: Option<u64>,
    /// Calls under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<u64>,
    /// How far its clock is ahead of that of the node that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clock_ms: Option<i64>,
    /// Whether it answered.
    pub(crate) answered: bool,
    /// Whether it is the node that was asked.
    #[serde(default)]
    pub(crate) is_this: bool,
}

impl Operator {
    /// All nodes, the one that is asked first; empty without a cluster.
    pub(crate) async fn nodes(&self) -> Result<Vec<NodeRow>, Failure> {
        let Some(others) = self.others() else { return self.recorded_nodes().await };
        let asked = others.roster().all().into_iter().enumerate().map(|(index, seen)| async move {
            if index == 0 {
                return row(&seen, Ok(self.node_now()), Some(0), true);
            }
            let (began, began_ms) = (Instant::now(), now().0);
            // Also one that was silent just now: this is how people look whether it is back.
            let answer = others.ask::<NodeNow>(seen.node, &Question::Node {}).await;
            let answer = answer.map_err(|not_done| match not_done {
                NotDone::Unanswered(why) => why.to_string(),
                NotDone::Failed(failure) => failure.what().to_owned(),
            });
            // The way there and the way back take equally long, as far as anybody knows.
            let half = u64::try_from(began.elapsed().min(PATIENCE).as_millis() / 2).unwrap_or_default();
            let clock = answer.as_ref().ok().map(|answer| {
                let here = i64::try_from(began_ms + half).unwrap_or(i64::MAX);
                i64::try_from(answer.wall_ms).unwrap_or(i64::MAX).saturating_sub(here)
            });
            row(&seen, answer, clock, false)
        });
        Ok(futures_util::future::join_all(asked).await)
    }

    /// Refuses a change of a shared store that no node of this machine has open, while nodes elsewhere do: they would not learn
    /// of it, or undo it.
    pub(in crate::operator) async fn check_alone(&self) -> Result<(), Failure> {
        if self.is_online() {
            return Ok(());
        }
        let first = self.member_records().await.map_err(cannot_read)?;
        if first.is_empty() {
            return Ok(());
        }
        // A record may be all that is left of a node.
        tokio::time::sleep(RENEWED_IN).await;
        let second = self.member_records().await.map_err(cannot_read)?;
        let renewed =
            |now: &Member| first.iter().any(|then| then.node == now.node && then.renewal < now.renewal);
        match second.iter().find(|now| renewed(now)) {
            None => Ok(()),
            Some(node) => Err(Failure::new(format!(
                "the node {:?} has this store open, and no server on this machine does",
                node.node
            ))
            .hint("run the command where a node of the cluster runs, as the user that runs it: `tenure nodes` shows them")),
        }
    }

    /// The records of nodes in a store that this process has opened beside them.
    async fn recorded_nodes(&self) -> Result<Vec<NodeRow>, Failure> {
        let records = self.member_records().await.map_err(cannot_read)?;
        let seen = records.into_iter().filter_map(|record| {
            let info = NodeInfo::decode(&record.info)?;
            Some(SeenNode { node: record.node, info, renewed: None })
        });
        let recorded = |seen: SeenNode| NodeRow {
            state: NodeState::Recorded,
            why: seen.info.unfit.clone(),
            answered: false,
            ..row(&seen, Err(String::new()), None, false)
        };
        Ok(seen.map(recorded).collect())
    }
}

fn row(seen: &SeenNode, answer: Result<NodeNow, String>, clock_ms: Option<i64>, is_this: bool) -> NodeRow {
    let SeenNode { node, info, renewed } = seen;
    let (state, why) = match (&answer, &info.unfit) {
        (Err(why), _) => (NodeState::Silent, Some(why.clone())),
        (Ok(_), Some(unfit)) => (NodeState::NotReady, Some(unfit.clone())),
        (Ok(now), None) if !now.is_confirmed => {
            (NodeState::NotReady, Some("it has no contact with the store".to_owned()))
        }
        (Ok(_), None) if info.is_draining => (NodeState::Draining, None),
        (Ok(_), None) => (NodeState::Serving, None),
    };
    let answer = answer.ok();
    NodeRow {
        node: node.hex(),
        label: format!("{node:?}"),
        address: info.peer_address.clone(),
        version: info.version.clone(),
        state,
        why,
        lease_age_ms: renewed.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        sessions: answer.map(|answer| answer.sessions as u64),
        load: answer.map(|answer| answer.calls as u64),
        clock_ms,
        answered: answer.is_some(),
        is_this,
    }
}
