//! Questions about storage: what keeping something costs, how fast it is found again, and whether anybody
//! waits for the disk who need not.
//!
//! Code map, in reading order: `plan` (sizes), `task` (each measurement is a process of its own),
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
mod plan;
mod stalls;
mod wake;
mod task;
mod writers;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::calls::{self, CallsReport};
use crate::cli::StoreQuestion;
use crate::progress;
use crate::rows::Rows;
use crate::scratch::filesystem;

use self::append::AppendReport;
use self::lookup::LookupReport;
use self::open::OpenReport;
use self::stalls::StallsReport;
use self::wake::WakeReport;

pub(crate) use self::fill::open as open_store;
pub(crate) use self::plan::Plan;

/// The rows that `calls` compares: the same server, kept in memory and on disk.
pub(crate) const CALLS_ROWS: [&str; 2] = ["tenure", "tenure-disk"];

#[derive(Debug, Default, Serialize)]
pub(crate) struct StoreReport {
    filesystem: String,
    append: Option<AppendReport>,
    lookup: Option<LookupReport>,
    wake: Option<WakeReport>,
    open: Option<OpenReport>,
    calls: Option<StoreCalls>,
    stalls: Option<StallsReport>,
}

#[derive(Debug, Serialize)]
struct StoreCalls {
    command: String,
    #[serde(flatten)]
    report: CallsReport,
}

/// Runs the task of a worker.
pub(crate) fn run_worker(task: &str) -> Result<()> {
    crate::worker::run(task, |task: task::Task| task.run())
}

/// Asks the questions of a plan; `rows` are the servers for `calls`.
pub(crate) async fn run(plan: &Plan, rows: Option<&Rows>) -> Result<StoreReport> {
    let dir = plan.dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut report = StoreReport { filesystem: filesystem(&dir), ..StoreReport::default() };
    if report.filesystem == "tmpfs" {
        progress::warn("the folder for temporary files is in memory; name one on a disk with `--dir`");
    }
    for question in &plan.questions {
        match question {
            StoreQuestion::Append => report.append = Some(append::run(plan).await?),
            StoreQuestion::Lookup => report.lookup = Some(lookup::run(plan).await?),
            StoreQuestion::Wake => report.wake = Some(wake::run(plan).await?),
            StoreQuestion::Open => report.open = Some(open::run(plan).await?),
            StoreQuestion::Calls => {
                let rows = rows.context("`calls` needs servers to call")?;
                let (command, args) = (plan.command(*question), plan.calls());
                report.calls = Some(StoreCalls { command, report: calls::run(rows, &args).await? });
            }
            StoreQuestion::Stalls => report.stalls = Some(stalls::run(plan).await?),
        }
    }
    Ok(report)
}

impl Plan {
    /// Whether servers are called.
    pub(crate) fn calls_servers(&self) -> bool {
        self.questions.contains(&StoreQuestion::Calls)
    }
}

impl StoreReport {
    pub(crate) fn markdown(&self) -> String {
        let calls = self.calls.as_ref().map(|calls| {
            // One level down, under the heading of all storage.
            format!("#{}\n`{}`\n", calls.report.markdown(), calls.command)
        });
        let sections = [
            Some(format!("## Storage\n\nTemporary folders on {}.\n", self.filesystem)),
            self.append.as_ref().map(AppendReport::markdown),
            self.lookup.as_ref().map(LookupReport::markdown),
            self.wake.as_ref().map(WakeReport::markdown),
            self.open.as_ref().map(OpenReport::markdown),
            calls,
            self.stalls.as_ref().map(StallsReport::markdown),
        ];
        sections.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}
