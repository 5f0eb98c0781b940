//! `tenure usage`: how much clients make a running server hold, and which of them hold most.

use clap::Args;

use super::paint::{Paint, Tone};
use super::reach::{Absent, ReachArgs};
use super::table::{Cell, Side, table};
use super::{Failure, block_on, note, say};
use crate::operator::{PeerRow, UsageRow};

#[derive(Args, Debug)]
pub(super) struct UsageArgs {
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: ReachArgs,
}

pub(super) fn run(args: &UsageArgs) -> Result<(), Failure> {
    block_on(async {
        let reach = args.store.reach(Absent::Refuse).await?;
        let Some(rows) = reach.usage().await? else {
            note("no server has this store open, so nothing is held");
            return Ok(());
        };
        if args.json {
            let line = |row: &UsageRow| serde_json::to_string(row).expect("a row has a JSON form") + "\n";
            return say(&rows.iter().map(line).collect::<String>());
        }
        say(&render(&rows, Paint::stdout()))
    })
}

/// The rows as a table, each with the peers that hold most of it.
fn render(rows: &[UsageRow], paint: Paint) -> String {
    const TITLES: [(&str, Side); 5] = [
        ("RESOURCE", Side::Left),
        ("USED", Side::Right),
        ("TOTAL", Side::Right),
        ("FULL", Side::Right),
        ("MOST BY", Side::Left),
    ];
    let row = |row: &UsageRow| {
        let percent = row.used.saturating_mul(100).checked_div(row.total).unwrap_or(100);
        let tone = if percent >= 80 { Tone::Odd } else { Tone::Plain };
        let peer = |peer: &PeerRow| format!("{} ({})", peer.peer, amount(peer.used, row.is_bytes));
        let peers: Vec<String> = row.peers.iter().take(3).map(peer).collect();
        vec![
            Cell::new(&row.resource).tone(Tone::Title),
            Cell::new(amount(row.used, row.is_bytes)),
            Cell::new(amount(row.total, row.is_bytes)),
            Cell::new(format!("{percent}%")).tone(tone),
            Cell::new(if peers.is_empty() { "-".to_owned() } else { peers.join(", ") }),
        ]
    };
    table(&TITLES, &rows.iter().map(row).collect::<Vec<_>>(), paint)
}

fn amount(number: u64, is_bytes: bool) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match number {
        number if !is_bytes => number.to_string(),
        number if number >= MIB => format!("{:.1} MiB", number as f64 / MIB as f64),
        number if number >= KIB => format!("{:.1} KiB", number as f64 / KIB as f64),
        number => format!("{number} B"),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_table_says_how_full_each_resource_is_and_who_holds_most() {
        let rows = json!([
            {
                "resource": "memory", "is_bytes": true, "used": 471_859_200, "total": 536_870_912,
                "peers": [
                    { "peer": "10.0.0.7", "used": 471_857_152 }, { "peer": "2001:db8::/64", "used": 2048 },
                ],
            },
            { "resource": "calls", "used": 0, "total": 10_000, "peers": [] },
            { "resource": "sessions", "used": 7, "total": 200_000, "peers": [{ "peer": "10.0.0.7", "used": 7 }] },
        ]);
        let rows: Vec<UsageRow> = serde_json::from_value(rows).unwrap();
        expect![[r#"
            RESOURCE       USED      TOTAL  FULL  MOST BY
            memory    450.0 MiB  512.0 MiB   87%  10.0.0.7 (450.0 MiB), 2001:db8::/64 (2.0 KiB)
            calls             0      10000    0%  -
            sessions          7     200000    0%  10.0.0.7 (7)
        "#]]
        .assert_eq(&render(&rows, Paint::of(false)));
    }
}
