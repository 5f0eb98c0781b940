//! Starts an exchange runtime for tests, and does the steps that every test of it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tenure_protocol::Eras;
use tenure_protocol::modern::{self, Caching};
use tenure_session::Route;
use tenure_session::backend::Responder;
use tenure_session::call::{Caller, Fanout};
use tenure_session::exchange::{ExchangeAnswer, ExchangeLimits, ExchangeParts, Exchanges};
use tenure_session::port::seal::Seal;

use crate::clock::TurnableClock;
use crate::fake_client::FakeClient;
use crate::runtime::parse;

/// Starts a runtime, alone at its endpoint.
pub fn start(responder: Arc<dyn Responder>, limits: ExchangeLimits) -> Exchanges {
    start_with(responder, limits, Fanout::new(Route::MAIN))
}

/// Starts a runtime that shares this fan-out of notifications with another one.
pub fn start_with(responder: Arc<dyn Responder>, limits: ExchangeLimits, fanout: Fanout) -> Exchanges {
    let (clock, seal) = (Arc::new(TurnableClock::start()), Arc::new(Marked::default()));
    Exchanges::start(ExchangeParts {
        responder,
        clock,
        limits,
        seal,
        fanout,
        eras: Eras::Both,
        caching: Caching::AsSaid,
    })
}

/// Sends a request with this client's capabilities and name, and waits for its answer.
///
/// # Panics
/// When the request is not a valid request of the modern era.
pub async fn send(
    exchanges: &Exchanges,
    client: &Arc<FakeClient>,
    id: u64,
    method: &str,
    params: Value,
) -> ExchangeAnswer {
    let request = client.call(id, method, params).request;
    let checked = modern::check(request, None, exchanges.eras()).expect("a request of this era");
    exchanges.request(checked, Caller::anonymous("test")).await
}

/// The JSON of an answer.
///
/// # Panics
/// When the answer is not JSON.
pub fn json_of(answer: ExchangeAnswer) -> Value {
    match answer {
        ExchangeAnswer::Json { body, .. } => parse(&body),
        other => panic!("an answer in JSON, not {other:?}"),
    }
}

/// All messages of an answer; the last one is the response.
///
/// # Panics
/// When the request was refused.
pub async fn messages(answer: ExchangeAnswer) -> Vec<Value> {
    match answer {
        ExchangeAnswer::Json { body, .. } => vec![parse(&body)],
        ExchangeAnswer::Refused(error) => panic!("an answer, not {error}"),
        ExchangeAnswer::Stream(mut flow) => {
            let mut all = Vec::new();
            while let Some(message) = flow.next().await {
                all.push(parse(&message));
            }
            all
        }
    }
}

/// A seal without encryption: it only records the value that the data is bound to.
#[derive(Debug, Default)]
struct Marked(AtomicU64);

impl Seal for Marked {
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        Some(serde_json::to_vec(&(number, bound, plain)).expect("JSON"))
    }

    fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (_, owner, plain): (u64, Vec<u8>, Vec<u8>) = serde_json::from_slice(sealed).ok()?;
        (owner == bound).then_some(plain)
    }
}
