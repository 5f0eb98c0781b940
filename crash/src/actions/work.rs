//! Checks the state of a data session: an acknowledged note is there, and no note is there twice.
//!
//! Every session of the harness has a workspace of its own, named by a cookie, and writes notes into it. Each note has a
//! text of its own, so every one that was acknowledged must be there, and none twice.

use std::sync::Arc;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::contact::{broke, gone, is_uninitialized, pause, unexpected, was_moved};
use crate::check::{CheckFault, FaultKind, notes};
use crate::http::{HttpReply, reason};
use crate::session::{ClientSession, Workspace};
use crate::world::{World, count};

/// The cookie of the session's workspace. Makes the workspace if the session has none.
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
    let work = Workspace {
        cookie: cookie.clone(),
        made,
        sent: 0,
        prefix: format!("{:x} ", rng.u64(..)),
        acknowledged: Vec::new(),
        counter: Arc::default(),
    };
    *session.work.lock() = Some(work);
    Some(cookie)
}

/// A note is about to be sent; returns its text.
pub(crate) fn sending(session: &ClientSession) -> String {
    let mut work = session.work.lock();
    let Some(work) = &mut *work else { return String::new() };
    work.sent += 1;
    format!("{}{}", work.prefix, work.sent)
}

/// A note was acknowledged.
pub(crate) fn acknowledged(session: &ClientSession, note: String) {
    if let Some(work) = &mut *session.work.lock() {
        work.acknowledged.push((note, Instant::now()));
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

/// Reads the notes that are there.
pub(crate) async fn check(world: &World, session: &ClientSession, rng: &mut Rng) {
    let Some(work) = session.work.lock().clone() else { return };
    let params = json!({ "name": "notebook_read", "_meta": work.cookie });
    let Some(answer) = ask(world, session, "tools/call", &params, rng).await else { return };
    let who = format!("{} workspace", session.label);
    if is_gone(&answer) {
        return lost(world, session);
    }
    let Some(found) = answer["result"]["structuredContent"]["notes"].as_array() else {
        return world.violation(&who, CheckFault::new(FaultKind::WrongAnswer, answer.to_string()));
    };
    count(&world.tally.states);
    let found: Vec<&str> = found.iter().filter_map(Value::as_str).collect();
    let safe = work.acknowledged.iter().filter(|(_, at)| !world.could_lose(*at));
    let number = |note: &str| note.strip_prefix(&work.prefix)?.parse::<u64>().ok();
    let is_sent = |note: &str| number(note).is_some_and(|number| (1..=work.sent).contains(&number));
    if let Err(fault) = notes(&found, safe.map(|(note, _)| note.as_str()), is_sent) {
        world.violation(&who, fault);
    }
    if (found.len() as u64) < work.acknowledged.len() as u64 {
        // Changes were lost, and the model no longer fits this workspace, so begin a new one.
        *session.work.lock() = None;
    }
}

/// Whether an answer says that the workspace is not there.
pub(super) fn is_gone(answer: &Value) -> bool {
    reason(answer).starts_with("session_")
}

/// Sends a request and returns its JSON answer, if one comes.
pub(super) async fn ask(
    world: &World,
    session: &ClientSession,
    method: &str,
    params: &Value,
    rng: &mut Rng,
) -> Option<Value> {
    let id = session.next_request();
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let (who, connected) = (format!("{} {method}", session.label), world.moment());
    match world.post(Some(&session.name), &message).await {
        Ok(HttpReply::Whole { status: 200, body, .. }) if was_moved(world, connected, &body) => {
            count(&world.tally.interrupted);
        }
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
