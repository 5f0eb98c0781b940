//! Nodes that end in order, one after the other, while servers ask clients: nothing is interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tenure_protocol::{RawJson, RequestId, Response};
use tenure_session::session::{Answer, Item, Reader};
use tenure_session::{Limits, SessionId};
use tenure_testkit::runtime::{parse, request, session};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::servers::tool_call;
use super::world::{Cluster, Got, Node, Wish};
use crate::runtime::torture::Dice;

/// Runs if nothing else is asked for: `TENURE_NODES_RUNS` says how many.
const RUNS: u64 = 60;

const SECOND: Duration = Duration::from_secs(1);

/// What runs at a node that ends may take so long.
const GRACE: Duration = Duration::from_secs(20);

struct Client {
    cluster: Arc<Cluster>,
    id: SessionId,
    dice: Dice,
    is_over: Arc<AtomicBool>,
    calls: Arc<AtomicU32>,
}

impl Client {
    fn a_node(&mut self) -> Arc<Node> {
        let nodes: Vec<_> =
            self.cluster.nodes.lock().iter().filter(|node| !node.is_dead()).cloned().collect();
        Arc::clone(&nodes[self.dice.roll(nodes.len())])
    }

    /// Gets what it wants, from whichever node.
    async fn served(&mut self, wish: Wish) -> Got {
        for _ in 0..20 {
            let at = self.a_node();
            match self.cluster.serve(&at, &self.id, wish.clone()).await {
                Ok(got) => return got,
                // It was not begun.
                Err(error) => tracing::info!(%error, "again"),
            }
            sleep(SECOND / 10).await;
        }
        panic!("no node serves {:?}", self.id.key());
    }

    async fn live(mut self, client: usize) {
        let mut number = 0;
        while !self.is_over.load(Ordering::SeqCst) {
            number += 1;
            sleep(Duration::from_millis(self.dice.roll(700) as u64)).await;
            let name = format!("{client}-{number}");
            let (says, pause) = (self.dice.roll(4) as u64, self.dice.roll(300) as u64);
            let params = tool_call("asking", &name, says, pause, self.id.key());
            let call = request((client * 1000 + number) as u64, "tools/call", &params);
            let answer = match self.served(Wish::Request(call)).await {
                Got::Answer(Answer::Json(body)) => parse(&body),
                Got::Answer(Answer::Stream(reader)) => self.follow(reader, &name).await,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(answer["result"]["run"], 1, "{name}: {answer}");
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Reads to the answer, over as many connections as that takes, and answers questions on the way.
    async fn follow(&mut self, first: Reader, name: &str) -> serde_json::Value {
        let (mut reader, mut last) = (first, None::<String>);
        loop {
            let hangs_up = last.is_some() && self.dice.roll(5) == 0;
            let next = match hangs_up {
                true => None,
                false => timeout(SECOND * 60, reader.next()).await.expect("something comes"),
            };
            tracing::info!(%name, ?next, hangs_up, "reads");
            match next {
                Some(Item::Prime(id)) => last = Some(id.to_string()),
                Some(Item::Event { id, body }) => {
                    last = id.map(|id| id.to_string()).or(last);
                    let message = parse(&body);
                    if message["method"].is_null() {
                        return message;
                    }
                    if message["method"] == "elicitation/create" {
                        sleep(Duration::from_millis(self.dice.roll(400) as u64)).await;
                        let id = RequestId::from_text(message["id"].as_str().unwrap());
                        let outcome =
                            Ok(RawJson::of(&serde_json::json!({ "action": "accept", "content": {} })));
                        self.served(Wish::Respond(Response { id, outcome })).await;
                    }
                }
                Some(Item::Gap) => panic!("{name} has a gap"),
                Some(Item::Close(_)) | None => {
                    let after =
                        last.clone().unwrap_or_else(|| panic!("{name} has nothing to come back with"));
                    sleep(Duration::from_millis(self.dice.roll(1000) as u64)).await;
                    match self.served(Wish::Listen(after)).await {
                        Got::Reader(again) => reader = again,
                        other => panic!("{name}: {other:?}"),
                    }
                }
            }
        }
    }
}

async fn run(seed: u64) -> u32 {
    let limits = Limits {
        json_wait: Duration::from_millis(200),
        dormant_after: Some(SECOND * 2),
        ..Limits::default()
    };
    let cluster = Cluster::new(seed, limits);
    let nodes = cluster.start_nodes(3).await;
    let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut clients = JoinSet::new();
    for client in 0..6 {
        let revision = ["2025-11-25", "2025-06-18"][client % 2];
        let id = *session(&nodes[client % 3].sessions, revision).await.id();
        let (cluster, is_over, calls) = (Arc::clone(&cluster), Arc::clone(&is_over), Arc::clone(&calls));
        let dice = Dice::new(seed.wrapping_mul(1000) + client as u64 + 1);
        clients.spawn(Client { cluster, id, dice, is_over, calls }.live(client));
    }
    let mut dice = Dice::new(seed ^ 0x0dde);
    for _ in 0..6 {
        sleep(Duration::from_millis(dice.roll(4000) as u64)).await;
        let fresh = cluster.start_node();
        fresh.roster.confirmed().await.unwrap();
        sleep(SECOND * 2).await;
        let leaving = {
            let nodes = cluster.nodes.lock();
            nodes.iter().find(|node| !node.is_dead()).cloned().unwrap()
        };
        leaving.stop_within(GRACE).await;
    }
    is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = timeout(SECOND * 120, clients.join_next()).await.expect("clients hang") {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    let wrongs = std::mem::take(&mut *cluster.servers.wrongs.lock());
    assert!(wrongs.is_empty(), "{wrongs:?}");
    calls.load(Ordering::SeqCst)
}

#[test]
fn a_call_that_asks_its_client_survives_the_end_of_its_node() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("TENURE_NODES_FIRST").unwrap_or(0);
    for seed in first..first + number("TENURE_NODES_RUNS").unwrap_or(RUNS) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(run(seed))));
        let calls = ran.unwrap_or_else(|_| panic!("seed {seed} failed"));
        assert!(calls > 20, "seed {seed}: only {calls} calls");
    }
}
