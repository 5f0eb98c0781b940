//! An endpoint as OAuth sees it: a protected resource with a URI, metadata and scopes (RFC 9728).

use serde::Serialize;

use crate::scope::ScopeSet;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// One endpoint. Each endpoint is a resource of its own, so that a token for one endpoint is not valid at another.
#[derive(Clone, Debug)]
pub struct ProtectedResource {
    /// What tokens have to name as their audience.
    uri: Box<str>,
    metadata: Option<ResourceMetadata>,
}

#[derive(Clone, Debug)]
struct ResourceMetadata {
    url: Box<str>,
    path: Box<str>,
    initial: ScopeSet,
    supported: ScopeSet,
}

/// The metadata document of RFC 9728.
#[derive(Serialize)]
struct Document<'a> {
    resource: &'a str,
    authorization_servers: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes_supported: Vec<&'a str>,
    bearer_methods_supported: [&'static str; 1],
    resource_name: String,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    dpop_signing_alg_values_supported: &'a [&'static str],
}

impl ProtectedResource {
    /// The endpoint at this path of a server whose public URL is known. `None` if the URL is not `http(s)://HOST`.
    pub fn new(public_url: &str, path: &str) -> Option<Self> {
        let base = public_url.trim_end_matches('/');
        let (scheme, rest) = base.split_once("://")?;
        if !matches!(scheme, "http" | "https") || rest.is_empty() || rest.contains(['?', '#', ' ']) {
            return None;
        }
        let host = rest.split('/').next()?;
        let prefix = &rest[host.len()..];
        let path = format!("{prefix}{path}");
        let uri = format!("{scheme}://{host}{path}");
        // The well-known part stands between host and path.
        let metadata = ResourceMetadata {
            url: format!("{scheme}://{host}{WELL_KNOWN}{path}").into(),
            path: format!("{WELL_KNOWN}{path}").into(),
            initial: ScopeSet::default(),
            supported: ScopeSet::default(),
        };
        Some(Self { uri: uri.into(), metadata: Some(metadata) })
    }

    /// The endpoint at this path of a server that knows keys and no issuers. It has no metadata: clients that find metadata
    /// begin to log in, and drop the key that they were given.
    pub fn keys_only(path: &str) -> Self {
        Self { uri: path.into(), metadata: None }
    }

    /// Adds the scopes that a client should ask for at first, and all that the endpoint knows.
    #[must_use]
    pub fn with_scopes(mut self, initial: ScopeSet, supported: ScopeSet) -> Self {
        if let Some(metadata) = &mut self.metadata {
            metadata.initial = initial;
            metadata.supported = supported;
        }
        self
    }

    /// What tokens have to name as their audience.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The path at which this server has to serve [`ProtectedResource::metadata`].
    pub fn metadata_path(&self) -> Option<&str> {
        self.metadata.as_ref().map(|metadata| &*metadata.path)
    }

    pub(crate) fn metadata_url(&self) -> Option<&str> {
        self.metadata.as_ref().map(|metadata| &*metadata.url)
    }

    pub(crate) fn initial_scope(&self) -> Option<&ScopeSet> {
        self.metadata.as_ref().map(|metadata| &metadata.initial)
    }

    /// The metadata document, as JSON.
    pub fn metadata(&self, name: &str, issuers: &[String], proofs: &[&'static str]) -> Option<String> {
        let metadata = self.metadata.as_ref()?;
        let document = Document {
            resource: &self.uri,
            authorization_servers: issuers,
            scopes_supported: metadata.supported.iter().collect(),
            bearer_methods_supported: ["header"],
            resource_name: format!("{name} (Tenure)"),
            dpop_signing_alg_values_supported: proofs,
        };
        serde_json::to_string(&document).ok()
    }

    /// The public URI of another path of this server: clients of the doors for old transports prove their key for it.
    pub(crate) fn uri_of(&self, path: &str) -> String {
        format!("{}{path}", split_origin(&self.uri).0)
    }

    /// Whether an audience of a token means this resource.
    pub(crate) fn is_meant_by(&self, audience: &str) -> bool {
        same_uri(&self.uri, audience)
    }
}

/// Whether two URIs are the same, but for the case of scheme and host and for one slash at the end.
pub(crate) fn same_uri(a: &str, b: &str) -> bool {
    let (a, b) = (a.strip_suffix('/').unwrap_or(a), b.strip_suffix('/').unwrap_or(b));
    let (a_origin, a_path) = split_origin(a);
    let (b_origin, b_path) = split_origin(b);
    a_origin.eq_ignore_ascii_case(b_origin) && a_path == b_path
}

fn split_origin(uri: &str) -> (&str, &str) {
    let Some(scheme) = uri.find("://") else { return ("", uri) };
    let path = uri[scheme + 3..].find('/').map_or(uri.len(), |at| scheme + 3 + at);
    uri.split_at(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_well_known_part_stands_between_host_and_path() {
        let rows = [
            ("https://h", "/mcp", "https://h/mcp", "https://h/.well-known/oauth-protected-resource/mcp"),
            (
                "https://h:8443/",
                "/mcp/files",
                "https://h:8443/mcp/files",
                "https://h:8443/.well-known/oauth-protected-resource/mcp/files",
            ),
            (
                "https://h/team",
                "/mcp",
                "https://h/team/mcp",
                "https://h/.well-known/oauth-protected-resource/team/mcp",
            ),
        ];
        for (public, path, uri, metadata) in rows {
            let resource = ProtectedResource::new(public, path).unwrap();
            assert_eq!((resource.uri(), resource.metadata_url()), (uri, Some(metadata)));
        }
        for bad in ["h", "ftp://h", "https://", "https://h?x", "https://h h"] {
            assert!(ProtectedResource::new(bad, "/mcp").is_none(), "{bad}");
        }
    }

    #[test]
    fn the_document_names_resource_issuers_and_scopes() {
        let scopes = ScopeSet::parse("files:read").unwrap();
        let resource =
            ProtectedResource::new("https://h", "/mcp/files").unwrap().with_scopes(scopes.clone(), scopes);
        let document = resource.metadata("files", &["https://id.example".to_owned()], &["ES256"]).unwrap();
        assert_eq!(
            document,
            r#"{"resource":"https://h/mcp/files","authorization_servers":["https://id.example"],"scopes_supported":["files:read"],"bearer_methods_supported":["header"],"resource_name":"files (Tenure)","dpop_signing_alg_values_supported":["ES256"]}"#
        );
        assert_eq!(ProtectedResource::keys_only("/mcp").metadata("x", &[], &[]), None);
    }

    #[test]
    fn audiences_are_compared_as_uris() {
        let rows = [
            ("https://h/mcp", "https://h/mcp", true),
            ("https://h/mcp", "HTTPS://H/mcp/", true),
            ("https://h/mcp", "https://h/MCP", false),
            ("https://h/mcp", "https://h/mcp//", false),
            ("https://h/mcp", "https://h", false),
            ("https://h/mcp", "https://h.evil/mcp", false),
            ("https://h/mcp", "account", false),
            ("https://h", "https://h/", true),
        ];
        for (a, b, same) in rows {
            assert_eq!(same_uri(a, b), same, "{a} {b}");
        }
    }
}
