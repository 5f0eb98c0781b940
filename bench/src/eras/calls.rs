//! Question: how much server CPU time does a `tools/call` of revision 2026-07-28 cost, against the same call in a
//! session of the same server, and against other servers?
//!
//! Rounds are interleaved over all servers and both eras, with a fresh process each time; ratios are taken within a
//! round, and their median is reported. A request without a session is longer, since it says what it is in headers and
//! in `_meta`: what that costs anybody is what the floors show.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use super::plan::Plan;
use crate::calls::Round;
use crate::client::Calling;
use crate::load;
use crate::process::Server;
use crate::progress;
use crate::rows::Row;
use crate::stats::{Spread, beside, cell};
use crate::target::{self, Target};

/// In the order of the table.
const CALLINGS: [(Calling, &str); 2] =
    [(Calling::ModernEcho, "without a session"), (Calling::Echo, "in a session")];

/// What a call without a session may cost, against the floor and against the rival.
const BOUNDS: [(&str, f64); 2] = [("axum", 1.5), ("rmcp", 0.5)];

#[derive(Debug, Serialize)]
pub(crate) struct ErasCalls {
    command: String,
    connections: usize,
    seconds: f64,
    rows: Vec<CallsRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct CallsRow {
    name: &'static str,
    calling: Calling,
    rounds: Vec<Round>,
}

pub(super) async fn run(plan: &Plan) -> Result<ErasCalls> {
    let mut cases: Vec<(&Row, CallsRow)> = Vec::new();
    for (calling, _) in CALLINGS {
        for row in plan.servers().iter() {
            cases.push((row, CallsRow { name: row.name, calling, rounds: Vec::new() }));
        }
    }
    let count = cases.len();
    for round in 0..plan.rounds {
        // Each round starts elsewhere, so that none is always the one after a heavy neighbour.
        for place in (0..count).map(|step| (step + round) % count) {
            let (row, case) = &mut cases[place];
            let server = Server::start(row).await?;
            let measured = load::run(&server, plan.load, case.calling).await;
            let measured = measured.with_context(|| format!("measure `{}` {}", row.name, case.era()))?;
            server.stop().await?;
            let figures = Round::of(&measured);
            progress::note(&format!(
                "eras calls {}/{} {}, {}: {:.0}/s, {:.1} µs CPU per call, p99 {:.0} µs",
                round + 1,
                plan.rounds,
                row.name,
                case.era(),
                figures.calls_per_second,
                figures.server_cpu_us_per_call,
                figures.p99_us
            ));
            case.rounds.push(figures);
        }
    }
    let mut report = ErasCalls {
        command: plan.command("calls"),
        connections: plan.load.connections,
        seconds: plan.seconds,
        rows: cases.into_iter().map(|(_, row)| row).collect(),
        targets: Vec::new(),
    };
    report.targets = report.targets();
    Ok(report)
}

impl CallsRow {
    fn era(&self) -> &'static str {
        CALLINGS.iter().find(|(calling, _)| *calling == self.calling).map_or("", |(_, era)| era)
    }

    fn spread(&self, figure: impl Fn(&Round) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }
}

impl ErasCalls {
    /// CPU per call against that of another server or of the other era, round by round.
    fn ratio(&self, row: &CallsRow, name: &str, calling: Calling) -> Option<Spread> {
        let other = self.rows.iter().find(|other| other.name == name && other.calling == calling)?;
        beside(&row.rounds, &other.rounds, |round| round.server_cpu_us_per_call, |mine, theirs| mine / theirs)
    }

    fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for row in self.rows.iter().filter(|row| row.name.starts_with("tenure")) {
            for (name, bound) in BOUNDS.into_iter().filter(|_| row.calling == Calling::ModernEcho) {
                let measured = self.ratio(row, name, row.calling).map(|spread| spread.median);
                let what = format!("CPU per call {}, `{}` ÷ `{name}`", row.era(), row.name);
                targets.push(Target::at_most(what, bound, "", measured));
            }
        }
        targets
    }

    pub(super) fn markdown(&self) -> String {
        let rounds = self.rows.first().map_or(0, |row| row.rounds.len());
        let mut text = format!(
            "### Calls in both eras\n\n`tools/call` echo of revision 2026-07-28, without a session, and of 2025-11-25, in one; {} connections, one call in flight each; {rounds} interleaved rounds of {} s, a fresh process each. Ratios to other servers are within an era. Median (min–max).\n\n`{}`\n\n",
            self.connections, self.seconds, self.command
        );
        text += "| row | call | server CPU µs/call | ÷ axum | ÷ rmcp | ÷ in a session | calls/s | p50 µs | p99 µs | other load, cores |\n";
        text += "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.name,
                row.era(),
                cell(row.spread(|round| round.server_cpu_us_per_call), 1),
                cell(self.ratio(row, "axum", row.calling), 2),
                cell(self.ratio(row, "rmcp", row.calling), 2),
                cell(self.ratio(row, row.name, Calling::Echo), 2),
                cell(row.spread(|round| round.calls_per_second), 0),
                cell(row.spread(|round| round.p50_us), 0),
                cell(row.spread(|round| round.p99_us), 0),
                cell(row.spread(|round| round.other_cores), 2),
            )
            .expect("a string takes any text");
        }
        text + &target::table(&self.targets)
    }
}
