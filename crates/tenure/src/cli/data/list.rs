//! `tenure sessions data list`: reads all data sessions and shows the most recently used ones.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use indicatif::HumanBytes;
use tenure_session::port::clock::Time;

use super::reach::PAGE;
use crate::cli::list::end_word;
use crate::cli::paint::{Paint, Tone};
use crate::cli::progress::ItemCounter;
use crate::cli::reach::{Absent, Reach, ReachArgs};
use crate::cli::table::{Cell, Side, table};
use crate::cli::{Failure, note, say, words};
use crate::foreign;
use crate::operator::{DataRow, DataState, now, parse_key};
use crate::times::{ago, until};

/// Letters of a label that are shown.
const LABEL: usize = 32;

#[derive(Args, Debug)]
pub(in crate::cli) struct DataListArgs {
    /// Show so many at most.
    #[arg(long, value_name = "N", default_value = "100")]
    limit: NonZeroUsize,
    /// Only data sessions of this principal; `anonymous` for those of nobody in particular.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only data sessions of this kind.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only data sessions in this state.
    #[arg(long, value_name = "STATE")]
    state: Option<StateName>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: ReachArgs,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum StateName {
    Active,
    Expired,
    Ended,
}

pub(super) async fn run(args: &DataListArgs) -> Result<(), Failure> {
    let reach = args.store.reach(Absent::Refuse).await?;
    let (rows, found) = newest(&reach, args).await?;
    if args.json {
        let line = |row: &DataRow| serde_json::to_string(row).expect("a row has a JSON form") + "\n";
        say(&rows.iter().map(line).collect::<String>())?;
    } else if !rows.is_empty() {
        say(&render(&rows, now(), Paint::stdout()))?;
    } else {
        note("no data sessions");
    }
    if found > rows.len() {
        note(&format!("{} of {found} data sessions; `--limit {found}` shows all", rows.len()));
    }
    Ok(())
}

/// The most recently used data sessions that match, up to the limit, and the number of all that match.
async fn newest(reach: &Reach, args: &DataListArgs) -> Result<(Vec<DataRow>, usize), Failure> {
    let limit = args.limit.get();
    let (mut rows, mut found, mut after) = (Vec::new(), 0, None);
    let mut counter = ItemCounter::start("looked at", "data sessions");
    loop {
        let page = reach.data_page(after, PAGE).await?;
        counter.add(page.rows.len());
        let before = rows.len();
        rows.extend(page.rows.into_iter().filter(|row| args.wants(row)));
        found += rows.len() - before;
        after = page.next.as_deref().and_then(parse_key);
        // Sort only when the buffer has doubled: memory stays bounded, and sorting stays cheap.
        if after.is_none() || rows.len() > limit.saturating_mul(2) {
            rows.sort_by_key(|row: &DataRow| std::cmp::Reverse(row.last_used.or(row.ended)));
            rows.truncate(limit);
        }
        if after.is_none() {
            return Ok((rows, found));
        }
    }
}

impl DataListArgs {
    fn wants(&self, row: &DataRow) -> bool {
        let owner = row.owner.as_deref().unwrap_or("anonymous");
        let state = match self.state {
            None => true,
            Some(StateName::Active) => row.state == DataState::Active,
            Some(StateName::Expired) => row.state == DataState::Expired,
            Some(StateName::Ended) => row.state == DataState::Ended,
        };
        state
            && self.owner.as_ref().is_none_or(|wanted| wanted == owner)
            && self.kind.as_ref().is_none_or(|wanted| Some(wanted) == row.kind.as_ref())
    }
}

/// The rows as a table.
fn render(rows: &[DataRow], now: Time, paint: Paint) -> String {
    const TITLES: [(&str, Side); 10] = [
        ("NAME", Side::Left),
        ("KIND", Side::Left),
        ("OWNER", Side::Left),
        ("LABEL", Side::Left),
        ("STATE", Side::Left),
        ("CREATED", Side::Left),
        ("LAST USED", Side::Left),
        ("EXPIRES", Side::Left),
        ("SIZE", Side::Right),
        ("EDITION", Side::Right),
    ];
    let known = |text: Option<String>| Cell::new(text.unwrap_or_else(|| "-".to_owned()));
    let row = |row: &DataRow| {
        vec![
            Cell::new(&row.name).tone(Tone::Title),
            known(row.kind.clone()),
            Cell::new(super::show::owner(row)),
            known(row.label.as_deref().map(|label| words::short(&foreign::plain(label), LABEL))),
            Cell::new(state_words(row)).tone(state_tone(row)),
            known(row.created.map(|created| ago(created, now))),
            known(row.last_used.or(row.ended).map(|used| ago(used, now))),
            known(match row.state {
                DataState::Active => Some(row.expires.map_or("never".to_owned(), |at| until(at, now))),
                DataState::Expired | DataState::Ended | DataState::Unreadable => None,
            }),
            known(row.bytes.map(|bytes| HumanBytes(bytes).to_string())),
            known(row.edition.map(|edition| edition.to_string())),
        ]
    };
    table(&TITLES, &rows.iter().map(row).collect::<Vec<_>>(), paint)
}

/// The state of a data session, in few words.
pub(super) fn state_words(row: &DataRow) -> String {
    match (row.state, row.end) {
        (DataState::Active, _) => "active".to_owned(),
        (DataState::Expired, _) => "expired".to_owned(),
        (DataState::Ended, Some(end)) => format!("ended ({})", end_word(end)),
        (DataState::Ended, None) => "ended".to_owned(),
        (DataState::Unreadable, _) => "unreadable".to_owned(),
    }
}

pub(super) fn state_tone(row: &DataRow) -> Tone {
    match row.state {
        DataState::Active => Tone::Good,
        DataState::Expired => Tone::Odd,
        DataState::Ended => Tone::Quiet,
        DataState::Unreadable => Tone::Bad,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_tells_the_states_apart_and_is_not_steered_by_labels() {
        let now = Time(1_000_000_000);
        let row = |row: serde_json::Value| -> DataRow { serde_json::from_value(row).unwrap() };
        let key = "0".repeat(32);
        let rows = [
            row(json!({
                "key": key, "name": "d-00000001", "state": "active", "kind": "workspace",
                "label": "notes\u{1b}[31m of a very long and winding road", "created": now.0 - 7_200_000,
                "last_used": now.0 - 500, "expires": now.0 + 1_800_000, "bytes": 2048, "edition": 17,
            })),
            row(json!({
                "key": key, "name": "d-00000002", "state": "active", "kind": "basket", "owner": "ann",
                "created": 0, "last_used": now.0 - 60_000, "bytes": 0, "edition": 1,
            })),
            row(json!({
                "key": key, "name": "d-00000003", "state": "expired", "kind": "workspace", "created": 0,
                "last_used": now.0 - 3_600_000, "ended": now.0 - 1_800_000, "bytes": 12, "edition": 2,
            })),
            row(json!({
                "key": key, "name": "d-00000004", "state": "ended", "end": "revoked", "kind": "workspace",
                "created": 0, "ended": now.0 - 60_000, "edition": 2,
            })),
            row(json!({ "key": key, "name": "d-00000005", "state": "unreadable" })),
        ];
        expect_test::expect![[r#"
            NAME        KIND       OWNER      LABEL                             STATE            CREATED  LAST USED  EXPIRES      SIZE  EDITION
            d-00000001  workspace  anonymous  notes\u001b[31m of a very long …  active           2h ago   now        in 30m   2.00 KiB       17
            d-00000002  basket     ann        -                                 active           11d ago  1m ago     never         0 B        1
            d-00000003  workspace  anonymous  -                                 expired          11d ago  1h ago     -            12 B        2
            d-00000004  workspace  anonymous  -                                 ended (revoked)  11d ago  1m ago     -               -        2
            d-00000005  -          anonymous  -                                 unreadable       -        -          -               -        -
        "#]]
        .assert_eq(&render(&rows, now, Paint::of(false)));
        let coloured = render(&rows, now, Paint::of(true));
        for marked in ["\x1b[32mactive\x1b[0m", "\x1b[33mexpired\x1b[0m", "\x1b[31munreadable\x1b[0m"] {
            assert!(coloured.contains(marked), "{marked:?} in {coloured:?}");
        }
    }
}
