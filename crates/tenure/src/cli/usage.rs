//! `tenure usage`: how much clients make a running server hold, and which of them hold most.

use clap::Args;

use super::paint::Tone;
use super::rows::{note_missing, print_rows};
use super::table::{Cell, Column, known, left, right};
use super::which_store::{Absent, StoreArgs};
use super::{Failure, block_on, note};
use crate::operator::{PeerRow, UsageRow};

#[derive(Args, Debug)]
pub(super) struct UsageArgs {
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(args: &UsageArgs) -> Result<(), Failure> {
    block_on(async {
        let store = args.store.open(Absent::Refuse).await?;
        let Some(rows) = store.usage().await? else {
            note("no server has this store open, so nothing is held");
            return Ok(());
        };
        note_missing(&store);
        print_rows(&rows, args.json, &columns(), "nothing is held")
    })
}

/// Each resource with the peers that hold most of it.
fn columns() -> [Column<'static, UsageRow>; 6] {
    let full = |row: &UsageRow| {
        let percent = row.used.saturating_mul(100).checked_div(row.total).unwrap_or(100);
        Cell::new(format!("{percent}%")).tone(if percent >= 80 { Tone::Odd } else { Tone::Plain })
    };
    let most = |row: &UsageRow| {
        let peer = |peer: &PeerRow| format!("{} ({})", peer.peer, amount(peer.used, row.is_bytes));
        let peers: Vec<String> = row.peers.iter().take(3).map(peer).collect();
        known((!peers.is_empty()).then(|| peers.join(", ")))
    };
    [
        // Empty without a cluster.
        left("NODE", |row: &UsageRow| known(row.node.as_ref())).if_known(),
        left("RESOURCE", |row: &UsageRow| Cell::new(&row.resource).tone(Tone::Title)),
        right("USED", |row: &UsageRow| amount(row.used, row.is_bytes)),
        right("TOTAL", |row: &UsageRow| amount(row.total, row.is_bytes)),
        right("FULL", full),
        left("MOST BY", most),
    ]
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
    use crate::cli::paint::Paint;
    use crate::cli::table::table;

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
        .assert_eq(&table(&columns(), &rows, Paint::of(false)));
    }
}
