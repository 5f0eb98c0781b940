//! Question: how many `tools/call` per second does a server answer on live sessions, and how much
//! CPU time does each cost it?
//!
//! Rows are interleaved over several rounds, with a fresh process each time; ratios are taken
//! within a round, where both sides saw the same machine, and their median is reported.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::cli::CallsArgs;
use crate::client::Calling;
use crate::load::{self, Load, Measured};
use crate::process::Server;
use crate::progress;
use crate::rows::Rows;
use crate::stats::{Spread, beside, cell};
use crate::target::{self, Target};

/// The rows others are compared with.
const BASELINES: [&str; 2] = ["axum", "rmcp"];

#[derive(Debug, Serialize)]
pub(crate) struct CallsReport {
    connections: usize,
    warm_up_seconds: f64,
    seconds: f64,
    rows: Vec<CallsRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct CallsRow {
    name: &'static str,
    rounds: Vec<Round>,
}

/// One window on one server.
#[derive(Debug, Serialize)]
pub(crate) struct Round {
    calls: u64,
    pub(crate) calls_per_second: f64,
    pub(crate) server_cpu_us_per_call: f64,
    client_cpu_us_per_call: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// CPU time others used meanwhile, as a share of one core; high means a noisy figure.
    pub(crate) other_cores: f64,
}

pub(crate) async fn run(rows: &Rows, args: &CallsArgs) -> Result<CallsReport> {
    ensure!(args.rounds > 0 && args.connections > 0, "`--rounds` and `--connections` must be at least 1");
    let seconds = |number: f64| Duration::try_from_secs_f64(number).context("read a number of seconds");
    let load = Load {
        connections: args.connections,
        warm_up: seconds(args.warm_up)?,
        window: seconds(args.seconds)?,
    };
    let mut report = CallsReport {
        connections: args.connections,
        warm_up_seconds: args.warm_up,
        seconds: args.seconds,
        rows: rows.iter().map(|row| CallsRow { name: row.name, rounds: Vec::new() }).collect(),
        targets: Vec::new(),
    };
    for round in 0..args.rounds {
        for (place, row) in rows.round(round) {
            let server = Server::start(row).await?;
            let measured = load::run(&server, load, Calling::Echo)
                .await
                .with_context(|| format!("measure `{}`", row.name))?;
            server.stop().await?;
            let figures = Round::of(&measured);
            progress::note(&format!(
                "calls {}/{} {}: {:.0}/s, {:.1} µs CPU per call, p99 {:.0} µs",
                round + 1,
                args.rounds,
                row.name,
                figures.calls_per_second,
                figures.server_cpu_us_per_call,
                figures.p99_us
            ));
            report.rows[place].rounds.push(figures);
        }
    }
    report.targets = report.targets().into_iter().collect();
    Ok(report)
}

impl Round {
    pub(crate) fn of(measured: &Measured) -> Round {
        let calls = measured.calls as f64;
        let elapsed = measured.elapsed.as_secs_f64();
        let micros_per_call = |time: Duration| time.as_secs_f64() * 1e6 / calls;
        let quantile = |share| measured.latency.quantile(share).as_secs_f64() * 1e6;
        Round {
            calls: measured.calls,
            calls_per_second: calls / elapsed,
            server_cpu_us_per_call: micros_per_call(measured.server_cpu),
            client_cpu_us_per_call: micros_per_call(measured.client_cpu),
            p50_us: quantile(0.50),
            p99_us: quantile(0.99),
            other_cores: measured.other_cpu.as_secs_f64() / elapsed,
        }
    }
}

impl CallsRow {
    fn spread(&self, figure: impl Fn(&Round) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }

    /// Round by round against a baseline.
    fn ratio(&self, baseline: &CallsRow, figure: impl Fn(&Round) -> f64) -> Option<Spread> {
        beside(&self.rounds, &baseline.rounds, figure, |mine, theirs| mine / theirs)
    }
}

impl CallsReport {
    pub(crate) fn markdown(&self) -> String {
        let rounds = self.rows.first().map_or(0, |row| row.rounds.len());
        let mut text = format!(
            "## Calls\n\n`tools/call` echo on live sessions; {} connections, one session and one call in flight each; {rounds} interleaved rounds of {} s after {} s of warm-up, a fresh process each. Median (min–max).\n\n",
            self.connections, self.seconds, self.warm_up_seconds
        );
        text += "| row | calls/s | server CPU µs/call | p50 µs | p99 µs | client CPU µs/call | other load, cores |\n";
        text += "|---|---:|---:|---:|---:|---:|---:|\n";
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} |",
                row.name,
                cell(row.spread(|round| round.calls_per_second), 0),
                cell(row.spread(|round| round.server_cpu_us_per_call), 1),
                cell(row.spread(|round| round.p50_us), 0),
                cell(row.spread(|round| round.p99_us), 0),
                cell(row.spread(|round| round.client_cpu_us_per_call), 1),
                cell(row.spread(|round| round.other_cores), 2),
            )
            .expect("a string takes any text");
        }
        text + &self.ratios() + &target::table(&self.targets)
    }

    fn row(&self, name: &str) -> Option<&CallsRow> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// A call on a live session writes nothing, so keeping sessions on disk must not cost it anything.
    fn targets(&self) -> Option<Target> {
        let (memory, disk) = (self.row("tenure")?, self.row("tenure-disk")?);
        let ratio = disk.ratio(memory, |round| round.server_cpu_us_per_call);
        let measured = ratio.map(|spread| spread.median);
        Some(Target::at_most("CPU per call, `tenure-disk` ÷ `tenure`", 1.05, "", measured))
    }

    /// The table of ratios, if a baseline ran.
    fn ratios(&self) -> String {
        let baselines: Vec<_> = BASELINES.iter().filter_map(|name| self.row(name)).collect();
        if baselines.is_empty() {
            return String::new();
        }
        let mut head = "\n| row |".to_owned();
        let mut rule = "|---|".to_owned();
        for baseline in &baselines {
            head += &format!(" CPU/call ÷ {0} | calls/s ÷ {0} |", baseline.name);
            rule += "---:|---:|";
        }
        let mut text = format!("{head}\n{rule}\n");
        for row in &self.rows {
            text += &format!("| {} |", row.name);
            for baseline in &baselines {
                let cpu = row.ratio(baseline, |round| round.server_cpu_us_per_call);
                let rate = row.ratio(baseline, |round| round.calls_per_second);
                text += &format!(" {} | {} |", cell(cpu, 2), cell(rate, 2));
            }
            text.push('\n');
        }
        text
    }
}
