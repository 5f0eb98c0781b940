//! Question: how much server CPU time does a `tools/call` cost that has a data session, against the same call to
//! the same server without the layer?
//!
//! Rounds are interleaved over all kinds of calls, with a fresh process each time; ratios are taken within a
//! round and a store, and their median is reported.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use super::plan::Plan;
use crate::calls::Round;
use crate::cli::DataQuestion;
use crate::client::Calling;
use crate::load;
use crate::process::Server;
use crate::progress;
use crate::rows::{Row, Rows};
use crate::stats::{Spread, beside, cell};
use crate::target::{self, Target};

/// What a call that does not change anything may cost, against one without the layer.
const BOUND: f64 = 1.10;

/// A way to call a server.
#[derive(Debug, Clone, Copy, Serialize)]
struct Way {
    what: &'static str,
    calling: Calling,
    /// Whether the layer is there.
    layer: bool,
    /// What it may cost against the first way, if that was agreed.
    #[serde(skip)]
    bound: Option<f64>,
}

/// The first is what the others are held against.
const WAYS: [Way; 6] = [
    Way { what: "echo, no layer", calling: Calling::Echo, layer: false, bound: None },
    Way {
        what: "echo of as many bytes as with a cookie, no layer",
        calling: Calling::LongEcho,
        layer: false,
        bound: None,
    },
    Way { what: "echo, no cookie", calling: Calling::Echo, layer: true, bound: Some(BOUND) },
    Way { what: "echo, with a cookie", calling: Calling::EchoInDataSession, layer: true, bound: Some(BOUND) },
    // These do more than the call they are held against.
    Way { what: "reads its state", calling: Calling::ReadState, layer: true, bound: None },
    Way { what: "changes its state", calling: Calling::ChangeState, layer: true, bound: None },
];

/// A store, and the servers without and with the layer on it.
const STORES: [(&str, [&str; 2]); 2] = [("memory", ["plain", "data"]), ("disk", ["plain-disk", "data-disk"])];

#[derive(Debug, Serialize)]
pub(crate) struct DataCalls {
    command: String,
    connections: usize,
    seconds: f64,
    rows: Vec<CallsRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct CallsRow {
    store: &'static str,
    #[serde(flatten)]
    way: Way,
    rounds: Vec<Round>,
}

pub(super) async fn run(plan: &Plan, rows: &Rows) -> Result<DataCalls> {
    let mut cases: Vec<(&Row, CallsRow)> = Vec::new();
    for (store, [plain, data]) in STORES {
        for way in WAYS {
            if let Some(row) = rows.get(if way.layer { data } else { plain }) {
                cases.push((row, CallsRow { store, way, rounds: Vec::new() }));
            }
        }
    }
    let count = cases.len();
    for round in 0..plan.rounds {
        // Each round starts elsewhere, so that none is always the one after a heavy neighbour.
        for place in (0..count).map(|step| (step + round) % count) {
            let (row, case) = &mut cases[place];
            let server = Server::start(row).await?;
            let measured = load::run(&server, plan.load, case.way.calling).await;
            let measured =
                measured.with_context(|| format!("measure `{}` on {}", case.way.what, case.store))?;
            server.stop().await?;
            let figures = Round::of(&measured);
            progress::note(&format!(
                "data calls {}/{} {}, {}: {:.0}/s, {:.1} µs CPU per call, p99 {:.0} µs",
                round + 1,
                plan.rounds,
                case.store,
                case.way.what,
                figures.calls_per_second,
                figures.server_cpu_us_per_call,
                figures.p99_us
            ));
            case.rounds.push(figures);
        }
    }
    let mut report = DataCalls {
        command: plan.command(DataQuestion::Calls),
        connections: plan.load.connections,
        seconds: plan.load.window.as_secs_f64(),
        rows: cases.into_iter().map(|(_, row)| row).collect(),
        targets: Vec::new(),
    };
    report.targets = report.targets();
    Ok(report)
}

impl CallsRow {
    fn spread(&self, figure: impl Fn(&Round) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }
}

impl DataCalls {
    /// CPU per call against the call without the layer, round by round.
    fn ratio(&self, row: &CallsRow) -> Option<Spread> {
        self.ratio_to(Calling::Echo, row)
    }

    /// The same against a call without the layer that has as many bytes, for calls that have a cookie: what any
    /// server pays for bytes is not what the layer costs.
    fn ratio_to_bytes(&self, row: &CallsRow) -> Option<Spread> {
        row.way.calling.has_data_session().then(|| self.ratio_to(Calling::LongEcho, row)).flatten()
    }

    fn ratio_to(&self, calling: Calling, row: &CallsRow) -> Option<Spread> {
        let is_first = |first: &&CallsRow| first.way.calling == calling && !first.way.layer;
        let first = self.rows.iter().filter(|first| first.store == row.store).find(is_first)?;
        let cpu = |round: &Round| round.server_cpu_us_per_call;
        beside(&row.rounds, &first.rounds, cpu, |mine, plain| mine / plain)
    }

    fn targets(&self) -> Vec<Target> {
        let held = self.rows.iter().filter_map(|row| {
            let what = format!("CPU per call, {} ÷ no layer, {}", row.way.what, row.store);
            Some(Target::at_most(what, row.way.bound?, "", self.ratio(row).map(|spread| spread.median)))
        });
        held.collect()
    }

    pub(super) fn markdown(&self) -> String {
        let rounds = self.rows.first().map_or(0, |row| row.rounds.len());
        let mut text = format!(
            "### Calls with data sessions\n\n`tools/call` on live sessions; {} connections, each with its own session, its own data session where there is a cookie, and one call in flight; {rounds} interleaved rounds of {} s, a fresh process each. The disk store has durability os. Median (min–max).\n\n`{}`\n\n",
            self.connections, self.seconds, self.command
        );
        text += "| call | store | server CPU µs/call | ÷ no layer | ÷ as many bytes, no layer | calls/s | p50 µs | p99 µs | other load, cores |\n";
        text += "|---|---|---:|---:|---:|---:|---:|---:|---:|\n";
        for row in &self.rows {
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.way.what,
                row.store,
                cell(row.spread(|round| round.server_cpu_us_per_call), 1),
                cell(self.ratio(row), 2),
                cell(self.ratio_to_bytes(row), 2),
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
