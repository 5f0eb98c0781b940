//! Question: how long does a client wait for the events it missed?
//!
//! Calls `bench_emit`, which emits so many notifications on the stream of the call, and hangs up
//! after the first event. Once the server is quiet, all events are in its store; a GET with that
//! event's id then has to bring all others and the response. Every event is counted.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use memchr::memmem;
use serde::Serialize;
use tokio::time::timeout;

use crate::cli::ReplayArgs;
use crate::client::{Connection, Endpoint, Event, EventReader, emit_request, open_session, stream_request};
use crate::clock::now;
use crate::process::Server;
use crate::progress;
use crate::rows::Rows;
use crate::stats::{Spread, cell};

const BUFFER_BYTES: usize = 64 * 1024;
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize)]
pub(crate) struct ReplayReport {
    events: usize,
    rows: Vec<ReplayRow>,
}

#[derive(Debug, Serialize)]
struct ReplayRow {
    name: &'static str,
    replays: Vec<Replay>,
}

#[derive(Debug, Serialize)]
struct Replay {
    /// Events the GET brought, the response included.
    events: usize,
    body_bytes: usize,
    milliseconds: f64,
    first_event_milliseconds: f64,
    events_per_second: f64,
    server_cpu_us_per_event: f64,
}

pub(crate) async fn run(rows: &Rows, args: &ReplayArgs) -> Result<ReplayReport> {
    ensure!(args.events > 1, "`--events` must be at least 2");
    let mut report = ReplayReport {
        events: args.events,
        rows: rows.iter().map(|row| ReplayRow { name: row.name, replays: Vec::new() }).collect(),
    };
    for round in 0..args.replays {
        for (place, row) in rows.round(round) {
            let server = Server::start(row).await?;
            let replay = timeout(DEADLINE, measure(&server, args.events))
                .await
                .context("wait for the events")
                .flatten()
                .with_context(|| format!("measure a replay of `{}`", row.name))?;
            server.stop().await?;
            progress::note(&format!(
                "replay {}/{} {}: {} events in {:.1} ms",
                round + 1,
                args.replays,
                row.name,
                replay.events,
                replay.milliseconds
            ));
            report.rows[place].replays.push(replay);
        }
    }
    Ok(report)
}

async fn measure(server: &Server, count: usize) -> Result<Replay> {
    let endpoint = server.endpoint();
    let mut connection = Connection::open(endpoint, BUFFER_BYTES).await?;
    let session = open_session(&mut connection, endpoint).await?;
    let first = emit_and_hang_up(endpoint, session.as_deref(), count).await?;
    server.quiet().await?;

    let mut tally = Tally::default();
    let mut body_bytes = 0;
    let mut first_event = None;
    let mut reader = EventReader::new();
    let (started, cpu) = (now(), server.cpu()?);
    connection.send(&stream_request(endpoint, session.as_deref(), Some(&first.id))).await?;
    let head = connection.head().await?;
    ensure!(
        head.status == 200 && head.is_event_stream,
        "the resuming GET was answered with status {}",
        head.status
    );
    while tally.responses == 0 {
        let Some(piece) = connection.piece().await? else { break };
        body_bytes += piece.len();
        reader.feed(piece, |event| tally.add(&event));
        if first_event.is_none() && tally.notifications > 0 {
            first_event = Some(started.elapsed());
        }
    }
    let (elapsed, cpu) = (started.elapsed(), server.cpu()?.since(cpu));
    let seen = first.tally.notifications + tally.notifications;
    ensure!(
        tally.responses == 1 && seen == count,
        "the replay is not complete: {seen} of {count} notifications and {} of 1 response",
        tally.responses
    );
    let events = tally.notifications + tally.responses;
    Ok(Replay {
        events,
        body_bytes,
        milliseconds: elapsed.as_secs_f64() * 1e3,
        first_event_milliseconds: first_event.unwrap_or(elapsed).as_secs_f64() * 1e3,
        events_per_second: events as f64 / elapsed.as_secs_f64(),
        server_cpu_us_per_event: cpu.as_secs_f64() * 1e6 / events as f64,
    })
}

/// The event a client saw last before it hung up.
#[derive(Debug)]
struct Seen {
    id: String,
    tally: Tally,
}

/// Starts the emission on a connection of its own and drops it after the first event with an id.
async fn emit_and_hang_up(endpoint: &Endpoint, session: Option<&str>, count: usize) -> Result<Seen> {
    let mut connection = Connection::open(endpoint, BUFFER_BYTES).await?;
    connection.send(&emit_request(endpoint, session, count)).await?;
    let head = connection.head().await?;
    ensure!(
        head.status == 200 && head.is_event_stream,
        "`bench_emit` was answered with status {}",
        head.status
    );
    let mut reader = EventReader::new();
    let mut tally = Tally::default();
    let mut id = None;
    while id.is_none() {
        let piece = connection.piece().await?.context("`bench_emit` ended without an event id")?;
        reader.feed(piece, |event| {
            // More events may lie in the same piece: they count as missed.
            if id.is_none() {
                tally.add(&event);
                id = event.id.map(str::to_owned);
            }
        });
    }
    Ok(Seen { id: id.context("find the first event id")?, tally })
}

/// What kind of events went by; priming events, which carry nothing, are neither.
#[derive(Debug, Default)]
struct Tally {
    notifications: usize,
    responses: usize,
}

impl Tally {
    fn add(&mut self, event: &Event<'_>) {
        if memmem::find(event.data, br#""method":"notifications/"#).is_some() {
            self.notifications += 1;
        } else if memmem::find(event.data, br#""id":2"#).is_some()
            && memmem::find(event.data, br#""result""#).is_some()
        {
            self.responses += 1;
        }
    }
}

impl ReplayReport {
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "## Replay\n\nGET with `Last-Event-ID` on the stream of a call that emitted {} notifications while nobody listened, until its response arrives. Median (min–max).\n\n",
            self.events
        );
        text += "| row | ms | first event ms | events/s | server CPU µs/event | bytes/event |\n|---|---:|---:|---:|---:|---:|\n";
        for row in &self.rows {
            let spread = |figure: fn(&Replay) -> f64| Spread::of(row.replays.iter().map(figure));
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {:.0} |",
                row.name,
                cell(spread(|replay| replay.milliseconds), 1),
                cell(spread(|replay| replay.first_event_milliseconds), 1),
                cell(spread(|replay| replay.events_per_second), 0),
                cell(spread(|replay| replay.server_cpu_us_per_event), 2),
                row.replays.first().map_or(0.0, |replay| replay.body_bytes as f64 / replay.events as f64),
            )
            .expect("a string takes any text");
        }
        text += "\nHere an `axum` row sends ready-made events from a list, and an `rmcp` row has an event store in memory.\n";
        text
    }
}
