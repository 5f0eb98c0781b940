//! Question: how many `tools/call` per second does a server answer on live sessions, and how much
//! CPU time does each cost it?
//!
//! A fresh process in each round. `data` and `eras` ask the same of other servers and other calls.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;

use crate::cli::CallsArgs;
use crate::client::Calling;
use crate::load::{self, Load};
use crate::process::Server;
use crate::report::Section;
use crate::rounds::{Sampled, interleave};
use crate::rows::{Row, Rows};
use crate::stats::median;
use crate::table::Table;
use crate::target::{self, Target};

/// The rows others are compared with.
const BASELINES: [&str; 2] = ["axum", "rmcp"];

/// One window on one server.
#[derive(Debug, Serialize)]
pub(crate) struct CallRound {
    calls: u64,
    pub(crate) calls_per_second: f64,
    pub(crate) server_cpu_us_per_call: f64,
    client_cpu_us_per_call: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// CPU time others used meanwhile, as a share of one core; high means a noisy figure.
    pub(crate) other_cores: f64,
}

impl fmt::Display for CallRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallRound { calls_per_second, server_cpu_us_per_call, p99_us, .. } = self;
        write!(f, "{calls_per_second:.0}/s, {server_cpu_us_per_call:.1} µs CPU per call, p99 {p99_us:.0} µs")
    }
}

/// Calls a server of its own for one window.
pub(crate) async fn measure(row: &Row, load: Load, calling: Calling) -> Result<CallRound> {
    let server = Server::start(row).await?;
    let measured = load::run(&server, load, calling).await?;
    server.stop().await?;
    let calls = measured.calls as f64;
    let elapsed = measured.elapsed.as_secs_f64();
    let micros_per_call = |time: Duration| time.as_secs_f64() * 1e6 / calls;
    let quantile = |share| measured.latency.quantile(share).as_secs_f64() * 1e6;
    Ok(CallRound {
        calls: measured.calls,
        calls_per_second: calls / elapsed,
        server_cpu_us_per_call: micros_per_call(measured.server_cpu),
        client_cpu_us_per_call: micros_per_call(measured.client_cpu),
        p50_us: quantile(0.50),
        p99_us: quantile(0.99),
        other_cores: measured.other_cpu.as_secs_f64() / elapsed,
    })
}

/// What rows are compared by.
pub(crate) fn cpu(round: &CallRound) -> f64 {
    round.server_cpu_us_per_call
}

impl<C> Table<'_, Sampled<C, CallRound>> {
    /// The last columns of tables about the cost of calls.
    pub(crate) fn rates(self) -> Self {
        self.spread("calls/s", 0, |round| round.calls_per_second)
            .spread("p50 µs", 0, |round| round.p50_us)
            .spread("p99 µs", 0, |round| round.p99_us)
            .spread("other load, cores", 2, |round| round.other_cores)
    }
}

pub(crate) async fn run(rows: &Rows, args: &CallsArgs) -> Result<Section> {
    let CallsArgs { seconds, warm_up, rounds, connections } = *args;
    ensure!(rounds > 0 && connections > 0, "`--rounds` and `--connections` must be at least 1");
    let time = |number: f64| Duration::try_from_secs_f64(number).context("read a number of seconds");
    let load = Load { connections, warm_up: time(warm_up)?, window: time(seconds)? };
    let measured = interleave("calls", rounds, rows.iter().collect(), async |row: &&Row| {
        measure(row, load, Calling::Echo).await
    });
    let rows = measured.await?;
    let row = |name: &str| rows.iter().find(|row| row.case.name == name);

    let mut text = format!(
        "## Calls\n\n`tools/call` echo on live sessions; {connections} connections, one session and one call in flight each; {rounds} interleaved rounds of {seconds} s after {warm_up} s of warm-up, a fresh process each. Median (min–max).\n\n"
    );
    text += &Table::of(&rows)
        .text("row", |row| row.case.name)
        .spread("calls/s", 0, |round| round.calls_per_second)
        .spread("server CPU µs/call", 1, cpu)
        .spread("p50 µs", 0, |round| round.p50_us)
        .spread("p99 µs", 0, |round| round.p99_us)
        .spread("client CPU µs/call", 1, |round| round.client_cpu_us_per_call)
        .spread("other load, cores", 2, |round| round.other_cores)
        .markdown();
    let baselines: Vec<_> = BASELINES.iter().filter_map(|name| row(name)).collect();
    if !baselines.is_empty() {
        let mut ratios = Table::of(&rows).text("row", |row| row.case.name);
        for baseline in baselines {
            let (name, other) = (baseline.case.name, Some(baseline));
            ratios = ratios.samples(&format!("CPU/call ÷ {name}"), 2, |row| row.ratio(other, cpu)).samples(
                &format!("calls/s ÷ {name}"),
                2,
                |row| row.ratio(other, |round| round.calls_per_second),
            );
        }
        text += &format!("\n{}", ratios.markdown());
    }
    // A call on a live session writes nothing, so keeping sessions on disk must not cost it anything.
    let mut targets = Vec::new();
    if let (Some(memory), Some(disk)) = (row("tenure"), row("tenure-disk")) {
        let what = "CPU per call, `tenure-disk` ÷ `tenure`";
        targets.push(Target::at_most(what, 1.05, "", median(disk.ratio(Some(memory), cpu))));
    }
    text += &target::table(&targets);
    let figures = json!({ "connections": connections, "warm_up_seconds": warm_up, "seconds": seconds, "rows": rows, "targets": targets });
    Ok(Section::new("calls", figures, text))
}
