//! A run with a cluster: start, outages under load, quiet, the last checks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::engine::{self, Engine, SERVERS};
use super::links::Links;
use super::nodes::Nodes;
use super::outages::Schedule;
use super::probes::{self, Takeover};
use crate::actions::RandomClient;
use crate::check::{CheckFault, FaultKind};
use crate::cli::Cli;
use crate::server::Launch;
use crate::world::{MAX_VIOLATIONS, World};

/// How long before the kill of a server of the engine, and after it or a replaced node is back, is watched what clients feel.
const AROUND: Duration = Duration::from_secs(1);

/// The processes of a cluster and the links between them.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(super) nodes: Nodes,
    pub(super) engine: Engine,
    pub(super) links: Arc<Links>,
}

/// Runs clients against a cluster that suffers, until the schedule is over. Returns the cluster, whole again.
pub(crate) async fn run(
    cli: &Cli,
    world: &Arc<World>,
    launches: Vec<Launch>,
    folder: &Path,
    clients: &mut JoinSet<RandomClient>,
    rng: &mut Rng,
) -> Result<Cluster> {
    let links = Arc::new(Links::new(launches.len()));
    let began = Instant::now();
    // Ports are not from the seed: two runs with the same seed may run at the same time.
    let program = engine::program(cli.nats_server.as_deref())?;
    let engine = Engine::start(&program, folder, &links, &mut Rng::new()).await?;
    world
        .progress
        .note(&format!("{SERVERS} servers of the engine after {:.1} s", began.elapsed().as_secs_f32()));
    let nodes = Nodes::plan(launches, &engine, &links, &mut Rng::new()).await?;
    let mut cluster = Cluster { nodes, engine, links };
    let all: Vec<usize> = (0..cluster.nodes.number()).collect();
    cluster.nodes.start(world, &all).await?;
    world.progress.note(&format!("{} nodes after {:.1} s", all.len(), began.elapsed().as_secs_f32()));
    probes::visibility(world, rng).await?;

    for number in 1..=cli.clients() {
        clients.spawn(RandomClient::new(number, Arc::clone(world), rng.fork()).run());
    }
    let until = cli.time().map(|time| Instant::now() + time);
    if let (Some(0), Some(until)) = (cli.kills, until) {
        cluster.rest(world, until.saturating_duration_since(Instant::now())).await?;
    }
    let mut schedule = Schedule::new(&cli.faults, cli.kills, until, rng);
    loop {
        cluster.rest(world, Duration::from_millis(rng.u64(500..4_000))).await?;
        let Some(outage) = schedule.next(rng) else { break };
        let at = world.started().elapsed().as_secs_f32();
        let done = cluster.suffer(world, outage, rng).await?;
        world.progress.note(&format!("{at:.1} s: {done}"));
        if world.violations().len() > MAX_VIOLATIONS {
            bail!("more than {MAX_VIOLATIONS} violations: the run is given up");
        }
    }
    Ok(cluster)
}

impl Cluster {
    /// Waits, and fails if a node ends by itself.
    async fn rest(&mut self, world: &World, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.nodes.must_run(world)?;
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Kills a node and measures how soon its sessions answer elsewhere.
    pub(super) async fn kill_node(&mut self, world: &World, node: usize, rng: &mut Rng) -> Result<String> {
        let takeover = match Takeover::prepare(world, node, self.nodes.number()).await {
            Ok(takeover) => Some(takeover),
            // The effects of an earlier fault may still show. Then this kill is not measured.
            Err(error) => {
                world.progress.note(&format!("the next kill is not measured: {error:#}"));
                None
            }
        };
        let trouble = world.killing(node);
        let killed = Instant::now();
        self.nodes.kill(node).await?;
        let back = async {
            sleep(Duration::from_millis(rng.u64(0..8_000))).await;
            self.nodes.start(world, &[node]).await
        };
        let measure = async {
            if let Some(takeover) = takeover {
                takeover.measure(world, killed).await;
            }
        };
        let (started, ()) = tokio::join!(back, measure);
        started?;
        world.relieved(trouble);
        Ok(format!("killed node {node}, back after {:.1} s", killed.elapsed().as_secs_f32()))
    }

    /// Ends a node in good order and starts another process in its place.
    pub(super) async fn replace_node(&mut self, world: &World, node: usize, rng: &mut Rng) -> Result<String> {
        let before = world.tally.felt();
        let trouble = world.ending(node);
        let told = Instant::now();
        self.nodes.end(world, node).await?;
        let ended = told.elapsed();
        world.tally.cluster.ends.add(ended);
        sleep(Duration::from_millis(rng.u64(0..2_000))).await;
        self.nodes.start(world, &[node]).await?;
        world.relieved(trouble);
        sleep(AROUND).await;
        let felt = world.tally.felt().since(before);
        if world.is_orderly() && !felt.is_nothing() {
            let detail = format!("it was ended in good order, and clients felt {felt}");
            world.violation(&format!("node {node}"), CheckFault::new(FaultKind::Unexpected, detail));
        }
        Ok(format!(
            "replaced node {node}, which ended within {:.1} s; clients felt {felt}",
            ended.as_secs_f32()
        ))
    }

    /// Kills a server of the engine and starts it again.
    pub(super) async fn kill_server(&mut self, world: &World, rng: &mut Rng) -> Result<String> {
        let random = rng.usize(..SERVERS);
        let leads = if rng.u8(0..3) > 0 { self.engine.leader().await } else { None };
        let server = leads.unwrap_or(random);
        let over = CancellationToken::new();
        let suffering = async {
            sleep(AROUND).await;
            let trouble = world.troubling(&[]);
            self.engine.kill(server).await?;
            sleep(Duration::from_millis(rng.u64(500..10_000))).await;
            self.engine.restart(server)?;
            self.engine.ready().await?;
            world.relieved(trouble);
            sleep(AROUND).await;
            over.cancel();
            anyhow::Ok(())
        };
        let (suffered, gap) = tokio::join!(suffering, probes::longest_gap(world, over.clone()));
        suffered?;
        let gap = match gap {
            Ok(gap) => {
                world.tally.cluster.elections.add(gap);
                format!("{:.1} s", gap.as_secs_f32())
            }
            Err(error) => format!("not measured: {error:#}"),
        };
        let role = if leads.is_some() { ", which led the leases" } else { "" };
        Ok(format!("killed engine {server}{role}; longest gap {gap}"))
    }

    /// Kills all nodes at once and starts them again.
    pub(crate) async fn kill_all(&mut self, world: &World) -> Result<()> {
        let all: Vec<usize> = (0..self.nodes.number()).collect();
        let troubles: Vec<usize> = all.iter().map(|node| world.killing(*node)).collect();
        for node in &all {
            self.nodes.kill(*node).await?;
        }
        self.nodes.start(world, &all).await?;
        troubles.into_iter().for_each(|trouble| world.relieved(trouble));
        Ok(())
    }

    /// Kills everything, for good.
    pub(crate) async fn end(mut self, world: &World) -> Result<()> {
        let all: Vec<usize> = (0..self.nodes.number()).collect();
        world.troubling(&all);
        for node in all {
            self.nodes.kill(node).await?;
        }
        for server in 0..SERVERS {
            self.engine.kill(server).await?;
        }
        Ok(())
    }
}
