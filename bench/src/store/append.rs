//! Question: how many events per second does the store keep, and what does each cost, against a plain file
//! that is only appended to?
//!
//! Store and file are measured in turn, in processes and folders of their own; ratios are taken within a
//! round, where both saw the same machine and disk.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tenure_store::disk::Sync;

use super::file::PlainFile;
use super::fill;
use super::plan::Plan;
use super::task::{Task, WORKER};
use super::writers::{self, IntoStore, Measured, Writers};
use crate::cli::StoreQuestion;
use crate::latency::Latency;
use crate::progress;
use crate::scratch::Scratch;
use crate::stats::{Spread, cell};
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

#[derive(Debug, Serialize)]
pub(crate) struct AppendReport {
    command: String,
    seconds: f64,
    rows: Vec<AppendRow>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct AppendRow {
    durability: Durability,
    writers: usize,
    store: Vec<AppendRound>,
    file: Vec<AppendRound>,
}

pub(super) async fn run(plan: &Plan) -> Result<AppendReport> {
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
                progress::note(&format!(
                    "append {}/{} {} {}, {} writers: {:.0} events/s, {:.1} µs CPU per event, p99 {:.2} ms",
                    round + 1,
                    plan.rounds,
                    if keeper == Keeper::Store { "store" } else { "file" },
                    row.durability.as_str(),
                    row.writers,
                    measured.events_per_second,
                    measured.cpu_us_per_event,
                    measured.latency.p99_us / 1e3
                ));
                match keeper {
                    Keeper::Store => row.store.push(measured),
                    Keeper::File => row.file.push(measured),
                }
            }
        }
    }
    let targets = targets(&rows);
    let seconds = plan.window.as_secs_f64();
    Ok(AppendReport { command: plan.command(StoreQuestion::Append), seconds, rows, targets })
}

async fn measure(plan: &Plan, row: &AppendRow, keeper: Keeper) -> Result<AppendRound> {
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
                Writers::start(&into, self.writers).measure(self.warm_up, self.window).await?
            }
            Keeper::File => {
                let file = PlainFile::create(&self.folder, self.durability.sync())?;
                let into = file.of_sessions(&writers::sessions(self.writers));
                let writers = Writers::start(&into, self.writers);
                drop(into);
                let measured = writers.measure(self.warm_up, self.window).await?;
                file.close()?;
                measured
            }
        };
        Ok(AppendRound::of(&measured))
    }
}

impl AppendRound {
    fn of(measured: &Measured) -> AppendRound {
        let events = measured.events as f64;
        AppendRound {
            events: measured.events,
            events_per_second: events / measured.elapsed.as_secs_f64(),
            cpu_us_per_event: measured.cpu.as_secs_f64() * 1e6 / events,
            latency: Latency::of(&measured.latency),
        }
    }
}

impl AppendRow {
    /// AppendRound by round.
    fn ratio(&self) -> Option<Spread> {
        let pairs = self.store.iter().zip(&self.file);
        Spread::of(pairs.map(|(store, file)| store.events_per_second / file.events_per_second))
    }
}

fn spread(rounds: &[AppendRound], figure: impl Fn(&AppendRound) -> f64) -> Option<Spread> {
    Spread::of(rounds.iter().map(figure))
}

fn targets(rows: &[AppendRow]) -> Vec<Target> {
    let mut targets = Vec::new();
    for row in rows.iter().filter(|row| row.writers == MANY) {
        let name = row.durability.as_str();
        let ratio = if row.durability == Durability::Disk { 0.3 } else { 0.15 };
        let measured = row.ratio().map(|spread| spread.median);
        targets.push(Target::at_least(
            format!("events/s ÷ file, {name}, {MANY} writers"),
            ratio,
            "",
            measured,
        ));
        let cpu = spread(&row.store, |round| round.cpu_us_per_event).map(|spread| spread.median);
        targets.push(Target::at_most(format!("CPU per event, {name}, {MANY} writers"), 12.0, "µs", cpu));
    }
    targets
}

impl AppendReport {
    pub(crate) fn markdown(&self) -> String {
        let rounds = self.rows.first().map_or(0, |row| row.store.len());
        let mut text = format!(
            "### Append\n\nOne event of 200 B to 4 KiB (635 B on average) per append; every writer has its own session and one append in flight; {rounds} interleaved rounds of {} s, a fresh process and folder each. `disk`: answered when synced; `os`: answered when written, synced every 100 ms. The file is only appended to, one `pwrite` per batch, with its index in memory. Median (min–max).\n\n`{}`\n\n",
            self.seconds, self.command
        );
        text += "| durability | writers | keeper | events/s | ÷ file | p50 ms | p99 ms | max ms | CPU µs/event |\n";
        text += "|---|---:|---|---:|---:|---:|---:|---:|---:|\n";
        for row in &self.rows {
            for (keeper, rounds) in [("store", &row.store), ("file", &row.file)] {
                let millis = |figure: fn(&Latency) -> f64| {
                    cell(spread(rounds, |round| figure(&round.latency) / 1e3), 2)
                };
                writeln!(
                    text,
                    "| {} | {} | {keeper} | {} | {} | {} | {} | {} | {} |",
                    row.durability.as_str(),
                    row.writers,
                    cell(spread(rounds, |round| round.events_per_second), 0),
                    if keeper == "store" { cell(row.ratio(), 2) } else { "1".to_owned() },
                    millis(|latency| latency.p50_us),
                    millis(|latency| latency.p99_us),
                    millis(|latency| latency.max_us),
                    cell(spread(rounds, |round| round.cpu_us_per_event), 1),
                )
                .expect("a string takes any text");
            }
        }
        text + &target::table(&self.targets)
    }
}
