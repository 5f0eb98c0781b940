//! An authorization server that gives tokens to gateways: it remembers what it was asked, holds answers back, and refuses.
//!
//! It speaks just enough HTTP on a loopback port. Tokens are texts that name the number of the request and the subject.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::one_request::{self, OneRequest};

/// A request for a token.
#[derive(Clone, Debug)]
pub struct TokenAsk {
    /// The fields of its form.
    pub form: HashMap<String, String>,
    /// Name and secret in `Authorization: Basic`, as they were sent.
    pub basic: Option<String>,
}

impl TokenAsk {
    /// A field; empty if it is not there.
    pub fn field(&self, name: &str) -> &str {
        self.form.get(name).map_or("", String::as_str)
    }
}

/// An authorization server at a loopback port.
#[derive(Debug)]
pub struct FakeTokenServer {
    /// Its issuer URL.
    pub url: String,
    state: Arc<State>,
    _serves: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct State {
    asked: Mutex<Vec<TokenAsk>>,
    /// Answers to other paths, and in place of the usual ones.
    pages: Mutex<HashMap<String, (u16, String)>>,
    life: Mutex<u64>,
    refusal: Mutex<Option<(u16, Value)>>,
    is_held: watch::Sender<bool>,
    count: watch::Sender<usize>,
}

impl FakeTokenServer {
    /// A server whose tokens live for an hour.
    pub async fn start() -> Self {
        let state = Arc::new(State {
            asked: Mutex::default(),
            pages: Mutex::default(),
            life: Mutex::new(3600),
            refusal: Mutex::default(),
            is_held: watch::Sender::new(false),
            count: watch::Sender::new(0),
        });
        let of_answers = Arc::clone(&state);
        let (url, serves) =
            one_request::serve(move |request, url| answer(request, url, Arc::clone(&of_answers))).await;
        Self { url, state, _serves: serves }
    }

    /// Where tokens are requested.
    pub fn token_url(&self) -> String {
        format!("{}/token", self.url)
    }

    /// The requests for tokens that came so far.
    pub fn asked(&self) -> Vec<TokenAsk> {
        self.state.asked.lock().clone()
    }

    /// Waits until so many requests for tokens have come.
    pub async fn was_asked(&self, times: usize) {
        // It cannot fail, since the server lives as long as its handle.
        let _ = self.state.count.subscribe().wait_for(|count| *count >= times).await;
    }

    /// How many seconds tokens live.
    pub fn tokens_live(&self, seconds: u64) {
        *self.state.life.lock() = seconds;
    }

    /// Refuses requests for tokens with this status and answer, or gives tokens again.
    pub fn refuses(&self, refusal: Option<(u16, Value)>) {
        *self.state.refusal.lock() = refusal;
    }

    /// Holds answers to requests for tokens back, or lets them go.
    pub fn hold(&self, is_held: bool) {
        self.state.is_held.send_replace(is_held);
    }

    /// Answers GET of a path with this.
    pub fn page(&self, path: &str, status: u16, body: &str) {
        self.state.pages.lock().insert(path.to_owned(), (status, body.to_owned()));
    }
}

/// Answers one request.
async fn answer(request: OneRequest, url: String, state: Arc<State>) {
    let page = state.pages.lock().get(&request.path).cloned();
    let (status, text) = match (page, request.path.as_str()) {
        (Some(page), _) => page,
        (None, "/.well-known/oauth-authorization-server") => {
            let metadata = json!({
                "issuer": url,
                "token_endpoint": format!("{url}/token"),
                "token_endpoint_auth_methods_supported": ["client_secret_basic", "private_key_jwt"],
            });
            (200, metadata.to_string())
        }
        (None, "/token") => token(&request.head, &request.body, &state).await,
        (None, _) => (404, String::new()),
    };
    request.answer(status, &text).await;
}

async fn token(head: &str, body: &str, state: &State) -> (u16, String) {
    let form: HashMap<String, String> = body
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect();
    let basic = head.lines().find_map(|line| line.strip_prefix("authorization: Basic "));
    let basic = basic.and_then(|text| String::from_utf8(STANDARD.decode(text).ok()?).ok());
    let subject = form.get("subject_token").map_or_else(|| "gateway".to_owned(), |token| subject(token));
    let number = {
        let mut asked = state.asked.lock();
        asked.push(TokenAsk { form, basic });
        asked.len()
    };
    state.count.send_replace(number);
    // It cannot fail, since the server lives as long as its handle.
    let _ = state.is_held.subscribe().wait_for(|is_held| !is_held).await;
    if let Some((status, answer)) = state.refusal.lock().clone() {
        return (status, answer.to_string());
    }
    let life = *state.life.lock();
    let token = format!("upstream-token-{number}-{subject}");
    (200, json!({"access_token": token, "token_type": "Bearer", "expires_in": life}).to_string())
}

/// The subject of a signed token, which is not verified.
fn subject(token: &str) -> String {
    let claims = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part).ok());
    let claims: Value = claims.and_then(|claims| serde_json::from_slice(&claims).ok()).unwrap_or_default();
    claims["sub"].as_str().unwrap_or("opaque").to_owned()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'%').then(|| after.get(..2)).flatten();
        let code = escaped.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(code.unwrap_or(if first == b'+' { b' ' } else { first }));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
