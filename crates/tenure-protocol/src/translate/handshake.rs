//! Translates the handshake: `initialize` of sessions and `server/discover` of the modern era.
//!
//! In: a modern server's discovery, or a session's `InitializeResult`. Out: the answer for a client of the other era,
//! and the `initialize` params of the pooled sessions that modern clients share.
//!
//! The capabilities for tools, prompts, resources, completions and logging pass. `listChanged` and `subscribe` pass
//! only if the bridge listens to the server's notifications. `extensions`, `experimental` and `tasks` do not pass,
//! because the gateway cannot know whether their messages would pass the bridge. 2024-11-05 has no capability for
//! completions.

use crate::error::RpcError;
use crate::json::RawJson;
use crate::json::object::{self, Object, is_object};
use crate::keys::SERVER;
use crate::revision::Revision;
use crate::translate::capabilities::Relayed;
use crate::translate::codes::fault_of_server;
use crate::translate::features::Feature;

/// Whether the server's own notifications reach the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feeds {
    /// The bridge listens to the server and passes them on.
    Open,
    /// The bridge does not listen.
    Closed,
}

/// A session's `InitializeResult`, made from a modern server's `DiscoverResult`.
///
/// A modern server may leave out `serverInfo`, a session may not: then the server gets `name`, the gateway's own name
/// for it.
///
/// # Errors
/// When the server's answer is not a `DiscoverResult`.
pub fn initialize_result(
    discovered: &RawJson,
    revision: Revision,
    feeds: Feeds,
    name: &str,
) -> Result<RawJson, RpcError> {
    let broken = || fault_of_server("The server's discovery cannot be read".to_owned());
    let discovered = Object::read(object::text(discovered)).ok_or_else(broken)?;
    let capabilities = discovered.get("capabilities").and_then(Object::read).ok_or_else(broken)?;
    let mut meta = discovered.get("_meta").and_then(Object::read);
    let server = meta.as_ref().and_then(|meta| meta.get(SERVER)).filter(|server| is_implementation(server));
    let made_up = format!(r#"{{"name":{},"version":"unknown"}}"#, object::quoted(name));
    let mut result = format!(
        r#"{{"protocolVersion":"{revision}","capabilities":{},"serverInfo":{}"#,
        capabilities_with(&capabilities, feeds, Completions::AsDeclared),
        server.unwrap_or(&made_up),
    );
    if let Some(instructions) = instructions(&discovered) {
        result += &format!(r#","instructions":{instructions}"#);
    }
    if let Some(meta) = &mut meta {
        meta.remove(SERVER);
    }
    if let Some(meta) = meta.filter(|meta| !meta.is_empty()) {
        result += &format!(r#","_meta":{}"#, meta.write());
    }
    result.push('}');
    Ok(RawJson::trusted(result))
}

/// A modern `DiscoverResult`, made from a session's `InitializeResult`. It lists the versions that the gateway serves,
/// not those of the server. The result type and the caching members are added later, as to every modern result.
///
/// # Errors
/// When the server's answer is not an `InitializeResult`.
pub fn discover_result(initialized: &RawJson, served: &[&str], feeds: Feeds) -> Result<RawJson, RpcError> {
    let broken = || fault_of_server("The server's answer to initialize cannot be read".to_owned());
    let initialized = Object::read(object::text(initialized)).ok_or_else(broken)?;
    let capabilities = initialized.get("capabilities").and_then(Object::read).ok_or_else(broken)?;
    let revision = initialized.get("protocolVersion").and_then(object::unquoted);
    let revision = revision.and_then(|revision| Revision::parse(&revision));
    let completions = match revision {
        Some(revision) if !Feature::CompletionsCapability.is_in(revision) => Completions::Unsaid,
        _ => Completions::AsDeclared,
    };
    let mut result = format!(
        r#"{{"supportedVersions":{},"capabilities":{}"#,
        object::text(&RawJson::of(&served)),
        capabilities_with(&capabilities, feeds, completions),
    );
    if let Some(instructions) = instructions(&initialized) {
        result += &format!(r#","instructions":{instructions}"#);
    }
    let mut meta = initialized.get("_meta").and_then(Object::read).unwrap_or_else(object::nothing);
    meta.remove(SERVER);
    if let Some(server) = initialized.get("serverInfo").filter(|server| is_implementation(server)) {
        meta.set(SERVER, server);
    }
    if !meta.is_empty() {
        result += &format!(r#","_meta":{}"#, meta.write());
    }
    result.push('}');
    Ok(RawJson::trusted(result))
}

/// Whether a `DiscoverResult` lists a version as supported.
pub fn serves(discovered: &RawJson, version: &str) -> bool {
    let Some(discovered) = Object::read(object::text(discovered)) else {
        return false;
    };
    let versions = discovered.get("supportedVersions").and_then(object::elements).unwrap_or_default();
    versions.into_iter().any(|named| object::unquoted(named).is_some_and(|named| named == version))
}

/// The params of `initialize` for a session that modern clients with equal capabilities share. `client` is the
/// gateway's own `clientInfo`, because such a session has many clients.
pub fn initialize_params(relayed: Relayed, client: &RawJson) -> RawJson {
    RawJson::trusted(format!(
        r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{}}}"#,
        Revision::LATEST,
        object::text(&relayed.object()),
        object::text(client),
    ))
}

/// The capabilities and the name that a session's client sent in `initialize`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Introduced {
    /// Its capabilities, as far as they can be relayed.
    pub relayed: Relayed,
    /// Its `clientInfo`, if it is valid.
    pub client: Option<RawJson>,
}

/// Reads the `initialize` params of a session's client.
pub fn introduced(initialize_params: &RawJson, revision: Revision) -> Introduced {
    let params = Object::read(object::text(initialize_params)).unwrap_or_else(object::nothing);
    let capabilities = params.get("capabilities").map(|text| object::part(initialize_params, text));
    let client = params.get("clientInfo").filter(|client| is_implementation(client));
    Introduced {
        relayed: capabilities
            .map_or_else(Relayed::default, |declared| Relayed::of_session(&declared, revision)),
        client: client.map(|text| object::part(initialize_params, text).detached()),
    }
}

/// Whether the server's revision has the capability `completions`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Completions {
    /// It has: the server declares completions, or it has none.
    AsDeclared,
    /// It has not. A server with prompts or resources may still complete their arguments, so completions are declared.
    Unsaid,
}

fn capabilities_with(declared: &Object<'_>, feeds: Feeds, completions: Completions) -> String {
    let mut members = Vec::new();
    for name in ["tools", "prompts", "resources", "completions", "logging"] {
        let Some(mut capability) = declared.get(name).and_then(Object::read) else {
            continue;
        };
        if feeds == Feeds::Closed {
            capability.remove("listChanged");
            capability.remove("subscribe");
        }
        members.push(format!(r#""{name}":{}"#, capability.write()));
    }
    let completes = ["prompts", "resources"].iter().any(|name| declared.get(name).is_some_and(is_object));
    let says = declared.get("completions").is_some_and(is_object);
    if completions == Completions::Unsaid && completes && !says {
        members.push(r#""completions":{}"#.to_owned());
    }
    format!("{{{}}}", members.join(","))
}

fn instructions<'a>(from: &Object<'a>) -> Option<&'a str> {
    from.get("instructions").filter(|text| text.starts_with('"'))
}

/// Whether it has the two members that every revision requires.
fn is_implementation(text: &str) -> bool {
    Object::read(text).is_some_and(|object| {
        ["name", "version"].iter().all(|name| object.get(name).is_some_and(|text| text.starts_with('"')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &'static str) -> RawJson {
        RawJson::trusted(text)
    }

    #[test]
    fn a_session_is_told_what_a_modern_server_discovers() {
        use Feeds::{Closed, Open};
        let table = [
            (
                r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":1,"cacheScope":"public"}"#,
                Open,
                r#"{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"behind \"it\"","version":"unknown"}}"#,
            ),
            (
                r#"{"capabilities":{"tools":{ "listChanged": true },"resources":{"subscribe":true,"listChanged":true},"prompts":{},"logging":{},"completions":{},"extensions":{"io.modelcontextprotocol/tasks":{}},"experimental":{},"tasks":{}},"instructions":"say \u00e9","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1","title":"T"},"x":1}}"#,
                Open,
                r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{ "listChanged": true },"prompts":{},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{}},"serverInfo":{"name":"s","version":"1","title":"T"},"instructions":"say \u00e9","_meta":{"x":1}}"#,
            ),
            (
                r#"{"capabilities":{"tools":{"listChanged":true,"x":1},"resources":{"subscribe":true,"listChanged":true}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"nameless version"}}}"#,
                Closed,
                r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{"x":1},"resources":{}},"serverInfo":{"name":"behind \"it\"","version":"unknown"}}"#,
            ),
        ];
        for (discovered, feeds, expected) in table {
            let result =
                initialize_result(&json(discovered), Revision::V2025_06_18, feeds, "behind \"it\"").unwrap();
            assert_eq!(object::text(&result), expected);
        }
        for broken in ["{}", "[]", r#"{"capabilities":7}"#] {
            let error = initialize_result(&json(broken), Revision::LATEST, Open, "n").unwrap_err();
            assert_eq!(error.code(), -32603);
        }
    }

    #[test]
    fn a_modern_client_discovers_what_a_session_was_told() {
        use Feeds::{Closed, Open};
        let table = [
            (
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"tasks":{"list":{}},"experimental":{"x":{}},"logging":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"hi","_meta":{"x":1}}"#,
                Open,
                r#"{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true},"logging":{}},"instructions":"hi","_meta":{"x":1,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#,
            ),
            (
                r#"{"protocolVersion":"2025-03-26","capabilities":{"resources":{"subscribe":true}},"serverInfo":{"name":"s"}}"#,
                Closed,
                r#"{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"resources":{}}}"#,
            ),
            // The revision has no capability for completions.
            (
                r#"{"protocolVersion":"2024-11-05","capabilities":{"prompts":{}}}"#,
                Open,
                r#"{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"prompts":{},"completions":{}}}"#,
            ),
            (
                r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{}}}"#,
                Open,
                r#"{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{}}}"#,
            ),
        ];
        for (initialized, feeds, expected) in table {
            let result = discover_result(&json(initialized), &["2026-07-28", "2025-11-25"], feeds).unwrap();
            assert_eq!(object::text(&result), expected);
        }
        assert_eq!(discover_result(&json("{}"), &[], Open).unwrap_err().code(), -32603);
    }

    #[test]
    fn a_version_is_found_among_those_that_are_served() {
        let discovered = json(r#"{"supportedVersions":["a",7,"2026-07-28"]}"#);
        assert!(serves(&discovered, "2026-07-28"));
        assert!(!serves(&discovered, "2025-11-25"));
        assert!(!serves(&json("{}"), "2026-07-28"));
        assert!(!serves(&json("[]"), "2026-07-28"));
    }

    #[test]
    fn a_shared_session_is_opened_in_the_gateways_name() {
        let relayed = Relayed::of_exchange(&json(r#"{"roots":{"listChanged":true}}"#));
        assert_eq!(
            object::text(&initialize_params(relayed, &json(r#"{"name":"tenure","version":"1"}"#))),
            r#"{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"tenure","version":"1"}}"#
        );
    }

    #[test]
    fn a_session_client_is_known_by_what_it_said() {
        let params = json(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{},"tasks":{}},"clientInfo":{"name":"c","version":"2","title":"T"}}"#,
        );
        let said = introduced(&params, Revision::V2025_06_18);
        assert_eq!(said.relayed.object(), json(r#"{"elicitation":{}}"#));
        assert_eq!(said.client, Some(json(r#"{"name":"c","version":"2","title":"T"}"#)));
        let silent = introduced(&json(r#"{"clientInfo":{"name":"c"}}"#), Revision::V2025_06_18);
        assert_eq!((silent.relayed, silent.client), (Relayed::default(), None));
    }
}
