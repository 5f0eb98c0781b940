//! The metadata of an authorization server (RFC 8414, OpenID Connect discovery), at the places where servers have them.

use serde::Deserialize;

use crate::fetch::{FetchError, Fetcher};

/// What an authorization server says of itself.
#[derive(Deserialize, Debug)]
pub(crate) struct ServerMetadata {
    issuer: String,
    pub(crate) jwks_uri: Option<String>,
    pub(crate) introspection_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

impl ServerMetadata {
    /// The metadata of the server with this issuer URL. They have to name it, byte for byte.
    pub(crate) async fn discover(fetcher: &Fetcher, issuer: &str) -> Result<Self, FetchError> {
        let mut failure = FetchError::Content("its URL cannot be read");
        for url in metadata_urls(issuer) {
            let metadata = match fetcher.get(&url).await {
                Ok(fetched) => serde_json::from_slice::<Self>(&fetched.body),
                Err(error) => {
                    failure = error;
                    continue;
                }
            };
            let Ok(metadata) = metadata else {
                failure = FetchError::Content("its metadata cannot be read");
                continue;
            };
            return match metadata.issuer == issuer {
                true => Ok(metadata),
                false => Err(FetchError::Content("its metadata names another issuer")),
            };
        }
        Err(failure)
    }
}

/// Where the metadata of an issuer can be.
fn metadata_urls(issuer: &str) -> Vec<String> {
    let issuer = issuer.strip_suffix('/').unwrap_or(issuer);
    let Some(scheme) = issuer.find("://") else { return Vec::new() };
    let path = issuer[scheme + 3..].find('/').map_or(issuer.len(), |at| scheme + 3 + at);
    let (origin, path) = issuer.split_at(path);
    let mut urls = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        urls.push(format!("{issuer}/.well-known/openid-configuration"));
    }
    urls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_looked_for_where_servers_have_it() {
        assert_eq!(
            metadata_urls("https://id.example/t1/"),
            [
                "https://id.example/.well-known/oauth-authorization-server/t1",
                "https://id.example/.well-known/openid-configuration/t1",
                "https://id.example/t1/.well-known/openid-configuration",
            ]
        );
        assert_eq!(metadata_urls("https://id.example").len(), 2);
        assert_eq!(metadata_urls("nonsense"), [""; 0]);
    }
}
