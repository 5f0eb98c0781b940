//! What nodes ask each other for operators, and the form of the answers: JSON, read by nodes of other versions too.

use serde::{Deserialize, Serialize};
use tenure_session::session::Changes;

use crate::failure::Failure;

/// A question to one node. It answers for itself, and asks no other node.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// How it is: [`NodeNow`].
    Node {},
    /// Those of these sessions that it has in memory, as rows.
    Awake { keys: Vec<String> },
    /// Everything about a session that it has.
    Show { key: String },
    /// Ends a session that it has.
    Revoke { key: String },
    /// Changes the settings of a session that it has.
    Annotate { key: String, changes: Changes },
    /// Its running calls.
    Calls {},
    /// What clients make it hold.
    Usage {},
    /// Ends what a principal has in its memory, and refuses what was issued to it up to this moment.
    EndPrincipal { principal: String, not_before: u64 },
    /// Lets a principal in again.
    Reinstate { principal: String },
}

/// An answer.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answered<T> {
    Done(T),
    Failed(Failure),
}

/// How a node is.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct NodeNow {
    /// Its wall clock, ms since 1970.
    pub(super) wall_ms: u64,
    /// Sessions in its memory.
    pub(super) sessions: usize,
    /// Calls under way.
    pub(super) calls: usize,
    /// Whether its lease allows it to act.
    pub(super) is_confirmed: bool,
}

/// What ended at a node with what a principal may do.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EndedHere {
    pub(super) sessions: usize,
    pub(super) calls: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_look_the_same_in_every_version() {
        let text = |question: &Question| serde_json::to_string(question).unwrap();
        let key = || "4f3a".to_owned();
        let all = [
            Question::Node {},
            Question::Awake { keys: vec![key()] },
            Question::Show { key: key() },
            Question::Revoke { key: key() },
            Question::Annotate { key: key(), changes: Changes::default() },
            Question::Calls {},
            Question::Usage {},
            Question::EndPrincipal { principal: "corp:ann".to_owned(), not_before: 5 },
            Question::Reinstate { principal: "corp:ann".to_owned() },
        ];
        let lines: Vec<String> = all.iter().map(text).collect();
        expect_test::expect![[r#"
            {"node":{}}
            {"awake":{"keys":["4f3a"]}}
            {"show":{"key":"4f3a"}}
            {"revoke":{"key":"4f3a"}}
            {"annotate":{"key":"4f3a","changes":{"metadata":{},"ttl_ms":null}}}
            {"calls":{}}
            {"usage":{}}
            {"end_principal":{"principal":"corp:ann","not_before":5}}
            {"reinstate":{"principal":"corp:ann"}}"#]]
        .assert_eq(&lines.join("\n"));
        // A member that a later version adds is not in the way.
        let later = serde_json::from_str(r#"{"show":{"key":"4f3a","deep":true}}"#);
        assert_eq!(later.ok(), Some(Question::Show { key: key() }));
    }
}
