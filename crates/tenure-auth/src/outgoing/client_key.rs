//! A private key of ours: read from a PEM file, signs tokens, and shows its public half.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::jwk;
use crate::jws::{Algorithm, PublicKey};
use crate::keys::is_writable_by_others;

/// A private key of ours.
pub struct ClientKey {
    pair: Pair,
    id: String,
}

enum Pair {
    Ec(EcdsaKeyPair, Algorithm),
    Ed(Ed25519KeyPair),
    Rsa(Box<RsaKeyPair>),
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientKeyError {
    /// The file cannot be read.
    #[error("could not read `{}`", .0.display())]
    Unreadable(PathBuf, #[source] std::io::Error),
    /// Another user could put a key of their own there.
    #[error("other users can write `{}`", .0.display())]
    WritableByOthers(PathBuf),
    /// It holds no key that we know.
    #[error("`{}` holds no private key that can be used: it has to be PKCS#8 in PEM, of Ed25519, P-256, P-384 or RSA", .0.display())]
    NoKey(PathBuf),
}

impl ClientKey {
    /// The key in a file. Without a name for it, its name is its thumbprint (RFC 7638).
    pub fn read(path: &Path, id: Option<&str>) -> Result<Self, ClientKeyError> {
        if is_writable_by_others(path) {
            return Err(ClientKeyError::WritableByOthers(path.to_owned()));
        }
        let bytes =
            std::fs::read(path).map_err(|error| ClientKeyError::Unreadable(path.to_owned(), error))?;
        Self::from_pem(&bytes, id).ok_or_else(|| ClientKeyError::NoKey(path.to_owned()))
    }

    /// The key in a PEM text; `None` if it has no key of a kind that we know.
    pub fn from_pem(pem: &[u8], id: Option<&str>) -> Option<Self> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem).ok()?;
        let der = der.secret_pkcs8_der();
        let random = SystemRandom::new();
        let ec = |kind, algorithm| {
            EcdsaKeyPair::from_pkcs8(kind, der, &random).ok().map(|pair| Pair::Ec(pair, algorithm))
        };
        // OpenSSL leaves the public half of an Ed25519 key out.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Pair::Ed);
        let pair = pair.or_else(|| ec(&ECDSA_P256_SHA256_FIXED_SIGNING, Algorithm::ES256));
        let pair = pair.or_else(|| ec(&ECDSA_P384_SHA384_FIXED_SIGNING, Algorithm::ES384));
        let pair = pair.or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Box::new).map(Pair::Rsa))?;
        let id = id.map_or_else(|| jwk::thumbprint(&pair.public()), str::to_owned);
        Some(Self { pair, id })
    }

    /// A new key of Ed25519 as PEM, for a file.
    ///
    /// # Panics
    /// When the operating system has no randomness to give.
    pub fn generate_pem() -> String {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .expect("the operating system has randomness");
        let text = STANDARD.encode(der.as_ref());
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap_or_default()).collect();
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The algorithm that it signs with.
    pub fn algorithm(&self) -> Algorithm {
        match &self.pair {
            Pair::Ec(_, algorithm) => *algorithm,
            Pair::Ed(_) => Algorithm::EdDSA,
            Pair::Rsa(_) => Algorithm::RS256,
        }
    }

    /// Its public half as a key set, for those who verify what it signs.
    pub fn public_set(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let ec = |curve: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at((point.len() - 1) / 2);
            json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y)})
        };
        let mut key = match self.pair.public() {
            PublicKey::Rsa { n, e } => json!({"kty": "RSA", "n": text(&n), "e": text(&e)}),
            PublicKey::P256(point) => ec("P-256", &point),
            PublicKey::P384(point) => ec("P-384", &point),
            PublicKey::Ed25519(x) => json!({"kty": "OKP", "crv": "Ed25519", "x": text(&x)}),
        };
        key["kid"] = json!(self.id);
        key["use"] = json!("sig");
        key["alg"] = json!(self.algorithm().as_str());
        json!({ "keys": [key] })
    }

    /// Claims as a signed token. `None` if the operating system has no randomness to give.
    pub(crate) fn sign(&self, claims: &Value) -> Option<String> {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let header = json!({"alg": self.algorithm().as_str(), "kid": self.id, "typ": "JWT"});
        let message = format!("{}.{}", part(&header), part(claims));
        let signature = self.pair.sign(message.as_bytes())?;
        Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl Pair {
    fn public(&self) -> PublicKey {
        match self {
            Self::Ec(pair, Algorithm::ES384) => PublicKey::P384(pair.public_key().as_ref().to_vec()),
            Self::Ec(pair, _) => PublicKey::P256(pair.public_key().as_ref().to_vec()),
            Self::Ed(pair) => PublicKey::Ed25519(pair.public_key().as_ref().to_vec()),
            Self::Rsa(pair) => {
                let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                PublicKey::Rsa { n, e }
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Ec(pair, _) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
            Self::Ed(pair) => Some(pair.sign(message).as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
                Some(signature)
            }
        }
    }
}

/// It would show the key.
impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jws::Compact;

    #[test]
    fn a_new_key_signs_what_its_public_half_verifies() {
        let key = ClientKey::from_pem(ClientKey::generate_pem().as_bytes(), None).unwrap();
        let token = key.sign(&json!({"sub": "ann"})).unwrap();
        let public = jwk::read_public(&key.public_set()["keys"][0]).unwrap();
        let read = Compact::read(&token).unwrap();
        assert!(read.is_signed_by(&public, Algorithm::EdDSA));
        assert_eq!(read.header.kid.as_deref(), Some(key.id()));
        assert_eq!(key.id(), jwk::thumbprint(&public));
        let other = ClientKey::from_pem(ClientKey::generate_pem().as_bytes(), Some("mine")).unwrap();
        assert_eq!(other.id(), "mine");
        assert!(
            !read.is_signed_by(&jwk::read_public(&other.public_set()["keys"][0]).unwrap(), Algorithm::EdDSA)
        );
        assert!(!format!("{key:?}").contains(&URL_SAFE_NO_PAD.encode([0; 4])));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "nonsense", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            assert!(ClientKey::from_pem(text.as_bytes(), None).is_none(), "{text}");
        }
    }
}
