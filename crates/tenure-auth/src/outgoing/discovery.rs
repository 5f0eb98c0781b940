//! Finds the authorization server of a server behind: its protected resource metadata (RFC 9728) name it.
//!
//! A server behind may be hostile. What it says leads to public addresses over HTTPS alone, unless it is itself on this machine or
//! in a private network, and it must describe itself: the `resource` of its metadata has to be its own URL, or a parent of it.

use reqwest::Url;
use serde::Deserialize;

use super::tokens::OutgoingClients;
use crate::fetch::{FetchError, Fetcher, address_of, is_public};
use crate::server_metadata::ServerMetadata;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The authorization server of a server behind.
pub(super) struct FoundServer {
    /// Its issuer URL.
    pub(super) issuer: String,
    pub(super) metadata: ServerMetadata,
    /// What tokens for the server behind are issued for, as it says itself.
    pub(super) resource: String,
}

#[derive(Deserialize)]
struct ResourceMetadata {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
}

/// Asks a server behind for its authorization server, and that one for its metadata.
pub(super) async fn of_upstream(
    clients: &OutgoingClients,
    upstream: &Url,
) -> Result<FoundServer, FetchError> {
    let metadata = resource_metadata(clients, upstream).await?;
    if !describes(&metadata.resource, upstream) {
        return Err(FetchError::Content("the metadata of the server behind are those of another resource"));
    }
    let none = FetchError::Content("the metadata of the server behind name no authorization server");
    let issuer = metadata.authorization_servers.into_iter().next().ok_or(none)?;
    let found = ServerMetadata::discover(clients.led_by(upstream), &issuer).await?;
    Ok(FoundServer { issuer, metadata: found, resource: metadata.resource })
}

/// The metadata at the well-known places, or where the server's challenge says.
async fn resource_metadata(
    clients: &OutgoingClients,
    upstream: &Url,
) -> Result<ResourceMetadata, FetchError> {
    let origin = upstream.origin().ascii_serialization();
    let path = upstream.path().trim_end_matches('/');
    let mut places = vec![format!("{origin}{WELL_KNOWN}{path}")];
    if !path.is_empty() {
        places.push(format!("{origin}{WELL_KNOWN}"));
    }
    let mut failure = FetchError::Content("the server behind has no metadata");
    for place in places {
        match read(&clients.configured, &place).await {
            Ok(metadata) => return Ok(metadata),
            Err(error) => failure = error,
        }
    }
    // A request without credentials is refused, and the challenge may say where the metadata are.
    let asked = clients.configured.look(upstream.as_str(), "text/event-stream").await;
    let named = asked.ok().and_then(|headers| {
        let challenges = headers.get_all("www-authenticate").iter();
        challenges.filter_map(|challenge| named_in(challenge.to_str().ok()?)).next()
    });
    match named {
        Some(place) => read(clients.led_by(upstream), &place).await,
        None => Err(failure),
    }
}

async fn read(fetcher: &Fetcher, place: &str) -> Result<ResourceMetadata, FetchError> {
    let fetched = fetcher.get(place).await?;
    serde_json::from_slice(&fetched.body)
        .map_err(|_| FetchError::Content("the metadata of the server behind cannot be read"))
}

/// The URL in `resource_metadata="…"` of a challenge.
fn named_in(challenge: &str) -> Option<String> {
    let rest = challenge.split_once("resource_metadata=")?.1;
    let place = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?.0,
        None => rest.split([',', ' ']).next()?,
    };
    Some(place.to_owned())
}

/// Whether a resource is this URL, or a parent of it at the same origin.
fn describes(resource: &str, url: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let (parent, path) = (resource.path().trim_end_matches('/'), url.path().trim_end_matches('/'));
    let is_parent = path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.origin() == url.origin() && is_parent
}

impl OutgoingClients {
    /// The client for URLs that a server behind names.
    pub(super) fn led_by(&self, upstream: &Url) -> &Fetcher {
        match address_of(upstream).is_some_and(|address| !is_public(address)) {
            true => &self.configured,
            false => &self.named_by_servers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_describes_itself() {
        let url = "https://mcp.example/a/mcp".parse().unwrap();
        for resource in [
            "https://mcp.example/a/mcp",
            "https://mcp.example/a/mcp/",
            "https://MCP.example:443/a",
            "https://mcp.example",
        ] {
            assert!(describes(resource, &url), "{resource}");
        }
        for resource in [
            "https://mcp.example/a/mcp/b",
            "https://mcp.example/a/mc",
            "https://other.example/a/mcp",
            "http://mcp.example/a/mcp",
            "https://mcp.example:8443/a/mcp",
            "nonsense",
        ] {
            assert!(!describes(resource, &url), "{resource}");
        }
    }

    #[test]
    fn a_challenge_names_the_metadata() {
        for (challenge, expected) in [
            (r#"Bearer error="x", resource_metadata="https://h/m", scope="a""#, Some("https://h/m")),
            ("Bearer resource_metadata=https://h/m, scope=a", Some("https://h/m")),
            (r#"Bearer resource_metadata="https://h"#, None),
            ("Basic", None),
        ] {
            assert_eq!(named_in(challenge).as_deref(), expected, "{challenge}");
        }
    }
}
