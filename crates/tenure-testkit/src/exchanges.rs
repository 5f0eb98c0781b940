//! An exchange runtime for tests, and the few steps that every test of it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tenure_protocol::Eras;
use tenure_protocol::modern::{self, Caching};
use tenure_session::Route;
use tenure_session::backend::Responder;
use tenure_session::call::{Caller, Fanout};
use tenure_session::exchange::{Answer, ExchangeLimits, Exchanges, Parts};
use tenure_session::port::seal::Seal;

use crate::clock::TurnableClock;
use crate::fake_client::FakeClient;
use crate::runtime::parse;

/// Starts a runtime, alone at its endpoint.
pub fn start(responder: Arc<dyn Responder>, limits: ExchangeLimits) -> Exchanges {
    start_with(responder, limits, Fanout::new(Route::MAIN))
}

/// Starts a runtime that shares its news with somebody.
pub fn start_with(responder: Arc<dyn Responder>, limits: ExchangeLimits, fanout: Fanout) -> Exchanges {
    let (clock, seal) = (Arc::new(TurnableClock::start()), Arc::new(Marked::default()));
    Exchanges::start(Parts {
        responder,
        clock,
        limits,
        seal,
        fanout,
        eras: Eras::Both,
        caching: Caching::AsSaid,
    })
}

/// Sends a request of this client, as far as its capabilities and its name go, and waits for its answer.
///
/// # Panics
/// When the request is none that is answered at all.
pub async fn send(
    exchanges: &Exchanges,
    client: &Arc<FakeClient>,
    id: u64,
    method: &str,
    params: Value,
) -> Answer {
    let request = client.call(id, method, params).request;
    let checked = modern::check(request, None, exchanges.eras()).expect("a request of this era");
    exchanges.request(checked, Caller::anonymous("test")).await
}

/// The JSON of an answer.
///
/// # Panics
/// When the answer is not JSON.
pub fn json_of(answer: Answer) -> Value {
    match answer {
        Answer::Json { body, .. } => parse(&body),
        other => panic!("an answer in JSON, not {other:?}"),
    }
}

/// All messages of an answer, the response being the last.
///
/// # Panics
/// When the request was refused.
pub async fn messages(answer: Answer) -> Vec<Value> {
    match answer {
        Answer::Json { body, .. } => vec![parse(&body)],
        Answer::Refused(error) => panic!("an answer, not {error}"),
        Answer::Stream(mut flow) => {
            let mut all = Vec::new();
            while let Some(message) = flow.next().await {
                all.push(parse(&message));
            }
            all
        }
    }
}

/// Seals nothing, but knows what it has marked, and for whom.
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
