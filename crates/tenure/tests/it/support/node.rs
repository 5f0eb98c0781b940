//! Nodes in this process, on a free port: with the demo, or with a backend whose every answer a test gives.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use tenure::Node;
use tenure::config::{Config, Sources};
use tenure_protocol::{Method, RawJson};
use tenure_testkit::fake_backend::{FakeBackend, FakeCall, NewLink, Script};

use super::events::Events;
use super::session::Session;

/// However slow the machine is, an answer without anything in front of it is JSON. Tests about answers that become
/// streams because they are late say when.
const PATIENT: [(&str, &str); 2] = [("streams.json_wait", "0s"), ("exchanges.stream_after", "1h")];

/// The same as flags of the binary.
pub(crate) fn patient_flags() -> impl Iterator<Item = String> {
    PATIENT.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")])
}

/// The configuration with these settings, on a free port.
pub(crate) fn config(settings: &[(&str, &str)]) -> Config {
    // Without jitter, so that times are known. One client may use up a total, so that it can be met.
    let own = [
        ("listen", "127.0.0.1:0"),
        ("store", "memory:"),
        ("streams.retry_jitter", "0%"),
        ("clients.max_share", "100%"),
    ];
    let flags = own
        .iter()
        .chain(&PATIENT)
        .chain(settings)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let sources = Sources { flags: flags.collect(), ..Sources::default() };
    Config::load(&sources).expect("a configuration that can be used").0
}

/// A node with the demo behind it.
pub(crate) async fn demo() -> Node {
    demo_with(&[]).await
}

pub(crate) async fn demo_with(settings: &[(&str, &str)]) -> Node {
    Node::start(&config(settings)).await.expect("a node")
}

/// A node with a scripted backend.
pub(crate) struct Steered {
    pub(crate) node: Node,
    pub(crate) backend: Arc<FakeBackend>,
    pub(crate) script: Script,
}

impl Steered {
    pub(crate) async fn start() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(settings: &[(&str, &str)]) -> Self {
        let (backend, script) = FakeBackend::new();
        let node = Node::with_backend(&config(settings), backend.clone()).await.expect("a node");
        Self { node, backend, script }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// A session of the newest revision, and the backend's side of it.
    pub(crate) async fn session(&mut self) -> (Session, NewLink) {
        let session = Session::start(self.address()).await;
        (session, self.script.opened().await)
    }

    /// A call that has said `hello` and so become a stream, of which nothing has been read.
    pub(crate) async fn streaming_call(&mut self, session: &Session, id: u64) -> (FakeCall, Events) {
        let connection =
            session.request(id, "tools/call", &json!({ "name": "any" })).begin(self.address()).await;
        let call = self.script.call().await;
        say(&call, "hello").await;
        (call, connection.events().await)
    }
}

/// Sends a log message on a call's stream.
pub(crate) async fn say(call: &FakeCall, text: &str) {
    let params = RawJson::of(&json!({ "level": "info", "data": text }));
    call.context.notify(&Method::LogMessage, Some(&params)).await.expect("the request is in flight");
}

/// Sends a log message that belongs to no request.
pub(crate) async fn announce(link: &NewLink, text: &str) {
    let params = RawJson::of(&json!({ "level": "info", "data": text }));
    link.outlet.notify(&Method::LogMessage, Some(&params)).await.expect("the session lives");
}
