//! Counts in a session and checks that the answers fit one order, whichever nodes gave them.

use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::work;
use crate::check::{CheckFault, FaultKind, Interval};
use crate::session::{ClientSession, tool};
use crate::world::{World, count};

/// What is counted.
#[derive(Clone, Copy, Debug)]
enum Counted {
    /// The counter in the memory of the session's link.
    Link,
    /// The counter in the workspace, which is incremented or read.
    Workspace(WorkspaceCall),
}

#[derive(Clone, Copy, Debug)]
enum WorkspaceCall {
    Increment,
    Read,
}

/// Calls the counters some times, some of them at the same time.
pub(crate) async fn count_up(world: &World, session: &ClientSession, rng: &mut Rng) {
    let Some(cookie) = work::open(world, session, rng).await else { return };
    for _ in 0..rng.u32(1..5) {
        let calls: Vec<_> = (0..rng.usize(1..4))
            .map(|_| {
                let counted = match rng.u8(0..4) {
                    0 => Counted::Workspace(WorkspaceCall::Increment),
                    1 => Counted::Workspace(WorkspaceCall::Read),
                    _ => Counted::Link,
                };
                call(world, session, counted, &cookie, rng.fork())
            })
            .collect();
        join_all(calls).await;
        if session.is_over() {
            return;
        }
    }
}

async fn call(world: &World, session: &ClientSession, counted: Counted, cookie: &Value, mut rng: Rng) {
    // The workspace may be another one since it was asked for.
    let Some(counter) = session.work.lock().as_ref().map(|work| work.counter.clone()) else { return };
    let name = match counted {
        Counted::Link => "link_counter_inc",
        Counted::Workspace(WorkspaceCall::Increment) => {
            counter.lock().sending();
            "session_counter_inc"
        }
        Counted::Workspace(WorkspaceCall::Read) => "session_counter_get",
    };
    let mut params = tool(name, &json!({}));
    if !matches!(counted, Counted::Link) {
        params["_meta"] = cookie.clone();
    }
    let sent = Instant::now();
    let Some(answer) = work::ask(world, session, "tools/call", &params, &mut rng).await else { return };
    let at = Interval { sent, answered: Instant::now() };
    let who = format!("{} {name}", session.label);
    let told = &answer["result"]["structuredContent"];
    let checked = match (counted, told["counter"].as_u64()) {
        (Counted::Link, Some(value)) => {
            let link = told["link"].as_str().unwrap_or_default();
            session.links.lock().answered(at, link, value)
        }
        (Counted::Workspace(WorkspaceCall::Increment), Some(value)) => counter.lock().incremented(at, value),
        (Counted::Workspace(WorkspaceCall::Read), Some(value)) => counter.lock().read(at, value),
        (Counted::Workspace(_), None) if work::is_gone(&answer) => return work::lost(world, session),
        (_, None) => Err(CheckFault::new(FaultKind::WrongAnswer, answer.to_string())),
    };
    count(&world.tally.counters);
    // Requests of a session that is being deleted may end in any way.
    if let Err(fault) = checked
        && !session.is_over()
    {
        world.violation(&who, fault);
    }
}
