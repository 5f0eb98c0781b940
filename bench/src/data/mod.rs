//! Questions about data sessions: what a call costs that has one, and what a million of them take.
//!
//! Code map, in reading order: `plan` (sizes), `calls` (servers with and without the layer, called in every way
//! that differs), `many` (a store full of states, each measurement in a process of its own).

mod calls;
mod many;
mod plan;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::cli::DataQuestion;
use crate::rows::Rows;
use crate::scratch::filesystem;

use self::calls::DataCalls;
use self::many::ManyReport;

pub(crate) use self::many::run_worker;
pub(crate) use self::plan::Plan;

#[derive(Debug, Serialize)]
pub(crate) struct DataReport {
    filesystem: String,
    calls: Option<DataCalls>,
    many: Option<ManyReport>,
}

/// Asks the questions of a plan; `rows` are the servers for `calls`.
pub(crate) async fn run(plan: &Plan, rows: Option<&Rows>) -> Result<DataReport> {
    let dir = plan.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut report = DataReport { filesystem: filesystem(&dir), calls: None, many: None };
    for question in &plan.questions {
        match question {
            DataQuestion::Calls => {
                let rows = rows.context("`calls` needs servers to call")?;
                report.calls = Some(calls::run(plan, rows).await?);
            }
            DataQuestion::Many => report.many = Some(many::run(plan).await?),
        }
    }
    Ok(report)
}

impl DataReport {
    pub(crate) fn markdown(&self) -> String {
        let sections = [
            Some(format!("## Data sessions\n\nTemporary folders on {}.\n", self.filesystem)),
            self.calls.as_ref().map(DataCalls::markdown),
            self.many.as_ref().map(ManyReport::markdown),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}
