//! Question: how long does a client wait for the events it missed?
//!
//! Calls `bench_emit`, which emits so many notifications on the stream of the call, and hangs up
//! after the first event. Once the server is quiet, all events are in its store; a GET with that
//! event's id then has to bring all others and the response. Every event is counted.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use serde::Serialize;
use serde_json::json;
use tenure_testkit::sse::{Odd, Parser, SseEvent, SseItem};
use tokio::time::timeout;

use crate::cli::ReplayArgs;
use crate::client::{Endpoint, emit_request, open_session, stream_request};
use crate::clock::now;
use crate::process::Server;
use crate::report::Section;
use crate::rounds::interleave;
use crate::rows::{Row, Rows};
use crate::table::Table;

const BUFFER_BYTES: usize = 64 * 1024;
const DEADLINE: Duration = Duration::from_secs(60);

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

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events in {:.1} ms", self.events, self.milliseconds)
    }
}

pub(crate) async fn run(rows: &Rows, args: &ReplayArgs) -> Result<Section> {
    let events = args.events;
    ensure!(events > 1, "`--events` must be at least 2");
    let measured = interleave("replay", args.replays, rows.iter().collect(), async |row: &&Row| {
        let server = Server::start(row).await?;
        let replay = timeout(DEADLINE, measure(&server, events)).await.context("wait for the events")??;
        server.stop().await?;
        anyhow::Ok(replay)
    });
    let rows = measured.await?;
    let mut text = format!(
        "## Replay\n\nGET with `Last-Event-ID` on the stream of a call that emitted {events} notifications while no client listened, until its response arrives. Median (min–max).\n\n"
    );
    text += &Table::of(&rows)
        .text("row", |row| row.case.name)
        .spread("ms", 1, |replay| replay.milliseconds)
        .spread("first event ms", 1, |replay| replay.first_event_milliseconds)
        .spread("events/s", 0, |replay| replay.events_per_second)
        .spread("server CPU µs/event", 2, |replay| replay.server_cpu_us_per_event)
        .number("bytes/event", |row| {
            let each = |replay: &Replay| replay.body_bytes as f64 / replay.events as f64;
            format!("{:.0}", row.rounds.first().map_or(0.0, each))
        })
        .markdown();
    text += "\nHere an `axum` row sends ready-made events from a list, and an `rmcp` row has an event store in memory.\n";
    Ok(Section::new("replay", json!({ "events": events, "rows": rows }), text))
}

async fn measure(server: &Server, count: usize) -> Result<Replay> {
    let endpoint = server.endpoint();
    let mut connection = endpoint.connect(BUFFER_BYTES).await?;
    let session = open_session(&mut connection, endpoint).await?;
    let first = emit_and_hang_up(endpoint, session.as_deref(), count).await?;
    server.quiet().await?;

    let mut tally = Tally::default();
    let mut body_bytes = 0;
    let mut first_event = None;
    let mut parser = Parser::default();
    let (started, cpu) = (now(), server.cpu()?);
    connection.send(&stream_request(endpoint, session.as_deref(), Some(&first.id))).await?;
    let head = connection.head().await?;
    ensure!(
        head.status == 200 && head.is_event_stream(),
        "the resuming GET was answered with status {}",
        head.status
    );
    while tally.responses == 0 {
        let Some(piece) = connection.piece().await? else { break };
        body_bytes += piece.len();
        parser.feed(piece);
        while let Some(event) = next_event(&mut parser)? {
            tally.add(&event);
        }
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
    let mut connection = endpoint.connect(BUFFER_BYTES).await?;
    connection.send(&emit_request(endpoint, session, count)).await?;
    let head = connection.head().await?;
    ensure!(
        head.status == 200 && head.is_event_stream(),
        "`bench_emit` was answered with status {}",
        head.status
    );
    let (mut parser, mut tally) = (Parser::default(), Tally::default());
    loop {
        let piece = connection.piece().await?.context("`bench_emit` ended without an event id")?;
        parser.feed(piece);
        while let Some(event) = next_event(&mut parser)? {
            tally.add(&event);
            if let Some(id) = event.id {
                // More events may be in the same piece: they count as missed.
                return Ok(Seen { id, tally });
            }
        }
    }
}

/// The next event that has arrived as a whole.
fn next_event(parser: &mut Parser) -> Result<Option<SseEvent>> {
    loop {
        match parser.next() {
            Some(Ok(SseItem::Event(event))) => return Ok(Some(event)),
            Some(Ok(SseItem::Comment(_))) => {}
            Some(Err(Odd(line))) => bail!("no line of an event: {line}"),
            None => return Ok(None),
        }
    }
}

/// What kind of events went by; priming events, which carry nothing, are neither.
#[derive(Debug, Default)]
struct Tally {
    notifications: usize,
    responses: usize,
}

impl Tally {
    fn add(&mut self, event: &SseEvent) {
        let data = event.data.as_deref().unwrap_or_default().as_bytes();
        if memmem::find(data, br#""method":"notifications/"#).is_some() {
            self.notifications += 1;
        } else if memmem::find(data, br#""id":2"#).is_some() && memmem::find(data, br#""result""#).is_some() {
            self.responses += 1;
        }
    }
}
