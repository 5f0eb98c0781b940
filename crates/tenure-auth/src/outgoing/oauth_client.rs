//! Who we are at an authorization server, and how we prove it in a token request.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::json;

use super::client_key::ClientKey;
use crate::fetch::form_encoded;
use crate::time::UnixSeconds;

/// How long an assertion is good, in seconds.
const ASSERTION_SECONDS: u64 = 60;

/// Who we are at an authorization server.
#[derive(Clone, Debug)]
pub struct OAuthClient {
    /// Our name there.
    pub id: String,
    /// How we prove it.
    pub proof: ClientProof,
}

/// How a client proves who it is.
#[derive(Clone)]
pub enum ClientProof {
    /// By a secret that both know.
    Secret(String),
    /// By a token that it signs (RFC 7523, `private_key_jwt`).
    Key(Arc<ClientKey>),
    /// Not at all.
    None,
}

/// It would show the secret.
impl fmt::Debug for ClientProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret",
            Self::Key(_) => "Key",
            Self::None => "None",
        })
    }
}

/// Where a secret stands in a token request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SecretPlace {
    /// In the `Authorization` header.
    Header,
    /// In the form.
    Form,
}

impl OAuthClient {
    /// Adds what proves who we are to a form. Returns what stands in the header instead.
    pub(crate) fn prove<'a>(
        &'a self,
        form: &mut String,
        audience: &str,
        place: SecretPlace,
        now: UnixSeconds,
    ) -> Option<(&'a str, &'a str)> {
        match (&self.proof, place) {
            (ClientProof::Secret(secret), SecretPlace::Header) => return Some((&self.id, secret)),
            (ClientProof::Secret(secret), SecretPlace::Form) => {
                add(form, "client_id", &self.id);
                add(form, "client_secret", secret);
            }
            (ClientProof::None, _) => add(form, "client_id", &self.id),
            (ClientProof::Key(key), _) => {
                add(form, "client_id", &self.id);
                let claims = json!({
                    "iss": self.id, "sub": self.id, "aud": audience, "jti": random_name(),
                    "iat": now.0, "exp": now.0 + ASSERTION_SECONDS,
                });
                add(form, "client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
                // Without a signature the server refuses the request, and says so.
                add(form, "client_assertion", &key.sign(&claims).unwrap_or_default());
            }
        }
        None
    }
}

/// Adds a field to a form.
pub(crate) fn add(form: &mut String, name: &str, value: &str) {
    let separator = if form.is_empty() { "" } else { "&" };
    let _ = write!(form, "{separator}{name}={}", form_encoded(value));
}

/// A name that no other assertion has.
fn random_name() -> String {
    let mut bytes = [0_u8; 16];
    // A server that wants a new name each time refuses the second of two that are the same.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_stands_where_the_server_wants_it() {
        let client = OAuthClient { id: "me".to_owned(), proof: ClientProof::Secret("a b&secret".to_owned()) };
        let mut form = "grant_type=x".to_owned();
        let header = client.prove(&mut form, "https://id.example", SecretPlace::Header, UnixSeconds(1));
        assert_eq!((header, form.as_str()), (Some(("me", "a b&secret")), "grant_type=x"));
        assert_eq!(client.prove(&mut form, "", SecretPlace::Form, UnixSeconds(1)), None);
        assert_eq!(form, "grant_type=x&client_id=me&client_secret=a%20b%26secret");
        assert!(!format!("{client:?}").contains("secret"));
    }

    #[test]
    fn an_assertion_names_us_and_the_server() {
        use crate::jws::Compact;
        let key = ClientKey::from_pem(ClientKey::generate_pem().as_bytes(), None).unwrap();
        let client = OAuthClient { id: "me".to_owned(), proof: ClientProof::Key(Arc::new(key)) };
        let mut form = String::new();
        client.prove(&mut form, "https://id.example", SecretPlace::Header, UnixSeconds(1000));
        let token = form.split("client_assertion=").nth(1).unwrap();
        let claims: serde_json::Value =
            serde_json::from_slice(&Compact::read(token).unwrap().payload).unwrap();
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("me"), &json!("me")));
        assert_eq!((&claims["aud"], &claims["exp"]), (&json!("https://id.example"), &json!(1060)));
        assert_eq!(claims["jti"].as_str().unwrap().len(), 32);
    }
}
