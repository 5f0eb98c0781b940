//! The modern half in front of remote servers: an SDK's server, and servers that break the rules.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod away;
mod eras;
mod faults;
mod headers;
mod sdk;

use std::sync::Arc;
use std::time::Duration;

use crate::soon;
use serde_json::{Value, json};
use tenure_backend::remote::{RemoteResponder, Upstream};
use tenure_protocol::Reply;
use tenure_session::backend::Responder;
use tenure_testkit::fake_client::FakeClient;

/// A client without capabilities.
fn client() -> Arc<FakeClient> {
    FakeClient::new(json!({}))
}

/// A responder in front of the server at this URL.
fn responder(url: &str) -> RemoteResponder {
    patient(url, Duration::ZERO)
}

/// The same, which waits for a server that is away.
fn patient(url: &str, patience: Duration) -> RemoteResponder {
    let upstream = Upstream { max_message_bytes: 4096, patience, ..Upstream::new(url) };
    RemoteResponder::new(&upstream).unwrap()
}

/// Sends one request to a server, with a short timeout.
async fn ask(responder: &RemoteResponder, client: &Arc<FakeClient>, method: &str, params: Value) -> Reply {
    soon(responder.respond(client.call(7, method, params))).await
}

fn value(reply: Reply) -> Value {
    reply.unwrap().read().unwrap()
}
