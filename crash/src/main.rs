//! Kills real Tenure processes over and over while many clients use them, and checks from the clients'
//! side that no session is lost, no message lost, repeated or misdelivered, no request left hanging and
//! no deleted session resurrected.
//!
//! Code map, in reading order: `cli` (flags) and `plan` (faults), `check` (the promises; pure), `world` (state shared by all tasks),
//! `life` (what was done to the nodes), `killer` (the schedule of one node) with `server` (the process), `tear` (cuts its
//! journal) and `power` (drops unsynced data), `cluster` (several nodes on one engine), `actions` (the clients) over
//! `session`, `reach` and `balancer` (which node gets a request) and `http`, then `times`, `report` and `progress`.

mod cli;
mod plan;
mod check;
mod world;
mod life;
mod times;
mod killer;
mod server;
mod cluster;
mod tear;
mod power;
mod actions;
mod session;
mod reach;
mod balancer;
mod http;
mod report;
mod progress;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::actions::RandomClient;
use crate::balancer::Balancer;
use crate::check::{CheckFault, FaultKind};
use crate::cli::Cli;
use crate::killer::{Killer, Limit};
use crate::power::Power;
use crate::progress::ProgressLine;
use crate::server::{Launch, ServerStore};
use crate::world::{DEADLINE, World};

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            progress::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs the harness. `false` if a promise was broken, or if a loss was expected and not noticed.
fn run(cli: &Cli) -> Result<bool> {
    if cli.memory && cli.kills != Some(0) {
        bail!("the memory store outlives no kill\n\nhint: add `--kills 0`, or leave `--memory` out");
    }
    let seed = cli.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut rng = Rng::with_seed(seed);
    let folder = tempfile::Builder::new().prefix("tenure-crash-").tempdir().context("make a work folder")?;
    let store = folder.path().join("store");
    let mut launches = (0..cli.nodes)
        .map(|node| {
            Ok(Launch {
                binary: server::binary(cli.binary.as_deref())?,
                // Not from the seed: two runs with the same seed may run at the same time.
                address: server::free_port(&mut Rng::new())?,
                store: if cli.memory { ServerStore::Memory } else { ServerStore::Disk(store.clone()) },
                durability: cli.durability()?,
                power: cli.power.then(|| Power::prepare(folder.path(), &store)).transpose()?,
                log: folder.path().join(if cli.nodes == 1 {
                    "server.log".to_owned()
                } else {
                    format!("node-{node}.log")
                }),
                log_level: cli.log_level.clone(),
                settings: Vec::new(),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let logs: Vec<PathBuf> = launches.iter().map(|launch| launch.log.clone()).collect();
    let addresses: Vec<SocketAddr> = launches.iter().map(|launch| launch.address).collect();
    let listed = addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
    let balancer = Balancer::new(addresses, cli.via);
    let world = Arc::new(World::new(balancer, seed, ProgressLine::new(), cli.expect_loss));
    let clients = cli.clients();
    world.progress.note(&format!("seed {seed}, {clients} clients, server at {listed}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let outcome = runtime.block_on(async {
        // However this ends, the future that owns the server is dropped, which kills the server.
        tokio::select! {
            outcome = async {
                match launches.pop() {
                    Some(launch) if launches.is_empty() => crash(cli, &world, &launch, &mut rng).await,
                    last => {
                        launches.extend(last);
                        crash_cluster(cli, &world, launches, folder.path(), &mut rng).await
                    }
                }
            } => outcome,
            () = report_progress(&world) => Ok(()),
            signal = tokio::signal::ctrl_c() => signal.context("wait for a signal").and_then(|()| bail!("stopped")),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    world.progress.finish();

    let log = report::ServerLog::read(logs.iter().map(PathBuf::as_path));
    for panic in &log.panics {
        world.violation("server", CheckFault::new(FaultKind::ServerFailed, panic.clone()));
    }
    let kept = if cli.expect_loss { world.noticed_loss() } else { world.violations().is_empty() };
    let good = outcome.is_ok() && kept;
    let text = format!("{}{}", report::summary(&world), log.text());
    std::io::stdout().lock().write_all(text.as_bytes()).context("print the summary")?;
    if !good {
        let text = format!(
            "\n{}\n{}seed {seed}\n",
            logs.iter().map(|log| server::tail(log)).collect::<String>(),
            report::violations(&world)
        );
        std::io::stderr().lock().write_all(text.as_bytes()).context("print the violations")?;
    }
    if cli.expect_loss && outcome.is_ok() {
        let verdict = if kept {
            "the loss was noticed, as expected"
        } else {
            "no loss was noticed, but one was expected"
        };
        world.progress.note(verdict);
    }
    if cli.keep || !good {
        world.progress.note(&format!("kept {}", folder.keep().display()));
    }
    outcome.map(|()| good)
}

/// The run itself: kills under load, then quiet, then the last checks.
async fn crash(cli: &Cli, world: &Arc<World>, launch: &Launch, rng: &mut Rng) -> Result<()> {
    let mut killer = Killer::new(world, launch, rng.fork(), cli.tear);
    let mut server = killer.begin().await?;
    let mut clients = JoinSet::new();
    for number in 1..=cli.clients() {
        clients.spawn(RandomClient::new(number, Arc::clone(world), rng.fork()).run());
    }
    let limit = Limit { kills: cli.kills, until: cli.time().map(|time| Instant::now() + time) };
    server = killer.run(server, &limit).await?;
    if cli.expect_loss {
        // After a loss every later check may fail, so do not wait for the clients.
        world.killing(0);
        return server.kill().await;
    }

    let clients = quiet(world, &mut clients).await;
    if cli.kills != Some(0) {
        // One more kill while no request is under way: complete streams must survive too.
        killer.stop_tearing();
        server = killer.kill_and_restart(server).await?;
    }
    last_checks(world, clients, rng).await?;
    server.kill().await
}

/// The same with several nodes.
async fn crash_cluster(
    cli: &Cli,
    world: &Arc<World>,
    launches: Vec<Launch>,
    folder: &Path,
    rng: &mut Rng,
) -> Result<()> {
    let mut clients = JoinSet::new();
    let mut cluster = cluster::run(cli, world, launches, folder, &mut clients, rng).await?;
    let clients = quiet(world, &mut clients).await;
    if cli.kills != Some(0) {
        // All data that is left is with the engine.
        cluster.kill_all(world).await?;
    }
    last_checks(world, clients, rng).await?;
    cluster.end(world).await
}

/// Lets clients end what they have begun.
async fn quiet(world: &World, clients: &mut JoinSet<RandomClient>) -> Vec<RandomClient> {
    world.progress.note("nothing more is done; waiting for open requests");
    world.stop.cancel();
    finish(world, clients).await
}

/// What must hold after the last kill.
async fn last_checks(world: &Arc<World>, clients: Vec<RandomClient>, rng: &mut Rng) -> Result<()> {
    let mut checks = JoinSet::new();
    for client in clients {
        checks.spawn(client.finish());
    }
    finish(world, &mut checks).await;
    actions::all_dead(world, rng).await;
    world.end.cancel();
    world.tasks.close();
    if timeout(Duration::from_secs(10), world.tasks.wait()).await.is_err() {
        bail!("a listener does not end");
    }
    Ok(())
}

/// Waits for tasks. Each task has its own deadlines, so a task that outlives them is stuck.
async fn finish<T: 'static>(world: &World, tasks: &mut JoinSet<T>) -> Vec<T> {
    let mut done = Vec::new();
    let patience = DEADLINE * 3;
    while let Ok(Some(outcome)) = timeout(patience, tasks.join_next()).await {
        match outcome {
            Ok(task) => done.push(task),
            Err(error) => {
                let detail = format!("a client ended early: {error}");
                world.violation("harness", CheckFault::new(FaultKind::Unexpected, detail));
            }
        }
    }
    if !tasks.is_empty() {
        let detail = format!("{} clients are stuck", tasks.len());
        world.violation("harness", CheckFault::new(FaultKind::Hangs, detail));
    }
    done
}

/// Prints the state of the run again and again.
async fn report_progress(world: &World) {
    loop {
        tokio::time::sleep(world.progress.every()).await;
        world.progress.state(report::line(world));
    }
}
