//! What every client does when the server does not answer as usual: wait, and decide whether that is a violation.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::check::{CheckFault, FaultKind};
use crate::http::{Broken, HttpReply, SessionName, reason};
use crate::life::Moment;
use crate::session::ClientSession;
use crate::world::{World, count};

/// Waits a little before the next attempt.
pub(crate) async fn pause(rng: &mut Rng) {
    tokio::time::sleep(Duration::from_millis(rng.u64(5..100))).await;
}

/// A connection broke. That is a violation if the node was not killed meanwhile.
pub(crate) fn broke(world: &World, who: &str, connected: Moment, broken: &Broken) {
    if !broken.excused && world.lived_since(connected, broken.node) {
        let detail = format!("a connection to node {} broke while it lived: {}", broken.node, broken.why);
        world.violation(who, CheckFault::new(FaultKind::Unexpected, detail));
    }
}

/// The session was not found. Returns whether there is a good reason for that.
pub(crate) fn gone(world: &World, session: &ClientSession, who: &str, body: &Value) -> bool {
    if session.is_over() {
        return true;
    }
    session.lose();
    if world.could_lose(session.opened) {
        count(&world.tally.vanished);
        return true;
    }
    world.violation(who, CheckFault::new(FaultKind::SessionLost, body.to_string()));
    false
}

/// Records an answer for which there is no good reason.
pub(crate) fn unexpected(world: &World, who: &str, what: &str, reply: &HttpReply) {
    let detail = match reply {
        HttpReply::Whole { status, body, .. } => format!("{what} was answered with {status} {body}"),
        HttpReply::Stream(_) => format!("{what} was answered with a stream"),
    };
    world.violation(who, CheckFault::new(FaultKind::Unexpected, detail));
}

/// Opens a session, unless the server is down.
pub(crate) async fn open(world: &World, client: usize, number: u32, rng: &mut Rng) -> Option<ClientSession> {
    let revision = if rng.u8(0..5) == 0 { "2025-06-18" } else { "2025-11-25" };
    let params = json!({
        "protocolVersion": revision,
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "tenure-crash", "version": env!("CARGO_PKG_VERSION") },
    });
    let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let (who, connected) = (format!("c{client}.{number}"), world.moment());
    let session = match world.post(None, &message).await {
        Ok(HttpReply::Whole { status: 200, session: Some(id), body })
            if body["result"]["protocolVersion"] == revision =>
        {
            ClientSession::new(SessionName { id, revision }, client, number)
        }
        Ok(reply) => {
            unexpected(world, &who, "initialize", &reply);
            pause(rng).await;
            return None;
        }
        Err(broken) => {
            broke(world, &who, connected, &broken);
            pause(rng).await;
            return None;
        }
    };
    count(&world.tally.sessions);
    introduce(world, &session, rng).await;
    Some(session)
}

/// Sends `notifications/initialized` until the server accepts it.
pub(crate) async fn introduce(world: &World, session: &ClientSession, rng: &mut Rng) {
    let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    insist(world, session, "notifications/initialized", &message, |status, _| status == 202, rng).await;
}

/// Sends a message until the server answers, which must be a good answer.
pub(crate) async fn insist(
    world: &World,
    session: &ClientSession,
    what: &str,
    message: &Value,
    is_good: fn(u16, &Value) -> bool,
    rng: &mut Rng,
) {
    loop {
        let connected = world.moment();
        match world.post(Some(&session.name), message).await {
            Ok(HttpReply::Whole { status, body, .. }) if is_good(status, &body) => return,
            Ok(HttpReply::Whole { status: 200, body, .. }) if was_moved(world, connected, &body) => {}
            Ok(HttpReply::Whole { status: 404, body, .. }) => {
                gone(world, session, &session.label, &body);
                return;
            }
            Ok(reply) => return unexpected(world, &session.label, what, &reply),
            Err(broken) => broke(world, &session.label, connected, &broken),
        }
        pause(rng).await;
    }
}

/// The server has forgotten that the session is initialized. Sends `notifications/initialized` again.
pub(crate) async fn introduce_again(world: &World, session: &ClientSession, who: &str, rng: &mut Rng) {
    if !world.could_lose(session.opened) {
        let detail =
            "`notifications/initialized` was acknowledged, but requests are refused as `not_initialized`";
        world.violation(who, CheckFault::new(FaultKind::StateLost, detail));
    }
    introduce(world, session, rng).await;
}

/// Whether an answer says that the session went to another node meanwhile, for which there is a good reason.
pub(crate) fn was_moved(world: &World, connected: Moment, body: &Value) -> bool {
    world.is_cluster() && reason(body) == "interrupted" && !world.was_calm_since(connected)
}

/// Whether a body says that the session is not initialized.
pub(crate) fn is_uninitialized(body: &Value) -> bool {
    reason(body) == "not_initialized"
}
