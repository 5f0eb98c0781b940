//! The demo server behind the data layer, with a clock that can be turned, talked to in raw messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tenure_layers::bridge::{ExchangesOnSessions, PoolLimits};
use tenure_layers::data::{DataLayer, KindOfState, Policy};
use tenure_protocol::modern::Caching;
use tenure_protocol::revision::MODERN;
use tenure_protocol::{Eras, Incoming, Message, Request, message};
use tenure_session::backend::Backend;
use tenure_session::call::Caller;
use tenure_session::exchange::{self, ExchangeLimits, Exchanges};
use tenure_session::port::seal::Seal;
use tenure_session::port::store::Store;
use tenure_session::session::SessionParts;
use tenure_session::state::StateLimits;
use tenure_session::{Answer, Limits, Principal, Session, Sessions, States};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::runtime;

pub(super) struct World {
    sessions: Sessions,
    exchanges: Exchanges,
    states: States,
}

/// Seals nothing, but binds.
struct Bound;

impl Seal for Bound {
    fn seal(&self, bound: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        Some([bound, plain].concat())
    }

    fn open(&self, bound: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        sealed.strip_prefix(bound).map(<[u8]>::to_vec)
    }
}

impl World {
    /// States expire after an hour here, and can be recovered for a day.
    pub(super) fn new(policy: Policy) -> Self {
        Self::around(Arc::new(tenure::demo::backend()), policy, vec![tenure::demo::workspace()])
    }

    /// The same around another server.
    pub(super) fn around(server: Arc<dyn Backend>, policy: Policy, kinds: Vec<KindOfState>) -> Self {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let clock = Arc::new(TurnableClock::start());
        let limits = StateLimits { idle_ttl: Some(Duration::from_secs(3600)), ..StateLimits::default() };
        let states = States::start(Arc::clone(&store), clock.clone(), limits);
        let bridge = || Arc::new(ExchangesOnSessions::new(Arc::clone(&server), PoolLimits::default()));
        let responder = Arc::clone(&server).responder().unwrap_or_else(|| bridge());
        let layer = DataLayer::new(server, states.clone(), policy, kinds).with_responder(responder);
        let backend = Arc::new(layer);
        let responder = Arc::clone(&backend).responder().expect("there is one");
        // Nothing here is about the transport's own sessions.
        let limits = Limits { idle_ttl: None, max_lifetime: None, ..Limits::default() };
        let sessions =
            Sessions::start(SessionParts { store, backend, clock: clock.clone(), limits, roster: None });
        let exchanges = Exchanges::start(exchange::ExchangeParts {
            responder,
            clock,
            // However slow the machine is, an answer without anything in front of it is no stream.
            limits: ExchangeLimits { stream_after: Duration::from_secs(3600), ..ExchangeLimits::default() },
            seal: Arc::new(Bound),
            fanout: sessions.fanout(),
            eras: Eras::Both,
            caching: Caching::AsSaid,
        });
        Self { sessions, exchanges, states }
    }

    /// What an operator does who ends every data session.
    pub(super) async fn revoke_all(&self) {
        let all = self.states.list_all(None, 1000).await.expect("a list");
        for listed in all.states {
            self.states.revoke(listed.key).await.expect("revoked");
        }
    }

    /// A client without a session, that declares this with every request.
    pub(super) fn modern(&self, capabilities: Value) -> Modern {
        self.modern_of(capabilities, Principal::ANONYMOUS)
    }

    pub(super) fn modern_of(&self, capabilities: Value, principal: Principal) -> Modern {
        Modern {
            exchanges: self.exchanges.clone(),
            principal,
            capabilities,
            notes: Notes::default(),
            last: 0,
        }
    }

    /// A client who has said what it can do.
    pub(super) async fn client(&self, capabilities: &str) -> Client {
        self.client_of(capabilities, Principal::ANONYMOUS).await
    }

    pub(super) async fn client_of(&self, capabilities: &str, principal: Principal) -> Client {
        let mut client = Client { session: None, principal, notes: Notes::default() };
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
        );
        let Message::Request(request) = Message::parse(&Bytes::from(initialize.clone())).expect("a request")
        else {
            panic!("a request");
        };
        let created = self.sessions.create(request, &client.principal).await.expect("a session");
        client.note('→', &initialize);
        client.note('←', &String::from_utf8_lossy(&created.answer));
        let session = created.session.expect("agreed");
        session
            .notification(tenure_protocol::Notification {
                method: tenure_protocol::Method::Initialized,
                params: None,
            })
            .expect("initialized");
        client.session = Some(session);
        client
    }
}

/// Everything that was said, with names in place of secrets.
#[derive(Default)]
struct Notes {
    /// What stands for a secret in what was noted: the first is 1.
    names: HashMap<String, usize>,
    said: String,
}

impl Notes {
    fn note(&mut self, arrow: char, message: &str) {
        let mut text = message.to_owned();
        for start in message.match_indices("sess-").map(|(at, _)| at) {
            let Some(secret) = message.get(start..start + 37) else { continue };
            if !secret[5..].bytes().all(|byte| byte.is_ascii_hexdigit()) {
                continue;
            }
            let next = self.names.len() + 1;
            let name = *self.names.entry(secret.to_owned()).or_insert(next);
            text = text.replace(secret, &format!("sess-${name}"));
        }
        self.said.push_str(&format!("{arrow} {text}\n"));
    }

    fn remark(&mut self, words: &str) {
        self.said.push_str(&format!("\n# {words}\n"));
    }
}

/// A client that notes everything it says and hears.
pub(super) struct Client {
    session: Option<Arc<Session>>,
    principal: Principal,
    notes: Notes,
}

impl Client {
    /// Sends a request as it stands, with `$1` for the first secret, and returns the answer as it stands.
    pub(super) async fn send(&mut self, request: &str) -> String {
        let mut spelled = request.to_owned();
        for (secret, name) in &self.notes.names {
            spelled = spelled.replace(&format!("sess-${name}"), secret);
        }
        let answer = self.send_raw(&spelled).await;
        self.note('→', &spelled);
        self.note('←', &answer);
        answer
    }

    pub(super) async fn send_raw(&self, request: &str) -> String {
        let request = parsed(request);
        let session = self.session.as_ref().expect("a session");
        let caller = Caller { principal: self.principal.clone(), ..Caller::anonymous("test") };
        match session.request(request, caller).await.expect("admitted") {
            Answer::Json(body) | Answer::TryLater { body, .. } => String::from_utf8_lossy(&body).into_owned(),
            Answer::Stream(mut reader) => {
                runtime::events(&mut reader).await.pop().expect("an answer").to_string()
            }
            Answer::Withdrawn => panic!("an answer"),
        }
    }

    /// A remark between messages.
    pub(super) fn remark(&mut self, words: &str) {
        self.notes.remark(words);
    }

    fn note(&mut self, arrow: char, message: &str) {
        self.notes.note(arrow, message);
    }

    /// Everything that was said.
    pub(super) fn transcript(&self) -> &str {
        self.notes.said.trim_start()
    }
}

/// A client without a session, that notes everything it says and hears.
pub(super) struct Modern {
    exchanges: Exchanges,
    principal: Principal,
    capabilities: Value,
    notes: Notes,
    last: u64,
}

impl Modern {
    /// What every request says of its client.
    pub(super) fn meta(&self) -> Value {
        json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        })
    }

    /// Sends a request; what stands in its `_meta` is added to what every request says. That is not noted.
    pub(super) async fn ask(&mut self, method: &str, mut params: Value) -> Value {
        self.last += 1;
        let request = |params: &Value| {
            json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params }).to_string()
        };
        let noted = request(&params);
        for (name, value) in self.meta().as_object().expect("an object") {
            params["_meta"][name] = value.clone();
        }
        let answer = self.send_raw(&request(&params)).await;
        self.notes.note('→', &noted);
        self.notes.note('←', &answer);
        serde_json::from_str(&answer).expect("JSON")
    }

    /// Sends a request as it stands.
    pub(super) async fn send_raw(&self, request: &str) -> String {
        let request = parsed(request);
        let caller = Caller { principal: self.principal.clone(), ..Caller::anonymous("test") };
        let checked =
            tenure_protocol::modern::check(request.clone(), None, Eras::Both).expect("a request of this era");
        match self.exchanges.request(checked, caller).await {
            exchange::ExchangeAnswer::Json { body, .. } => String::from_utf8_lossy(&body).into_owned(),
            exchange::ExchangeAnswer::Refused(error) => {
                let body = message::write_error(Some(&request.id), &error.to_rpc());
                String::from_utf8_lossy(&body).into_owned()
            }
            exchange::ExchangeAnswer::Stream(_) => panic!("nothing here says more than its answer"),
        }
    }

    /// A remark between messages.
    pub(super) fn remark(&mut self, words: &str) {
        self.notes.remark(words);
    }

    /// Everything that was said.
    pub(super) fn transcript(&self) -> &str {
        self.notes.said.trim_start()
    }
}

fn parsed(request: &str) -> Request {
    match Incoming::parse(&Bytes::from(request.to_owned())) {
        Ok(Incoming::One(Message::Request(request))) => request,
        _ => panic!("a request: {request}"),
    }
}

/// The value of a member of JSON text, by pointer.
pub(super) fn at(json: &str, pointer: &str) -> serde_json::Value {
    let value: serde_json::Value = serde_json::from_str(json).expect("JSON");
    value.pointer(pointer).cloned().unwrap_or_default()
}
