//! The demo server behind the data layer, with a clock that can be turned, talked to in raw messages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_session::data::{DataLayer, KindOfState, Policy};
use tenure_session::message::{Incoming, Message};
use tenure_session::port::backend::Backend;
use tenure_session::port::store::Store;
use tenure_session::runtime::{Caller, Parts};
use tenure_session::state::StateLimits;
use tenure_session::{Answer, Limits, Principal, Session, Sessions, States};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::runtime;

pub(super) struct World {
    sessions: Sessions,
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
        let backend = Arc::new(DataLayer::new(server, states, policy, kinds));
        // Nothing here is about the transport's own sessions.
        let limits = Limits { idle_ttl: None, max_lifetime: None, ..Limits::default() };
        Self { sessions: Sessions::start(Parts { store, backend, clock, limits }) }
    }

    /// A client who has said what it can do.
    pub(super) async fn client(&self, capabilities: &str) -> Client {
        self.client_of(capabilities, Principal::ANONYMOUS).await
    }

    pub(super) async fn client_of(&self, capabilities: &str, principal: Principal) -> Client {
        let mut client = Client { session: None, principal, names: HashMap::new(), said: String::new() };
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
            .notification(tenure_session::Notification {
                method: tenure_session::Method::Initialized,
                params: None,
            })
            .expect("initialized");
        client.session = Some(session);
        client
    }
}

/// A client that notes everything it says and hears, with names in place of secrets.
pub(super) struct Client {
    session: Option<Arc<Session>>,
    principal: Principal,
    /// What stands for a secret in what was noted: the first is 1.
    names: HashMap<String, usize>,
    said: String,
}

impl Client {
    /// Sends a request as it stands, with `$1` for the first secret, and returns the answer as it stands.
    pub(super) async fn send(&mut self, request: &str) -> String {
        let mut spelled = request.to_owned();
        for (secret, name) in &self.names {
            spelled = spelled.replace(&format!("sess-${name}"), secret);
        }
        let answer = self.send_raw(&spelled).await;
        self.note('→', &spelled);
        self.note('←', &answer);
        answer
    }

    pub(super) async fn send_raw(&self, request: &str) -> String {
        let Ok(Incoming::One(Message::Request(request))) = Incoming::parse(&Bytes::from(request.to_owned()))
        else {
            panic!("a request: {request}");
        };
        let session = self.session.as_ref().expect("a session");
        let caller = Caller { principal: self.principal.clone(), ..Caller::anonymous("test") };
        match session.request(request, caller).await.expect("admitted") {
            Answer::Json(body) => String::from_utf8_lossy(&body).into_owned(),
            Answer::Stream(mut reader) => {
                runtime::events(&mut reader).await.pop().expect("an answer").to_string()
            }
            Answer::Withdrawn => panic!("an answer"),
        }
    }

    /// A remark between messages.
    pub(super) fn remark(&mut self, words: &str) {
        self.said.push_str(&format!("\n# {words}\n"));
    }

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

    /// Everything that was said.
    pub(super) fn transcript(&self) -> &str {
        self.said.trim_start()
    }
}

/// The value of a member of JSON text, by pointer.
pub(super) fn at(json: &str, pointer: &str) -> serde_json::Value {
    let value: serde_json::Value = serde_json::from_str(json).expect("JSON");
    value.pointer(pointer).cloned().unwrap_or_default()
}
