//! Random lives of a cluster: nodes are cut off, killed, stopped and started; writes are lost, doubled and late; clients
//! call, read, break off, come back and delete through whichever node.
//!
//! What has to hold, whatever happens: a client that comes back gets every event of its stream once and in order, and
//! nothing that it was shown is missing later. A call that must not run twice does not. A session that was deleted does
//! not come back. A call is sent, and an answer given, only by the node that owns the session. No node owns a session for
//! long that it does not have. Every request is answered in time. A failure names its seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tenure_protocol::{Kind, Reason};
use tenure_session::session::{Answer, Item, Reader};
use tenure_session::{Limits, Principal, SessionId};
use tenure_testkit::node_view::ViewFaults;
use tenure_testkit::runtime::{parse, request, session};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use super::servers::tool_call;
use super::world::{Cluster, Got, Node, PATIENCE, Wish};
use crate::runtime::torture::Dice;

/// Runs if nothing else is asked for: `TENURE_NODES_RUNS` says how many, `TENURE_NODES_FIRST` with which seed they begin,
/// and `TENURE_NODES_SEED` names one.
const RUNS: u64 = 1000;

const NODES: usize = 3;
const SESSIONS: usize = 2;
const CLIENTS: usize = 3;
const CALLS: u64 = 8;

/// How long faults happen.
const TROUBLE: Duration = Duration::from_secs(25);

/// How long a client waits at most for the end of a stream after the faults.
const UNTIL_QUIET: Duration = Duration::from_secs(120);

/// What the calls themselves take at most.
const CALL_TIME: Duration = Duration::from_secs(4);

/// What is tried for a time is begun within it for the last time, and may end after it.
const LAST_TRY: Duration = Duration::from_secs(3);

/// What has to happen in some run at least.
const KINDS: [&str; 7] = [
    "answers in JSON",
    "errors in JSON",
    "answers on streams",
    "errors on streams",
    "resumes",
    "ended sessions",
    "refusals for now",
];

struct Life {
    cluster: Arc<Cluster>,
    sessions: Vec<SharedSession>,
    streams: Mutex<Vec<SeenStream>>,
}

struct SharedSession {
    id: SessionId,
    /// When its deletion was answered.
    deleted: Mutex<Option<Instant>>,
    /// A deletion was tried, and may have worked.
    is_doomed: AtomicBool,
}

/// A stream as its client saw it.
struct SeenStream {
    session: usize,
    name: String,
    /// The id before its first event.
    prime: String,
    seen: Vec<(String, Value)>,
}

/// One client of one session.
struct Client {
    life: Arc<Life>,
    session: usize,
    dice: Dice,
}

impl Life {
    fn wrong(&self, what: String) {
        tracing::error!("wrong: {what}");
        self.cluster.servers.wrong(what);
    }

    fn a_node(&self, dice: &mut Dice) -> Arc<Node> {
        let alive: Vec<_> =
            self.cluster.nodes.lock().iter().filter(|node| !node.is_dead()).cloned().collect();
        Arc::clone(&alive[dice.roll(alive.len())])
    }
}

impl Client {
    async fn live(mut self) {
        for number in 0..CALLS {
            sleep(Duration::from_millis(self.dice.roll(3000) as u64)).await;
            let may_delete = self.session == 0 && number > CALLS / 2;
            if may_delete && self.dice.roll(6) == 0 {
                self.delete().await;
            } else {
                self.call(number).await;
            }
        }
    }

    async fn delete(&mut self) {
        let life = Arc::clone(&self.life);
        let shared = &life.sessions[self.session];
        let at = life.a_node(&mut self.dice);
        shared.is_doomed.store(true, Ordering::SeqCst);
        let got = life.cluster.serve(&at, &shared.id, Wish::Delete).await;
        tracing::info!(session = shared.id.key().label(), at = ?at.roster.node(), ?got, "deletes");
        if got.is_ok() && !at.is_dead() {
            shared.deleted.lock().get_or_insert_with(Instant::now);
        }
    }

    async fn call(&mut self, number: u64) {
        let life = Arc::clone(&self.life);
        let shared = &life.sessions[self.session];
        let tool = if self.dice.roll(2) == 0 { "once" } else { "careful" };
        let name = format!("{}-{}-{number}", self.session, self.dice.roll(1 << 30));
        let says = if self.dice.roll(2) == 0 { 0 } else { 1 + self.dice.roll(5) as u64 };
        let pause = self.dice.roll(600) as u64;
        let id = self.dice.roll(1 << 30) as u64;
        let call = request(id, "tools/call", &tool_call(tool, &name, says, pause, shared.id.key()));
        let (at, sent) = (life.a_node(&mut self.dice), Instant::now());
        let was_deleted = shared.deleted.lock().is_some();
        tracing::info!(%name, tool, at = ?at.roster.node(), "calls");
        let got = life.cluster.serve(&at, &shared.id, Wish::Request(call)).await;
        tracing::info!(%name, ?got, "is answered");
        if sent.elapsed() > PATIENCE * 2 + CALL_TIME + LAST_TRY {
            life.wrong(format!("{name} was answered only after {:?}", sent.elapsed()));
        }
        if at.is_dead() {
            return;
        }
        match got {
            Err(error) => self.check_error(&error, &name),
            // An error is an answer too, and the session is dead all the same.
            Ok(Got::Answer(Answer::Json(body))) if was_deleted && parse(&body)["error"].is_object() => {}
            Ok(Got::Answer(answer)) if was_deleted => {
                let owner = life.cluster.owner(&shared.id).await;
                life.wrong(format!(
                    "{name} at {:?} was served after its session of {owner:?} was deleted, with {answer:?}",
                    at.roster.node()
                ));
            }
            Ok(Got::Answer(Answer::Json(body) | Answer::TryLater { body, .. })) => {
                self.check_json(&parse(&body), &name).await;
            }
            Ok(Got::Answer(Answer::Stream(reader))) => self.follow(reader, &name, tool, says).await,
            Ok(Got::Answer(Answer::Withdrawn)) => {
                life.wrong(format!("{name} was withdrawn, and no client withdrew it"))
            }
            Ok(Got::Reader(_) | Got::Taken | Got::Deleted) => unreachable!("it was a request"),
        }
    }

    fn check_error(&self, error: &tenure_protocol::Error, name: &str) {
        let shared = &self.life.sessions[self.session];
        let is_over = matches!(error.kind(), Kind::Gone | Kind::NotFound);
        self.life.cluster.servers.count(if is_over { "ended sessions" } else { "refusals for now" });
        if is_over && !shared.is_doomed.load(Ordering::SeqCst) {
            self.life.wrong(format!("{name}: the session is lost: {error}"));
        }
        let is_for_now = matches!(error.reason(), Reason::StoreUnavailable | Reason::Draining);
        if !is_over && !is_for_now {
            self.life.wrong(format!("{name}: {error:?}"));
        }
    }

    async fn check_json(&self, answer: &Value, name: &str) {
        let life = &self.life;
        if answer["error"]["code"].is_i64() {
            life.cluster.servers.count("errors in JSON");
            return;
        }
        life.cluster.servers.count("answers in JSON");
        let node = answer["result"]["node"].as_str().unwrap_or_default();
        let is_dead = life
            .cluster
            .nodes
            .lock()
            .iter()
            .any(|other| other.is_dead() && other.roster.node().hex() == node);
        // Its connection broke before.
        if is_dead {
            return;
        }
        let owner = life.cluster.owner(&life.sessions[self.session].id).await;
        if owner.is_some_and(|owner| owner.hex() != node) {
            life.wrong(format!("{name} was answered by {node}, but {owner:?} owns the session"));
        }
    }

    /// Reads a stream to its answer, over as many connections as that takes.
    async fn follow(&mut self, first: Reader, name: &str, tool: &str, says: u64) {
        let life = Arc::clone(&self.life);
        let shared = &life.sessions[self.session];
        let (mut reader, mut prime, mut last) = (Some(first), None, None);
        let mut seen: Vec<(String, Value)> = Vec::new();
        let began = Instant::now();
        let answer = loop {
            if let Some(connection) = &mut reader {
                match self.read(connection, &mut prime, &mut last, &mut seen, name).await {
                    Some(Some(answer)) => break Some(answer),
                    Some(None) => break None,
                    None => {}
                }
                reader = None;
            }
            let Some(after) = last.clone() else { break None };
            sleep(Duration::from_millis(100)).await;
            if began.elapsed() > TROUBLE + UNTIL_QUIET {
                life.wrong(format!("{name} never ended; seen {}", seen.len()));
                return;
            }
            let at = life.a_node(&mut self.dice);
            let got = life.cluster.serve(&at, &shared.id, Wish::Listen(after.clone())).await;
            tracing::info!(%name, at = ?at.roster.node(), %after, ?got, "comes back");
            match got {
                Ok(Got::Reader(again)) => {
                    life.cluster.servers.count("resumes");
                    reader = Some(again);
                }
                Ok(_) => unreachable!("it was a wish to listen"),
                Err(error) if matches!(error.kind(), Kind::Gone | Kind::NotFound) => {
                    self.check_error(&error, name);
                    return;
                }
                Err(error) => {
                    self.check_error(&error, name);
                    sleep(Duration::from_millis(300)).await;
                }
            }
        };
        if let Some(answer) = &answer {
            let is_result = answer["result"].is_object();
            life.cluster.servers.count(if is_result { "answers on streams" } else { "errors on streams" });
        }
        self.check_order(&seen, answer.as_ref(), name, tool, says);
        if let Some(prime) = prime {
            life.streams.lock().push(SeenStream {
                session: self.session,
                name: name.to_owned(),
                prime,
                seen,
            });
        }
    }

    /// Reads one connection. `None`: it broke, and the client comes back. `Some(None)`: there is nothing to come back for.
    async fn read(
        &mut self,
        reader: &mut Reader,
        prime: &mut Option<String>,
        last: &mut Option<String>,
        seen: &mut Vec<(String, Value)>,
        name: &str,
    ) -> Option<Option<Value>> {
        let life = Arc::clone(&self.life);
        let breaks_after = if self.dice.roll(3) == 0 { self.dice.roll(4) } else { usize::MAX };
        let mut items = 0;
        loop {
            items += 1;
            if items > breaks_after && last.is_some() {
                return None;
            }
            // A connection to a process that died breaks; here the client notices after a while.
            let next = timeout(Duration::from_secs(5), reader.next()).await;
            tracing::info!(%name, ?next, "reads");
            let is_doomed = life.sessions[self.session].is_doomed.load(Ordering::SeqCst);
            match next {
                Err(_) | Ok(Some(Item::Close(_))) if last.is_some() => return None,
                Err(_) => return Some(None),
                Ok(None) if last.is_some() && !is_doomed => return None,
                Ok(None | Some(Item::Close(_))) => return Some(None),
                Ok(Some(Item::Prime(id))) => {
                    if prime.is_none() {
                        *prime = Some(id.to_string());
                    }
                    *last = Some(id.to_string());
                }
                Ok(Some(Item::Gap)) => life.wrong(format!("{name} has a gap")),
                Ok(Some(Item::Event { id: Some(id), body })) => {
                    let message = parse(&body);
                    *last = Some(id.to_string());
                    seen.push((id.to_string(), message.clone()));
                    if message["id"].is_u64() {
                        return Some(Some(message));
                    }
                }
                Ok(Some(Item::Event { id: None, body })) => {
                    let message = parse(&body);
                    if !is_doomed {
                        life.wrong(format!("{name} was shown {message} without an id"));
                    }
                    return Some(None);
                }
            }
        }
    }

    /// Each run says 0, 1, 2 …, and a later run begins anew; a result comes after everything that its run said.
    fn check_order(
        &self,
        seen: &[(String, Value)],
        answer: Option<&Value>,
        name: &str,
        tool: &str,
        says: u64,
    ) {
        let (mut run, mut next) = (0, 0);
        for (_, message) in seen {
            let Some(text) = message["params"]["data"].as_str() else { continue };
            let parts: Vec<&str> = text.split(' ').collect();
            let (of_run, said): (u64, u64) = (parts[1].parse().unwrap(), parts[2].parse().unwrap());
            let is_new_run = of_run > run && said == 0;
            let goes_on = of_run == run && said == next;
            if !(is_new_run || goes_on) || (run > 0 && is_new_run && tool == "once") {
                self.life.wrong(format!("{name}: after {run} {next} came {text}"));
            }
            (run, next) = (of_run, said + 1);
        }
        if answer.is_some_and(|answer| answer["result"].is_object()) && next != says && says > 0 {
            self.life.wrong(format!("{name} was answered after {next} of {says} messages"));
        }
    }
}

/// Faults until the time is over; then everything is well.
async fn trouble(life: Arc<Life>, mut dice: Dice) {
    let (until, mut ended) = (Instant::now() + TROUBLE, 0);
    while Instant::now() < until {
        sleep(Duration::from_millis(300 + dice.roll(2500) as u64)).await;
        let node = life.a_node(&mut dice);
        match dice.roll(8) {
            0 | 1 => node.view.set(ViewFaults { is_cut: true, ..ViewFaults::default() }),
            2 | 3 => node.view.set(ViewFaults {
                is_cut: false,
                delay: Duration::from_millis(dice.roll(150) as u64),
                lost_answers: dice.roll(100) as u32,
                lost_writes: dice.roll(100) as u32,
                late_writes: dice.roll(100) as u32,
                lost_releases: dice.roll(200) as u32,
                late_lists: dice.roll(400) as u32,
            }),
            4 if ended < 2 => {
                ended += 1;
                node.kill();
                life.cluster.start_node();
            }
            5 if ended < 2 => {
                ended += 1;
                life.cluster.start_node();
                tokio::spawn(async move { node.stop().await });
            }
            _ => node.view.set(ViewFaults::default()),
        }
    }
    for node in life.cluster.nodes.lock().iter().filter(|node| !node.is_dead()) {
        node.view.set(ViewFaults::default());
    }
}

/// What a client that comes back to the beginning of a stream gets, has to be what it saw.
async fn check_replays(life: &Life) {
    let node = {
        let nodes = life.cluster.nodes.lock();
        nodes.iter().rev().find(|node| !node.is_dead()).cloned().unwrap()
    };
    let streams = std::mem::take(&mut *life.streams.lock());
    for stream in streams {
        let shared = &life.sessions[stream.session];
        if shared.is_doomed.load(Ordering::SeqCst) {
            continue;
        }
        let wish = Wish::Listen(stream.prime.clone());
        let mut reader = match life.cluster.serve(&node, &shared.id, wish).await {
            Ok(Got::Reader(reader)) => reader,
            Ok(_) => unreachable!("it was a wish to listen"),
            Err(error) => {
                life.wrong(format!("{} cannot be read again: {error}", stream.name));
                continue;
            }
        };
        let mut again = Vec::new();
        let read = async {
            while again.len() < stream.seen.len() {
                match reader.next().await {
                    Some(Item::Event { id: Some(id), body }) => again.push((id.to_string(), parse(&body))),
                    Some(Item::Prime(_)) => {}
                    Some(_) | None => break,
                }
            }
        };
        drop(timeout(Duration::from_secs(30), read).await);
        if again != stream.seen {
            life.wrong(format!("{}: seen {:?}, later {again:?}", stream.name, stream.seen));
        }
    }
}

async fn check_deleted(life: &Life) {
    for shared in &life.sessions {
        if shared.deleted.lock().is_none() {
            continue;
        }
        let nodes: Vec<_> =
            life.cluster.nodes.lock().iter().filter(|node| !node.is_dead()).cloned().collect();
        for node in nodes {
            match node.find(&shared.id).await {
                Err(error) if matches!(error.kind(), Kind::Gone | Kind::NotFound) => {}
                other => life.wrong(format!("a deleted session is {other:?}")),
            }
        }
    }
}

/// A session that no node has in memory must not keep a living owner: it would never expire.
async fn check_owners(life: &Life) {
    // The longest pause between two tries to give a session back.
    sleep(Duration::from_secs(35)).await;
    for shared in &life.sessions {
        let Some(owner) = life.cluster.owner(&shared.id).await else { continue };
        let alive = life.cluster.named(owner).filter(|node| !node.is_dead());
        if alive.is_some_and(|node| node.sessions.live(&shared.id, &Principal::ANONYMOUS).is_none()) {
            life.wrong(format!("{owner:?} owns session {} and does not have it", shared.id.key().label()));
        }
    }
}

async fn run(seed: u64, outcomes: &mut BTreeMap<&'static str, u64>) -> Vec<String> {
    let limits = Limits {
        json_wait: Duration::from_millis(400),
        dormant_after: Some(Duration::from_secs(2)),
        ..Limits::default()
    };
    let cluster = Cluster::new(seed, limits);
    let nodes = cluster.start_nodes(NODES).await;
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let id = *session(&nodes[number % NODES].sessions, "2025-11-25").await.id();
        sessions.push(SharedSession { id, deleted: Mutex::default(), is_doomed: AtomicBool::new(false) });
    }
    let life = Arc::new(Life { cluster, sessions, streams: Mutex::default() });
    let mut tasks = JoinSet::new();
    tasks.spawn(trouble(Arc::clone(&life), Dice::new(seed ^ 0x5eed)));
    for client in 0..SESSIONS * CLIENTS {
        let dice = Dice::new(seed.wrapping_mul(1000) + client as u64 + 1);
        tasks.spawn(Client { life: Arc::clone(&life), session: client % SESSIONS, dice }.live());
    }
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                life.wrong(format!("a client panicked: {error}"));
            }
        }
    };
    if timeout(TROUBLE + UNTIL_QUIET * 2, all).await.is_err() {
        life.wrong("clients hang".to_owned());
    }
    sleep(Duration::from_secs(10)).await;
    check_replays(&life).await;
    check_deleted(&life).await;
    check_owners(&life).await;
    for (outcome, count) in life.cluster.servers.outcomes.lock().iter() {
        *outcomes.entry(outcome).or_default() += count;
    }
    life.cluster.servers.wrongs.lock().clone()
}

/// The history of the runs of a thread, on its standard error, with the time of the run.
fn tell_history() -> tracing::subscriber::DefaultGuard {
    struct RunTime(Mutex<Option<Instant>>);
    impl FormatTime for RunTime {
        fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
            let now = Instant::now();
            write!(to, "{:9.3}", (now - *self.0.lock().get_or_insert(now)).as_secs_f64())
        }
    }
    let history = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_timer(RunTime(Mutex::default()))
        .with_writer(std::io::stderr);
    tracing::subscriber::set_default(history.finish())
}

#[test]
fn whatever_happens_in_a_cluster_nothing_is_lost_doubled_or_revived() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    // Tasks that are ready at the same time run in an order that no seed decides: one seed may need several tries.
    let _history = number("TENURE_NODES_SEED").map(|_| tell_history());
    let seeds = match number("TENURE_NODES_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("TENURE_NODES_FIRST").unwrap_or(0);
            first..first + number("TENURE_NODES_RUNS").unwrap_or(RUNS)
        }
    };
    let (mut failures, mut outcomes) = (Vec::new(), BTreeMap::new());
    for seed in seeds {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let wrongs = runtime.block_on(run(seed, &mut outcomes));
        if !wrongs.is_empty() {
            let failure = format!("seed {seed}: {}", wrongs.join("\n  "));
            // At once: there may be hours of runs after this one.
            eprintln!("{failure}");
            failures.push(failure);
        }
    }
    assert!(failures.is_empty(), "{} seeds failed\n{}", failures.len(), failures.join("\n"));
    // A single run need not show everything.
    if number("TENURE_NODES_SEED").is_none() {
        for kind in KINDS {
            assert!(outcomes.contains_key(kind), "no {kind} among {outcomes:?}");
        }
    }
}
