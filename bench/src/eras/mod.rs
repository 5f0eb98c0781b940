//! Questions about the two eras of the protocol: what a call costs that stands alone (revision 2026-07-28), and what a
//! gateway adds between a client of one era and a server of the other.
//!
//! Code map, in reading order: `plan` (sizes and rows), `calls` (the same servers called in both eras), `bridges`
//! (every pair of eras with a gateway in between, beside the same without one).

mod bridges;
mod calls;
mod plan;

use anyhow::Result;
use serde::Serialize;

use self::bridges::BridgesReport;
use self::calls::ErasCalls;

pub(crate) use self::plan::Plan;

#[derive(Debug, Serialize)]
pub(crate) struct ErasReport {
    calls: Option<ErasCalls>,
    bridges: Option<BridgesReport>,
}

/// Asks the questions of a plan.
pub(crate) async fn run(plan: &Plan) -> Result<ErasReport> {
    let calls = match plan.servers().is_empty() {
        true => None,
        false => Some(calls::run(plan).await?),
    };
    let bridges = match plan.bridges.is_empty() {
        true => None,
        false => Some(bridges::run(plan).await?),
    };
    Ok(ErasReport { calls, bridges })
}

impl ErasReport {
    pub(crate) fn markdown(&self) -> String {
        let sections = [
            Some("## Both eras\n".to_owned()),
            self.calls.as_ref().map(ErasCalls::markdown),
            self.bridges.as_ref().map(BridgesReport::markdown),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}
