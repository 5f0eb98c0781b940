//! The modern half in front of child programs: an SDK's server, and scripts that break the rules.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

mod eras;
mod faults;
mod sdk;
#[expect(deprecated, reason = "log messages are among what is tested")]
mod server;

use std::sync::Arc;
use std::time::Duration;

use crate::soon;
use serde_json::{Value, json};
use tenure_backend::child::{ChildCommand, ChildLimits, ChildResponder};
use tenure_protocol::Reply;
use tenure_session::backend::Responder;
use tenure_testkit::fake_client::FakeClient;

/// A client without capabilities.
fn client() -> Arc<FakeClient> {
    FakeClient::new(json!({}))
}

fn limits() -> ChildLimits {
    ChildLimits { warm: 0, grace: Duration::from_millis(300), max_line_bytes: 4096, ..ChildLimits::default() }
}

/// A command that runs a script.
fn script(text: &str) -> ChildCommand {
    let mut command = ChildCommand::new("sh", ["-c", text]);
    command.limits = limits();
    command
}

async fn ask(responder: &ChildResponder, client: &Arc<FakeClient>, method: &str, params: Value) -> Reply {
    soon(responder.respond(client.call(7, method, params))).await
}

/// Waits until a process is gone.
async fn gone(id: u64) {
    let is_there = || std::path::Path::new(&format!("/proc/{id}")).exists();
    for _ in 0..1000 {
        if !is_there() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("process {id} is still there");
}

fn value(reply: Reply) -> Value {
    reply.unwrap().read().unwrap()
}

fn text(reply: Reply) -> String {
    value(reply)["content"][0]["text"].as_str().unwrap().to_owned()
}
