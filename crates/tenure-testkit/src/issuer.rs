//! An issuer of tokens that tests control: it rotates its keys, hangs, lies, and counts what it is asked.
//!
//! It speaks just enough HTTP on a loopback port. Tokens are signed with real keys by `ring`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::one_request::{self, OneRequest};

/// An RSA key for tests, since `ring` makes none.
const RSA: &[u8] = include_bytes!("rsa_for_tests.pk8");

/// A key that signs tokens.
pub struct SigningKey {
    id: String,
    pair: Pair,
}

enum Pair {
    Ec(Box<EcdsaKeyPair>),
    Ed(Box<Ed25519KeyPair>),
    Rsa(Box<RsaKeyPair>),
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.id)
    }
}

impl SigningKey {
    /// A new key on the curve P-256.
    pub fn es256(id: &str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("randomness");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
        Self { id: id.to_owned(), pair: Pair::Ec(Box::new(pair.expect("a key just made"))) }
    }

    /// A new key of Ed25519.
    pub fn ed25519(id: &str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("randomness");
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key just made");
        Self { id: id.to_owned(), pair: Pair::Ed(Box::new(pair)) }
    }

    /// The RSA key that all tests share.
    pub fn rsa(id: &str) -> Self {
        let pair = RsaKeyPair::from_pkcs8(RSA).expect("the key of the tests");
        Self { id: id.to_owned(), pair: Pair::Rsa(Box::new(pair)) }
    }

    /// The name of its usual algorithm.
    pub fn algorithm(&self) -> &'static str {
        match self.pair {
            Pair::Ec(_) => "ES256",
            Pair::Ed(_) => "EdDSA",
            Pair::Rsa(_) => "RS256",
        }
    }

    /// The public half as a JWK.
    pub fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            Pair::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": self.id, "use": "sig", "x": text(x), "y": text(y)})
            }
            Pair::Ed(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": text(pair.public_key().as_ref())})
            }
            Pair::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "kid": self.id, "n": text(&public.n), "e": text(&public.e)})
            }
        }
    }

    /// A token with this header and these claims. The header's `alg` chooses the algorithm where the key has several.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.signature(message.as_bytes(), header["alg"].as_str().unwrap_or_default());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn signature(&self, message: &[u8], algorithm: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ec(pair) => pair.sign(&random, message).expect("randomness").as_ref().to_vec(),
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let padding: &dyn ring::signature::RsaEncoding =
                    if algorithm == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                pair.sign(padding, &random, message, &mut signature).expect("randomness");
                signature
            }
        }
    }
}

/// An issuer of tokens at a loopback port.
#[derive(Debug)]
pub struct FakeIssuer {
    /// Its URL, which is also the `iss` of its tokens.
    pub url: String,
    state: Arc<State>,
    _serves: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    keys: Mutex<Vec<Arc<SigningKey>>>,
    /// What introspection says of opaque tokens.
    opaque: Mutex<HashMap<String, Value>>,
    /// What its metadata says instead of the truth.
    lies: Mutex<Option<Value>>,
    hangs: AtomicBool,
    fails: AtomicBool,
    key_sets: AtomicUsize,
    introspections: AtomicUsize,
}

impl FakeIssuer {
    /// An issuer with this key.
    pub async fn start(key: SigningKey) -> Self {
        let state = Arc::new(State { keys: Mutex::new(vec![Arc::new(key)]), ..State::default() });
        let of_answers = Arc::clone(&state);
        let (url, serves) =
            one_request::serve(move |request, url| answer(request, url, Arc::clone(&of_answers))).await;
        Self { url, state, _serves: serves }
    }

    /// Replaces all keys.
    pub fn rotate(&self, key: SigningKey) {
        *self.state.keys.lock() = vec![Arc::new(key)];
    }

    /// Adds a key.
    pub fn add_key(&self, key: SigningKey) {
        self.state.keys.lock().push(Arc::new(key));
    }

    /// A token with these claims, signed by the newest key.
    pub fn token(&self, claims: &Value) -> String {
        let key = self.key();
        let header = json!({"alg": key.algorithm(), "kid": key.id, "typ": "at+jwt"});
        key.sign(&header, claims)
    }

    /// The newest key.
    pub fn key(&self) -> Arc<SigningKey> {
        Arc::clone(self.state.keys.lock().last().expect("an issuer has a key"))
    }

    /// Makes introspection say this of a token.
    pub fn introspects(&self, token: &str, answer: Value) {
        self.state.opaque.lock().insert(token.to_owned(), answer);
    }

    /// Makes its metadata say this.
    pub fn lies(&self, metadata: Option<Value>) {
        *self.state.lies.lock() = metadata;
    }

    /// Makes it answer nothing from now on, or answer again.
    pub fn hang(&self, hangs: bool) {
        self.state.hangs.store(hangs, Ordering::Relaxed);
    }

    /// Makes it answer with status 500 from now on, or well again.
    pub fn fail(&self, fails: bool) {
        self.state.fails.store(fails, Ordering::Relaxed);
    }

    /// How often it was asked for its keys.
    pub fn key_sets(&self) -> usize {
        self.state.key_sets.load(Ordering::Relaxed)
    }

    /// How often it was asked about a token.
    pub fn introspections(&self) -> usize {
        self.state.introspections.load(Ordering::Relaxed)
    }
}

/// Answers one request.
async fn answer(request: OneRequest, url: String, state: Arc<State>) {
    if request.path == "/jwks" {
        state.key_sets.fetch_add(1, Ordering::Relaxed);
    }
    if state.hangs.load(Ordering::Relaxed) {
        return std::future::pending().await;
    }
    if state.fails.load(Ordering::Relaxed) {
        return request.answer(500, "").await;
    }
    match content(&request.path, &request.body, &url, &state) {
        Some(value) => request.answer(200, &value.to_string()).await,
        None => request.answer(404, "").await,
    }
}

fn content(path: &str, body: &str, url: &str, state: &State) -> Option<Value> {
    match path {
        "/.well-known/oauth-authorization-server" => {
            let metadata = json!({
                "issuer": url,
                "jwks_uri": format!("{url}/jwks"),
                "introspection_endpoint": format!("{url}/introspect"),
            });
            Some(state.lies.lock().clone().unwrap_or(metadata))
        }
        "/jwks" => Some(json!({"keys": state.keys.lock().iter().map(|key| key.jwk()).collect::<Vec<_>>()})),
        "/introspect" => {
            state.introspections.fetch_add(1, Ordering::Relaxed);
            let token = body.split('&').find_map(|pair| pair.strip_prefix("token="))?;
            let opaque = state.opaque.lock();
            Some(opaque.get(token).cloned().unwrap_or_else(|| json!({"active": false})))
        }
        _ => None,
    }
}
