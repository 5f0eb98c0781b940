//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  tenure-crash                              ten minutes of kills
  tenure-crash --kills 6                    six kills, about half a minute
  tenure-crash --seed 42 --tear             the schedule of seed 42, and torn journals
  tenure-crash --power                      each kill is a loss of power, and nothing may be lost
  tenure-crash --power --expect-loss        the same without syncs: fails if no loss is noticed
  tenure-crash --kills 0 --memory           no kills: checks the clients and the checker themselves

The summary goes to stdout, progress and violations to stderr. Exit code 1 means that a promise was
broken; then the work folder is kept, with the store and the server's log.";

/// Kills a real Tenure process over and over under many clients, and checks what they see.
#[derive(Debug, Parser)]
#[command(name = "tenure-crash", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Stop killing after so many minutes [default: 10, if nothing else limits the run]
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    minutes: Option<f64>,
    /// Stop killing after so many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Stop after so many kills
    #[arg(long, value_name = "N")]
    pub(crate) kills: Option<u64>,
    /// Where the schedule comes from [default: random]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Clients at the same time, each with some sessions
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub(crate) clients: usize,
    /// What the server waits for before it shows an event [default: the server's own]
    #[arg(long, value_enum)]
    durability: Option<DurabilityFlag>,
    /// After each kill, cut off the end of the store's journal as a loss of power would
    #[arg(long, conflicts_with = "memory")]
    pub(crate) tear: bool,
    /// At each kill, drop whatever the server has not synced; it runs with durability `disk`
    #[arg(long, conflicts_with_all = ["memory", "tear"])]
    pub(crate) power: bool,
    /// With `--power`: run the server with durability `os`, stop at the first loss, and fail if there is none
    #[arg(long, requires = "power", conflicts_with = "durability")]
    pub(crate) expect_loss: bool,
    /// The server to run [default: `tenure` beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
    /// Keep the work folder also when all went well
    #[arg(long)]
    pub(crate) keep: bool,
    /// Use the memory store; only without kills
    #[arg(long)]
    pub(crate) memory: bool,
    /// What the server logs
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityFlag {
    /// An event is with the operating system
    Os,
    /// An event is on the disk
    Disk,
}

impl Cli {
    /// The durability for the server; `None` for its own default.
    pub(crate) fn durability(&self) -> Result<Option<DurabilityFlag>> {
        match (self.power, self.durability) {
            (true, _) if self.expect_loss => Ok(Some(DurabilityFlag::Os)),
            (true, Some(DurabilityFlag::Os)) => bail!(
                "what is only with the operating system does not outlast a loss of power\n\n\
                 hint: leave `--durability os` out, or say `--expect-loss` instead"
            ),
            (true, _) => Ok(Some(DurabilityFlag::Disk)),
            (false, durability) => Ok(durability),
        }
    }

    /// How long to kill, if time limits the run.
    pub(crate) fn time(&self) -> Option<Duration> {
        let seconds = self.seconds.or(self.minutes.map(|minutes| minutes * 60.0));
        let default = match self.kills {
            None => Some(600.0),
            Some(0) => Some(10.0),
            Some(_) => None,
        };
        seconds.or(default).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}
