//! Question: how many bytes of memory does an open GET stream hold, on top of its session?
//!
//! Opens the sessions first, reads memory, then opens one GET per session on a connection of its
//! own. Counts the server's anonymous memory; the kernel's socket buffers are no part of it.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::cli::StreamsArgs;
use crate::client::Connection;
use crate::crowd::Crowd;
use crate::process::{Server, require_files};
use crate::progress;
use crate::rows::{Row, Rows};
use crate::stats::{Spread, cell};

/// Files a process needs beside its streams.
const SPARE_FILES: u64 = 500;

#[derive(Debug, Serialize)]
pub(crate) struct StreamsReport {
    streams: usize,
    rows: Vec<StreamsRow>,
}

#[derive(Debug, Serialize)]
struct StreamsRow {
    name: &'static str,
    rounds: Vec<StreamRound>,
}

#[derive(Debug, Serialize)]
struct StreamRound {
    bytes_before: u64,
    bytes_with_sessions: u64,
    bytes_with_streams: u64,
    bytes_per_stream: f64,
    bytes_per_session_and_stream: f64,
}

pub(crate) async fn run(rows: &Rows, args: &StreamsArgs) -> Result<StreamsReport> {
    ensure!(args.streams > 0, "`--streams` must be at least 1");
    require_files(args.streams as u64 + SPARE_FILES)?;
    let mut report = StreamsReport {
        streams: args.streams,
        rows: rows.iter().map(|row| StreamsRow { name: row.name, rounds: Vec::new() }).collect(),
    };
    for round in 0..args.stream_rounds {
        for (place, row) in rows.round(round) {
            let figures = measure(row, args.streams)
                .await
                .with_context(|| format!("measure open streams of `{}`", row.name))?;
            progress::note(&format!(
                "streams {}/{} {}: {:.0} bytes per stream",
                round + 1,
                args.stream_rounds,
                row.name,
                figures.bytes_per_stream
            ));
            report.rows[place].rounds.push(figures);
        }
    }
    Ok(report)
}

async fn measure(row: &Row, count: usize) -> Result<StreamRound> {
    let server = Server::start(row).await?;
    let mut crowd = Crowd::connect(server.endpoint()).await?;
    let bytes_before = server.settled_memory(Duration::ZERO).await?;
    let sessions = crowd.open_sessions(count).await?;
    let bytes_with_sessions = server.settled_memory(Duration::ZERO).await?;
    let mut streams = crowd.open_streams(&sessions).await?;
    let bytes_with_streams = server.settled_memory(Duration::ZERO).await?;
    let ended = streams.iter_mut().map(Connection::has_ended).filter(|ended| *ended).count();
    ensure!(ended == 0, "the server ended {ended} of {count} streams");
    server.stop().await?;
    let growth = |from: u64, to: u64| (to as f64 - from as f64) / count as f64;
    Ok(StreamRound {
        bytes_before,
        bytes_with_sessions,
        bytes_with_streams,
        bytes_per_stream: growth(bytes_with_sessions, bytes_with_streams),
        bytes_per_session_and_stream: growth(bytes_before, bytes_with_streams),
    })
}

impl StreamsReport {
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "## Open streams\n\nGrowth of the server's anonymous memory per open GET stream: {} sessions first, then one GET each, on a connection of its own; found open afterwards. Median (min–max).\n\n",
            self.streams
        );
        text += "| row | bytes/stream | bytes/session and stream |\n|---|---:|---:|\n";
        for row in &self.rows {
            let spread = |figure: fn(&StreamRound) -> f64| Spread::of(row.rounds.iter().map(figure));
            writeln!(
                text,
                "| {} | {} | {} |",
                row.name,
                cell(spread(|round| round.bytes_per_stream), 0),
                cell(spread(|round| round.bytes_per_session_and_stream), 0),
            )
            .expect("a string takes any text");
        }
        text += "\nAn `axum` row keeps no sessions: its figure is the connection and an idle response.\n";
        text
    }
}
