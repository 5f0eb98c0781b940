//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

use crate::plan::PlannedOutage;

const EXAMPLES: &str = "\
Examples:
  tenure-crash                              ten minutes of kills
  tenure-crash --kills 6                    six kills, about half a minute
  tenure-crash --seed 42 --tear             the schedule of seed 42, and torn journals
  tenure-crash --power                      each kill is a loss of power, and nothing may be lost
  tenure-crash --power --expect-loss        the same without syncs: fails if no loss is noticed
  tenure-crash --kills 0 --memory           no kills: checks the clients and the checker themselves
  tenure-crash --nodes 3 --minutes 60       three nodes on a real engine; all that can be done to them
  tenure-crash --nodes 3 --faults kill=2,pause=1,cut-engine=1,term=1
                                            exactly these, in any order
  tenure-crash --nodes 3 --faults term --kills 6 --via sticky
                                            six deploys behind a load balancer that knows sessions

The summary goes to stdout, progress and violations to stderr. Exit code 1 means that a promise was
broken; then the work folder is kept, with the store and the server's log.";

/// Kills real Tenure processes over and over under many clients, and checks what they see.
#[derive(Debug, Parser)]
#[command(name = "tenure-crash", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Stop killing after so many minutes [default: 10, if nothing else limits the run]
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    minutes: Option<f64>,
    /// Stop killing after so many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Stop after so many kills, or other faults with `--nodes`
    #[arg(long, value_name = "N")]
    pub(crate) kills: Option<u64>,
    /// Where the schedule comes from [default: random]
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// Clients at the same time, each with some sessions [default: 24, or 12 with several nodes]
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// What the server waits for before it shows an event [default: the server's own]
    #[arg(long, value_enum)]
    durability: Option<DurabilityFlag>,
    /// After each kill, cut off the end of the store's journal as a loss of power would
    #[arg(long, conflicts_with = "memory")]
    pub(crate) tear: bool,
    /// At each kill, drop whatever the server has not synced; it runs with durability `disk`
    #[arg(long, conflicts_with_all = ["memory", "tear"])]
    pub(crate) power: bool,
    /// With `--power`: run the server with durability `os`, stop at the first loss, and fail if nothing was lost
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
    /// Nodes at the same time; several of them share an engine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=8), conflicts_with_all = ["memory", "tear", "power", "durability"])]
    pub(crate) nodes: usize,
    /// The engine that several nodes share
    #[arg(long, value_enum, default_value_t = EngineKind::Nats)]
    pub(crate) engine: EngineKind,
    /// The server of the engine [default: TENURE_NATS_SERVER, or `.dev/nats/newest`]
    #[arg(long, value_name = "PATH")]
    pub(crate) nats_server: Option<PathBuf>,
    /// What is done to several nodes: `kill`, `term`, `pause`, `engine-kill`, `cut-engine`, `cut-peer`, `cut-one-way`, `slow`;
    /// `kill=2` for exactly two of them [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "nodes")]
    pub(crate) faults: Vec<PlannedOutage>,
    /// Which node each request goes to
    #[arg(long, value_enum, default_value_t = Via::RoundRobin)]
    pub(crate) via: Via,
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

/// The engine that several nodes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineKind {
    /// Three servers of NATS JetStream
    Nats,
}

/// Which node a request goes to. A node that refuses connections is passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// One after the other, whatever the session
    RoundRobin,
    /// Any, whatever the session
    Random,
    /// The same for all requests of a session
    Sticky,
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

    /// How many clients there are.
    pub(crate) fn clients(&self) -> usize {
        self.clients.unwrap_or(if self.nodes == 1 { 24 } else { 12 })
    }

    /// How long to kill, if time limits the run.
    pub(crate) fn time(&self) -> Option<Duration> {
        let seconds = self.seconds.or(self.minutes.map(|minutes| minutes * 60.0));
        let default = match self.kills {
            None if self.faults.iter().any(PlannedOutage::is_counted) => None,
            None => Some(600.0),
            Some(0) => Some(10.0),
            Some(_) => None,
        };
        seconds.or(default).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }
}
