//! Measures MCP servers side by side in one run: what a call, an idle session, an open stream, a
//! replay, storage, data sessions, credentials, limits, logs, calls of either era and gateways cost. One question per subcommand; each server is a process of its own, so that
//! its CPU time and memory can be read from the kernel and not guessed.
//!
//! Code map, in reading order: `cli` (flags), `plan` (sizes), `rows` (which servers), `control` (what is switched on in them), `process` and `machine` (what
//! the kernel says about them), `client` (requests and their checks), `load` (the closed loop), `rounds` (rows measured
//! in turn, and compared), `table` and `target` (what is shown of them), then one module per question (`calls`, `idle`,
//! `streams`, `replay`), `store` and `data` (questions about storage and about data sessions, with maps of their own),
//! `controls` (credentials, limits and logs), `eras` (calls without sessions, and the bridges), `gateway` (ours and those of others), `report` (the sections of a
//! run), and `servers` (the floors and the rival, run as `tenure-bench server <name>`).

mod calls;
mod cli;
mod client;
mod clock;
mod control;
mod controls;
mod crowd;
mod data;
mod eras;
mod gateway;
mod histogram;
mod idle;
mod latency;
mod load;
mod machine;
mod plan;
mod process;
mod progress;
mod replay;
mod report;
mod rounds;
mod rows;
mod scratch;
mod servers;
mod stats;
mod store;
mod table;
mod target;
mod streams;
mod worker;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{
    AllCommand, Asked, Cli, Command, CommonArgs, ControlsArgs, DataQuestion, QuestionArgs, StoreQuestion,
};
use crate::eras::Eras;
use crate::plan::Plan;
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
    std::io::stdout().lock().write_all(report.markdown().as_bytes()).context("print the report")?;
    ensure!(report.failed().is_empty(), "a target does not hold: {}", report.failed().join("; "));
    Ok(())
}

async fn run(command: &Command) -> Result<Report> {
    let mut report = Report::new();
    let section = match command {
        Command::Calls(Asked { common, args }) => {
            calls::run(&report.select(common, Bench::Calls)?, args).await?
        }
        Command::Idle(Asked { common, args }) => {
            idle::run(&report.select(common, Bench::Idle)?, args).await?
        }
        Command::Streams(Asked { common, args }) => {
            streams::run(&report.select(common, Bench::Streams)?, args).await?
        }
        Command::Replay(Asked { common, args }) => {
            replay::run(&report.select(common, Bench::Replay)?, args).await?
        }
        Command::Store(Asked { common, args }) => {
            ensure!(
                common.only.is_empty(),
                "`--only` names servers\n\nhint: name questions: `store append open`"
            );
            let plan = Plan::new(common, &args.asked, args.sessions, args.events)?;
            let only = store::CALLS_ROWS.map(str::to_owned).to_vec();
            let common = CommonArgs { only, ..common.clone() };
            let calls = plan.asks(StoreQuestion::Calls);
            let rows = calls.then(|| report.select(&common, Bench::Calls)).transpose()?;
            store::run(&plan, rows.as_ref()).await?
        }
        Command::Data(Asked { common, args }) => {
            let plan = Plan::new(common, &args.asked, args.sessions, None)?;
            let calls = plan.asks(DataQuestion::Calls);
            let rows = calls.then(|| report.select(common, Bench::Data)).transpose()?;
            data::run(&plan, rows.as_ref()).await?
        }
        Command::Eras(Asked { common, args }) => {
            let eras = Eras::new(common, args)?;
            report.describe(&eras.servers);
            eras::run(&eras).await?
        }
        Command::Controls(Asked { common, args }) => {
            controls::run(&report.select(common, Bench::Controls)?, args).await?
        }
        Command::Gateway(Asked { common, args }) => gateway::run(common, args).await?,
        Command::All(args) => {
            run_all(args, &mut report).await?;
            return Ok(report);
        }
        Command::Server(_) | Command::StoreWorker { .. } | Command::DataWorker { .. } => {
            unreachable!("`main` runs a server or worker without a measurement")
        }
    };
    report.add(section);
    Ok(report)
}

/// Asks every question that at least one of the chosen rows can answer.
async fn run_all(args: &AllCommand, report: &mut Report) -> Result<()> {
    // Every table is drawn up before the first measurement: a missing binary must not show up
    // after ten minutes.
    let common = &args.common;
    let select = |bench| Rows::select_any(common, bench);
    let (calls, idle, streams) = (select(Bench::Calls)?, select(Bench::Idle)?, select(Bench::Streams)?);
    let (replay, data_rows) = (select(Bench::Replay)?, select(Bench::Data)?);
    let controls_rows = select(Bench::Controls)?;
    // A user who names rows wants those servers and no others.
    let is_everything = common.only.is_empty();
    // Calls have a table of their own here, with the same two rows in it.
    let asked = StoreQuestion::value_variants().iter().filter(|question| **question != StoreQuestion::Calls);
    let asked = QuestionArgs::full(asked.copied().collect());
    let store = Plan::new(common, &asked, args.store_sessions, args.store_events)?;
    let asked = if is_everything { Vec::new() } else { vec![DataQuestion::Calls] };
    let data = Plan::new(common, &QuestionArgs::full(asked), args.data_sessions, None)?;
    let eras = Eras::of_all(common)?;
    for rows in [&calls, &idle, &streams, &replay, &data_rows, &controls_rows, &eras.servers] {
        report.describe(rows);
    }
    if !calls.is_empty() {
        report.add(calls::run(&calls, &args.calls).await?);
    }
    if !idle.is_empty() {
        report.add(idle::run(&idle, &args.idle).await?);
    }
    if !streams.is_empty() {
        report.add(streams::run(&streams, &args.streams).await?);
    }
    if !replay.is_empty() {
        report.add(replay::run(&replay, &args.replay).await?);
    }
    if is_everything {
        report.add(store::run(&store, None).await?);
    }
    if !data_rows.is_empty() {
        report.add(data::run(&data, Some(&data_rows)).await?);
    }
    if !controls_rows.is_empty() {
        report.add(controls::run(&controls_rows, &ControlsArgs::default()).await?);
    }
    if !eras.is_empty() {
        report.add(eras::run(&eras).await?);
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
