//! Where tokens for a server behind are requested: at a URL, at a configured issuer, or at the one that the server names.

use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Url;

use super::discovery;
use super::oauth_client::SecretPlace;
use super::tokens::OutgoingClients;
use crate::fetch::{FetchError, Fetcher};
use crate::server_metadata::ServerMetadata;
use crate::time::UnixSeconds;

/// How long what was discovered counts.
const COUNTS_FOR: Duration = Duration::from_secs(3600);

/// Where tokens for a server behind are requested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenServer {
    /// At this URL.
    Url(String),
    /// At this URL, which belongs to the issuer with this other URL.
    IssuerAt {
        /// What an assertion is for.
        issuer: String,
        /// Where tokens are requested.
        url: String,
    },
    /// At the issuer with this URL, whose metadata say where.
    Issuer(String),
    /// At the authorization server that the server behind names. What proves who we are goes there, so that the server behind
    /// is trusted with it; callers' tokens never do.
    NamedByServer,
}

/// A token endpoint, and how it wants to be asked.
#[derive(Clone, Debug)]
pub(super) struct TokenEndpoint {
    pub(super) url: String,
    /// What an assertion is for.
    pub(super) audience: String,
    pub(super) place: SecretPlace,
    /// What tokens for the server behind are issued for, if it says so itself.
    pub(super) resource: Option<String>,
    pub(super) fetcher: Fetcher,
}

/// A token server with what was discovered of it.
#[derive(Debug)]
pub(super) struct KnownTokenServer {
    server: TokenServer,
    upstream: Url,
    clients: OutgoingClients,
    known: Mutex<Option<(TokenEndpoint, UnixSeconds)>>,
}

impl KnownTokenServer {
    pub(super) fn new(server: TokenServer, upstream: Url, clients: OutgoingClients) -> Self {
        Self { server, upstream, clients, known: Mutex::default() }
    }

    /// The endpoint, as it is known or as it is found out now.
    pub(super) async fn endpoint(&self, now: UnixSeconds) -> Result<TokenEndpoint, FetchError> {
        let known = self.known.lock().clone();
        if let Some((endpoint, until)) = known
            && now < until
        {
            return Ok(endpoint);
        }
        let endpoint = self.find().await?;
        *self.known.lock() = Some((endpoint.clone(), now.plus(COUNTS_FOR)));
        Ok(endpoint)
    }

    /// Forgets what was discovered: the next request finds it out anew.
    pub(super) fn forget(&self) {
        *self.known.lock() = None;
    }

    async fn find(&self) -> Result<TokenEndpoint, FetchError> {
        let configured = |url: &str, audience: &str| TokenEndpoint {
            url: url.to_owned(),
            audience: audience.to_owned(),
            place: SecretPlace::Header,
            resource: None,
            fetcher: self.clients.configured.clone(),
        };
        match &self.server {
            TokenServer::Url(url) => Ok(configured(url, url)),
            TokenServer::IssuerAt { issuer, url } => Ok(configured(url, issuer)),
            TokenServer::Issuer(issuer) => {
                let fetcher = &self.clients.configured;
                let metadata = ServerMetadata::discover(fetcher, issuer).await?;
                endpoint(metadata, issuer, None, fetcher)
            }
            TokenServer::NamedByServer => {
                let found = discovery::of_upstream(&self.clients, &self.upstream).await?;
                let fetcher = self.clients.led_by(&self.upstream);
                endpoint(found.metadata, &found.issuer, Some(found.resource), fetcher)
            }
        }
    }
}

fn endpoint(
    metadata: ServerMetadata,
    issuer: &str,
    resource: Option<String>,
    fetcher: &Fetcher,
) -> Result<TokenEndpoint, FetchError> {
    let methods = metadata.token_endpoint_auth_methods_supported;
    let takes = |method: &str| methods.as_ref().is_some_and(|methods| methods.iter().any(|it| it == method));
    // Without a list it is the header (RFC 8414).
    let place = match takes("client_secret_post") && !takes("client_secret_basic") {
        true => SecretPlace::Form,
        false => SecretPlace::Header,
    };
    let url = metadata.token_endpoint.ok_or(FetchError::Content("its metadata has no token_endpoint"))?;
    Ok(TokenEndpoint { url, audience: issuer.to_owned(), place, resource, fetcher: fetcher.clone() })
}
