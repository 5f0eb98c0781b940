//! `tenure limits show`: what principals have left of their limits in a running server.

use clap::{Args, Subcommand};
use tenure_layers::limited::{LimitLine, PrincipalLimits};

use super::paint::Tone;
use super::rows::{ANONYMOUS, print_rows};
use super::table::{Cell, Column, left, right};
use super::which_store::{Absent, StoreArgs};
use super::{Failure, block_on, note};

#[derive(Subcommand, Debug)]
pub(super) enum LimitsCommand {
    /// Show what is left: of one principal, or of all that called lately.
    #[command(after_help = "Limits:\n  \
        rate     requests in a time; as many are left as may be sent at once\n  \
        at_once  requests at the same time\n  \
        day      calls of tools until midnight UTC\n  \
        month    calls of tools until the month ends, at midnight UTC\n\n\
        Limits of sessions, tools and backends are in the configuration and are not shown here.\n\n\
        Examples:\n  \
        tenure limits show\n  \
        tenure limits show corp:ann\n  \
        tenure limits show anonymous\n  \
        tenure limits show --json | jq 'select(.limits[] | .left == 0) | .principal'")]
    Show(ShowLimitsArgs),
}

#[derive(Args, Debug)]
pub(super) struct ShowLimitsArgs {
    /// The principal, such as `corp:ann` or `key:ci`; `anonymous` for callers without credentials.
    principal: Option<String>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) fn run(command: &LimitsCommand) -> Result<(), Failure> {
    let LimitsCommand::Show(args) = command;
    block_on(async {
        let store = args.store.open(Absent::Refuse).await?;
        let Some(shown) = store.limits_left(args.principal.as_deref()).await? else {
            note("no server has this store open, so nothing is limited");
            return Ok(());
        };
        if args.json {
            let columns: [Column<'static, PrincipalLimits>; 0] = [];
            return print_rows(&shown, true, &columns, "");
        }
        let rows: Vec<LimitRow> = shown.iter().flat_map(rows).collect();
        let nothing = match shown.is_empty() {
            true => "no principal called lately",
            false => "principals have no limits: `limits.principal` and its neighbours set them",
        };
        print_rows(&rows, false, &columns(), nothing)
    })
}

/// A limit of a principal.
#[derive(serde::Serialize)]
struct LimitRow {
    principal: String,
    line: LimitLine,
}

fn rows(shown: &PrincipalLimits) -> impl Iterator<Item = LimitRow> {
    let principal = shown.principal.as_deref().unwrap_or(ANONYMOUS);
    shown.limits.iter().map(move |line| LimitRow { principal: principal.to_owned(), line: line.clone() })
}

fn columns() -> [Column<'static, LimitRow>; 5] {
    let left_over = |row: &LimitRow| {
        let tone = if row.line.left == 0 { Tone::Odd } else { Tone::Plain };
        Cell::new(row.line.left.to_string()).tone(tone)
    };
    [
        left("PRINCIPAL", |row: &LimitRow| Cell::new(&row.principal).tone(Tone::Title)),
        left("LIMIT", |row: &LimitRow| Cell::new(&row.line.what)),
        right("OF", |row: &LimitRow| Cell::new(&row.line.limit)),
        right("LEFT", left_over),
        right("WAITING", |row: &LimitRow| row.line.waiting.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;
    use crate::cli::paint::Paint;
    use crate::cli::table::table;

    #[test]
    fn a_table_says_what_is_left_of_each_limit() {
        let shown = json!([
            { "principal": "corp:ann", "limits": [
                { "what": "rate", "limit": "10/s burst 50", "left": 0 },
                { "what": "at_once", "limit": "4", "left": 0, "waiting": 3 },
                { "what": "day", "limit": "1000/d", "left": 17, "reset": 1_800_000_000 },
                { "what": "month", "limit": "20000/month", "left": 1234, "reset": 1_800_000_000 },
            ] },
            { "principal": null, "limits": [{ "what": "rate", "limit": "10/s burst 50", "left": 50 }] },
        ]);
        let shown: Vec<PrincipalLimits> = serde_json::from_value(shown).unwrap();
        let rows: Vec<LimitRow> = shown.iter().flat_map(rows).collect();
        expect![[r#"
            PRINCIPAL  LIMIT               OF  LEFT  WAITING
            corp:ann   rate     10/s burst 50     0        0
            corp:ann   at_once              4     0        3
            corp:ann   day             1000/d    17        0
            corp:ann   month      20000/month  1234        0
            anonymous  rate     10/s burst 50    50        0
        "#]]
        .assert_eq(&table(&columns(), &rows, Paint::of(false)));
    }
}
