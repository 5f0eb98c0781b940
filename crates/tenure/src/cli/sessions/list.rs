//! `tenure sessions list`: the most recently used sessions, live ones first.
//!
//! Details that need a session's events are read only for the sessions that are shown.

use std::num::NonZeroUsize;

use clap::Args;
use tenure_session::port::clock::Time;
use tenure_session::session::Phase;
use tenure_session::{SessionId, SessionKey};

use crate::cli::paint::Tone;
use crate::cli::rows::{
    ANONYMOUS, Listed, MATCHES, PAGE, is_wanted, newest, note_missing, print_list, state_cell, state_words,
};
use crate::cli::table::{Cell, Column, known, left, right};
use crate::cli::which_store::{Absent, StoreArgs};
use crate::cli::{Failure, note, words};
use crate::control::Operations;
use crate::escape;
use crate::operator::{LONG, LoopView, Page, Prefix, Revoked, SessionRow, ShownState, now, parse_key};
use crate::time_text::{ago, short};

/// Letters of a client's name that are shown.
const CLIENT: usize = 24;

#[derive(Args, Debug)]
pub(in crate::cli) struct SessionListArgs {
    /// Show so many at most.
    #[arg(long, value_name = "N", default_value = "100")]
    limit: NonZeroUsize,
    /// Only sessions of this principal; `anonymous` for those without an owner.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only sessions of this backend, where there are several.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Only sessions in this state.
    #[arg(long, value_name = "STATE", value_parser = ["awake", "dormant", "ended"])]
    state: Option<String>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn run(args: &SessionListArgs) -> Result<(), Failure> {
    let store = args.store.open(Absent::Refuse).await?;
    let (mut rows, found) = newest(&store, args.limit, |row: &SessionRow| {
        is_wanted(args.state.as_ref(), Some(row.state.as_str()))
            && is_wanted(args.owner.as_ref(), Some(row.owner.as_deref().unwrap_or(ANONYMOUS)))
            && is_wanted(args.backend.as_ref(), row.backend.as_deref())
    })
    .await?;
    for row in rows.iter_mut().filter(|row| row.state == ShownState::Dormant) {
        let Some(key) = parse_key(&row.key) else { continue };
        // A session that has been removed meanwhile keeps its row.
        if let Some(detail) = store.show(key).await? {
            *row = detail.row;
        }
    }
    note_missing(&store);
    print_list(&rows, found, args.json)?;
    if !args.json {
        if let Some(pid) = store.pid().await.filter(|_| !rows.is_empty()) {
            note(&format!("of the server that runs as process {pid}"));
        }
        for fallen in store.loops().await.iter().filter(|known| known.restarts > 0) {
            note(&loop_words(fallen, now()));
        }
        match store.data_count().await? {
            0 => {}
            count => {
                let count = words::data_sessions(count);
                note(&format!("besides, {count}; see `tenure sessions data list`"));
            }
        }
    }
    Ok(())
}

impl Listed for SessionRow {
    const NOUN: (&'static str, &'static str) = ("session", "sessions");
    const UNKNOWN_HINT: &'static str = "`tenure sessions list` shows those of this store; how one ended is forgotten after `session.tombstone_ttl`";
    const AMBIGUOUS_HINT: &'static str = "write more digits of the key";

    fn key(&self) -> &str {
        &self.key
    }

    fn name(&self) -> &str {
        &self.label
    }

    fn state(&self) -> (String, Tone) {
        let word = self.state.as_str();
        match self.state {
            ShownState::Awake if self.phase.as_deref() != Some(Phase::Initialized.as_str()) => {
                (format!("{word} ({})", self.phase.as_deref().unwrap_or_default()), Tone::Good)
            }
            ShownState::Awake => (word.to_owned(), Tone::Good),
            ShownState::Dormant => (word.to_owned(), Tone::Plain),
            ShownState::Ended => (state_words(word, self.end), Tone::Quiet),
            ShownState::Unreadable => (word.to_owned(), Tone::Bad),
        }
    }

    fn order(&self) -> (bool, Option<u64>) {
        let is_over = matches!(self.state, ShownState::Ended | ShownState::Unreadable);
        (is_over, self.ended.or(self.last_used))
    }

    fn columns(now: Time) -> Vec<Column<'static, Self>> {
        let client =
            |row: &Self| row.client.as_deref().map(|name| words::short(&escape::plain(name), CLIENT));
        vec![
            left("SESSION", |row: &Self| Cell::new(&row.label).tone(Tone::Title)),
            left("CLIENT", move |row| known(client(row))),
            // Empty without several servers behind.
            left("BACKEND", |row: &Self| known(row.backend.as_ref())).if_known(),
            left("OWNER", |row: &Self| row.owner.as_deref().unwrap_or(ANONYMOUS).to_owned()),
            left("REVISION", |row: &Self| known(row.revision.as_ref())),
            left("STATE", state_cell),
            // Empty without a cluster.
            left("NODE", |row: &Self| known(row.node.as_ref())).if_known(),
            left("CREATED", move |row: &Self| known(row.created.map(|at| ago(at, now)))),
            left("LAST USED", move |row: &Self| known(row.ended.or(row.last_used).map(|at| ago(at, now)))),
            left("CALLS", move |row| calls(row, now)),
            right("READERS", |row: &Self| known(row.readers)),
            right("EVENTS", |row: &Self| known(row.events)),
        ]
    }

    async fn page(store: &Operations, after: Option<SessionKey>) -> Result<Page<Self>, Failure> {
        store.page(after, PAGE).await
    }

    async fn matching(store: &Operations, name: &str) -> Result<Vec<Self>, Failure> {
        let prefix = Prefix::parse(name).ok_or_else(|| {
            Failure::new(format!("`{name}` is not the name of a session"))
                .hint("write its label, such as `s-4f3a9c01`, or the first digits of its key")
        })?;
        let rows = store.matching(&prefix, MATCHES + 1).await?.rows;
        match SessionId::parse(name.as_bytes()).filter(|_| rows.is_empty()) {
            // Only the hash leaves this process: the id is a secret.
            Some(id) => Ok(store.matching(&Prefix::of(&id.key()), 1).await?.rows),
            None => Ok(rows),
        }
    }

    async fn revoke(store: &Operations, key: SessionKey) -> Result<Revoked, Failure> {
        store.revoke(key).await
    }
}

/// A background loop that panicked, in words.
fn loop_words(fallen: &LoopView, now: Time) -> String {
    let LoopView { name, restarts, is_down, panicked } = fallen;
    let last = panicked.map(|panicked| format!(", last {}", ago(panicked, now))).unwrap_or_default();
    let since = if *is_down { "waits to be started again" } else { "was started again" };
    format!("the server's loop `{name}` panicked ({restarts} in all{last}) and {since}; its log says why")
}

/// How many requests wait for their answer, and the age of the oldest.
fn calls(row: &SessionRow, now: Time) -> Cell {
    let Some(calls) = row.calls else { return Cell::new("-") };
    let age = row.oldest_call.map(|oldest| now.since(Time(oldest)));
    match age.and_then(|age| Some((age, short(age)?))) {
        Some((age, text)) => {
            let tone = if age >= LONG { Tone::Odd } else { Tone::Plain };
            Cell::new(format!("{calls} ({text})")).tone(tone)
        }
        // The open requests of a dormant session wait for its client.
        None if row.state == ShownState::Dormant && calls > 0 => Cell::new(calls.to_string()).tone(Tone::Odd),
        None => Cell::new(calls.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::paint::Paint;
    use crate::cli::table::table;
    use serde_json::json;

    #[test]
    fn a_loop_that_panicked_is_told_of_with_its_count() {
        let now = Time(1_000_000_000);
        let mut fallen = LoopView {
            name: "sweep of sessions".to_owned(),
            restarts: 3,
            is_down: false,
            panicked: Some(now.0 - 240_000),
        };
        expect_test::expect!["the server's loop `sweep of sessions` panicked (3 in all, last 4m ago) and was started again; its log says why"]
            .assert_eq(&loop_words(&fallen, now));
        (fallen.is_down, fallen.panicked) = (true, Some(now.0));
        expect_test::expect!["the server's loop `sweep of sessions` panicked (3 in all, last now) and waits to be started again; its log says why"]
            .assert_eq(&loop_words(&fallen, now));
    }

    #[test]
    fn a_table_tells_the_states_apart_and_marks_what_waits() {
        let now = Time(1_000_000_000);
        let row = |row: serde_json::Value| -> SessionRow { serde_json::from_value(row).unwrap() };
        let key = "0".repeat(32);
        let rows = [
            row(json!({
                "key": key, "label": "s-00000001", "state": "awake", "client_name": "claude-code", "revision": "2025-11-25", "phase": "initialized",
                "created": now.0 - 7_200_000, "last_used": now.0 - 500, "calls": 2, "oldest_call": now.0 - 252_000,
                "readers": 1, "events": 17,
            })),
            row(json!({
                "key": key, "label": "s-00000002", "state": "awake", "owner": "alice", "revision": "2025-06-18",
                "phase": "initializing", "created": now.0 - 5000, "last_used": now.0 - 5000, "calls": 0,
                "readers": 0, "events": 0,
            })),
            row(json!({
                "key": key, "label": "s-00000003", "state": "dormant", "revision": "2025-11-25",
                "phase": "initialized", "created": 0, "last_used": now.0 - 3_600_000, "calls": 1, "events": 3,
            })),
            row(json!({
                "key": key, "label": "s-00000004", "state": "ended", "end": "revoked", "ended": now.0 - 60_000,
            })),
            row(json!({ "key": key, "label": "s-00000005", "state": "unreadable" })),
        ];
        expect_test::expect![[r"
            SESSION     CLIENT       OWNER      REVISION    STATE                 CREATED  LAST USED  CALLS   READERS  EVENTS
            s-00000001  claude-code  anonymous  2025-11-25  awake                 2h ago   now        2 (4m)        1      17
            s-00000002  -            alice      2025-06-18  awake (initializing)  5s ago   5s ago     0             0       0
            s-00000003  -            anonymous  2025-11-25  dormant               11d ago  1h ago     1             -       3
            s-00000004  -            anonymous  -           ended (revoked)       -        1m ago     -             -       -
            s-00000005  -            anonymous  -           unreadable            -        -          -             -       -
        "]]
        .assert_eq(&table(&SessionRow::columns(now), &rows, Paint::of(false)));
        let coloured = table(&SessionRow::columns(now), &rows, Paint::of(true));
        for marked in
            ["\x1b[32mawake\x1b[0m", "\x1b[33m2 (4m)\x1b[0m", "\x1b[33m1\x1b[0m", "\x1b[31munreadable\x1b[0m"]
        {
            assert!(coloured.contains(marked), "{marked:?} in {coloured:?}");
        }
    }
}
