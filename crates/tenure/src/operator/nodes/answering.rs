//! This node's answers to what other nodes ask for their operators.

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use tenure_session::SessionKey;
use tenure_session::port::BoxFuture;
use tenure_transport::cluster::PeerQuestions;

use super::question::{Answered, NodeNow, Question};
use crate::failure::Failure;
use crate::operator::commands::{Operator, now};
use crate::operator::details;
use crate::operator::key::parse_key;

impl PeerQuestions for Operator {
    fn answer(&self, question: Bytes) -> BoxFuture<Bytes> {
        let operator = self.for_one();
        Box::pin(async move {
            let answered = match serde_json::from_slice(&question) {
                Ok(question) => match operator.answered(question).await {
                    Ok(done) => Answered::Done(done),
                    Err(failure) => Answered::Failed(failure),
                },
                Err(error) => Answered::Failed(
                    Failure::new("the node does not know this question")
                        .caused_by(error)
                        .hint("it is of another version: update all nodes to the same one"),
                ),
            };
            serde_json::to_vec(&answered).expect("an answer has a JSON form").into()
        })
    }
}

impl Operator {
    async fn answered(&self, question: Question) -> Result<Value, Failure> {
        match question {
            Question::Node {} => ok(&self.node_now()),
            Question::Awake { keys } => {
                let keys = keys.iter().filter_map(|key| parse_key(key));
                let rows = keys.filter_map(|key| Some(details::live_row(&self.info(&key)?)));
                ok(&rows.collect::<Vec<_>>())
            }
            Question::Show { key } => ok(&self.show_here(read(&key)?).await?),
            Question::Revoke { key } => ok(&self.revoke_here(read(&key)?).await?),
            Question::Annotate { key, changes } => ok(&self.annotate_here(read(&key)?, &changes).await?),
            Question::Calls {} => ok(&self.calls()),
            Question::Usage {} => ok(&self.usage()),
            Question::EndPrincipal { principal, not_before } => {
                ok(&self.end_principal_here(&principal, not_before).await?)
            }
            Question::Reinstate { principal } => {
                self.reinstate_here(&principal);
                ok(&())
            }
        }
    }

    /// How this node is.
    pub(super) fn node_now(&self) -> NodeNow {
        NodeNow {
            wall_ms: now().0,
            sessions: self.awake_count(),
            calls: self.calls().found,
            is_confirmed: self.others().is_none_or(|others| others.roster().is_confirmed()),
        }
    }
}

fn ok(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(|error| Failure::new("the answer has no form").caused_by(error))
}

fn read(key: &str) -> Result<SessionKey, Failure> {
    parse_key(key).ok_or_else(|| Failure::new("the node was asked for something that is no key"))
}
