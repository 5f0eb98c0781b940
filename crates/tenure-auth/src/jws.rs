//! Signed tokens (JWS, compact form) over `ring`: reading a header, checking a signature.
//!
//! The algorithm of a token is only a claim until a key of the issuer agrees to it: [`PublicKey::verify`] takes the
//! algorithm from an allow-list and refuses one that is not for the key's type. There is no `none` and no HMAC, so that
//! a public key can never be taken for a shared secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::{Deserialize, Deserializer};

/// The signature algorithms that can be allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "they are the names of RFC 7518 and RFC 8037")]
pub enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl Algorithm {
    /// Those that are allowed unless an issuer's settings say otherwise.
    pub const DEFAULT: [Self; 5] = [Self::RS256, Self::PS256, Self::ES256, Self::ES384, Self::EdDSA];

    /// All that can be allowed.
    pub const ALL: [Self; 9] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDSA,
    ];

    /// The name in headers and metadata.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDSA => "EdDSA",
        }
    }

    /// The algorithm with this name. RFC 9864 calls EdDSA on the curve that we know `Ed25519`.
    pub fn named(name: &str) -> Option<Self> {
        if name == "Ed25519" {
            return Some(Self::EdDSA);
        }
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

/// The public half of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PublicKey {
    /// Modulus and exponent.
    Rsa {
        /// The modulus, without leading zeros.
        n: Vec<u8>,
        /// The exponent.
        e: Vec<u8>,
    },
    /// An uncompressed point on P-256.
    P256(Vec<u8>),
    /// An uncompressed point on P-384.
    P384(Vec<u8>),
    /// A key of Ed25519.
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// Whether the algorithm is one for keys of this type.
    pub fn is_for(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::Rsa { .. } => !matches!(algorithm, Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA),
            Self::P256(_) => algorithm == Algorithm::ES256,
            Self::P384(_) => algorithm == Algorithm::ES384,
            Self::Ed25519(_) => algorithm == Algorithm::EdDSA,
        }
    }

    /// Whether the signature of the message is by this key, with this algorithm.
    pub fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.is_for(algorithm) {
            return false;
        }
        let checked = match self {
            Self::Rsa { n, e } => match rsa_parameters(algorithm) {
                Some(parameters) => RsaPublicKeyComponents { n, e }.verify(parameters, message, signature),
                None => return false,
            },
            Self::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Self::P384(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
            Self::Ed25519(key) => UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature),
        };
        checked.is_ok()
    }
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static signature::RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA => None,
    }
}

/// A token taken apart. Nothing of it is verified yet.
pub(crate) struct Compact<'a> {
    pub(crate) header: Header,
    /// The bytes that were signed.
    signed: &'a [u8],
    pub(crate) payload: Vec<u8>,
    signature: Vec<u8>,
}

/// The members of a header that we look at. `jku`, `x5u` and `x5c` are never followed.
#[derive(Deserialize)]
pub(crate) struct Header {
    pub(crate) alg: String,
    pub(crate) kid: Option<String>,
    pub(crate) typ: Option<String>,
    #[serde(default, deserialize_with = "is_present")]
    pub(crate) crit: bool,
    /// The key itself, in proofs of possession alone.
    pub(crate) jwk: Option<serde_json::Value>,
}

/// True for any value, `null` too.
fn is_present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl<'a> Compact<'a> {
    /// Takes a token apart. `None` if it is not a JWS in compact form.
    pub(crate) fn read(token: &'a str) -> Option<Self> {
        let mut parts = token.splitn(4, '.');
        let (header, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        Some(Self {
            header: serde_json::from_slice(&decode(header)?).ok()?,
            signed: &token.as_bytes()[..header.len() + 1 + payload.len()],
            payload: decode(payload)?,
            signature: decode(signature)?,
        })
    }

    pub(crate) fn is_signed_by(&self, key: &PublicKey, algorithm: Algorithm) -> bool {
        key.verify(algorithm, self.signed, &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_algorithms_belong_together() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::named(algorithm.as_str()), Some(algorithm));
        }
        assert_eq!(Algorithm::named("Ed25519"), Some(Algorithm::EdDSA));
        for name in ["none", "None", "HS256", "HS512", "ES512", "rs256", ""] {
            assert_eq!(Algorithm::named(name), None, "{name}");
        }
    }

    #[test]
    fn only_whole_tokens_are_taken_apart() {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let header = part(r#"{"alg":"RS256","kid":"1","crit":null}"#);
        let token = format!("{header}.{}.{}", part("{}"), part("sig"));
        let read = Compact::read(&token).unwrap();
        assert_eq!((read.header.alg.as_str(), read.header.crit), ("RS256", true));
        assert_eq!(read.signed, format!("{header}.{}", part("{}")).as_bytes());
        let bad = [
            "".to_owned(),
            "a.b".to_owned(),
            format!("{token}.x"),
            format!("{header}=.{}.", part("{}")),
            format!("{}.{}.", part(r#"{"alg":"RS256","alg":"none"}"#), part("{}")),
            format!("{}.{}.", part("[]"), part("{}")),
            format!("{}.{}.", part(r#"{"kid":"1"}"#), part("{}")),
        ];
        for token in bad {
            assert!(Compact::read(&token).is_none(), "{token}");
        }
    }

    #[test]
    fn a_key_verifies_its_own_algorithms_alone() {
        let keys = [
            PublicKey::Rsa { n: vec![1; 256], e: vec![1, 0, 1] },
            PublicKey::P256(vec![4; 65]),
            PublicKey::P384(vec![4; 97]),
            PublicKey::Ed25519(vec![1; 32]),
        ];
        let fits: Vec<Vec<&str>> = keys
            .iter()
            .map(|key| Algorithm::ALL.into_iter().filter(|&a| key.is_for(a)).map(Algorithm::as_str).collect())
            .collect();
        let expected: [&[&str]; 4] =
            [&["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"], &["ES256"], &["ES384"], &["EdDSA"]];
        assert_eq!(fits, expected);
        for key in &keys {
            for algorithm in Algorithm::ALL {
                assert!(!key.verify(algorithm, b"message", b"signature"));
            }
        }
    }
}
