//! The tables: what each row did, and what it added to the row with nothing in front.

use std::fmt::Write;

use serde::Serialize;

use crate::cli::GatewayArgs;
use crate::gateway::measure::{GatewayRound, OpenedSessions};
use crate::gateway::rows::{Behind, Row};
use crate::stats::{Spread, beside, cell};
use crate::target::{self, Target};

/// The most that our gateway may spend on a call to a server over stdio.
const STDIO_CPU_US: f64 = 60.0;

#[derive(Debug, Serialize)]
pub(crate) struct GatewayReport {
    connections: usize,
    sessions: usize,
    warm_up_seconds: f64,
    seconds: f64,
    rows: Vec<Measured>,
    targets: Vec<Target>,
}

#[derive(Debug, Serialize)]
struct Measured {
    name: &'static str,
    what: &'static str,
    behind: Behind,
    is_direct: bool,
    rounds: Vec<GatewayRound>,
}

impl Measured {
    fn spread(&self, figure: impl Fn(&GatewayRound) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }

    fn opened(&self, figure: impl Fn(&OpenedSessions) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| round.opened.as_ref()).map(figure))
    }

    /// GatewayRound by round against another row.
    fn against(
        &self,
        other: Option<&Measured>,
        figure: impl Fn(&GatewayRound) -> f64,
        compare: impl Fn(f64, f64) -> f64,
    ) -> Option<Spread> {
        beside(&self.rounds, &other?.rounds, figure, compare)
    }

    fn is_ours(&self) -> bool {
        self.name.starts_with("tenure")
    }
}

impl GatewayReport {
    pub(super) fn new(args: &GatewayArgs, rows: &[Row]) -> GatewayReport {
        let measured = |row: &Row| Measured {
            name: row.name,
            what: row.what,
            behind: row.behind,
            is_direct: row.is_direct(),
            rounds: Vec::new(),
        };
        GatewayReport {
            connections: args.connections,
            sessions: args.sessions,
            warm_up_seconds: args.warm_up,
            seconds: args.seconds,
            rows: rows.iter().map(measured).collect(),
            targets: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, place: usize, round: GatewayRound) {
        self.rows[place].rounds.push(round);
    }

    /// Holds the figures against what we promise.
    pub(super) fn judge(&mut self) {
        for row in self.rows.iter().filter(|row| row.is_ours()) {
            if row.behind == Behind::Stdio {
                let measured = row.spread(|round| round.gateway_cpu_us_per_call);
                let what = format!("gateway CPU per call, `{}`", row.name);
                let measured = measured.map(|spread| spread.median);
                self.targets.push(Target::at_most(what, STDIO_CPU_US, "µs", measured));
            }
            for peer in self
                .rows
                .iter()
                .filter(|peer| peer.behind == row.behind && !peer.is_direct && !peer.is_ours())
            {
                for (what, figure) in [
                    (
                        "gateway CPU per call",
                        (|round| round.gateway_cpu_us_per_call) as fn(&GatewayRound) -> f64,
                    ),
                    ("p50 alone", |round| round.alone_p50_us),
                    ("p99", |round| round.p99_us),
                ] {
                    let ratio = row.against(Some(peer), figure, |mine, theirs| mine / theirs);
                    let what = format!("{what}, `{}` ÷ `{}`", row.name, peer.name);
                    self.targets.push(Target::at_most(what, 1.0, "", ratio.map(|spread| spread.median)));
                }
            }
        }
    }

    pub(crate) fn markdown(&self) -> String {
        let rounds = self.rows.first().map_or(0, |row| row.rounds.len());
        let mut text = format!(
            "## Gateways\n\n`tools/call` echo through gateways to the same server; {} connections, one session and one call in flight each; {rounds} interleaved rounds of {} s after {} s of warm-up, fresh processes each. Alone: one call in flight in all. CPU and memory are the gateway's own, without the server behind it and the client. OpenedSessions: {} more sessions, all connections at once; their memory is resident memory of the gateway. Added: against the row with nothing in front, within a round. Median (min–max).\n",
            self.connections, self.seconds, self.warm_up_seconds, self.sessions
        );
        for behind in [Behind::Stdio, Behind::Http] {
            text += &self.table(behind);
        }
        text + &target::table(&self.targets)
    }

    fn table(&self, behind: Behind) -> String {
        let rows = || self.rows.iter().filter(|row| row.behind == behind);
        if rows().next().is_none() {
            return String::new();
        }
        let direct = rows().find(|row| row.is_direct);
        let title = match behind {
            Behind::Stdio => "A server over stdio",
            Behind::Http => "A server over HTTP",
        };
        let mut text = format!("\n### {title}\n\n");
        for row in rows() {
            writeln!(text, "- `{}`: {}", row.name, row.what).expect("a string takes any text");
        }
        text += "\n| row | calls/s | gateway CPU µs/call | server CPU µs/call | p50 µs | p99 µs | added p50 µs | added p99 µs | other load, cores |\n";
        text += "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        let added = |mine: f64, theirs: f64| mine - theirs;
        for row in rows() {
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.name,
                cell(row.spread(|round| round.calls_per_second), 0),
                cell(row.spread(|round| round.gateway_cpu_us_per_call), 1),
                cell(row.spread(|round| round.server_cpu_us_per_call), 1),
                cell(row.spread(|round| round.p50_us), 0),
                cell(row.spread(|round| round.p99_us), 0),
                cell(row.against(direct, |round| round.p50_us, added), 0),
                cell(row.against(direct, |round| round.p99_us, added), 0),
                cell(row.spread(|round| round.other_cores), 2),
            )
            .expect("a string takes any text");
        }
        text += "\n| row | alone: p50 µs | alone: added p50 µs | alone: added p99 µs | alone: gateway CPU µs/call | sessions opened/s | gateway CPU µs/open | KiB/session | gateway MiB | server processes |\n";
        text += "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for row in rows() {
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.name,
                cell(row.spread(|round| round.alone_p50_us), 0),
                cell(row.against(direct, |round| round.alone_p50_us, added), 0),
                cell(row.against(direct, |round| round.alone_p99_us, added), 0),
                cell(row.spread(|round| round.alone_gateway_cpu_us_per_call), 1),
                cell(row.opened(|opened| opened.opened_per_second), 0),
                cell(row.opened(|opened| opened.gateway_cpu_us_per_open), 0),
                cell(row.opened(|opened| opened.bytes_per_session / 1024.0), 1),
                cell(row.spread(|round| round.gateway_bytes as f64 / 1024.0 / 1024.0), 0),
                row.rounds.last().map_or(0, |round| round.servers),
            )
            .expect("a string takes any text");
        }
        text
    }
}
