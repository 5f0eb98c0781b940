//! Proofs of possession (DPoP, RFC 9449): the client signs each request with the key that its token is bound to.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use crate::jwk;
use crate::jws::{Algorithm, Compact};
use crate::refusal::{AuthRefusal, TokenFault};
use crate::resource::same_uri;
use crate::time::UnixSeconds;

/// How far the time of a proof may be from ours.
const WINDOW: Duration = Duration::from_secs(300);

/// The most proofs that are remembered, in all and of one key. Beyond it new proofs are refused: forgetting one would let
/// it be used again.
const MAX_REMEMBERED: usize = 200_000;
const MAX_OF_ONE_KEY: u32 = 40_000;

/// When a client may try again whose proofs are too many.
const RETRY_AFTER: Duration = Duration::from_secs(5);

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
    /// Until when each proof could be used, its hash, and that of its key.
    by_end: BTreeSet<(UnixSeconds, ProofHash, ProofHash)>,
    of_key: HashMap<ProofHash, u32>,
}

impl Proofs {
    /// Checks a proof, and remembers it so that it can't be used again.
    pub(crate) fn check(&self, proof: &str, of: &ProofOf<'_>, now: UnixSeconds) -> Result<(), AuthRefusal> {
        let claims = check_proof(proof, of, now).map_err(AuthRefusal::Invalid)?;
        self.use_once(&claims, of.key, now)
    }

    fn use_once(&self, claims: &ProofClaims, key: &str, now: UnixSeconds) -> Result<(), AuthRefusal> {
        let (proof, key) = (short_hash(&format!("{key} {}", claims.jti)), short_hash(key));
        let mut used = self.0.lock();
        while let Some(old) = used.by_end.first().copied().filter(|(end, ..)| *end < now) {
            used.forget(old);
        }
        if used.known.contains(&proof) {
            return Err(AuthRefusal::Invalid(TokenFault::Replayed));
        }
        let of_key = used.of_key.get(&key).copied().unwrap_or_default();
        if used.known.len() >= MAX_REMEMBERED || of_key >= MAX_OF_ONE_KEY {
            return Err(AuthRefusal::Unavailable { retry_after: RETRY_AFTER });
        }
        used.known.insert(proof);
        // A proof is too old from then on.
        used.by_end.insert((UnixSeconds(claims.iat).plus(WINDOW), proof, key));
        *used.of_key.entry(key).or_default() += 1;
        Ok(())
    }
}

impl UsedProofs {
    fn forget(&mut self, old: (UnixSeconds, ProofHash, ProofHash)) {
        let (_, proof, key) = old;
        self.by_end.remove(&old);
        self.known.remove(&proof);
        if let Some(count) = self.of_key.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.of_key.remove(&key);
            }
        }
    }
}

fn short_hash(text: &str) -> ProofHash {
    let mut hash = [0; 16];
    hash.copy_from_slice(&digest(&SHA256, text.as_bytes()).as_ref()[..16]);
    hash
}

/// The claims of a proof that is for this request, by the key that the token is bound to.
fn check_proof(proof: &str, of: &ProofOf<'_>, now: UnixSeconds) -> Result<ProofClaims, TokenFault> {
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
    Ok(claims)
}
