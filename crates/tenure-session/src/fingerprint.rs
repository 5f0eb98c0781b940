//! Which server a session belongs to, in a form that can be kept with the session: pure.
//!
//! A store outlives the command that used it. Without this a session that was begun with one server would be woken at
//! whichever server is configured when its client comes back. A [`Fingerprint`] says how a server was configured. It
//! holds a hash, because arguments and URLs may contain secrets, and a few words for logs.
//!
//! Two servers are the same ([`compare`]) if either of these holds, because each changes alone in ordinary life:
//! - They are configured in the same way. A server need not have a stable name: some draw a new one at each start.
//! - They introduce themselves with the same name. A deploy changes the command (`foo@1.2` to `foo@1.3`, another
//!   folder, one more argument), and moves from a program to a URL, without making another server of it. The version
//!   that a server tells never counts.
//!
//! An endpoint that serves several servers as one has no name of its own. It stays the same as long as one of them is
//! still there by the name that the configuration gives it: adding a server must not end the sessions with the others.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tenure_protocol::RawJson;

use crate::id::{Route, hex};

/// How a server behind an endpoint was configured.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Fingerprint {
    /// What people are shown: a program, or an address. It has no arguments and no secrets.
    pub shown: String,
    /// The hash of the configuration; nothing if it does not tell servers apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The configured names of the servers that are served as one here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

impl Fingerprint {
    /// A server that this configuration leads to. The parts are hashed.
    pub fn of<'a>(shown: impl Into<String>, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new().chain_update(b"tenure server\0");
        for part in parts {
            // With its length, so that no two lists of parts are one text.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self { shown: shown.into(), digest: Some(hex(&digest.finalize()[..16])), members: Vec::new() }
    }

    /// A server of which nothing is known but the name that it gives itself.
    pub fn unconfigured(shown: impl Into<String>) -> Self {
        Self { shown: shown.into(), digest: None, members: Vec::new() }
    }

    /// Several servers as one, by their configured names.
    pub fn merged(members: impl IntoIterator<Item = String>) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort();
        let parts: Vec<_> = std::iter::once("merged").chain(members.iter().map(String::as_str)).collect();
        let one =
            Self::of(format!("{} servers as one", members.len()), parts.iter().map(|part| part.as_bytes()));
        Self { members, ..one }
    }

    /// The beginning of the hash, for people and for names of folders.
    pub fn short(&self) -> &str {
        let digest = self.digest.as_deref().unwrap_or_default();
        digest.get(..8).unwrap_or(digest)
    }
}

/// The fingerprints of a process, by endpoint. An endpoint without one serves every session of its own.
#[derive(Clone, Debug, Default)]
pub struct Fingerprints(HashMap<Route, Fingerprint>);

impl Fingerprints {
    /// The fingerprint of the server behind an endpoint.
    pub fn at(&self, route: &Route) -> Option<&Fingerprint> {
        self.0.get(route)
    }
}

impl FromIterator<(Route, Fingerprint)> for Fingerprints {
    fn from_iter<T: IntoIterator<Item = (Route, Fingerprint)>>(fingerprints: T) -> Self {
        Self(fingerprints.into_iter().collect())
    }
}

/// How the server of a session relates to the one that is there now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation {
    /// It is the same, configured in the same way.
    Same,
    /// It is the same by its name, and configured in another way.
    Reconfigured,
    /// It is another one.
    Other,
}

/// A server as a session knew it, or as it is now: its fingerprint, and the name that it gave itself.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// How it is configured.
    pub fingerprint: &'a Fingerprint,
    /// Its own name; `None` if it gave none.
    pub name: Option<&'a str>,
}

/// Compares the server that a session was last linked to with the one that is there now.
pub fn compare(then: Seen<'_>, now: Seen<'_>) -> Relation {
    let (old, new) = (then.fingerprint, now.fingerprint);
    if old.digest.is_some() && old.digest == new.digest {
        return Relation::Same;
    }
    let is_same = match (old.members.is_empty(), new.members.is_empty()) {
        (true, true) => then.name.is_some() && then.name == now.name,
        (false, false) => old.members.iter().any(|member| new.members.contains(member)),
        // One server became several, or several one: their tools have other names from then on.
        _ => false,
    };
    match is_same {
        // Nothing but the name was ever known of it.
        true if old.digest.is_none() && new.digest.is_none() => Relation::Same,
        true => Relation::Reconfigured,
        false => Relation::Other,
    }
}

/// The name that a server gave itself in its answer to `initialize`.
pub fn name_in(initialize_result: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    struct Introduced {
        #[serde(rename = "serverInfo")]
        server: Implementation,
    }
    #[derive(Deserialize)]
    struct Implementation {
        name: String,
    }
    initialize_result.read::<Introduced>().ok().map(|introduced| introduced.server.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Fingerprint {
        Fingerprint::of(words[0], words.iter().map(|word| word.as_bytes()))
    }

    fn merged(members: &[&str]) -> Fingerprint {
        Fingerprint::merged(members.iter().map(|&member| member.to_owned()))
    }

    #[test]
    fn a_server_is_the_same_by_its_configuration_or_by_its_name() {
        use Relation::{Other, Reconfigured, Same};
        let (one, two) = (command(&["npx", "foo@1"]), command(&["npx", "foo@2"]));
        let embedded = Fingerprint::unconfigured("this program");
        let (ab, bc, cd) = (merged(&["a", "b"]), merged(&["c", "b"]), merged(&["c", "d"]));
        let table = [
            ((&one, Some("foo")), (&one, Some("foo")), Same),
            ((&one, Some("FastMCP-1a2b")), (&one, Some("FastMCP-77aa")), Same),
            ((&one, Some("foo")), (&one, None), Same),
            ((&one, Some("foo")), (&two, Some("foo")), Reconfigured),
            ((&one, Some("foo")), (&two, Some("bar")), Other),
            ((&one, None), (&two, None), Other),
            ((&one, Some("foo")), (&embedded, Some("foo")), Reconfigured),
            ((&embedded, Some("foo")), (&embedded, Some("foo")), Same),
            ((&embedded, Some("foo")), (&embedded, Some("bar")), Other),
            ((&embedded, None), (&embedded, None), Other),
            ((&ab, Some("tenure")), (&merged(&["b", "a"]), Some("tenure")), Same),
            ((&ab, Some("tenure")), (&bc, Some("tenure")), Reconfigured),
            ((&ab, Some("tenure")), (&cd, Some("tenure")), Other),
            ((&ab, Some("tenure")), (&one, Some("tenure")), Other),
            ((&one, Some("tenure")), (&ab, Some("tenure")), Other),
        ];
        for ((old, then), (new, now), expected) in table {
            let relation =
                compare(Seen { fingerprint: old, name: then }, Seen { fingerprint: new, name: now });
            assert_eq!(relation, expected, "{old:?} {then:?} and {new:?} {now:?}");
        }
    }

    #[test]
    fn words_of_a_command_do_not_run_together() {
        assert_ne!(command(&["a", "bc"]).digest, command(&["ab", "c"]).digest);
        assert_ne!(command(&["a"]).digest, command(&["a", ""]).digest);
    }

    #[test]
    fn a_name_is_read_from_the_handshake_if_there_is_one() {
        let read = |value| name_in(&RawJson::of(&value));
        assert_eq!(
            read(serde_json::json!({ "serverInfo": { "name": "foo", "version": "1" } })),
            Some("foo".into())
        );
        assert_eq!(read(serde_json::json!({ "serverInfo": { "version": "1" } })), None);
        assert_eq!(read(serde_json::json!({})), None);
    }
}
