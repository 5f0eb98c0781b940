//! Scripts that log in by themselves: with a static key, or with a token of an issuer.
//!
//! A role needs a scope that says so. A key without one is a client's, and opens nothing here.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::http::request::Parts;
use tenure_auth::keys::ApiKeyFile;
use tenure_auth::{
    AuthRefusal, AuthSettings, Authenticator, CredentialKind, Identity, Presented, ProtectedResource,
    UnixSeconds,
};
use tenure_session::port::store::Store;
use tenure_session::revocation;

use super::api::BASE;
use super::caller::{AdminCaller, Standing, Via};
use super::refused::NotLetIn;
use super::role::AdminRole;
use crate::config::Config;
use crate::failure::Failure;
use crate::operator::now;

/// What the scopes of keys begin with.
const PREFIX: &str = "admin";

/// Who verifies keys and tokens of operators. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct OperatorKeys {
    /// Knows the keys of operators alone, if they have a file of their own.
    own: Option<Authenticator>,
    /// Knows the credentials of clients too.
    shared: Option<Authenticator>,
    /// What the scopes of tokens begin with; without it tokens open nothing.
    of_tokens: Option<String>,
    resource: ProtectedResource,
}

impl OperatorKeys {
    /// # Errors
    /// When the file of keys cannot be read.
    pub(crate) fn new(config: &Config, shared: Option<Authenticator>) -> Result<Self, Failure> {
        let own = config.admin.keys_file.as_ref().map(|file| {
            let settings = AuthSettings { keys: Some(ApiKeyFile::at(file)), ..AuthSettings::default() };
            Authenticator::with_system_trust(settings).map_err(|error| {
                Failure::new("cannot read the keys for operators")
                    .caused_by(error)
                    .hint("`tenure keys new NAME --scope admin:operator --file FILE` makes the file of `admin.keys_file`")
            })
        });
        let public_url = config.auth.public_url.as_deref().filter(|_| config.admin.scope.is_some());
        let resource = public_url.and_then(|url| ProtectedResource::new(url, BASE));
        let resource = resource.unwrap_or_else(|| ProtectedResource::keys_only(BASE));
        Ok(Self { own: own.transpose()?, shared, of_tokens: config.admin.scope.clone(), resource })
    }

    /// Knows the keys of operators alone, if they have a file of their own.
    pub(crate) fn own(&self) -> Option<&Authenticator> {
        self.own.as_ref()
    }

    /// Reads who was revoked before this process began.
    pub(crate) async fn read_revocations(&self, store: &dyn Store) {
        let Some(own) = &self.own else { return };
        match revocation::all(store).await {
            Ok((revoked, _)) => {
                for revoked in revoked {
                    own.revoke(&revoked.principal, UnixSeconds(revoked.not_before / 1000));
                }
            }
            // Refused all the same: the keys of operators are few, and theirs are revoked by removing them from the file.
            Err(error) => tracing::error!(%error, "cannot read which principals were revoked"),
        }
    }

    /// Reads the file again if it has changed.
    pub(super) async fn refresh(&self) {
        if let Some(own) = &self.own {
            own.refresh(unix_now()).await;
        }
    }

    /// The caller that a request's credentials prove; `None` if it has none.
    pub(super) async fn caller(
        &self,
        head: &Parts,
        remote: SocketAddr,
    ) -> Result<Option<AdminCaller>, NotLetIn> {
        let presented = Presented::read(&head.headers, &head.uri, head.method.as_str());
        let presented = presented.map_err(|refusal| NotLetIn::by_credentials(&refusal))?;
        if presented.is_empty() {
            return Ok(None);
        }
        let (authenticator, identity) = self.verified(&presented).await?;
        let (via, prefix) = match identity.kind() {
            CredentialKind::Key => (Via::Key, Some(PREFIX)),
            CredentialKind::Token | CredentialKind::Certificate => (Via::Token, self.of_tokens.as_deref()),
        };
        let role = prefix.and_then(|prefix| AdminRole::of_scopes(prefix, identity.scopes()));
        let role = role.ok_or_else(|| NotLetIn::without_role(identity.principal()))?;
        Ok(Some(AdminCaller {
            name: identity.principal().to_owned(),
            role,
            via,
            uid: None,
            remote: Some(remote),
            standing: Standing::Credentials(authenticator, identity),
        }))
    }

    async fn verified(&self, presented: &Presented<'_>) -> Result<(Authenticator, Arc<Identity>), NotLetIn> {
        // With a file of their own, the keys of clients open nothing.
        let own = self.own.iter().map(|own| (own, true));
        let shared = self.shared.iter().filter(|_| self.own.is_none() || self.of_tokens.is_some());
        let shared = shared.map(|shared| (shared, self.own.is_none()));
        let mut refusal = AuthRefusal::Missing;
        for (authenticator, takes_keys) in own.chain(shared) {
            match authenticator.verify(presented, &self.resource, unix_now()).await {
                Ok(identity) if takes_keys || identity.kind() != CredentialKind::Key => {
                    return Ok((authenticator.clone(), identity));
                }
                Ok(_) => {}
                Err(found) => refusal = found,
            }
        }
        Err(NotLetIn::by_credentials(&refusal))
    }
}

fn unix_now() -> UnixSeconds {
    UnixSeconds(now().0 / 1000)
}
