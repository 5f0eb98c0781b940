//! An identity as one process of ours tells it to another, which trusts that it was verified.
//!
//! The process that a request reaches verifies its credentials; the process that serves it gets this instead of them. It has
//! all that decides what the caller may do and until when, also whether its credentials have been taken back since, and
//! nothing with which another could pass for the caller.
//!
//! Only if a server behind gets tokens in exchange for those of callers, the token goes along too, as a [`VouchedToken`]: nothing
//! else could be exchanged. It is a secret, and never shown.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::identity::{CredentialKind, Identity};
use crate::scope::ScopeSet;
use crate::time::UnixSeconds;

/// A verified identity, in a form that is written and read back. Only its content counts: whether it can be believed depends
/// on who says it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct VouchedIdentity {
    principal: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    scopes: Vec<String>,
    /// Absent if the credentials do not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    issued: Option<u64>,
    /// The hash of the static key, by which it is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

impl From<&Identity> for VouchedIdentity {
    fn from(identity: &Identity) -> Self {
        Self {
            principal: identity.principal().to_owned(),
            kind: identity.kind().as_str().to_owned(),
            client: identity.client().map(str::to_owned),
            scopes: identity.scopes().iter().map(str::to_owned).collect(),
            expires: (identity.expires() != UnixSeconds::NEVER).then_some(identity.expires().0),
            issued: identity.issued().map(|issued| issued.0),
            key: identity.key().map(|key| URL_SAFE_NO_PAD.encode(key)),
        }
    }
}

impl VouchedIdentity {
    /// The identity; `None` if it names a kind of credentials, a scope or a key that this version cannot read.
    pub fn identity(&self) -> Option<Identity> {
        let kind = [CredentialKind::Token, CredentialKind::Key, CredentialKind::Certificate];
        let kind = kind.into_iter().find(|kind| kind.as_str() == self.kind)?;
        let key = match &self.key {
            Some(key) => Some(URL_SAFE_NO_PAD.decode(key).ok()?.try_into().ok()?),
            None => None,
        };
        Some(Identity {
            principal: self.principal.as_str().into(),
            kind,
            client: self.client.as_deref().map(Into::into),
            scopes: ScopeSet::of(self.scopes.iter().map(String::as_str))?,
            expires: self.expires.map_or(UnixSeconds::NEVER, UnixSeconds),
            issued: self.issued.map(UnixSeconds),
            key,
        })
    }
}

/// The token of a caller, for token exchange at the process that serves its request.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct VouchedToken {
    token: Box<str>,
    expires: u64,
}

impl VouchedToken {
    pub(crate) fn new(token: &str, expires: UnixSeconds) -> Self {
        Self { token: token.into(), expires: expires.0 }
    }

    pub(crate) fn expose(&self) -> &str {
        &self.token
    }

    pub(crate) fn expires(&self) -> UnixSeconds {
        UnixSeconds(self.expires)
    }
}

/// It would show the token.
impl fmt::Debug for VouchedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VouchedToken").field("expires", &self.expires).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_same_after_it_was_told_and_is_not_shown() {
        let token = VouchedToken::new("ey.secret.x", UnixSeconds(1_900_000_000));
        let told = serde_json::to_string(&token).unwrap();
        assert!(serde_json::from_str::<VouchedToken>(&told).unwrap() == token, "{told}");
        assert!(!format!("{token:?}").contains("secret"));
    }

    #[test]
    fn an_identity_is_the_same_after_it_was_told() {
        let plain = Identity::new("corp", "Zoë", CredentialKind::Token);
        let full = Identity {
            client: Some("desk".into()),
            scopes: ScopeSet::of(["notes:read", "notes:write"]).unwrap(),
            expires: UnixSeconds(1_900_000_000),
            issued: Some(UnixSeconds(1_800_000_000)),
            key: Some([7; 32]),
            ..Identity::new("key", "ci", CredentialKind::Key)
        };
        let certificate = Identity::new("cert", "spiffe://corp/agent", CredentialKind::Certificate);
        for identity in [plain, full, certificate] {
            let told = serde_json::to_string(&VouchedIdentity::from(&identity)).unwrap();
            let read: VouchedIdentity = serde_json::from_str(&told).unwrap();
            assert!(read.identity().unwrap() == identity, "{told}");
        }
    }

    #[test]
    fn an_identity_that_cannot_be_read_is_none() {
        let read = |text: &str| serde_json::from_str::<VouchedIdentity>(text).ok()?.identity();
        assert!(read(r#"{"principal":"a:b","kind":"token","scopes":[]}"#).is_some());
        assert!(read(r#"{"principal":"a:b","kind":"smile","scopes":[]}"#).is_none());
        assert!(read(r#"{"principal":"a:b","kind":"key","scopes":[],"key":"AAAA"}"#).is_none());
        assert!(read(r#"{"principal":"a:b","kind":"token","scopes":["a b"]}"#).is_none());
    }
}
