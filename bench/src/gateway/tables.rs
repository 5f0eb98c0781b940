//! The tables: what each row did, and what it added to the row with nothing in front.

use serde_json::json;

use crate::cli::GatewayArgs;
use crate::gateway::measure::{GatewayRound, OpenedSessions};
use crate::gateway::rows::{Behind, Row};
use crate::report::Section;
use crate::rounds::Sampled;
use crate::stats::{Spread, median};
use crate::table::Table;
use crate::target::{self, Target};

/// The most that our gateway may spend on a call to a server over stdio.
const STDIO_CPU_US: f64 = 60.0;

/// A figure of a round.
type Figure = fn(&GatewayRound) -> f64;

/// In what our gateway must not be behind others.
const HELD: [(&str, Figure); 3] = [
    ("gateway CPU per call", |round| round.gateway_cpu_us_per_call),
    ("p50 alone", |round| round.alone_p50_us),
    ("p99", |round| round.p99_us),
];

type Measured = Sampled<Row, GatewayRound>;

pub(super) fn section(args: &GatewayArgs, rows: &[Measured]) -> Section {
    let GatewayArgs { connections, sessions, warm_up, seconds, rounds, .. } = *args;
    let targets = targets(rows);
    let mut text = format!(
        "## Gateways\n\n`tools/call` echo through gateways to the same server; {connections} connections, one session and one call in flight each; {rounds} interleaved rounds of {seconds} s after {warm_up} s of warm-up, fresh processes each. Alone: one call in flight in all. CPU and memory are the gateway's own, without the server behind it and the client. Opened: {sessions} more sessions, all connections at once; their memory is resident memory of the gateway. Added: against the row with nothing in front, within a round. Median (min–max).\n"
    );
    for (behind, title) in [(Behind::Stdio, "A server over stdio"), (Behind::Http, "A server over HTTP")] {
        let rows: Vec<_> = rows.iter().filter(|row| row.case.behind == behind).collect();
        if !rows.is_empty() {
            text += &format!("\n### {title}\n\n{}", tables(&rows));
        }
    }
    text += &target::table(&targets);
    let figures = json!({ "connections": connections, "sessions": sessions, "warm_up_seconds": warm_up, "seconds": seconds, "rows": rows, "targets": targets });
    Section::new("gateway", figures, text)
}

/// Holds the figures against what we promise.
fn targets(rows: &[Measured]) -> Vec<Target> {
    let is_ours = |row: &Measured| row.case.name.starts_with("tenure");
    let mut targets = Vec::new();
    for row in rows.iter().filter(|row| is_ours(row)) {
        if row.case.behind == Behind::Stdio {
            let measured = median(row.spread(|round| round.gateway_cpu_us_per_call));
            let what = format!("gateway CPU per call, `{}`", row.case.name);
            targets.push(Target::at_most(what, STDIO_CPU_US, "µs", measured));
        }
        let is_peer =
            |peer: &&Measured| peer.case.behind == row.case.behind && !peer.case.is_direct && !is_ours(peer);
        for peer in rows.iter().filter(is_peer) {
            for (what, figure) in HELD {
                let what = format!("{what}, `{}` ÷ `{}`", row.case.name, peer.case.name);
                targets.push(Target::at_most(what, 1.0, "", median(row.ratio(Some(peer), figure))));
            }
        }
    }
    targets
}

fn tables(rows: &[&Measured]) -> String {
    let direct = rows.iter().find(|row| row.case.is_direct).copied();
    let legend = rows.iter().map(|row| format!("- `{}`: {}\n", row.case.name, row.case.what));
    let calls = Table::of(rows.iter().copied())
        .text("row", |row| row.case.name)
        .spread("calls/s", 0, |round| round.calls_per_second)
        .spread("gateway CPU µs/call", 1, |round| round.gateway_cpu_us_per_call)
        .spread("server CPU µs/call", 1, |round| round.server_cpu_us_per_call)
        .spread("p50 µs", 0, |round| round.p50_us)
        .spread("p99 µs", 0, |round| round.p99_us)
        .samples("added p50 µs", 0, |row| row.added(direct, |round| round.p50_us))
        .samples("added p99 µs", 0, |row| row.added(direct, |round| round.p99_us))
        .spread("other load, cores", 2, |round| round.other_cores);
    let opened = |row: &Measured, figure: fn(&OpenedSessions) -> f64| {
        Spread::of(row.rounds.iter().filter_map(|round| round.opened.as_ref()).map(figure))
    };
    let alone = Table::of(rows.iter().copied())
        .text("row", |row| row.case.name)
        .spread("alone: p50 µs", 0, |round| round.alone_p50_us)
        .samples("alone: added p50 µs", 0, |row| row.added(direct, |round| round.alone_p50_us))
        .samples("alone: added p99 µs", 0, |row| row.added(direct, |round| round.alone_p99_us))
        .spread("alone: gateway CPU µs/call", 1, |round| round.alone_gateway_cpu_us_per_call)
        .samples("sessions opened/s", 0, |row| opened(row, |opened| opened.opened_per_second))
        .samples("gateway CPU µs/open", 0, |row| opened(row, |opened| opened.gateway_cpu_us_per_open))
        .samples("KiB/session", 1, |row| opened(row, |opened| opened.bytes_per_session / 1024.0))
        .spread("gateway MiB", 0, |round| round.gateway_bytes as f64 / 1024.0 / 1024.0)
        .number("server processes", |row| row.rounds.last().map_or(0, |round| round.servers));
    format!("{}\n{}\n{}", legend.collect::<String>(), calls.markdown(), alone.markdown())
}
