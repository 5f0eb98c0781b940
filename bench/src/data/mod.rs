//! Questions about data sessions: what a call costs that has one, and what a million of them take.
//!
//! Code map, in reading order: `calls` (servers with and without the layer, called in every way that differs), `many`
//! (a store full of states, each measurement in a process of its own).

mod calls;
mod many;

use anyhow::{Context, Result};
use serde_json::json;

use crate::cli::DataQuestion;
use crate::plan::Plan;
use crate::report::Section;
use crate::rows::Rows;
use crate::scratch::filesystem;

pub(crate) use self::many::run_worker;

/// Asks the questions of a plan; `rows` are the servers for `calls`.
pub(crate) async fn run(plan: &Plan<DataQuestion>, rows: Option<&Rows>) -> Result<Section> {
    let filesystem = filesystem(plan.dir.as_deref());
    let text = format!("## Data sessions\n\nTemporary folders on {filesystem}.\n");
    let mut section = Section::new("data", json!({ "filesystem": filesystem }), text);
    for question in &plan.questions {
        section.add(match question {
            DataQuestion::Calls => calls::run(plan, rows.context("`calls` needs servers to call")?).await?,
            DataQuestion::Many => many::run(plan).await?,
        });
    }
    Ok(section)
}
