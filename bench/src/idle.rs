//! Question: how many bytes of memory does an idle session hold?
//!
//! Opens sessions (`initialize`, `notifications/initialized`; no streams) and divides the growth of
//! the server's anonymous memory by their number. Afterwards it calls a tool on some of them: a
//! server that forgot its sessions has no figure.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::cli::IdleArgs;
use crate::clock::now;
use crate::crowd::Crowd;
use crate::process::Server;
use crate::progress;
use crate::rows::{Row, Rows};
use crate::stats::{Spread, cell};

/// How many sessions are called to see whether they live.
const SAMPLE: usize = 256;

#[derive(Debug, Serialize)]
pub(crate) struct IdleReport {
    wait_seconds: f64,
    rows: Vec<IdleRow>,
}

#[derive(Debug, Serialize)]
struct IdleRow {
    name: &'static str,
    sessions: usize,
    rounds: Vec<IdleRound>,
}

#[derive(Debug, Serialize)]
struct IdleRound {
    bytes_before: u64,
    bytes_after: u64,
    bytes_per_session: f64,
    opened_per_second: f64,
    server_cpu_us_per_open: f64,
}

pub(crate) async fn run(rows: &Rows, args: &IdleArgs) -> Result<IdleReport> {
    ensure!(args.sessions > 0 && args.rmcp_sessions > 0, "the number of sessions must be at least 1");
    let wait = Duration::try_from_secs_f64(args.idle_wait).context("read `--idle-wait`")?;
    // A session of rmcp is so heavy that fewer of them tell as much.
    let sessions = |row: &Row| if row.name == "rmcp" { args.rmcp_sessions } else { args.sessions };
    let mut report = IdleReport {
        wait_seconds: args.idle_wait,
        rows: rows
            .iter()
            .map(|row| IdleRow { name: row.name, sessions: sessions(row), rounds: Vec::new() })
            .collect(),
    };
    for round in 0..args.idle_rounds {
        for (place, row) in rows.round(round) {
            let figures = measure(row, sessions(row), wait)
                .await
                .with_context(|| format!("measure idle sessions of `{}`", row.name))?;
            progress::note(&format!(
                "idle {}/{} {}: {:.0} bytes per session, {:.0} opened/s",
                round + 1,
                args.idle_rounds,
                row.name,
                figures.bytes_per_session,
                figures.opened_per_second
            ));
            report.rows[place].rounds.push(figures);
        }
    }
    Ok(report)
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
        bytes_before,
        bytes_after,
        bytes_per_session: (bytes_after as f64 - bytes_before as f64) / count as f64,
        opened_per_second: count as f64 / elapsed,
        server_cpu_us_per_open: cpu.as_secs_f64() * 1e6 / count as f64,
    })
}

impl IdleReport {
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "## Idle sessions\n\nGrowth of the server's anonymous memory per session, read {} s after the last one was opened; sessions without streams, opened over 64 connections, found alive afterwards. Median (min–max).\n\n",
            self.wait_seconds
        );
        text +=
            "| row | sessions | bytes/session | opened/s | server CPU µs/open |\n|---|---:|---:|---:|---:|\n";
        for row in &self.rows {
            let spread = |figure: fn(&IdleRound) -> f64| Spread::of(row.rounds.iter().map(figure));
            writeln!(
                text,
                "| {} | {} | {} | {} | {} |",
                row.name,
                row.sessions,
                cell(spread(|round| round.bytes_per_session), 0),
                cell(spread(|round| round.opened_per_second), 0),
                cell(spread(|round| round.server_cpu_us_per_open), 1),
            )
            .expect("a string takes any text");
        }
        text
    }
}
