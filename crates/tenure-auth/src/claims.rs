//! The claims of a token, and whether they hold for this resource at this time.

use serde::Deserialize;
use serde_json::{Number, Value};

use crate::identity::{CredentialKind, Identity, is_plain_name};
use crate::issuer::IssuerSettings;
use crate::refusal::TokenFault;
use crate::resource::{ProtectedResource, same_uri};
use crate::scope::ScopeSet;
use crate::time::{LEEWAY, UnixSeconds};

/// The claims that we look at, in a token or in the answer of an introspection. A time that is a text makes them unreadable.
#[derive(Deserialize)]
pub(crate) struct Claims {
    pub(crate) iss: Option<String>,
    sub: Option<String>,
    #[serde(default)]
    aud: Option<OneOrMany>,
    exp: Option<Number>,
    nbf: Option<Number>,
    iat: Option<Number>,
    client_id: Option<String>,
    azp: Option<String>,
    cid: Option<String>,
    appid: Option<String>,
    scope: Option<OneOrMany>,
    scp: Option<OneOrMany>,
    cnf: Option<Confirmation>,
    #[serde(default)]
    at_hash: Option<Value>,
    #[serde(default)]
    nonce: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), &[][..]),
            Self::Many(many) => (None, &many[..]),
        };
        one.into_iter().chain(many).map(String::as_str)
    }
}

/// What a token is bound to (RFC 7800).
#[derive(Clone, Deserialize, Debug, Default, PartialEq, Eq)]
pub(crate) struct Confirmation {
    /// The thumbprint of the key of a DPoP proof.
    pub(crate) jkt: Option<String>,
    /// The SHA-256 of a client certificate.
    #[serde(rename = "x5t#S256")]
    pub(crate) certificate: Option<String>,
    /// Ways of binding that we do not know must not be passed over.
    #[serde(flatten)]
    pub(crate) others: serde_json::Map<String, Value>,
}

impl Claims {
    /// Reads claims.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, TokenFault> {
        serde_json::from_slice(payload).map_err(|_| TokenFault::Unreadable)
    }

    /// What the token is bound to.
    pub(crate) fn confirmation(&self) -> Option<&Confirmation> {
        self.cnf.as_ref()
    }

    /// Whether these are claims of a login for the client and not of access to a server.
    pub(crate) fn is_id_token(&self) -> bool {
        self.at_hash.is_some() || self.nonce.is_some()
    }

    /// The identity that these claims prove, if they hold for this resource now. `must_expire` is for signed tokens: the
    /// issuer is not asked about them later.
    pub(crate) fn identity(
        &self,
        issuer: &IssuerSettings,
        resource: &ProtectedResource,
        must_expire: bool,
        now: UnixSeconds,
    ) -> Result<Identity, TokenFault> {
        let expires = self.times(must_expire, now)?;
        self.check_audience(issuer, resource)?;
        let subject = self.sub.as_deref().filter(|sub| is_plain_name(sub)).ok_or(TokenFault::Subject)?;
        // The last two are the names of issuers that were there before the standard.
        let client =
            [&self.client_id, &self.azp, &self.cid, &self.appid].into_iter().find_map(Option::as_deref);
        if client.is_some_and(|client| !is_plain_name(client)) {
            return Err(TokenFault::Subject);
        }
        Ok(Identity {
            client: client.map(Into::into),
            scopes: self.scopes(issuer)?,
            expires,
            issued: seconds(self.iat.as_ref())?,
            ..Identity::new(&issuer.name, subject, CredentialKind::Token)
        })
    }

    /// When they expire, if their time is now.
    fn times(&self, must_expire: bool, now: UnixSeconds) -> Result<UnixSeconds, TokenFault> {
        let expires = match seconds(self.exp.as_ref())? {
            Some(expires) => expires,
            None if must_expire => return Err(TokenFault::Expired),
            None => UnixSeconds::NEVER,
        };
        if expires <= now.minus(LEEWAY) {
            return Err(TokenFault::Expired);
        }
        let begins = [seconds(self.nbf.as_ref())?, seconds(self.iat.as_ref())?];
        match begins.into_iter().flatten().any(|begin| begin > now.plus(LEEWAY)) {
            true => Err(TokenFault::NotYet),
            false => Ok(expires),
        }
    }

    fn check_audience(
        &self,
        issuer: &IssuerSettings,
        resource: &ProtectedResource,
    ) -> Result<(), TokenFault> {
        let is_ours = |audience: &str| {
            resource.is_meant_by(audience) || issuer.audiences.iter().any(|own| same_uri(own, audience))
        };
        match self.aud.as_ref().is_some_and(|audiences| audiences.iter().any(is_ours)) {
            true => Ok(()),
            false => Err(TokenFault::Audience),
        }
    }

    /// `scope` as a text, or `scp` as a text or a list, as some issuers have it.
    fn scopes(&self, issuer: &IssuerSettings) -> Result<ScopeSet, TokenFault> {
        let granted = self.scope.iter().chain(&self.scp).flat_map(OneOrMany::iter);
        let granted = granted.flat_map(|text| text.split(' ')).filter(|scope| !scope.is_empty());
        let prefix = issuer.scope_prefix.as_deref().unwrap_or_default();
        ScopeSet::of(granted.map(|scope| scope.strip_prefix(prefix).unwrap_or(scope)))
            .ok_or(TokenFault::Unreadable)
    }
}

/// A time as whole seconds. It may have a fraction, and must not be negative.
fn seconds(time: Option<&Number>) -> Result<Option<UnixSeconds>, TokenFault> {
    let Some(time) = time else { return Ok(None) };
    if let Some(seconds) = time.as_u64() {
        return Ok(Some(UnixSeconds(seconds)));
    }
    match time.as_f64() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        Some(seconds) if (0.0..1e15).contains(&seconds) => Ok(Some(UnixSeconds(seconds as u64))),
        _ => Err(TokenFault::Unreadable),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_000_000);

    fn identity(claims: &Value) -> Result<Identity, TokenFault> {
        let mut issuer = IssuerSettings::new("corp", "https://id.example");
        issuer.audiences = vec!["api://tenure".to_owned()];
        issuer.scope_prefix = Some("api://tenure/".to_owned());
        let resource = ProtectedResource::new("https://h", "/mcp").unwrap();
        Claims::read(claims.to_string().as_bytes())?.identity(&issuer, &resource, true, NOW)
    }

    fn with(change: &Value) -> Value {
        let mut claims =
            json!({"iss": "https://id.example", "sub": "alice", "aud": "https://h/mcp", "exp": 1_000_100});
        let members = change.as_object().unwrap();
        for (name, value) in members {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
                value => claims[name] = value.clone(),
            }
        }
        claims
    }

    #[test]
    fn good_claims_are_an_identity() {
        let rows = [
            (json!({}), "corp:alice", None, ""),
            (json!({"aud": ["x", "HTTPS://H/mcp/"], "client_id": "app"}), "corp:alice", Some("app"), ""),
            (
                json!({"aud": "api://tenure", "azp": "web", "scp": "api://tenure/b a"}),
                "corp:alice",
                Some("web"),
                "a b",
            ),
            (json!({"scope": "b a", "scp": ["c"], "exp": 1_000_050.5}), "corp:alice", None, "a b c"),
            (json!({"exp": 999_980, "nbf": 1_000_020, "iat": 1_000_010}), "corp:alice", None, ""),
        ];
        for (change, principal, client, scopes) in rows {
            let identity = identity(&with(&change)).unwrap();
            assert_eq!((identity.principal(), identity.client()), (principal, client), "{change}");
            assert_eq!(identity.scopes().to_string(), scopes);
        }
    }

    #[test]
    fn bad_claims_are_refused() {
        let rows = [
            (json!({"exp": 999_970}), TokenFault::Expired),
            (json!({"exp": null}), TokenFault::Expired),
            (json!({"exp": "1000100"}), TokenFault::Unreadable),
            (json!({"exp": -1}), TokenFault::Unreadable),
            (json!({"nbf": 1_000_031}), TokenFault::NotYet),
            (json!({"iat": 1_000_031}), TokenFault::NotYet),
            (json!({"aud": null}), TokenFault::Audience),
            (json!({"aud": "account"}), TokenFault::Audience),
            (json!({"aud": ["https://h/mcp/files"]}), TokenFault::Audience),
            (json!({"sub": null}), TokenFault::Subject),
            (json!({"sub": ""}), TokenFault::Subject),
            (json!({"sub": "a\u{202e}b"}), TokenFault::Subject),
            (json!({"client_id": "a\nb"}), TokenFault::Subject),
            (json!({"scope": "a\"b"}), TokenFault::Unreadable),
        ];
        for (change, fault) in rows {
            assert_eq!(identity(&with(&change)).unwrap_err(), fault, "{change}");
        }
    }
}
