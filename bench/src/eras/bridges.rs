//! Question: what does a gateway add to a call between a client of one era and a server of the other, against a pair
//! of the same era?
//!
//! The same cheap server stands behind every row and knows one era alone; the gateway finds out which. Rows are
//! interleaved; what is added is taken within a round, against the client's own era with nothing in between.

use std::fmt::Write;

use anyhow::Result;
use serde::Serialize;

use super::plan::Plan;
use crate::gateway::{self, Behind, Entry, Era, Front, GatewayRound, Row, SERVER, UPSTREAM};
use crate::progress;
use crate::stats::{Spread, beside, cell};

const OVER_PIPES: Front = Front::Tenure(&["--", SERVER]);
const SHARED: Front = Front::Tenure(&["--set", "child.share=true", "--", SERVER]);
const UPSTREAM_OF: Front = Front::Tenure(&["--upstream", UPSTREAM]);

const fn entry(
    name: &'static str,
    behind: Behind,
    (client, server): (Era, Era),
    front: Front,
    what: &'static str,
) -> Entry {
    Entry { name, behind, what, client, server, front }
}

pub(super) const ENTRIES: &[Entry] = &[
    entry("stdio-session", Behind::Stdio, (Era::Session, Era::Session), Front::Nothing, "none"),
    entry("stdio-modern", Behind::Stdio, (Era::Modern, Era::Modern), Front::Nothing, "none"),
    entry("stdio-session-session", Behind::Stdio, (Era::Session, Era::Session), OVER_PIPES, "tenure"),
    entry(
        "stdio-session-session-shared",
        Behind::Stdio,
        (Era::Session, Era::Session),
        SHARED,
        "tenure, one process for all",
    ),
    entry("stdio-modern-modern", Behind::Stdio, (Era::Modern, Era::Modern), OVER_PIPES, "tenure"),
    entry("stdio-session-modern", Behind::Stdio, (Era::Session, Era::Modern), OVER_PIPES, "tenure"),
    entry("stdio-modern-session", Behind::Stdio, (Era::Modern, Era::Session), OVER_PIPES, "tenure"),
    entry(
        "stdio-modern-session-shared",
        Behind::Stdio,
        (Era::Modern, Era::Session),
        SHARED,
        "tenure, one process for all",
    ),
    entry("http-session", Behind::Http, (Era::Session, Era::Session), Front::Nothing, "none"),
    entry("http-modern", Behind::Http, (Era::Modern, Era::Modern), Front::Nothing, "none"),
    entry("http-session-session", Behind::Http, (Era::Session, Era::Session), UPSTREAM_OF, "tenure"),
    entry("http-modern-modern", Behind::Http, (Era::Modern, Era::Modern), UPSTREAM_OF, "tenure"),
    entry("http-session-modern", Behind::Http, (Era::Session, Era::Modern), UPSTREAM_OF, "tenure"),
    entry("http-modern-session", Behind::Http, (Era::Modern, Era::Session), UPSTREAM_OF, "tenure"),
];

#[derive(Debug, Serialize)]
pub(crate) struct BridgesReport {
    command: String,
    connections: usize,
    seconds: f64,
    rows: Vec<BridgeRow>,
}

#[derive(Debug, Serialize)]
struct BridgeRow {
    name: &'static str,
    gateway: &'static str,
    behind: Behind,
    client: Era,
    server: Era,
    is_direct: bool,
    rounds: Vec<GatewayRound>,
}

pub(super) async fn run(plan: &Plan) -> Result<BridgesReport> {
    let mut rows: Vec<BridgeRow> = plan.bridges.iter().map(BridgeRow::of).collect();
    let count = rows.len();
    for round in 0..plan.rounds {
        // Each round starts elsewhere, so that none is always the one after a heavy neighbour.
        for place in (0..count).map(|step| (step + round) % count) {
            let row = &plan.bridges[place];
            let gateway_plan = gateway::Plan { load: plan.load, sessions: 0 };
            let figures = gateway::measure(row, gateway_plan, plan.dir.as_deref()).await?;
            progress::note(&format!("eras bridges {}/{} {}: {figures}", round + 1, plan.rounds, row.name));
            rows[place].rounds.push(figures);
        }
    }
    let connections = plan.load.connections;
    Ok(BridgesReport { command: plan.command("bridges"), connections, seconds: plan.seconds, rows })
}

impl BridgeRow {
    fn of(row: &Row) -> BridgeRow {
        BridgeRow {
            name: row.name,
            gateway: row.what,
            behind: row.behind,
            client: row.client,
            server: row.server_era,
            is_direct: row.is_direct(),
            rounds: Vec::new(),
        }
    }

    fn spread(&self, figure: impl Fn(&GatewayRound) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(figure))
    }
}

impl BridgesReport {
    pub(super) fn markdown(&self) -> String {
        let rounds = self.rows.first().map_or(0, |row| row.rounds.len());
        let mut text = format!(
            "### Bridges between the eras\n\n`tools/call` echo through `tenure serve` with sessions on disk, to a server that knows one era alone; {} connections, one call in flight each; {rounds} interleaved rounds of {} s, fresh processes each. Alone: one call in flight in all. CPU is the gateway's own. Added: against the client's own era with nothing in between, within a round. Median (min–max).\n\n`{}`\n",
            self.connections, self.seconds, self.command
        );
        for (behind, title) in [(Behind::Stdio, "stdio"), (Behind::Http, "HTTP")] {
            text += &self.table(behind, title);
        }
        text
    }

    fn table(&self, behind: Behind, title: &str) -> String {
        let rows = || self.rows.iter().filter(|row| row.behind == behind);
        if rows().next().is_none() {
            return String::new();
        }
        let mut text = format!(
            "\n| client → server over {title} | gateway | gateway CPU µs/call | ÷ same era | calls/s | p50 µs | added p50 µs | alone: p50 µs | alone: added p50 µs | alone: gateway CPU µs/call | server CPU µs/call | server processes | other load, cores |\n"
        );
        text += "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for row in rows() {
            let direct = rows().find(|other| other.is_direct && other.client == row.client);
            // The same gateway for a client and a server of the client's era.
            let same = rows().find(|other| {
                !other.is_direct
                    && other.client == row.client
                    && other.server == row.client
                    && other.gateway == row.gateway
            });
            let added = |figure: fn(&GatewayRound) -> f64| {
                beside(&row.rounds, &direct?.rounds, figure, |mine, theirs| mine - theirs)
            };
            let cpu = |round: &GatewayRound| round.gateway_cpu_us_per_call;
            let ratio =
                same.and_then(|same| beside(&row.rounds, &same.rounds, cpu, |mine, theirs| mine / theirs));
            writeln!(
                text,
                "| {} → {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.client.as_str(),
                row.server.as_str(),
                row.gateway,
                cell(row.spread(cpu), 1),
                cell(ratio, 2),
                cell(row.spread(|round| round.calls_per_second), 0),
                cell(row.spread(|round| round.p50_us), 0),
                cell(added(|round| round.p50_us), 0),
                cell(row.spread(|round| round.alone_p50_us), 0),
                cell(added(|round| round.alone_p50_us), 0),
                cell(row.spread(|round| round.alone_gateway_cpu_us_per_call), 1),
                cell(row.spread(|round| round.server_cpu_us_per_call), 1),
                row.rounds.last().map_or(0, |round| round.servers),
                cell(row.spread(|round| round.other_cores), 2),
            )
            .expect("a string takes any text");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Behind, ENTRIES, Era, Front};

    #[test]
    fn every_pair_of_eras_has_a_row_over_either_way_and_names_say_which() {
        for (behind, way) in [(Behind::Stdio, "stdio"), (Behind::Http, "http")] {
            for client in [Era::Session, Era::Modern] {
                let direct = format!("{way}-{}", client.as_str());
                let found = ENTRIES.iter().find(|entry| entry.name == direct).unwrap();
                assert!(matches!(found.front, Front::Nothing), "{direct}");
                for server in [Era::Session, Era::Modern] {
                    let name = format!("{direct}-{}", server.as_str());
                    let found = ENTRIES.iter().find(|entry| entry.name == name).unwrap();
                    assert_eq!(
                        (found.behind, found.client, found.server),
                        (behind, client, server),
                        "{name}"
                    );
                    assert!(matches!(found.front, Front::Tenure(_)), "{name}");
                }
            }
        }
    }
}
