//! Question: what does a gateway add to the server behind it, in CPU time, latency and memory?
//!
//! The same fast echo server stands behind every row, over stdio or over HTTP. The gateway's own processes are told
//! from the server's (`family`), so that neither the server nor the client counts as the gateway's work. Rows are
//! interleaved, and what is added is taken within a round.
//!
//! Map: `rows` (what is in front), `running` (started and ended), `family` (whose time it is), `callers` (the
//! clients), `measure` (one row, one round), `report` (the tables).

mod callers;
mod family;
mod measure;
mod report;
mod rows;
mod running;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cli::{CommonArgs, GatewayArgs};
use crate::progress;

pub(crate) use self::report::GatewayReport;

/// How a row is measured.
#[derive(Debug, Clone, Copy)]
struct Plan {
    connections: usize,
    /// Opened while all that is measured is how fast, and what they hold.
    sessions: usize,
    warm_up: Duration,
    window: Duration,
}

pub(crate) async fn run(common: &CommonArgs, args: &GatewayArgs) -> Result<GatewayReport> {
    ensure!(
        args.rounds > 0 && args.connections > 0 && args.sessions > 0,
        "`--rounds`, `--connections` and `--sessions` must be at least 1"
    );
    let seconds = |number: f64| Duration::try_from_secs_f64(number).context("read a number of seconds");
    let plan = Plan {
        connections: args.connections,
        sessions: args.sessions,
        warm_up: seconds(args.warm_up)?,
        window: seconds(args.seconds)?,
    };
    let rows = rows::select(args, &common.only, common.bin_dir.as_deref())?;
    let mut report = GatewayReport::new(args, &rows);
    for round in 0..args.rounds {
        for step in 0..rows.len() {
            // Each round starts at another row, so that none always comes first.
            let place = (step + round) % rows.len();
            let row = &rows[place];
            let figures = measure::measure(row, plan, common.dir.as_deref()).await;
            let figures = figures.with_context(|| format!("measure `{}`", row.name))?;
            progress::note(&format!(
                "gateway {}/{} {}: {:.0}/s, {:.1} µs CPU of the gateway per call, p50 {:.0} µs, alone {:.0} µs, {:.0} sessions/s",
                round + 1,
                args.rounds,
                row.name,
                figures.calls_per_second,
                figures.gateway_cpu_us_per_call,
                figures.p50_us,
                figures.alone_p50_us,
                figures.opened_per_second,
            ));
            report.add(place, figures);
        }
    }
    report.judge();
    Ok(report)
}
