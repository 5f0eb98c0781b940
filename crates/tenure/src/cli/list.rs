//! `tenure sessions list`: reads the whole store and shows the most recently used sessions, live ones first.
//!
//! The store has sessions in the order of their keys, which means nothing to people, so all pages are read and the
//! newest sessions are kept. Details that need a session's events are read only for the sessions that are shown.

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use tenure_session::port::clock::Time;
use tenure_session::record::EndCause;
use tenure_session::session::Phase;

use super::paint::{Paint, Tone};
use super::progress::ItemCounter;
use super::reach::{Absent, Reach, ReachArgs};
use super::table::{Cell, Side, table};
use super::{Failure, note, say, words};
use crate::foreign;
use crate::operator::{LONG, LoopView, SessionRow, ShownState, now, parse_key};
use crate::times::{ago, short};

/// Letters of a client's name that are shown.
const CLIENT: usize = 24;

/// Rows that are asked for at once.
const PAGE: usize = 500;

#[derive(Args, Debug)]
pub(super) struct SessionListArgs {
    /// Show so many at most.
    #[arg(long, value_name = "N", default_value = "100")]
    limit: NonZeroUsize,
    /// Only sessions of this principal; `anonymous` for those of nobody in particular.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only sessions of this backend, where there are several.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Only sessions in this state.
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
    Awake,
    Dormant,
    Ended,
}

pub(super) async fn run(args: &SessionListArgs) -> Result<(), Failure> {
    let reach = args.store.reach(Absent::Refuse).await?;
    let (mut rows, found) = newest(&reach, args).await?;
    for row in rows.iter_mut().filter(|row| row.state == ShownState::Dormant) {
        let Some(key) = parse_key(&row.key) else { continue };
        // A session that has been removed meanwhile keeps its row.
        if let Some(detail) = reach.show(key).await? {
            *row = detail.row;
        }
    }
    if args.json {
        let line = |row: &SessionRow| serde_json::to_string(row).expect("a row has a JSON form") + "\n";
        say(&rows.iter().map(line).collect::<String>())?;
    } else if !rows.is_empty() {
        say(&render(&rows, now(), Paint::stdout()))?;
    }
    if rows.is_empty() && !args.json {
        note("no sessions");
    }
    if found > rows.len() {
        note(&format!("{} of {found} sessions; `--limit {found}` shows all", rows.len()));
    }
    if !args.json {
        if let Some(pid) = reach.pid().await.filter(|_| !rows.is_empty()) {
            note(&format!("of the server that runs as process {pid}"));
        }
        for fallen in reach.loops().await.iter().filter(|known| known.restarts > 0) {
            note(&loop_words(fallen, now()));
        }
        match reach.data_count().await? {
            0 => {}
            count => {
                let count = words::data_sessions(count);
                note(&format!("besides, {count}; see `tenure sessions data list`"));
            }
        }
    }
    Ok(())
}

/// The most recently used sessions that match, up to the limit, and the number of all that match.
async fn newest(reach: &Reach, args: &SessionListArgs) -> Result<(Vec<SessionRow>, usize), Failure> {
    let limit = args.limit.get();
    let (mut rows, mut found, mut after) = (Vec::new(), 0, None);
    let mut counter = ItemCounter::start("looked at", "sessions");
    loop {
        let page = reach.page(after, PAGE).await?;
        counter.add(page.rows.len());
        let before = rows.len();
        rows.extend(page.rows.into_iter().filter(|row| args.wants(row)));
        found += rows.len() - before;
        after = page.next.as_deref().and_then(parse_key);
        // Sort only when the buffer has doubled: memory stays bounded, and sorting stays cheap.
        if after.is_none() || rows.len() > limit.saturating_mul(2) {
            rows.sort_by_key(|row: &SessionRow| (has_ended(row), std::cmp::Reverse(last_seen(row))));
            rows.truncate(limit);
        }
        if after.is_none() {
            return Ok((rows, found));
        }
    }
}

impl SessionListArgs {
    fn wants(&self, row: &SessionRow) -> bool {
        let owner = row.owner.as_deref().unwrap_or("anonymous");
        let state = match self.state {
            None => true,
            Some(StateName::Awake) => row.state == ShownState::Awake,
            Some(StateName::Dormant) => row.state == ShownState::Dormant,
            Some(StateName::Ended) => row.state == ShownState::Ended,
        };
        state
            && self.owner.as_ref().is_none_or(|wanted| wanted == owner)
            && self.backend.as_ref().is_none_or(|wanted| row.backend.as_ref() == Some(wanted))
    }
}

/// Ended sessions come last, however recent.
fn has_ended(row: &SessionRow) -> bool {
    matches!(row.state, ShownState::Ended | ShownState::Unreadable)
}

fn last_seen(row: &SessionRow) -> u64 {
    row.ended.or(row.last_used).unwrap_or(0)
}

/// A background loop that panicked, in words.
fn loop_words(fallen: &LoopView, now: Time) -> String {
    let LoopView { name, restarts, is_down, panicked } = fallen;
    let last = panicked.map(|panicked| format!(", last {}", ago(panicked, now))).unwrap_or_default();
    let since = if *is_down { "waits to be started again" } else { "was started again" };
    format!("the server's loop `{name}` panicked ({restarts} in all{last}) and {since}; its log says why")
}

/// The rows as a table.
fn render(rows: &[SessionRow], now: Time, paint: Paint) -> String {
    const TITLES: [(&str, Side); 11] = [
        ("SESSION", Side::Left),
        ("CLIENT", Side::Left),
        ("BACKEND", Side::Left),
        ("OWNER", Side::Left),
        ("REVISION", Side::Left),
        ("STATE", Side::Left),
        ("CREATED", Side::Left),
        ("LAST USED", Side::Left),
        ("CALLS", Side::Left),
        ("READERS", Side::Right),
        ("EVENTS", Side::Right),
    ];
    // Without several servers behind, the column would be empty.
    let backends = rows.iter().any(|row| row.backend.is_some());
    let known = |text: Option<String>| Cell::new(text.unwrap_or_else(|| "-".to_owned()));
    let count = |number: Option<usize>| known(number.map(|number| number.to_string()));
    let row = |row: &SessionRow| {
        let mut cells = vec![
            Cell::new(&row.label).tone(Tone::Title),
            known(row.client.as_deref().map(|name| words::short(&foreign::plain(name), CLIENT))),
            known(row.backend.clone()),
            Cell::new(row.owner.as_deref().unwrap_or("anonymous")),
            known(row.revision.clone()),
            Cell::new(state_words(row)).tone(state_tone(row)),
            known(row.created.map(|created| ago(created, now))),
            known(row.ended.or(row.last_used).map(|used| ago(used, now))),
            calls(row, now),
            count(row.readers),
            count(row.events),
        ];
        if !backends {
            cells.remove(2);
        }
        cells
    };
    let titles: Vec<_> = TITLES.into_iter().filter(|(title, _)| backends || *title != "BACKEND").collect();
    table(&titles, &rows.iter().map(row).collect::<Vec<_>>(), paint)
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

/// The state of a session, in few words.
pub(super) fn state_words(row: &SessionRow) -> String {
    match (row.state, row.end) {
        (ShownState::Awake, _) if row.phase.as_deref() != Some(Phase::Initialized.as_str()) => {
            format!("awake ({})", row.phase.as_deref().unwrap_or_default())
        }
        (ShownState::Awake, _) => "awake".to_owned(),
        (ShownState::Dormant, _) => "dormant".to_owned(),
        (ShownState::Ended, Some(end)) => format!("ended ({})", end_word(end)),
        (ShownState::Ended, None) => "ended".to_owned(),
        (ShownState::Unreadable, _) => "unreadable".to_owned(),
    }
}

pub(super) fn state_tone(row: &SessionRow) -> Tone {
    match row.state {
        ShownState::Awake => Tone::Good,
        ShownState::Dormant => Tone::Plain,
        ShownState::Ended => Tone::Quiet,
        ShownState::Unreadable => Tone::Bad,
    }
}

/// How a session ended.
pub(super) fn end_word(end: EndCause) -> &'static str {
    match end {
        EndCause::Deleted => "deleted",
        EndCause::Expired => "expired",
        EndCause::Revoked => "revoked",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        .assert_eq(&render(&rows, now, Paint::of(false)));
        let coloured = render(&rows, now, Paint::of(true));
        for marked in
            ["\x1b[32mawake\x1b[0m", "\x1b[33m2 (4m)\x1b[0m", "\x1b[33m1\x1b[0m", "\x1b[31munreadable\x1b[0m"]
        {
            assert!(coloured.contains(marked), "{marked:?} in {coloured:?}");
        }
    }
}
