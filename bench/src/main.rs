//! Measures MCP servers side by side in one run: what a call, an idle session, an open stream, a
//! replay, storage, data sessions, calls of either era and gateways cost. One question per subcommand; each server is a process of its own, so that
//! its CPU time and memory can be read from the kernel and not guessed.
//!
//! Code map, in reading order: `cli` (flags), `rows` (which servers), `process` and `machine` (what
//! the kernel says about them), `client` (a cheap HTTP client), `load` (the closed loop), then one
//! module per question (`calls`, `idle`, `streams`, `replay`), `store` and `data` (questions about storage
//! and about data sessions, with maps of their own), `eras` (calls without sessions, and the bridges), `gateway` (ours and
//! those of others), `report` (tables and JSON), and `servers` (the floors and the rival, run as
//! `tenure-bench server <name>`).

mod calls;
mod cli;
mod client;
mod clock;
mod crowd;
mod data;
mod eras;
mod gateway;
mod histogram;
mod idle;
mod latency;
mod load;
mod machine;
mod process;
mod progress;
mod replay;
mod report;
mod rows;
mod scratch;
mod servers;
mod stats;
mod store;
mod target;
mod streams;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{AllCommand, Cli, Command, CommonArgs, DataCommand, ErasCommand, StoreCommand};
use crate::report::Report;
use crate::rows::{Bench, Rows};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Server(args) => servers::run(&args),
        Command::StoreWorker { task } => store::run_worker(&task),
        Command::DataWorker { task } => data::run_worker(&task),
        command => measure(&command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs one measuring subcommand and prints its report.
fn measure(command: &Command) -> Result<()> {
    process::raise_file_limit()?;
    // One thread: the client shares the machine with the server it measures, so it must be cheap
    // and must never take more than one core.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let report = runtime.block_on(async {
        // Whichever way this block ends, the future that owns the servers is dropped, and dropping
        // a server kills its process.
        tokio::select! {
            report = run(command) => report,
            stopped = stop_signal() => bail!("stopped by {}", stopped?),
        }
    })?;
    if let Some(path) = command.json() {
        let text = serde_json::to_string_pretty(&report).context("encode the figures as JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("write `{}`", path.display()))?;
    }
    std::io::stdout().lock().write_all(report.markdown().as_bytes()).context("print the report")
}

async fn run(command: &Command) -> Result<Report> {
    let mut report = Report::new();
    match command {
        Command::Calls(args) => {
            let rows = Rows::select(&args.common, Bench::Calls)?;
            report.describe(&rows);
            report.calls = Some(calls::run(&rows, &args.calls).await?);
        }
        Command::Idle(args) => {
            let rows = Rows::select(&args.common, Bench::Idle)?;
            report.describe(&rows);
            report.idle = Some(idle::run(&rows, &args.idle).await?);
        }
        Command::Streams(args) => {
            let rows = Rows::select(&args.common, Bench::Streams)?;
            report.describe(&rows);
            report.streams = Some(streams::run(&rows, &args.streams).await?);
        }
        Command::Replay(args) => {
            let rows = Rows::select(&args.common, Bench::Replay)?;
            report.describe(&rows);
            report.replay = Some(replay::run(&rows, &args.replay).await?);
        }
        Command::Store(args) => run_store(args, &mut report).await?,
        Command::Data(args) => run_data(args, &mut report).await?,
        Command::Eras(args) => run_eras(args, &mut report).await?,
        Command::Gateway(args) => report.gateway = Some(gateway::run(&args.common, &args.gateway).await?),
        Command::All(args) => run_all(args, &mut report).await?,
        Command::Server(_) | Command::StoreWorker { .. } | Command::DataWorker { .. } => {
            unreachable!("`main` runs a server or worker without a measurement")
        }
    }
    Ok(report)
}

async fn run_store(args: &StoreCommand, report: &mut Report) -> Result<()> {
    ensure!(
        args.common.only.is_empty(),
        "`--only` names servers\n\nhint: name questions: `store append open`"
    );
    let plan = store::Plan::new(&args.common, &args.store)?;
    let only = store::CALLS_ROWS.map(str::to_owned).to_vec();
    let common = CommonArgs { only, ..args.common.clone() };
    let rows = plan.calls_servers().then(|| Rows::select(&common, Bench::Calls)).transpose()?;
    if let Some(rows) = &rows {
        report.describe(rows);
    }
    report.store = Some(store::run(&plan, rows.as_ref()).await?);
    Ok(())
}

async fn run_data(args: &DataCommand, report: &mut Report) -> Result<()> {
    let plan = data::Plan::new(&args.common, &args.data)?;
    let rows = plan.calls_servers().then(|| Rows::select(&args.common, Bench::Data)).transpose()?;
    if let Some(rows) = &rows {
        report.describe(rows);
    }
    report.data = Some(data::run(&plan, rows.as_ref()).await?);
    Ok(())
}

async fn run_eras(args: &ErasCommand, report: &mut Report) -> Result<()> {
    let plan = eras::Plan::new(&args.common, &args.eras)?;
    report.describe(plan.servers());
    report.eras = Some(eras::run(&plan).await?);
    Ok(())
}

/// Asks every question that at least one of the chosen rows can answer.
async fn run_all(args: &AllCommand, report: &mut Report) -> Result<()> {
    // Every table is drawn up before the first measurement: a missing binary must not show up
    // after ten minutes.
    let calls = Rows::select_any(&args.common, Bench::Calls)?;
    let idle = Rows::select_any(&args.common, Bench::Idle)?;
    let streams = Rows::select_any(&args.common, Bench::Streams)?;
    let replay = Rows::select_any(&args.common, Bench::Replay)?;
    let store = store::Plan::of_all(&args.common, args.store_sessions, args.store_events)?;
    let data_rows = Rows::select_any(&args.common, Bench::Data)?;
    let data = data::Plan::of_all(&args.common, args.data_sessions)?;
    let eras = eras::Plan::of_all(&args.common)?;
    for rows in [&calls, &idle, &streams, &replay, &data_rows, eras.servers()] {
        report.describe(rows);
    }
    if !calls.is_empty() {
        report.calls = Some(calls::run(&calls, &args.calls).await?);
    }
    if !idle.is_empty() {
        report.idle = Some(idle::run(&idle, &args.idle).await?);
    }
    if !streams.is_empty() {
        report.streams = Some(streams::run(&streams, &args.streams).await?);
    }
    if !replay.is_empty() {
        report.replay = Some(replay::run(&replay, &args.replay).await?);
    }
    // Whoever names rows wants those servers and no more.
    if args.common.only.is_empty() {
        report.store = Some(store::run(&store, None).await?);
    }
    if !data_rows.is_empty() {
        report.data = Some(data::run(&data, Some(&data_rows)).await?);
    }
    if !eras.is_empty() {
        report.eras = Some(eras::run(&eras).await?);
    }
    Ok(())
}

/// Waits for the first signal that asks the harness to stop, and names it.
async fn stop_signal() -> Result<&'static str> {
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut hang_up = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
        _ = hang_up.recv() => "SIGHUP",
    })
}
