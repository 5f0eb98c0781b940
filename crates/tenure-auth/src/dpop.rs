//! Proofs of possession (DPoP, RFC 9449): the client signs each request with the key that its token is bound to.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use crate::jwk;
use crate::jws::{Algorithm, Compact};
use crate::refusal::TokenFault;
use crate::resource::same_uri;
use crate::time::UnixSeconds;

/// How far the time of a proof may be from ours.
const WINDOW: Duration = Duration::from_secs(300);

/// The most proofs that are remembered. Beyond it new proofs are refused: forgetting one would let it be used again.
const MAX_REMEMBERED: usize = 200_000;

/// The algorithms of proofs.
pub(crate) const ALGORITHMS: [Algorithm; 3] = [Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA];

#[derive(Deserialize)]
struct ProofClaims {
    jti: String,
    htm: String,
    htu: String,
    iat: u64,
    ath: String,
}

/// What a proof has to be for.
pub(crate) struct ProofOf<'a> {
    pub(crate) token: &'a str,
    pub(crate) method: &'a str,
    /// The public URI of the endpoint, and that of the path which was really asked.
    pub(crate) uris: [&'a str; 2],
    /// The thumbprint of the key that the token is bound to.
    pub(crate) key: &'a str,
}

/// The proofs that were used within the window.
#[derive(Debug, Default)]
pub(crate) struct Proofs(Mutex<UsedProofs>);

type ProofHash = [u8; 16];

#[derive(Debug, Default)]
struct UsedProofs {
    known: HashSet<ProofHash>,
    by_age: BTreeSet<(UnixSeconds, ProofHash)>,
}

impl Proofs {
    /// Checks a proof, and remembers it so that it can't be used again.
    pub(crate) fn check(&self, proof: &str, of: &ProofOf<'_>, now: UnixSeconds) -> Result<(), TokenFault> {
        let compact = Compact::read(proof).ok_or(TokenFault::Proof)?;
        let header = &compact.header;
        let algorithm = Algorithm::named(&header.alg).filter(|algorithm| ALGORITHMS.contains(algorithm));
        let algorithm = algorithm.ok_or(TokenFault::Proof)?;
        if header.typ.as_deref() != Some("dpop+jwt") || header.crit {
            return Err(TokenFault::Proof);
        }
        let key = header.jwk.as_ref().and_then(jwk::read_public).ok_or(TokenFault::Proof)?;
        if jwk::thumbprint(&key) != of.key || !compact.is_signed_by(&key, algorithm) {
            return Err(TokenFault::Proof);
        }
        let claims: ProofClaims = serde_json::from_slice(&compact.payload).map_err(|_| TokenFault::Proof)?;
        let issued = UnixSeconds(claims.iat);
        let is_recent = now.minus(WINDOW) <= issued && issued <= now.plus(WINDOW);
        let token_hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, of.token.as_bytes()));
        let holds = claims.htm == of.method
            && of.uris.iter().any(|uri| same_uri(&claims.htu, uri))
            && claims.ath == token_hash;
        if !is_recent || !holds {
            return Err(TokenFault::Proof);
        }
        self.use_once(&claims.jti, of.key, now)
    }

    fn use_once(&self, jti: &str, key: &str, now: UnixSeconds) -> Result<(), TokenFault> {
        let whole = digest(&SHA256, format!("{key} {jti}").as_bytes());
        let mut hash = [0; 16];
        hash.copy_from_slice(&whole.as_ref()[..16]);
        let mut used = self.0.lock();
        // A proof may be as much ahead of our clock as behind it.
        let oldest = now.minus(WINDOW * 2);
        while let Some(&(age, old)) = used.by_age.first().filter(|(age, _)| *age < oldest) {
            used.by_age.remove(&(age, old));
            used.known.remove(&old);
        }
        if used.known.len() >= MAX_REMEMBERED || !used.known.insert(hash) {
            return Err(TokenFault::Replayed);
        }
        used.by_age.insert((now, hash));
        Ok(())
    }
}
