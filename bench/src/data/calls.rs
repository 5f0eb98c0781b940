//! Question: how much server CPU time does a `tools/call` cost that has a data session, against the same call to
//! the same server without the layer?
//!
//! Rounds are interleaved over all kinds of calls, with a fresh process each time; ratios are taken within a store.

use std::fmt;

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use crate::calls::{self, CallRound, cpu};
use crate::cli::DataQuestion;
use crate::client::Calling;
use crate::plan::Plan;
use crate::report::Section;
use crate::rounds::{Sampled, interleave};
use crate::rows::{Row, Rows};
use crate::stats::{Spread, median};
use crate::table::Table;
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

/// A way to call one of the servers.
#[derive(Debug, Serialize)]
struct WayCase<'a> {
    store: &'static str,
    #[serde(flatten)]
    way: Way,
    #[serde(skip)]
    row: &'a Row,
}

impl fmt::Display for WayCase<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.store, self.way.what)
    }
}

pub(super) async fn run(plan: &Plan<DataQuestion>, servers: &Rows) -> Result<Section> {
    let mut cases = Vec::new();
    for (store, [plain, data]) in STORES {
        for way in WAYS {
            let row = servers.get(if way.layer { data } else { plain });
            cases.extend(row.map(|row| WayCase { store, way, row }));
        }
    }
    let load = plan.load(64);
    let measured = interleave("data calls", plan.rounds, cases, async |case: &WayCase<'_>| {
        calls::measure(case.row, load, case.way.calling).await
    });
    let rows = measured.await?;
    // CPU per call against a call without the layer, round by round.
    let ratio = |row: &Sampled<WayCase<'_>, CallRound>, calling: Calling| -> Option<Spread> {
        let is_first = |first: &WayCase<'_>| first.way.calling == calling && !first.way.layer;
        let first = rows.iter().find(|first| first.case.store == row.case.store && is_first(&first.case));
        row.ratio(first, cpu)
    };

    let targets: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            let WayCase { store, way, .. } = &row.case;
            let what = format!("CPU per call, {} ÷ no layer, {store}", way.what);
            Some(Target::at_most(what, way.bound?, "", median(ratio(row, Calling::Echo))))
        })
        .collect();
    let (command, connections) = (plan.command(DataQuestion::Calls), load.connections);
    let mut text = format!(
        "### Calls with data sessions\n\n`tools/call` on live sessions; {connections} connections, each with its own session, its own data session where there is a cookie, and one call in flight; {} interleaved rounds of {} s, a fresh process each. The disk store has durability os. Median (min–max).\n\n`{command}`\n\n",
        plan.rounds, plan.seconds
    );
    text += &Table::of(&rows)
        .text("call", |row| row.case.way.what)
        .text("store", |row| row.case.store)
        .spread("server CPU µs/call", 1, cpu)
        .samples("÷ no layer", 2, |row| ratio(row, Calling::Echo))
        // For calls that have a cookie: what any server pays for bytes is not what the layer costs.
        .samples("÷ as many bytes, no layer", 2, |row| {
            row.case.way.calling.has_data_session().then(|| ratio(row, Calling::LongEcho)).flatten()
        })
        .rates()
        .markdown();
    text += &target::table(&targets);
    let figures = json!({ "command": command, "connections": connections, "seconds": plan.seconds, "rows": rows, "targets": targets });
    Ok(Section::new("calls", figures, text))
}
