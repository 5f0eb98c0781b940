//! Questions about storage: what keeping something costs, how fast it is found again, and whether anybody
//! waits for the disk who need not.
//!
//! Code map, in reading order: `task` (each measurement is a process of its own),
//! `material` and `fill` (what is stored), `writers` and `file` (the load, and the plain file to compare
//! with), `echo` (sessions with a server that answers at once), then one module per question (`append`,
//! `lookup`, `wake`, `open`, `stalls`).

mod append;
mod echo;
mod file;
mod fill;
mod lookup;
mod material;
mod open;
mod stalls;
mod wake;
mod task;
mod writers;

use anyhow::{Context, Result};
use serde_json::json;

use crate::calls;
use crate::cli::{CallsArgs, StoreQuestion};
use crate::plan::Plan;
use crate::progress;
use crate::report::Section;
use crate::rows::Rows;
use crate::scratch::filesystem;

pub(crate) use self::fill::open as open_store;

/// The rows that `calls` compares: the same server, kept in memory and on disk.
pub(crate) const CALLS_ROWS: [&str; 2] = ["tenure", "tenure-disk"];

/// Runs the task of a worker.
pub(crate) fn run_worker(task: &str) -> Result<()> {
    crate::worker::run(task, |task: task::Task| task.run())
}

/// Asks the questions of a plan; `rows` are the servers for `calls`.
pub(crate) async fn run(plan: &Plan<StoreQuestion>, rows: Option<&Rows>) -> Result<Section> {
    let filesystem = filesystem(plan.dir.as_deref());
    if filesystem == "tmpfs" {
        progress::warn("the folder for temporary files is in memory; name one on a disk with `--dir`");
    }
    let text = format!("## Storage\n\nTemporary folders on {filesystem}.\n");
    let mut section = Section::new("store", json!({ "filesystem": filesystem }), text);
    for question in &plan.questions {
        section.add(match question {
            StoreQuestion::Append => append::run(plan).await?,
            StoreQuestion::Lookup => lookup::run(plan).await?,
            StoreQuestion::Wake => wake::run(plan).await?,
            StoreQuestion::Open => open::run(plan).await?,
            StoreQuestion::Calls => {
                let rows = rows.context("`calls` needs servers to call")?;
                let (seconds, rounds) = (plan.seconds, plan.rounds);
                let args = CallsArgs { seconds, warm_up: seconds / 2.5, rounds, connections: 64 };
                calls::run(rows, &args).await?.below(&plan.command(*question))
            }
            StoreQuestion::Stalls => stalls::run(plan).await?,
        });
    }
    Ok(section)
}
