//! Question: how many bytes of memory does an open GET stream hold, on top of its session?
//!
//! Opens the sessions first, reads memory, then opens one GET per session on a connection of its
//! own. Counts the server's anonymous memory; the kernel's socket buffers are no part of it.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::json;
use tenure_testkit::wire::HttpConnection;

use crate::cli::StreamsArgs;
use crate::crowd::Crowd;
use crate::process::{Server, require_files};
use crate::report::Section;
use crate::rounds::interleave;
use crate::rows::{Row, Rows};
use crate::table::Table;

/// Files a process needs beside its streams.
const SPARE_FILES: u64 = 500;

#[derive(Debug, Serialize)]
struct StreamRound {
    bytes_before: u64,
    bytes_with_sessions: u64,
    bytes_with_streams: u64,
    bytes_per_stream: f64,
    bytes_per_session_and_stream: f64,
}

impl fmt::Display for StreamRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} bytes per stream", self.bytes_per_stream)
    }
}

pub(crate) async fn run(rows: &Rows, args: &StreamsArgs) -> Result<Section> {
    let streams = args.streams;
    ensure!(streams > 0, "`--streams` must be at least 1");
    require_files(streams as u64 + SPARE_FILES)?;
    let measured = interleave("streams", args.stream_rounds, rows.iter().collect(), async |row: &&Row| {
        measure(row, streams).await
    });
    let rows = measured.await?;
    let mut text = format!(
        "## Open streams\n\nGrowth of the server's anonymous memory per open GET stream: {streams} sessions first, then one GET each, on a connection of its own; found open afterwards. Median (min–max).\n\n"
    );
    text += &Table::of(&rows)
        .text("row", |row| row.case.name)
        .spread("bytes/stream", 0, |round| round.bytes_per_stream)
        .spread("bytes/session and stream", 0, |round| round.bytes_per_session_and_stream)
        .markdown();
    text += "\nAn `axum` row keeps no sessions: its figure is the connection and an idle response.\n";
    Ok(Section::new("streams", json!({ "streams": streams, "rows": rows }), text))
}

async fn measure(row: &Row, count: usize) -> Result<StreamRound> {
    let server = Server::start(row).await?;
    let mut crowd = Crowd::connect(server.endpoint()).await?;
    let bytes_before = server.settled_memory(Duration::ZERO).await?;
    let sessions = crowd.open_sessions(count).await?;
    let bytes_with_sessions = server.settled_memory(Duration::ZERO).await?;
    let mut streams = crowd.open_streams(&sessions).await?;
    let bytes_with_streams = server.settled_memory(Duration::ZERO).await?;
    let ended = streams.iter_mut().map(HttpConnection::has_ended).filter(|ended| *ended).count();
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
