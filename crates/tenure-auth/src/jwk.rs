//! Key sets of issuers (JWK, RFC 7517), and thumbprints of keys (RFC 7638).
//!
//! A key that we cannot use is left out; it does not make the others useless.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::Value;

use crate::jws::{Algorithm, PublicKey};

/// The most keys of one issuer.
const MAX_KEYS: usize = 100;

/// The shortest modulus of an RSA key.
const MIN_RSA_BYTES: usize = 256;

/// A key of an issuer, and what the issuer says it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct IssuerKey {
    pub(crate) id: Option<Box<str>>,
    algorithm: Option<Algorithm>,
    pub(crate) key: PublicKey,
}

impl IssuerKey {
    /// Whether the issuer may have signed with this key and algorithm.
    pub(crate) fn is_for(&self, algorithm: Algorithm) -> bool {
        self.algorithm.is_none_or(|own| own == algorithm) && self.key.is_for(algorithm)
    }
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Value>,
}

/// The usable keys of a key set. `None` if it is not a key set.
pub(crate) fn read_set(bytes: &[u8]) -> Option<Vec<IssuerKey>> {
    let set: JwkSet = serde_json::from_slice(bytes).ok()?;
    Some(set.keys.into_iter().take(MAX_KEYS).filter_map(issuer_key).collect())
}

fn issuer_key(value: Value) -> Option<IssuerKey> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let signs = jwk.usage.as_deref().is_none_or(|usage| usage == "sig");
    let verifies = jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !signs || !verifies {
        return None;
    }
    // An algorithm that we do not know makes the key unusable, and is not the same as none.
    let algorithm = match &jwk.alg {
        Some(name) => Some(Algorithm::named(name)?),
        None => None,
    };
    let key = public_key(&jwk)?;
    Some(IssuerKey { id: jwk.kid.map(Into::into), algorithm, key })
}

/// The key in the header of a proof of possession. `None` if it is not a public key that we can use.
pub(crate) fn read_public(value: &Value) -> Option<PublicKey> {
    // A private key in a proof would be a leak that must not look like success.
    if value.get("d").is_some() || value.get("k").is_some() {
        return None;
    }
    public_key(&serde_json::from_value(value.clone()).ok()?)
}

fn public_key(jwk: &Jwk) -> Option<PublicKey> {
    let bytes = |member: &Option<String>| URL_SAFE_NO_PAD.decode(member.as_deref()?).ok();
    match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => {
            let mut n = bytes(&jwk.n)?;
            let zeros = n.iter().take_while(|&&byte| byte == 0).count();
            n.drain(..zeros);
            (n.len() >= MIN_RSA_BYTES).then_some(())?;
            Some(PublicKey::Rsa { n, e: bytes(&jwk.e)? })
        }
        ("EC", Some("P-256")) => Some(PublicKey::P256(point(&bytes(&jwk.x)?, &bytes(&jwk.y)?, 32)?)),
        ("EC", Some("P-384")) => Some(PublicKey::P384(point(&bytes(&jwk.x)?, &bytes(&jwk.y)?, 48)?)),
        ("OKP", Some("Ed25519")) => bytes(&jwk.x).filter(|x| x.len() == 32).map(PublicKey::Ed25519),
        _ => None,
    }
}

/// An uncompressed point.
fn point(x: &[u8], y: &[u8], length: usize) -> Option<Vec<u8>> {
    (x.len() == length && y.len() == length).then(|| [&[4], x, y].concat())
}

/// The SHA-256 thumbprint of a key, in base64url: the members that define the key, sorted, without spaces.
pub(crate) fn thumbprint(key: &PublicKey) -> String {
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let ec = |curve: &str, point: &[u8]| {
        let (x, y) = point[1..].split_at((point.len() - 1) / 2);
        format!(r#"{{"crv":"{curve}","kty":"EC","x":"{}","y":"{}"}}"#, text(x), text(y))
    };
    let json = match key {
        PublicKey::Rsa { n, e } => format!(r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#, text(e), text(n)),
        PublicKey::P256(point) => ec("P-256", point),
        PublicKey::P384(point) => ec("P-384", point),
        PublicKey::Ed25519(x) => format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, text(x)),
    };
    text(digest(&SHA256, json.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The key of RFC 7638 §3.1.
    const RFC_7638: &str = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";

    #[test]
    fn the_thumbprint_of_the_standard_comes_out() {
        let key = read_public(&json!({"kty": "RSA", "n": RFC_7638, "e": "AQAB", "alg": "RS256"})).unwrap();
        assert_eq!(thumbprint(&key), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    }

    #[test]
    fn keys_that_cannot_be_used_are_left_out() {
        let x = URL_SAFE_NO_PAD.encode([1; 32]);
        let short = URL_SAFE_NO_PAD.encode([1; 128]);
        let set = json!({"keys": [
            {"kty": "RSA", "kid": "rsa", "n": RFC_7638, "e": "AQAB"},
            {"kty": "EC", "crv": "P-256", "kid": "ec", "x": x, "y": x, "alg": "ES256", "use": "sig"},
            {"kty": "OKP", "crv": "Ed25519", "x": x},
            {"kty": "RSA", "kid": "short", "n": short, "e": "AQAB"},
            {"kty": "RSA", "kid": "encrypts", "n": RFC_7638, "e": "AQAB", "use": "enc"},
            {"kty": "RSA", "kid": "signs", "n": RFC_7638, "e": "AQAB", "key_ops": ["sign"]},
            {"kty": "RSA", "kid": "odd", "n": RFC_7638, "e": "AQAB", "alg": "HS256"},
            {"kty": "EC", "crv": "P-521", "kid": "curve", "x": x, "y": x},
            {"kty": "oct", "kid": "secret", "k": "AAAA"},
            "nonsense",
        ]});
        let keys = read_set(set.to_string().as_bytes()).unwrap();
        let names: Vec<_> = keys.iter().map(|key| key.id.as_deref()).collect();
        assert_eq!(names, [Some("rsa"), Some("ec"), None]);
        assert!(keys[0].is_for(Algorithm::PS256) && keys[1].is_for(Algorithm::ES256));
        assert!(!keys[1].is_for(Algorithm::ES384));
        assert_eq!(read_set(b"[]"), None);
        assert_eq!(read_public(&json!({"kty": "OKP", "crv": "Ed25519", "x": x, "d": x})), None);
    }
}
