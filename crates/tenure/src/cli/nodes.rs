//! `tenure nodes`: the nodes of a cluster.

use clap::Args;

use super::paint::Tone;
use super::rows::print_rows;
use super::table::{Cell, Column, known, left, right};
use super::which_store::{Absent, StoreArgs};
use super::{Failure, block_on};
use crate::operator::{NodeRow, NodeState};

#[derive(Args, Debug)]
pub(super) struct NodesArgs {
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(args: &NodesArgs) -> Result<(), Failure> {
    block_on(async {
        let store = args.store.open(Absent::Refuse).await?;
        let rows = store.nodes().await?;
        print_rows(&rows, args.json, &columns(), "no nodes: this store belongs to one process")
    })
}

fn columns() -> [Column<'static, NodeRow>; 9] {
    let state = |row: &NodeRow| match row.state {
        NodeState::Serving => Cell::new("serving").tone(Tone::Good),
        NodeState::Draining => Cell::new("draining").tone(Tone::Odd),
        NodeState::NotReady => Cell::new("not ready").tone(Tone::Bad),
        NodeState::Silent => Cell::new("silent").tone(Tone::Bad),
        NodeState::Recorded => Cell::new("recorded"),
    };
    let clock = |row: &NodeRow| match row.clock_ms {
        _ if row.is_this => Cell::new("-"),
        // Below that it says nothing: the question takes as long.
        Some(clock) if clock.unsigned_abs() < 100 => Cell::new("0.0 s"),
        Some(clock) => {
            let tone = if clock.unsigned_abs() > 1000 { Tone::Odd } else { Tone::Plain };
            Cell::new(format!("{:+.1} s", clock as f64 / 1000.0)).tone(tone)
        }
        None => Cell::new("-"),
    };
    let name = |row: &NodeRow| match row.is_this {
        true => Cell::new(format!("{} (this)", row.label)).tone(Tone::Title),
        false => Cell::new(&row.label).tone(Tone::Title),
    };
    [
        left("NODE", name),
        left("ADDRESS", |row: &NodeRow| row.address.clone()),
        left("VERSION", |row: &NodeRow| row.version.clone()),
        left("STATE", state),
        right("LEASE", |row: &NodeRow| {
            known(row.lease_age_ms.map(|age| format!("{}.{} s", age / 1000, age % 1000 / 100)))
        }),
        right("SESSIONS", |row: &NodeRow| known(row.sessions)),
        right("CALLS", |row: &NodeRow| known(row.load)),
        right("CLOCK", clock),
        left("WHY", |row: &NodeRow| known(row.why.as_ref())).if_known(),
    ]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::cli::paint::Paint;
    use crate::cli::table::table;

    #[test]
    fn a_table_says_of_each_node_how_it_is() {
        let row = |label: &str, state, why: Option<&str>, clock_ms| NodeRow {
            node: label.trim_start_matches("n-").to_owned(),
            label: label.to_owned(),
            address: "10.0.0.1:8486".to_owned(),
            version: "0.1.0".to_owned(),
            state,
            why: why.map(str::to_owned),
            lease_age_ms: Some(840),
            sessions: Some(1204),
            load: Some(3),
            clock_ms,
            answered: true,
            is_this: false,
        };
        let this = NodeRow { is_this: true, ..row("n-11", NodeState::Serving, None, Some(0)) };
        let silent = NodeRow {
            sessions: None,
            load: None,
            answered: false,
            ..row("n-33", NodeState::Silent, Some("it did not answer in time"), None)
        };
        let off = "its clock is 7200 s ahead of that of the store; let it be set by NTP";
        let rows = [
            this,
            row("n-22", NodeState::Draining, None, Some(-40)),
            silent,
            row("n-44", NodeState::NotReady, Some(off), Some(7_200_040)),
        ];
        expect![[r#"
            NODE         ADDRESS        VERSION  STATE      LEASE  SESSIONS  CALLS      CLOCK  WHY
            n-11 (this)  10.0.0.1:8486  0.1.0    serving    0.8 s      1204      3          -  -
            n-22         10.0.0.1:8486  0.1.0    draining   0.8 s      1204      3      0.0 s  -
            n-33         10.0.0.1:8486  0.1.0    silent     0.8 s         -      -          -  it did not answer in time
            n-44         10.0.0.1:8486  0.1.0    not ready  0.8 s      1204      3  +7200.0 s  its clock is 7200 s ahead of that of the store; let it be set by NTP
        "#]].assert_eq(&table(&columns(), &rows, Paint::of(false)));
    }
}
