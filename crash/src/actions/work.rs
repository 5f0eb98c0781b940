//! The state of a data session: what was acknowledged is there, what was sent once is there once at most.
//!
//! Every session of the harness has a workspace of its own, named by a cookie, in which it writes notes. Their
//! number tells what became of them: no fewer than were acknowledged, no more than were sent.

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::contact::{broke, gone, is_uninitialized, pause, unexpected};
use crate::check::{Fault, Kind};
use crate::http::Reply;
use crate::session::Session;
use crate::world::{World, count};

/// A workspace as its client holds it.
#[derive(Clone, Debug)]
pub(crate) struct Workspace {
    /// What goes into `_meta`.
    pub(crate) cookie: Value,
    made: Instant,
    sent: u64,
    /// When each note was acknowledged.
    acknowledged: Vec<Instant>,
}

/// The workspace of a session; made if it has none.
pub(crate) async fn open(world: &World, session: &Session, rng: &mut Rng) -> Option<Value> {
    if let Some(work) = &*session.work.lock() {
        return Some(work.cookie.clone());
    }
    let made = Instant::now();
    let result = ask(world, session, "session/create", &json!({}), rng).await?;
    let Some(id) = result["result"]["id"].as_str() else {
        let who = format!("{} session/create", session.label);
        world.violation(&who, Fault::new(Kind::WrongAnswer, result.to_string()));
        return None;
    };
    let cookie = json!({ "mcp/session": { "id": id } });
    let work = Workspace { cookie: cookie.clone(), made, sent: 0, acknowledged: Vec::new() };
    *session.work.lock() = Some(work);
    Some(cookie)
}

/// A note is about to be sent.
pub(crate) fn sending(session: &Session) {
    if let Some(work) = &mut *session.work.lock() {
        work.sent += 1;
    }
}

/// A note was acknowledged.
pub(crate) fn acknowledged(session: &Session) {
    if let Some(work) = &mut *session.work.lock() {
        work.acknowledged.push(Instant::now());
    }
}

/// The server says that the workspace is not there.
pub(crate) fn lost(world: &World, session: &Session) {
    let Some(work) = session.work.lock().take() else { return };
    if world.could_lose(work.made) {
        count(&world.tally.vanished);
    } else {
        let who = format!("{} workspace", session.label);
        world.violation(&who, Fault::new(Kind::StateLost, "the workspace is gone"));
    }
}

/// Counts the notes that are there.
pub(crate) async fn check(world: &World, session: &Session, rng: &mut Rng) {
    let Some(work) = session.work.lock().clone() else { return };
    let params = json!({ "name": "notebook_status", "_meta": work.cookie });
    let Some(answer) = ask(world, session, "tools/call", &params, rng).await else { return };
    let who = format!("{} workspace", session.label);
    if answer["error"]["data"]["reason"].as_str().is_some_and(|reason| reason.starts_with("session_")) {
        return lost(world, session);
    }
    let Some(notes) = answer["result"]["structuredContent"]["notes"].as_u64() else {
        return world.violation(&who, Fault::new(Kind::WrongAnswer, answer.to_string()));
    };
    count(&world.tally.states);
    let acknowledged = work.acknowledged.len() as u64;
    let safe = work.acknowledged.iter().filter(|at| !world.could_lose(**at)).count() as u64;
    let detail =
        format!("{notes} notes; {acknowledged} acknowledged, {safe} of them safely, {} sent", work.sent);
    if notes < acknowledged {
        if notes < safe {
            world.violation(&who, Fault::new(Kind::StateLost, detail));
        }
        // What is gone cannot be counted on any more; begin anew.
        *session.work.lock() = None;
    } else if notes > work.sent {
        world.violation(&who, Fault::new(Kind::Repeated, detail));
    }
}

/// Asks something whose answer is JSON; `None` if there is none.
async fn ask(world: &World, session: &Session, method: &str, params: &Value, rng: &mut Rng) -> Option<Value> {
    let id = session.next_request();
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let (who, connected) = (format!("{} {method}", session.label), world.moment());
    match world.http.post(Some(&session.name), &message).await {
        Ok(Reply::Whole { status: 200, body, .. }) => return Some(body),
        Ok(Reply::Whole { status: 404, body, .. }) => drop(gone(world, session, &who, &body)),
        Ok(Reply::Whole { body, .. }) if is_uninitialized(&body) => {}
        // It took too long for JSON; what it answers is not followed.
        Ok(Reply::Stream(_)) => {}
        Ok(reply) if !session.is_over() => unexpected(world, &who, method, &reply),
        Ok(_) => {}
        Err(broken) => {
            broke(world, &who, connected, &broken);
            pause(rng).await;
        }
    }
    None
}
