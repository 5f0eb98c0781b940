//! Checks the state of a data session: an acknowledged note is there, and no note is there twice.
//!
//! Every session of the harness has a workspace of its own, named by a cookie, and writes notes into it. The check is
//! their number: at least as many as were acknowledged, at most as many as were sent.

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::contact::{broke, gone, is_uninitialized, pause, unexpected};
use crate::check::{CheckFault, FaultKind};
use crate::http::HttpReply;
use crate::session::{ClientSession, Workspace};
use crate::world::{World, count};

/// The cookie of the session's workspace. Makes the workspace if there is none.
pub(crate) async fn open(world: &World, session: &ClientSession, rng: &mut Rng) -> Option<Value> {
    if let Some(work) = &*session.work.lock() {
        return Some(work.cookie.clone());
    }
    let made = Instant::now();
    let result = ask(world, session, "session/create", &json!({}), rng).await?;
    let Some(id) = result["result"]["id"].as_str() else {
        let who = format!("{} session/create", session.label);
        world.violation(&who, CheckFault::new(FaultKind::WrongAnswer, result.to_string()));
        return None;
    };
    let cookie = json!({ "mcp/session": { "id": id } });
    let work = Workspace { cookie: cookie.clone(), made, sent: 0, acknowledged: Vec::new() };
    *session.work.lock() = Some(work);
    Some(cookie)
}

/// A note is about to be sent.
pub(crate) fn sending(session: &ClientSession) {
    if let Some(work) = &mut *session.work.lock() {
        work.sent += 1;
    }
}

/// A note was acknowledged.
pub(crate) fn acknowledged(session: &ClientSession) {
    if let Some(work) = &mut *session.work.lock() {
        work.acknowledged.push(Instant::now());
    }
}

/// The server says that the workspace is not there.
pub(crate) fn lost(world: &World, session: &ClientSession) {
    let Some(work) = session.work.lock().take() else { return };
    if world.could_lose(work.made) {
        count(&world.tally.vanished);
    } else {
        let who = format!("{} workspace", session.label);
        world.violation(&who, CheckFault::new(FaultKind::StateLost, "the workspace is gone"));
    }
}

/// Counts the notes that are there.
pub(crate) async fn check(world: &World, session: &ClientSession, rng: &mut Rng) {
    let Some(work) = session.work.lock().clone() else { return };
    let params = json!({ "name": "notebook_status", "_meta": work.cookie });
    let Some(answer) = ask(world, session, "tools/call", &params, rng).await else { return };
    let who = format!("{} workspace", session.label);
    if answer["error"]["data"]["reason"].as_str().is_some_and(|reason| reason.starts_with("session_")) {
        return lost(world, session);
    }
    let Some(notes) = answer["result"]["structuredContent"]["notes"].as_u64() else {
        return world.violation(&who, CheckFault::new(FaultKind::WrongAnswer, answer.to_string()));
    };
    count(&world.tally.states);
    let acknowledged = work.acknowledged.len() as u64;
    let safe = work.acknowledged.iter().filter(|at| !world.could_lose(**at)).count() as u64;
    let detail =
        format!("{notes} notes; {acknowledged} acknowledged, {safe} of them safely, {} sent", work.sent);
    if notes < acknowledged {
        if notes < safe {
            world.violation(&who, CheckFault::new(FaultKind::StateLost, detail));
        }
        // The counts no longer fit this workspace, so begin a new one.
        *session.work.lock() = None;
    } else if notes > work.sent {
        world.violation(&who, CheckFault::new(FaultKind::Repeated, detail));
    }
}

/// Sends a request and returns its JSON answer, if one comes.
async fn ask(
    world: &World,
    session: &ClientSession,
    method: &str,
    params: &Value,
    rng: &mut Rng,
) -> Option<Value> {
    let id = session.next_request();
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let (who, connected) = (format!("{} {method}", session.label), world.moment());
    match world.http.post(Some(&session.name), &message).await {
        Ok(HttpReply::Whole { status: 200, body, .. }) => return Some(body),
        Ok(HttpReply::Whole { status: 404, body, .. }) => drop(gone(world, session, &who, &body)),
        Ok(HttpReply::Whole { body, .. }) if is_uninitialized(&body) => {}
        // The answer took too long for JSON and became a stream, which is not followed.
        Ok(HttpReply::Stream(_)) => {}
        Ok(reply) if !session.is_over() => unexpected(world, &who, method, &reply),
        Ok(_) => {}
        Err(broken) => {
            broke(world, &who, connected, &broken);
            pause(rng).await;
        }
    }
    None
}
