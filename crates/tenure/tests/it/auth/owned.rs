//! Commands of operators that are about one principal show what is that one's and nothing else, and change nothing of the others.
//!
//! The principals are drawn from names that a careless comparison takes for each other. A failure prints the seed; `TENURE_TEST_SEED`
//! runs it again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::office::Office;
use super::strangers::{Dice, knowing, modern_ask};
use super::world::{Bearing, now};
use crate::operator::place::label;
use crate::support::events::Events;
use crate::support::wait::within;

/// Subjects that differ by a letter, by their case, by what could be a pattern or the name of another issuer.
const SUBJECTS: [&str; 12] = [
    "alice",
    "Alice",
    "alic",
    "alice2",
    "corp:alice",
    "alice:corp",
    "key:alice",
    "anonymous",
    "*",
    "al*",
    "alice%",
    "älice",
];

/// How many of them there are in a run.
const PRINCIPALS: usize = 5;

/// What one principal has.
struct Owned {
    principal: String,
    session: String,
    /// Held open, so that it is under way.
    _call: Events,
}

impl Owned {
    async fn of(office: &Office, subject: &str) -> Self {
        let token = office.token(subject, now().0 - 5);
        let session = office.session(&token).await;
        let create = modern_ask(1, "dev.tenure/session/create", &knowing(&json!({}), &json!({})));
        assert_eq!(office.send(create.bearer(&token)).await.status(), 200, "{subject}");
        let long = json!({ "name": "long_task", "arguments": { "seconds": 3600, "interval_ms": 500 } });
        let grown = modern_ask(2, "tools/call", &knowing(&long, &json!({})));
        let grown = grown.without("Accept").header("Accept", "application/json").bearer(&token);
        let grown = office.send(grown).await.json();
        assert!(grown["result"]["taskId"].is_string(), "{subject}: {grown}");
        let noisy =
            json!({ "name": "long_task", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": 1 } });
        let mut call = office.open_stream(session.request(3, "tools/call", &noisy), &token).await;
        call.message().await.expect("progress");
        Self { principal: format!("corp:{subject}"), session: label(&session), _call: call }
    }
}

async fn rows(office: &Office, arguments: &[&str]) -> Vec<Value> {
    let text = office.told(&[arguments, &["--json"]].concat()).await;
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a principal has, without the times at which it was used.
async fn having(office: &Office, principal: &str) -> Option<Value> {
    let mut row = office.row(principal).await?;
    row.as_object_mut().unwrap().remove("last_used");
    Some(row)
}

#[tokio::test]
async fn what_operators_ask_and_do_about_one_principal_is_about_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl").display().to_string();
    let sections = format!(
        "[tasks]\nafter = \"150ms\"\n[limits]\nprincipal = \"1000/s\"\n[audit]\nfile = \"{audit}\"\n"
    );
    let office = Office::with("", &sections).await;
    let mut dice = Dice::new();
    let seed = dice.0;
    let mut drawn = BTreeSet::from(["alice"]);
    while drawn.len() < PRINCIPALS {
        drawn.insert(dice.of(&SUBJECTS));
    }
    let mut all = Vec::new();
    for subject in &drawn {
        all.push(Owned::of(&office, subject).await);
    }
    for Owned { principal, session, .. } in &all {
        let told = format!("seed {seed}: {principal} of {drawn:?}");
        // Each list: where its rows name the owner, and how many there are.
        for (arguments, member, count) in [
            (&["sessions", "list", "--owner", principal][..], "owner", 1),
            (&["sessions", "data", "list", "--owner", principal], "owner", 1),
            (&["calls", "--owner", principal], "owner", 2),
            (&["limits", "show", principal], "principal", 1),
        ] {
            let rows = rows(&office, arguments).await;
            assert_eq!(rows.len(), count, "{told}: {arguments:?}: {rows:?}");
            assert!(rows.iter().all(|row| row[member] == **principal), "{told}: {arguments:?}: {rows:?}");
        }
        let listed = rows(&office, &["sessions", "list", "--owner", principal]).await;
        assert_eq!(listed[0]["label"], **session, "{told}");
        let shown = office.told(&["principals", "show", principal, "--json"]).await;
        let others = all.iter().filter(|other| other.session != *session);
        for other in others {
            assert!(!shown.contains(&other.session), "{told}: {shown}");
        }
        assert!(shown.contains(session.as_str()), "{told}: {shown}");
        let recorded = office.told(&["audit", "show", &audit, "--principal", principal, "--json"]).await;
        let (iss, sub) = principal.split_once(':').unwrap();
        let records: Vec<Value> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!records.is_empty(), "{told}");
        for record in &records {
            let whose = &record["principal"];
            assert!(whose["iss"] == iss && whose["sub"] == sub, "{told}: {record}");
        }
    }
    // No principal has these names.
    for absent in ["corp:", "corp", "alice", "anonymous", "corp:alice ", "*", ""] {
        for command in [&["sessions", "list"][..], &["sessions", "data", "list"], &["calls"]] {
            let rows = rows(&office, &[command, &["--owner", absent]].concat()).await;
            assert!(rows.is_empty(), "seed {seed}: {command:?} of {absent:?}: {rows:?}");
        }
    }
    // One after the other loses what it has, and the rest loses nothing.
    let mut left: BTreeMap<String, Value> = BTreeMap::new();
    for Owned { principal, .. } in &all {
        left.insert(principal.clone(), having(&office, principal).await.expect("it is here"));
    }
    for Owned { principal, .. } in &all {
        office.told(&["principals", "revoke", principal, "--data"]).await;
        left.remove(principal);
        // What was under way is told so, and ends a moment later.
        let what = format!("seed {seed}: the end of all that {principal} has");
        within(&what, async {
            let is_gone = |row: &Value| {
                ["sessions", "data_sessions", "tasks", "calls"].iter().all(|what| row[what] == 0)
            };
            while !is_gone(&having(&office, principal).await.expect("it is known that it was revoked")) {}
        })
        .await;
        for (other, before) in &left {
            let after = having(&office, other).await;
            assert_eq!(after.as_ref(), Some(before), "seed {seed}: after the end of {principal}");
        }
    }
}
