//! Question: what does a gateway add to the server behind it, in CPU time, latency and memory?
//!
//! The same fast echo server stands behind every row, over stdio or over HTTP. The gateway's own processes are told
//! from the server's (`family`), so that neither the server nor the client counts as the gateway's work. Rows are
//! interleaved, and what is added is taken within a round.
//!
//! Map: `rows` (what is in front), `running` (started and ended), `family` (whose time it is), `callers` (the
//! clients), `measure` (one row, one round), `tables` (what they show).

mod callers;
mod family;
mod measure;
mod tables;
mod rows;
mod running;

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cli::{CommonArgs, GatewayArgs};
use crate::load::Load;
use crate::report::Section;
use crate::rounds::interleave;

pub(crate) use self::measure::{GatewayRound, measure};
pub(crate) use self::rows::{Behind, Entry, Era, Front, Row, select};

/// How a row is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// On all connections; alone it takes half the time.
    pub(crate) load: Load,
    /// Opened while all that is measured is how fast, and what they hold. May be none.
    pub(crate) sessions: usize,
}

pub(crate) async fn run(common: &CommonArgs, args: &GatewayArgs) -> Result<Section> {
    ensure!(
        args.rounds > 0 && args.connections > 0 && args.sessions > 0,
        "`--rounds`, `--connections` and `--sessions` must be at least 1"
    );
    let seconds = |number: f64| Duration::try_from_secs_f64(number).context("read a number of seconds");
    let load = Load {
        connections: args.connections,
        warm_up: seconds(args.warm_up)?,
        window: seconds(args.seconds)?,
    };
    let plan = Plan { load, sessions: args.sessions };
    let rows = rows::select_gateways(args, &common.only, common.bin_dir.as_deref())?;
    let measured = interleave("gateway", args.rounds, rows, async |row: &Row| {
        measure(row, plan, common.dir.as_deref()).await
    });
    Ok(tables::section(args, &measured.await?))
}
