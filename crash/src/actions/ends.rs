//! Deletes sessions, and checks that they stay dead.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::contact::{broke, insist, pause, unexpected};
use crate::check::{CheckFault, FaultKind};
use crate::http::{HttpReply, reason};
use crate::session::ClientSession;
use crate::world::{DeletedSession, World, count};

/// How long the server remembers how a session ended.
const TOMBSTONE_TTL: Duration = Duration::from_secs(60 * 60);

/// Deletes a session, and tries until the server confirms it.
pub(crate) async fn delete(world: &World, session: &ClientSession, rng: &mut Rng) {
    session.end();
    let mut in_doubt = false;
    loop {
        let connected = world.moment();
        match world.delete(&session.name).await {
            Ok(HttpReply::Whole { status: 204, .. }) => break,
            // An attempt whose answer was lost may have succeeded.
            Ok(HttpReply::Whole { status: 404, .. }) if in_doubt => break,
            Ok(HttpReply::Whole { status: 404, body, .. }) => {
                if !world.could_lose(session.opened) {
                    world
                        .violation(&session.label, CheckFault::new(FaultKind::SessionLost, body.to_string()));
                }
                return;
            }
            Ok(reply) => {
                unexpected(world, &session.label, "DELETE", &reply);
                return;
            }
            Err(broken) => {
                broke(world, &session.label, connected, &broken);
                in_doubt = true;
            }
        }
        pause(rng).await;
    }
    count(&world.tally.deleted);
    let (name, label) = (session.name.clone(), session.label.clone());
    let dead = DeletedSession { name, label, opened: session.opened, deleted: Instant::now() };
    world.dead.lock().push(Arc::new(dead));
}

/// Sends a request to one of the deleted sessions.
pub(crate) async fn disturb(world: &World, rng: &mut Rng) {
    let dead = {
        let dead = world.dead.lock();
        if dead.is_empty() {
            return;
        }
        Arc::clone(&dead[rng.usize(..dead.len())])
    };
    must_be_dead(world, &dead, rng).await;
}

/// Checks that a deleted session is not found, and that the error says it was deleted.
pub(crate) async fn must_be_dead(world: &World, dead: &Arc<DeletedSession>, rng: &mut Rng) {
    count(&world.tally.dead_checked);
    let params = json!({ "name": "public_echo", "arguments": { "text": "is anybody there?" } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let connected = world.moment();
    let reply = match rng.u8(0..3) {
        0 => world.get(&dead.name, None).await,
        1 => world.delete(&dead.name).await,
        _ => world.post(Some(&dead.name), &message).await,
    };
    // The lost end of the journal may have held the deletion, or the whole session.
    let torn = world.could_lose(dead.deleted) || world.could_lose(dead.opened);
    match reply {
        Ok(HttpReply::Whole { status: 404, body, .. }) => {
            let forgotten = torn || dead.deleted.elapsed() > TOMBSTONE_TTL;
            match reason(&body) {
                "session_deleted" => {}
                "session_not_found" if forgotten => {}
                _ => {
                    let detail = format!("a deleted session is not found, but for another reason: {body}");
                    world.violation(&dead.label, CheckFault::new(FaultKind::Unexpected, detail));
                }
            }
        }
        Ok(_) if torn => {
            // The deletion was lost with the torn journal, so the session lives again. It is not checked any more.
            world.dead.lock().retain(|known| !Arc::ptr_eq(known, dead));
        }
        Ok(HttpReply::Whole { status, body, .. }) => {
            let detail = format!("answered with {status} {body}");
            world.violation(&dead.label, CheckFault::new(FaultKind::Resurrected, detail));
        }
        Ok(HttpReply::Stream(_)) => {
            world.violation(&dead.label, CheckFault::new(FaultKind::Resurrected, "answered with a stream"));
        }
        Err(broken) => broke(world, &dead.label, connected, &broken),
    }
}

/// Checks that a session that was opened and not deleted answers.
pub(crate) async fn must_live(world: &World, session: &ClientSession, rng: &mut Rng) {
    let message = json!({ "jsonrpc": "2.0", "id": session.next_request(), "method": "ping" });
    let is_good = |status, body: &Value| status == 200 && body.get("result").is_some();
    insist(world, session, "ping", &message, is_good, rng).await;
}
