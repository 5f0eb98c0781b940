//! A signed word about who is calling, for servers behind that trust our key: a JWT that is good for a minute.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use quick_cache::sync::Cache;
use serde_json::json;

use super::client_key::ClientKey;
use crate::time::UnixSeconds;

/// How long it is good.
const LIFE: Duration = Duration::from_secs(60);

/// How long one is used again, so that it is good for a while when it arrives.
const REUSE: Duration = Duration::from_secs(30);

/// How many are kept to be used again.
const CAPACITY: usize = 1024;

/// A principal, and the client that acts for it.
type Named = (Arc<str>, Option<Arc<str>>);

/// Signs who is calling. Cheap to clone.
#[derive(Clone)]
pub struct PrincipalSigner(Arc<Inner>);

struct Inner {
    key: Arc<ClientKey>,
    issuer: String,
    audience: String,
    signed: Cache<Named, (HeaderValue, UnixSeconds)>,
}

impl PrincipalSigner {
    /// Signs with this key, in the name of `issuer`, for one server behind.
    pub fn new(key: Arc<ClientKey>, issuer: String, audience: String) -> Self {
        Self(Arc::new(Inner { key, issuer, audience, signed: Cache::new(CAPACITY) }))
    }

    /// The value of `X-Tenure-Principal` for this caller. `None` if the operating system has no randomness to give.
    pub fn header(
        &self,
        principal: &Arc<str>,
        client: Option<&Arc<str>>,
        now: UnixSeconds,
    ) -> Option<HeaderValue> {
        let who = (Arc::clone(principal), client.cloned());
        if let Some((header, signed)) = self.0.signed.get(&who)
            && signed <= now
            && now < signed.plus(REUSE)
        {
            return Some(header);
        }
        let mut claims = json!({
            "iss": self.0.issuer, "aud": self.0.audience, "sub": **principal,
            "iat": now.0, "exp": now.plus(LIFE).0,
        });
        if let Some(client) = client {
            claims["client_id"] = json!(**client);
        }
        let mut header = HeaderValue::from_str(&self.0.key.sign(&claims)?).ok()?;
        header.set_sensitive(true);
        self.0.signed.insert(who, (header.clone(), now));
        Some(header)
    }
}

/// It would show what was signed.
impl fmt::Debug for PrincipalSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrincipalSigner").field("key", &self.0.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jws::Compact;

    #[test]
    fn it_names_the_caller_and_the_server_for_a_minute() {
        let key = ClientKey::from_pem(ClientKey::generate_pem().as_bytes(), None).unwrap();
        let signer =
            PrincipalSigner::new(Arc::new(key), "https://us.example".to_owned(), "https://s/mcp".to_owned());
        let (ann, app): (Arc<str>, Arc<str>) = ("corp:ann".into(), "app".into());
        let header = signer.header(&ann, Some(&app), UnixSeconds(1000)).unwrap();
        let claims = |header: &HeaderValue| -> serde_json::Value {
            serde_json::from_slice(&Compact::read(header.to_str().unwrap()).unwrap().payload).unwrap()
        };
        assert_eq!(
            claims(&header),
            json!({"iss": "https://us.example", "aud": "https://s/mcp", "sub": "corp:ann",
                   "client_id": "app", "iat": 1000, "exp": 1060})
        );
        let at = |now| signer.header(&ann, Some(&app), UnixSeconds(now)).unwrap();
        assert_eq!(at(1029), header, "it is used again");
        assert_eq!(claims(&at(1030))["exp"], 1090);
        assert_eq!(claims(&at(900))["exp"], 960, "the clock was set back");
        assert_eq!(claims(&signer.header(&ann, None, UnixSeconds(1)).unwrap()).get("client_id"), None);
        assert!(!format!("{signer:?}").contains(header.to_str().unwrap()));
    }
}
