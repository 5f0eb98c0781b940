//! Question: what does a gateway add to a call between a client of one era and a server of the other, against a pair
//! of the same era?
//!
//! The same cheap server stands behind every row and knows one era alone; the gateway finds out which. Rows are
//! interleaved; what is added is taken within a round, against the client's own era with nothing in between.

use anyhow::Result;
use serde_json::json;

use super::Eras;
use crate::cli::ErasQuestion;
use crate::gateway::{self, Behind, Entry, Era, Front, GatewayRound, Row};
use crate::report::Section;
use crate::rounds::{Sampled, interleave};
use crate::table::Table;

const OVER_PIPES: Front = Front::Tenure("-- {server}");
const SHARED: Front = Front::Tenure("--set child.share=true -- {server}");
const UPSTREAM_OF: Front = Front::Tenure("--upstream {upstream}");

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

pub(super) async fn run(Eras { plan, bridges, .. }: &Eras) -> Result<Section> {
    let load = plan.load(plan.choose(64, 8));
    let gateway_plan = gateway::Plan { load, sessions: 0 };
    let measured = interleave("eras bridges", plan.rounds, bridges.iter().collect(), async |row: &&Row| {
        gateway::measure(row, gateway_plan, plan.dir.as_deref()).await
    });
    let rows = measured.await?;
    let (command, connections) = (plan.command(ErasQuestion::Bridges), load.connections);
    let mut text = format!(
        "### Bridges between the eras\n\n`tools/call` echo through `tenure serve` with sessions on disk, to a server that knows one era alone; {connections} connections, one call in flight each; {} interleaved rounds of {} s, fresh processes each. Alone: one call in flight in all. CPU is the gateway's own. Added: against the client's own era with nothing in between, within a round. Median (min–max).\n\n`{command}`\n",
        plan.rounds, plan.seconds
    );
    for (behind, title) in [(Behind::Stdio, "stdio"), (Behind::Http, "HTTP")] {
        let rows: Vec<_> = rows.iter().filter(|row| row.case.behind == behind).collect();
        if !rows.is_empty() {
            text += &format!("\n{}", table(&rows, title));
        }
    }
    let figures =
        json!({ "command": command, "connections": connections, "seconds": plan.seconds, "rows": rows });
    Ok(Section::new("bridges", figures, text))
}

fn table(rows: &[&Sampled<&Row, GatewayRound>], title: &str) -> String {
    let find = |is_wanted: &dyn Fn(&Row) -> bool| rows.iter().copied().find(|row| is_wanted(row.case));
    // The client's own era with nothing in between.
    let direct = |row: &Row| find(&|other| other.is_direct && other.client == row.client);
    // The same gateway for a client and a server of the client's era.
    let same = |row: &Row| {
        find(&|other| {
            !other.is_direct
                && (other.client, other.server) == (row.client, row.client)
                && other.what == row.what
        })
    };
    let cpu = |round: &GatewayRound| round.gateway_cpu_us_per_call;
    Table::of(rows.iter().copied())
        .text(&format!("client → server over {title}"), |row| {
            format!("{} → {}", row.case.client.as_str(), row.case.server.as_str())
        })
        .text("gateway", |row| row.case.what)
        .spread("gateway CPU µs/call", 1, cpu)
        .samples("÷ same era", 2, |row| row.ratio(same(row.case), cpu))
        .spread("calls/s", 0, |round| round.calls_per_second)
        .spread("p50 µs", 0, |round| round.p50_us)
        .samples("added p50 µs", 0, |row| row.added(direct(row.case), |round| round.p50_us))
        .spread("alone: p50 µs", 0, |round| round.alone_p50_us)
        .samples("alone: added p50 µs", 0, |row| row.added(direct(row.case), |round| round.alone_p50_us))
        .spread("alone: gateway CPU µs/call", 1, |round| round.alone_gateway_cpu_us_per_call)
        .spread("server CPU µs/call", 1, |round| round.server_cpu_us_per_call)
        .number("server processes", |row| row.rounds.last().map_or(0, |round| round.servers))
        .spread("other load, cores", 2, |round| round.other_cores)
        .markdown()
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
