//! Questions about the two eras of the protocol: what a call costs that stands alone (revision 2026-07-28), and what a
//! gateway adds between a client of one era and a server of the other.
//!
//! Code map, in reading order: `calls` (the same servers called in both eras), `bridges` (every pair of eras with a
//! gateway in between, beside the same without one).

mod bridges;
mod calls;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::cli::{CommonArgs, ErasQuestion, QuestionArgs};
use crate::gateway;
use crate::plan::Plan;
use crate::report::Section;
use crate::rows::{Bench, Rows};

/// A plan and its rows.
#[derive(Debug)]
pub(crate) struct Eras {
    plan: Plan<ErasQuestion>,
    /// Called in both eras.
    pub(crate) servers: Rows,
    /// Pairs of a client and a server.
    bridges: Vec<gateway::Row>,
}

impl Eras {
    pub(crate) fn new(common: &CommonArgs, args: &QuestionArgs<ErasQuestion>) -> Result<Eras> {
        let plan = Plan::new(common, args, None, None)?;
        let (calls, bridges) = (plan.asks(ErasQuestion::Calls), plan.asks(ErasQuestion::Bridges));
        ensure!(
            common.only.is_empty() || !(calls && bridges),
            "`--only` names rows of one question\n\nhint: name the question too: `eras calls` or `eras bridges`"
        );
        let servers = if calls { Rows::select(common, Bench::Eras)? } else { Rows::none() };
        Eras::of(plan, servers, bridges, common)
    }

    /// The part of a run of everything. A user who names rows wants those servers and no others.
    pub(crate) fn of_all(common: &CommonArgs) -> Result<Eras> {
        let plan = Plan::new(common, &QuestionArgs::full(Vec::new()), None, None)?;
        Eras::of(plan, Rows::select_any(common, Bench::Eras)?, common.only.is_empty(), common)
    }

    fn of(plan: Plan<ErasQuestion>, servers: Rows, bridges: bool, common: &CommonArgs) -> Result<Eras> {
        let bridges = match bridges {
            true => gateway::select(bridges::ENTRIES, &common.only, common.bin_dir.as_deref())?,
            false => Vec::new(),
        };
        Ok(Eras { plan, servers, bridges })
    }

    /// Whether nothing is asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.bridges.is_empty()
    }
}

/// Asks the questions of a plan.
pub(crate) async fn run(eras: &Eras) -> Result<Section> {
    let mut section = Section::new("eras", json!({}), "## Both eras\n".to_owned());
    if !eras.servers.is_empty() {
        section.add(calls::run(eras).await?);
    }
    if !eras.bridges.is_empty() {
        section.add(bridges::run(eras).await?);
    }
    Ok(section)
}
