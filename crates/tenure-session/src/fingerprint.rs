//! Which server a session belongs to, in a form that can be kept with the session: pure.
//!
//! A store outlives the command that used it. Without a fingerprint, a session that began with one server would be
//! woken with any other server that is configured when its client comes back. A [`Fingerprint`] says how a server was
//! configured. It holds a hash, because arguments and URLs may contain secrets, and a few words for logs.
//!
//! Two servers are the same (`compare`) if one of these conditions holds, because often only the other one changes:
//! - They are configured in the same way. A server need not have a stable name: some draw a new one at each start.
//! - They give the same name in `initialize`. A deploy may change the command (`foo@1.2` to `foo@1.3`, another folder,
//!   one more argument), or replace a program by a URL, and it is still the same server. The server's version is not
//!   compared.
//!
//! An endpoint that merges several servers has no name of its own. It stays the same as long as one of its configured
//! server names is still there: adding a server must not end the sessions with the others.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tenure_protocol::RawJson;

use crate::id::{Route, hex};

/// How a server behind an endpoint was configured.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Fingerprint {
    /// The text for people: a program or an address, without arguments and secrets.
    pub shown: String,
    /// The hash of the configuration. `None` if the configuration does not distinguish servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The configured names of the merged servers; empty for a single server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
}

impl Fingerprint {
    /// The fingerprint of a server with this configuration. The parts are hashed.
    pub fn of<'a>(shown: impl Into<String>, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new().chain_update(b"tenure server\0");
        for part in parts {
            // With its length, so that different lists of parts never hash the same bytes.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self { shown: shown.into(), digest: Some(hex(&digest.finalize()[..16])), members: Vec::new() }
    }

    /// A server without a configuration: only the name that it gives itself is known.
    pub fn unconfigured(shown: impl Into<String>) -> Self {
        Self { shown: shown.into(), digest: None, members: Vec::new() }
    }

    /// Several merged servers, by their configured names.
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

/// The fingerprints of a process, by endpoint. An endpoint without a fingerprint accepts every session of its own.
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

/// How the server that a session knew relates to the current one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relation {
    /// The same server with the same configuration.
    Same,
    /// The same server by its name, with another configuration.
    Reconfigured,
    /// Another server.
    Other,
}

/// A server as a session knew it, or as it is now: its fingerprint, and the name that it gave itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenServer<'a> {
    /// How it is configured.
    pub fingerprint: &'a Fingerprint,
    /// Its own name; `None` if it gave none.
    pub name: Option<&'a str>,
}

/// Compares the server that a session was last linked to with the current one.
pub(crate) fn compare(then: SeenServer<'_>, now: SeenServer<'_>) -> Relation {
    let (old, new) = (then.fingerprint, now.fingerprint);
    if old.digest.is_some() && old.digest == new.digest {
        return Relation::Same;
    }
    let is_same = match (old.members.is_empty(), new.members.is_empty()) {
        (true, true) => then.name.is_some() && then.name == now.name,
        (false, false) => old.members.iter().any(|member| new.members.contains(member)),
        // One server became several, or several became one: the tools have other names now.
        _ => false,
    };
    match is_same {
        // Both have no configuration, so an equal name is all that can match.
        true if old.digest.is_none() && new.digest.is_none() => Relation::Same,
        true => Relation::Reconfigured,
        false => Relation::Other,
    }
}

/// The name that a server gave itself in its answer to `initialize`.
pub(crate) fn name_in(initialize_result: &RawJson) -> Option<String> {
    #[derive(Deserialize)]
    struct Introduced {
        #[serde(rename = "serverInfo")]
        server: ServerInfo,
    }
    #[derive(Deserialize)]
    struct ServerInfo {
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
            let relation = compare(
                SeenServer { fingerprint: old, name: then },
                SeenServer { fingerprint: new, name: now },
            );
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
