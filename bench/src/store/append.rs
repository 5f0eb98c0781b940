//! Question: how many events per second does the store keep, and what does each cost, against a plain file
//! that is only appended to?
//!
//! Store and file are measured in turn, in processes and folders of their own; ratios are taken within a
//! round, where both saw the same machine and disk.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tenure_store::disk::Sync;

use super::file::PlainFile;
use super::fill;
use super::task::{Task, WORKER};
use super::writers::{self, IntoStore};
use crate::cli::StoreQuestion;
use crate::latency::Latency;
use crate::load::Window;
use crate::plan::Plan;
use crate::process::CpuTime;
use crate::progress;
use crate::report::Section;
use crate::scratch::Scratch;
use crate::stats::{Spread, beside, cell, median};
use crate::table::Table;
use crate::target::{self, Target};
use crate::worker;

const MANY: usize = 256;

/// What a finished append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Durability {
    /// The end of the process.
    Os,
    /// The loss of power.
    Disk,
}

impl Durability {
    pub(super) fn sync(self) -> Sync {
        match self {
            Durability::Os => Sync::Os,
            Durability::Disk => Sync::Disk,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Durability::Os => "os",
            Durability::Disk => "disk",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Keeper {
    Store,
    File,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AppendJob {
    keeper: Keeper,
    durability: Durability,
    writers: usize,
    warm_up: Duration,
    window: Duration,
    folder: PathBuf,
}

/// One window.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AppendRound {
    events: u64,
    events_per_second: f64,
    cpu_us_per_event: f64,
    latency: Latency,
}

impl fmt::Display for AppendRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AppendRound { events_per_second, cpu_us_per_event, latency, .. } = self;
        let p99 = latency.p99_us / 1e3;
        write!(f, "{events_per_second:.0} events/s, {cpu_us_per_event:.1} µs CPU per event, p99 {p99:.2} ms")
    }
}

#[derive(Debug, Serialize)]
struct AppendRow {
    durability: Durability,
    writers: usize,
    store: Vec<AppendRound>,
    file: Vec<AppendRound>,
}

/// One line of the table.
type Line<'a> = (&'a AppendRow, &'static str, &'a Vec<AppendRound>);

pub(super) async fn run(plan: &Plan<StoreQuestion>) -> Result<Section> {
    let kinds =
        [(Durability::Disk, MANY), (Durability::Os, MANY), (Durability::Disk, 1), (Durability::Os, 1)];
    let mut rows: Vec<_> = kinds
        .into_iter()
        .map(|(durability, writers)| AppendRow { durability, writers, store: Vec::new(), file: Vec::new() })
        .collect();
    for round in 0..plan.rounds {
        for row in &mut rows {
            // The one that comes first changes, so that none is always the one after the other.
            let order = [[Keeper::Store, Keeper::File], [Keeper::File, Keeper::Store]][round % 2];
            for keeper in order {
                let measured = measure(plan, row, keeper).await?;
                let (name, rounds) = match keeper {
                    Keeper::Store => ("store", &mut row.store),
                    Keeper::File => ("file", &mut row.file),
                };
                progress::note(&format!(
                    "append {}/{} {name} {}, {} writers: {measured}",
                    round + 1,
                    plan.rounds,
                    row.durability.as_str(),
                    row.writers,
                ));
                rounds.push(measured);
            }
        }
    }
    let (targets, command) = (targets(&rows), plan.command(StoreQuestion::Append));
    let mut text = format!(
        "### Append\n\nOne event of 200 B to 4 KiB (635 B on average) per append; every writer has its own session and one append in flight; {} interleaved rounds of {} s, a fresh process and folder each. `disk`: answered when synced; `os`: answered when written, synced every 100 ms. The file is only appended to, one `pwrite` per batch, with its index in memory. Median (min–max).\n\n`{command}`\n\n",
        plan.rounds, plan.seconds
    );
    let keepers: Vec<_> =
        rows.iter().flat_map(|row| [(row, "store", &row.store), (row, "file", &row.file)]).collect();
    let of = |(_, _, rounds): &Line<'_>, figure: fn(&AppendRound) -> f64| spread(rounds, figure);
    text += &Table::of(&keepers)
        .text("durability", |(row, ..)| row.durability.as_str())
        .number("writers", |(row, ..)| row.writers)
        .text("keeper", |(_, keeper, _)| *keeper)
        .samples("events/s", 0, |line| of(line, |round| round.events_per_second))
        .number("÷ file", |(row, keeper, _)| match *keeper {
            "store" => cell(row.ratio(), 2),
            _ => "1".to_owned(),
        })
        .samples("p50 ms", 2, |line| of(line, |round| round.latency.p50_us / 1e3))
        .samples("p99 ms", 2, |line| of(line, |round| round.latency.p99_us / 1e3))
        .samples("max ms", 2, |line| of(line, |round| round.latency.max_us / 1e3))
        .samples("CPU µs/event", 1, |line| of(line, |round| round.cpu_us_per_event))
        .markdown();
    text += &target::table(&targets);
    let figures = json!({ "command": command, "seconds": plan.seconds, "rows": rows, "targets": targets });
    Ok(Section::new("append", figures, text))
}

async fn measure(plan: &Plan<StoreQuestion>, row: &AppendRow, keeper: Keeper) -> Result<AppendRound> {
    let scratch = Scratch::new(plan.dir.as_deref())?;
    let task = Task::Append(AppendJob {
        keeper,
        durability: row.durability,
        writers: row.writers,
        warm_up: plan.window / 5,
        window: plan.window,
        folder: scratch.path().to_owned(),
    });
    worker::ask(WORKER, &task).await.context("measure appends")
}

impl AppendJob {
    pub(super) async fn run(self) -> Result<AppendRound> {
        let measured = match self.keeper {
            Keeper::Store => {
                let opened = fill::open(&self.folder, self.durability.sync()).await?;
                let into = IntoStore::claim(&opened.store, self.writers).await?;
                writers::write(&into, self.writers, self.warm_up, self.window).await?
            }
            Keeper::File => {
                let file = PlainFile::create(&self.folder, self.durability.sync())?;
                let into = file.of_sessions(&writers::sessions(self.writers));
                let measured = writers::write(&into, self.writers, self.warm_up, self.window).await?;
                drop(into);
                file.close()?;
                measured
            }
        };
        Ok(AppendRound::of(&measured))
    }
}

impl AppendRound {
    fn of(measured: &Window<CpuTime>) -> AppendRound {
        let events = measured.calls as f64;
        AppendRound {
            events: measured.calls,
            events_per_second: events / measured.elapsed.as_secs_f64(),
            cpu_us_per_event: measured.after.since(measured.before).as_secs_f64() * 1e6 / events,
            latency: Latency::of(&measured.latency),
        }
    }
}

impl AppendRow {
    /// The store against the file, round by round.
    fn ratio(&self) -> Option<Spread> {
        beside(&self.store, &self.file, |round| round.events_per_second, |store, file| store / file)
    }
}

fn spread(rounds: &[AppendRound], figure: impl Fn(&AppendRound) -> f64) -> Option<Spread> {
    Spread::of(rounds.iter().map(figure))
}

fn targets(rows: &[AppendRow]) -> Vec<Target> {
    let mut targets = Vec::new();
    for row in rows.iter().filter(|row| row.writers == MANY) {
        let name = row.durability.as_str();
        let bound = if row.durability == Durability::Disk { 0.3 } else { 0.15 };
        let what = format!("events/s ÷ file, {name}, {MANY} writers");
        targets.push(Target::at_least(what, bound, "", median(row.ratio())));
        let cpu = median(spread(&row.store, |round| round.cpu_us_per_event));
        targets.push(Target::at_most(format!("CPU per event, {name}, {MANY} writers"), 12.0, "µs", cpu));
    }
    targets
}
