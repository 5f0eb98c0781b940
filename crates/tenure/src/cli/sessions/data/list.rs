//! `tenure sessions data list`: the most recently used data sessions.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use clap::Args;
use indicatif::HumanBytes;
use tenure_session::port::clock::Time;
use tenure_session::{Principal, SessionKey};

use crate::cli::paint::Tone;
use crate::cli::rows::{
    ANONYMOUS, Listed, MATCHES, PAGE, each_page, is_wanted, newest, print_list, state_cell, state_words,
};
use crate::cli::table::{Cell, Column, known, left, right};
use crate::cli::which_store::{Absent, StoreArgs};
use crate::cli::{Failure, words};
use crate::control::Operations;
use crate::escape;
use crate::operator::{DataName, DataRow, DataState, Page, Revoked, parse_key, parse_secret};
use crate::time_text::{ago, until};

/// Letters of a label that are shown.
const LABEL: usize = 32;

#[derive(Args, Debug)]
pub(in crate::cli) struct DataListArgs {
    /// Show so many at most.
    #[arg(long, value_name = "N", default_value = "100")]
    limit: NonZeroUsize,
    /// Only data sessions of this principal; `anonymous` for those without an owner.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only data sessions of this kind.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only data sessions in this state.
    #[arg(long, value_name = "STATE", value_parser = ["active", "expired", "ended"])]
    state: Option<String>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(args: &DataListArgs) -> Result<(), Failure> {
    let store = args.store.open(Absent::Refuse).await?;
    let (rows, found) = newest(&store, args.limit, |row: &DataRow| {
        is_wanted(args.state.as_ref(), Some(row.state.as_str()))
            && is_wanted(args.owner.as_ref(), Some(row.owner.as_deref().unwrap_or(ANONYMOUS)))
            && is_wanted(args.kind.as_ref(), row.kind.as_deref())
    })
    .await?;
    print_list(&rows, found, args.json)
}

const FORGOTTEN: &str = "`tenure sessions data list` shows those of this store; how one ended is forgotten after \
                         `data_sessions.tombstone_ttl`";

impl Listed for DataRow {
    const NOUN: (&'static str, &'static str) = ("data session", "data sessions");
    const UNKNOWN_HINT: &'static str = FORGOTTEN;
    const AMBIGUOUS_HINT: &'static str = "write more of the name, or the whole key";

    fn key(&self) -> &str {
        &self.key
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn state(&self) -> (String, Tone) {
        let tone = match self.state {
            DataState::Active => Tone::Good,
            DataState::Expired => Tone::Odd,
            DataState::Ended => Tone::Quiet,
            DataState::Unreadable => Tone::Bad,
        };
        (state_words(self.state.as_str(), self.end), tone)
    }

    fn order(&self) -> (bool, Option<u64>) {
        (false, self.last_used.or(self.ended))
    }

    fn columns(now: Time) -> Vec<Column<'static, Self>> {
        let label = |row: &Self| row.label.as_deref().map(|label| words::short(&escape::plain(label), LABEL));
        let expires = move |row: &Self| match row.state {
            DataState::Active => Some(row.expires.map_or("never".to_owned(), |at| until(at, now))),
            DataState::Expired | DataState::Ended | DataState::Unreadable => None,
        };
        vec![
            left("NAME", |row: &Self| Cell::new(&row.name).tone(Tone::Title)),
            left("KIND", |row: &Self| known(row.kind.as_ref())),
            left("OWNER", |row: &Self| row.owner.as_deref().unwrap_or(ANONYMOUS).to_owned()),
            left("LABEL", move |row| known(label(row))),
            left("STATE", state_cell),
            left("CREATED", move |row: &Self| known(row.created.map(|at| ago(at, now)))),
            left("LAST USED", move |row: &Self| known(row.last_used.or(row.ended).map(|at| ago(at, now)))),
            left("EXPIRES", move |row| known(expires(row))),
            right("SIZE", |row: &Self| known(row.bytes.map(HumanBytes))),
            right("EDITION", |row: &Self| known(row.edition)),
        ]
    }

    async fn page(store: &Operations, after: Option<SessionKey>) -> Result<Page<Self>, Failure> {
        store.data_page(after, PAGE).await
    }

    async fn matching(store: &Operations, name: &str) -> Result<Vec<Self>, Failure> {
        if let Some(parsed) = DataName::parse(name) {
            return Ok(store.data_matching(&parsed, MATCHES + 1).await?.rows);
        }
        let Some(id) = parse_secret(name) else {
            return Err(Failure::new(format!("`{name}` is not the name of a data session"))
                .hint("write its name as `tenure sessions data list` shows it, such as `d-4f3a9c01`"));
        };
        // The secret stays in this process; only its hash is asked for. The hash depends on the owner.
        let anonymous = DataName::Key(id.key(&Principal::ANONYMOUS));
        let mut found = store.data_matching(&anonymous, 1).await?.rows.pop();
        if found.is_none() {
            let is_it = |row: &Self| {
                let owner = row.owner.as_deref().map(Principal::named);
                owner.is_some_and(|owner| parse_key(&row.key) == Some(id.key(&owner)))
            };
            each_page(store, |rows: Vec<Self>| {
                found = rows.into_iter().find(is_it);
                if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .await?;
        }
        let found = found.ok_or_else(|| Failure::new("no data session has that id").hint(FORGOTTEN))?;
        Ok(vec![found])
    }

    async fn revoke(store: &Operations, key: SessionKey) -> Result<Revoked, Failure> {
        store.data_revoke(key).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::paint::Paint;
    use crate::cli::table::table;
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
        .assert_eq(&table(&DataRow::columns(now), &rows, Paint::of(false)));
        let coloured = table(&DataRow::columns(now), &rows, Paint::of(true));
        for marked in ["\x1b[32mactive\x1b[0m", "\x1b[33mexpired\x1b[0m", "\x1b[31munreadable\x1b[0m"] {
            assert!(coloured.contains(marked), "{marked:?} in {coloured:?}");
        }
    }
}
