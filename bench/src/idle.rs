//! Question: how many bytes of memory does an idle session hold?
//!
//! Opens sessions (`initialize`, `notifications/initialized`; no streams) and divides the growth of
//! the server's anonymous memory by their number. Afterwards it calls a tool on some of them: a
//! server that forgot its sessions has no figure.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;

use crate::cli::IdleArgs;
use crate::clock::now;
use crate::crowd::Crowd;
use crate::process::Server;
use crate::report::Section;
use crate::rounds::interleave;
use crate::rows::{Row, Rows};
use crate::table::Table;

/// How many sessions are called to see whether they live.
const SAMPLE: usize = 256;

#[derive(Debug, Serialize)]
struct IdleRound {
    sessions: usize,
    bytes_before: u64,
    bytes_after: u64,
    bytes_per_session: f64,
    opened_per_second: f64,
    server_cpu_us_per_open: f64,
}

impl fmt::Display for IdleRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IdleRound { bytes_per_session, opened_per_second, .. } = self;
        write!(f, "{bytes_per_session:.0} bytes per session, {opened_per_second:.0} opened/s")
    }
}

pub(crate) async fn run(rows: &Rows, args: &IdleArgs) -> Result<Section> {
    ensure!(args.sessions > 0 && args.rmcp_sessions > 0, "the number of sessions must be at least 1");
    let wait = Duration::try_from_secs_f64(args.idle_wait).context("read `--idle-wait`")?;
    // A session of rmcp is so heavy that fewer of them tell as much.
    let sessions = |row: &Row| if row.name == "rmcp" { args.rmcp_sessions } else { args.sessions };
    let measured = interleave("idle", args.idle_rounds, rows.iter().collect(), async |row: &&Row| {
        measure(row, sessions(row), wait).await
    });
    let rows = measured.await?;
    let mut text = format!(
        "## Idle sessions\n\nGrowth of the server's anonymous memory per session, read {} s after the last one was opened; sessions without streams, opened over 64 connections, found alive afterwards. Median (min–max).\n\n",
        args.idle_wait
    );
    text += &Table::of(&rows)
        .text("row", |row| row.case.name)
        .number("sessions", |row| sessions(row.case))
        .spread("bytes/session", 0, |round| round.bytes_per_session)
        .spread("opened/s", 0, |round| round.opened_per_second)
        .spread("server CPU µs/open", 1, |round| round.server_cpu_us_per_open)
        .markdown();
    Ok(Section::new("idle", json!({ "wait_seconds": args.idle_wait, "rows": rows }), text))
}

async fn measure(row: &Row, count: usize, wait: Duration) -> Result<IdleRound> {
    let server = Server::start(row).await?;
    let mut crowd = Crowd::connect(server.endpoint()).await?;
    let bytes_before = server.settled_memory(Duration::ZERO).await?;
    let (started, cpu) = (now(), server.cpu()?);
    let sessions = crowd.open_sessions(count).await?;
    let (elapsed, cpu) = (started.elapsed().as_secs_f64(), server.cpu()?.since(cpu));
    ensure!(sessions.iter().all(Option::is_some), "the server gave no session id");
    let bytes_after = server.settled_memory(wait).await?;
    crowd.check_alive(&sessions, SAMPLE).await?;
    server.stop().await?;
    Ok(IdleRound {
        sessions: count,
        bytes_before,
        bytes_after,
        bytes_per_session: (bytes_after as f64 - bytes_before as f64) / count as f64,
        opened_per_second: count as f64 / elapsed,
        server_cpu_us_per_open: cpu.as_secs_f64() * 1e6 / count as f64,
    })
}
