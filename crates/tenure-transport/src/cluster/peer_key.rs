//! The key by which a node proves to its peers who it is.
//!
//! Drawn at start and never written anywhere; its hash is in the node's record. It is used as it is (RFC 7250), without a
//! certificate around it: there is no authority that could sign one, and nothing that one would say.

use std::fmt;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// A node's key. Cheap to clone.
#[derive(Clone)]
pub struct PeerKey {
    pair: Arc<CertifiedKey>,
    pin: KeyPin,
}

/// Why no key could be drawn.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system gave no randomness for a key")]
pub struct PeerKeyError;

impl PeerKey {
    /// Draws a key.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub fn draw() -> Result<Self, PeerKeyError> {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| PeerKeyError)?;
        let pair = PrivatePkcs8KeyDer::from(pair.as_ref().to_vec());
        let pair = any_eddsa_type(&pair).map_err(|_| PeerKeyError)?;
        let public = pair.public_key().ok_or(PeerKeyError)?.to_vec();
        let pin = KeyPin::of(&public);
        Ok(Self { pair: Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], pair)), pin })
    }

    /// The hash of its public half.
    pub fn pin(&self) -> KeyPin {
        self.pin
    }

    pub(super) fn pair(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.pair)
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerKey").field(&self.pin).finish()
    }
}

/// The SHA-256 of a public key (its SPKI).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyPin([u8; 32]);

impl KeyPin {
    /// The hash of a public key in DER.
    pub(super) fn of(public: &[u8]) -> Self {
        let mut pin = [0; 32];
        pin.copy_from_slice(digest(&SHA256, public).as_ref());
        Self(pin)
    }
}

/// As a node's record has it: hex digits.
impl fmt::Display for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
