//! What a run measures: how soon a lost node is made up for, how soon events are seen at other nodes, how long the engine's
//! elections are felt.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tenure_testkit::sse::SseItem;
use tenure_testkit::wire::Ask;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::check::{CheckFault, FaultKind};
use crate::http::{HttpReply, ReplyEvents, SessionName};
use crate::session::tool;
use crate::world::World;

/// How many sessions of a node are watched when it is killed.
const WATCHED: usize = 3;

/// After this time nothing is measured any more.
const GIVEN_UP: Duration = Duration::from_secs(30);

/// How many notes are timed for each way.
const NOTES: u32 = 30;

/// A session that is served by one node, while a client listens at another one.
#[derive(Debug)]
struct WatchedSession {
    name: SessionName,
    via: usize,
    updates: mpsc::Receiver<Instant>,
    _reading: AbortOnDropHandle<()>,
}

impl WatchedSession {
    /// Opens a session at one node and listens at another. An open stream keeps the session awake, so it stays there.
    async fn open(world: &World, home: usize, via: usize) -> Result<WatchedSession> {
        let revision = "2025-11-25";
        let client = json!({ "name": "tenure-crash", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": client });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let id = match world.ask_node(home, None, Ask::post(message.to_string())).await {
            Ok(HttpReply::Whole { status: 200, session: Some(id), .. }) => id,
            other => bail!("a session was not opened at node {home}: {other:?}"),
        };
        let name = SessionName { id, revision };
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        match world.ask_node(home, Some(&name), Ask::post(message.to_string())).await {
            Ok(HttpReply::Whole { status: 202, .. }) => {}
            other => bail!("a session was not introduced at node {home}: {other:?}"),
        }
        let events = match world.ask_node(via, Some(&name), Ask::get()).await {
            Ok(HttpReply::Stream(events)) => events,
            other => bail!("no stream at node {via} of a session at node {home}: {other:?}"),
        };
        let (told, updates) = mpsc::channel(64);
        let reading = AbortOnDropHandle::new(world.probes.spawn(read(events, told)));
        Ok(WatchedSession { name, via, updates, _reading: reading })
    }

    /// Calls a tool at a node; `None` without a JSON answer that has a result.
    async fn call(&self, world: &World, node: usize, params: &Value, id: u32) -> Option<Value> {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        match world.ask_node(node, Some(&self.name), Ask::post(message.to_string())).await {
            Ok(HttpReply::Whole { status: 200, body, .. }) => body.get("result").cloned(),
            _ => None,
        }
    }

    /// Calls until an answer comes; `false` if no answer comes in time.
    async fn insist(&self, world: &World, node: usize) -> bool {
        let calls = async {
            let mut id = 1;
            while self.call(world, node, &echo(), id).await.is_none() {
                id += 1;
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(GIVEN_UP, calls).await.is_ok()
    }
}

async fn read(mut events: Box<ReplyEvents>, told: mpsc::Sender<Instant>) {
    while let Ok(Some(item)) = events.next().await {
        let SseItem::Event(event) = item else { continue };
        if event.data.is_some_and(|data| data.contains("resources/updated")) {
            // Without a reader that waits for updates, they need not be kept.
            let _ = told.try_send(Instant::now());
        }
    }
}

fn echo() -> Value {
    tool("public_echo", &json!({ "text": "watched" }))
}

/// The sessions of a node that is about to be killed.
#[derive(Debug)]
pub(super) struct Takeover {
    watched: Vec<WatchedSession>,
}

impl Takeover {
    /// Opens sessions at a node, with clients at the others.
    pub(super) async fn prepare(world: &World, victim: usize, nodes: usize) -> Result<Takeover> {
        let others: Vec<usize> = (0..nodes).filter(|node| *node != victim).collect();
        let opening =
            (0..WATCHED).map(|number| WatchedSession::open(world, victim, others[number % others.len()]));
        let watched = join_all(opening).await.into_iter().collect::<Result<Vec<_>>>()?;
        for session in &watched {
            session.call(world, session.via, &echo(), 1).await.context("get an answer before the kill")?;
        }
        Ok(Takeover { watched })
    }

    /// Measures how soon the sessions answer again.
    pub(super) async fn measure(self, world: &World, killed: Instant) {
        let answers = self.watched.iter().map(|session| async move {
            if session.insist(world, session.via).await {
                world.tally.cluster.takeovers.add(killed.elapsed());
            } else {
                let detail = format!("no answer within {GIVEN_UP:?} after the kill of its node");
                let who = format!("watched session at node {}", session.via);
                world.violation(&who, CheckFault::new(FaultKind::Late, detail));
            }
        });
        join_all(answers).await;
    }
}

/// Measures how soon the update of a note is seen at a client of the owner, and at a client of another node.
pub(super) async fn visibility(world: &World, rng: &mut Rng) -> Result<()> {
    let nodes = world.balancer.nodes.len();
    let home = rng.usize(..nodes);
    for (via, times) in [(home, &world.tally.cluster.near), ((home + 1) % nodes, &world.tally.cluster.far)] {
        let mut session = WatchedSession::open(world, home, via).await?;
        let subscribe = json!({
            "jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": { "uri": "demo://notebook" },
        });
        let create = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/create", "params": {} });
        let subscribed = world.ask_node(home, Some(&session.name), Ask::post(subscribe.to_string())).await;
        let created = world.ask_node(home, Some(&session.name), Ask::post(create.to_string())).await;
        let (Ok(HttpReply::Whole { status: 200, .. }), Ok(HttpReply::Whole { status: 200, body, .. })) =
            (subscribed, created)
        else {
            bail!("the watched session has no workspace");
        };
        let mut params = tool("notebook_append", &json!({ "text": "seen" }));
        params["_meta"] = json!({ "mcp/session": { "id": body["result"]["id"] } });
        for note in 0..NOTES {
            session.call(world, home, &params, 10 + note).await.context("write a note")?;
            let answered = Instant::now();
            let seen = timeout(GIVEN_UP, session.updates.recv()).await;
            let seen = seen.ok().flatten().context("see the update of a note")?;
            // The update may be there before the answer.
            times.add(seen.saturating_duration_since(answered));
        }
    }
    Ok(())
}

/// Counts in a workspace all the time, to find the longest gap between two answers.
pub(super) async fn longest_gap(world: &World, over: CancellationToken) -> Result<Duration> {
    let session = WatchedSession::open(world, 0, 0).await?;
    let create = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/create", "params": {} });
    let Ok(HttpReply::Whole { status: 200, body, .. }) =
        world.ask_node(0, Some(&session.name), Ask::post(create.to_string())).await
    else {
        bail!("the watched session has no workspace");
    };
    let mut params = tool("session_counter_inc", &json!({}));
    params["_meta"] = json!({ "mcp/session": { "id": body["result"]["id"] } });
    let (mut longest, mut last, mut id) = (Duration::ZERO, Instant::now(), 10);
    loop {
        id += 1;
        let answered = session.call(world, 0, &params, id).await.is_some();
        longest = longest.max(last.elapsed());
        if answered {
            last = Instant::now();
            if over.is_cancelled() {
                return Ok(longest);
            }
        }
        if longest > GIVEN_UP {
            return Ok(longest);
        }
        sleep(Duration::from_millis(20)).await;
    }
}
