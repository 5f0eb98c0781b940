//! Question: how much server CPU time does a `tools/call` of revision 2026-07-28 cost, against the same call in a
//! session of the same server, and against other servers?
//!
//! Rounds are interleaved over all servers and both eras, with a fresh process each time. A request without a session
//! is longer, since it says what it is in headers and in `_meta`: what that costs anybody is what the floors show.

use std::fmt;

use anyhow::Result;
use serde::Serialize;
use serde_json::json;

use super::Eras;
use crate::calls::{self, CallRound, cpu};
use crate::cli::ErasQuestion;
use crate::client::Calling;
use crate::report::Section;
use crate::rounds::{Sampled, interleave};
use crate::rows::Row;
use crate::stats::{Spread, median};
use crate::table::Table;
use crate::target::{self, Target};

/// In the order of the table.
const CALLINGS: [(Calling, &str); 2] =
    [(Calling::ModernEcho, "without a session"), (Calling::Echo, "in a session")];

/// What a call without a session may cost, against the floor and against the rival.
const BOUNDS: [(&str, f64); 2] = [("axum", 1.5), ("rmcp", 0.5)];

/// A server that is called in one era.
#[derive(Debug, Serialize)]
struct EraCase<'a> {
    name: &'static str,
    calling: Calling,
    #[serde(skip)]
    era: &'static str,
    #[serde(skip)]
    row: &'a Row,
}

impl fmt::Display for EraCase<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.era)
    }
}

pub(super) async fn run(Eras { plan, servers, .. }: &Eras) -> Result<Section> {
    let mut cases = Vec::new();
    for (calling, era) in CALLINGS {
        cases.extend(servers.iter().map(|row| EraCase { name: row.name, calling, era, row }));
    }
    let load = plan.load(plan.choose(64, 8));
    let measured = interleave("eras calls", plan.rounds, cases, async |case: &EraCase<'_>| {
        calls::measure(case.row, load, case.calling).await
    });
    let rows = measured.await?;
    // CPU per call against that of another server or of the other era, round by round.
    let ratio = |row: &Sampled<EraCase<'_>, CallRound>, name: &str, calling: Calling| -> Option<Spread> {
        let other = rows.iter().find(|other| other.case.name == name && other.case.calling == calling);
        row.ratio(other, cpu)
    };

    let mut targets = Vec::new();
    for row in rows.iter().filter(|row| row.case.name.starts_with("tenure")) {
        for (name, bound) in BOUNDS.into_iter().filter(|_| row.case.calling == Calling::ModernEcho) {
            let what = format!("CPU per call {}, `{}` ÷ `{name}`", row.case.era, row.case.name);
            targets.push(Target::at_most(what, bound, "", median(ratio(row, name, row.case.calling))));
        }
    }
    let (command, connections) = (plan.command(ErasQuestion::Calls), load.connections);
    let mut text = format!(
        "### Calls in both eras\n\n`tools/call` echo of revision 2026-07-28, without a session, and of 2025-11-25, in one; {connections} connections, one call in flight each; {} interleaved rounds of {} s, a fresh process each. Ratios to other servers are within an era. Median (min–max).\n\n`{command}`\n\n",
        plan.rounds, plan.seconds
    );
    text += &Table::of(&rows)
        .text("row", |row| row.case.name)
        .text("call", |row| row.case.era)
        .spread("server CPU µs/call", 1, cpu)
        .samples("÷ axum", 2, |row| ratio(row, "axum", row.case.calling))
        .samples("÷ rmcp", 2, |row| ratio(row, "rmcp", row.case.calling))
        .samples("÷ in a session", 2, |row| ratio(row, row.case.name, Calling::Echo))
        .rates()
        .markdown();
    text += &target::table(&targets);
    let figures = json!({ "command": command, "connections": connections, "seconds": plan.seconds, "rows": rows, "targets": targets });
    Ok(Section::new("calls", figures, text))
}
