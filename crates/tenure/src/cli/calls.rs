//! `tenure calls`: the running requests of a server, in sessions and without.

use std::num::NonZeroUsize;

use clap::Args;
use tenure_session::port::clock::Time;

use super::paint::{Paint, Tone};
use super::reach::{Absent, ReachArgs};
use super::table::{Cell, Side, table};
use super::{Failure, block_on, note, say};
use crate::operator::{CallRow, CallState, CallWait, LONG, now};
use crate::times::span;

#[derive(Args, Debug)]
pub(super) struct CallsArgs {
    /// Show so many at most, the oldest first.
    #[arg(long, value_name = "N", default_value = "100")]
    limit: NonZeroUsize,
    /// Only calls of this principal; `anonymous` for those without a name.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Only calls to this backend, where there are several.
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: ReachArgs,
}

pub(super) fn run(args: &CallsArgs) -> Result<(), Failure> {
    block_on(async {
        let reach = args.store.reach(Absent::Refuse).await?;
        let Some(mut calls) = reach.calls().await? else {
            note("no server has this store open, so nothing is under way");
            return Ok(());
        };
        calls.rows.retain(|row| args.wants(row));
        let found = calls.rows.len();
        calls.rows.truncate(args.limit.get());
        let rows = &calls.rows;
        if args.json {
            let line = |row: &CallRow| serde_json::to_string(row).expect("a row has a JSON form") + "\n";
            return say(&rows.iter().map(line).collect::<String>());
        }
        if rows.is_empty() {
            note("nothing is under way");
            return Ok(());
        }
        say(&render(rows, now(), Paint::stdout()))?;
        if found > rows.len() {
            note(&format!("{} of {found} calls; `--limit {found}` shows all", rows.len()));
        }
        Ok(())
    })
}

impl CallsArgs {
    fn wants(&self, row: &CallRow) -> bool {
        let owner = row.owner.as_deref().unwrap_or("anonymous");
        self.owner.as_ref().is_none_or(|wanted| wanted == owner)
            && self.backend.as_ref().is_none_or(|wanted| row.backend.as_ref() == Some(wanted))
    }
}

/// The rows as a table.
fn render(rows: &[CallRow], now: Time, paint: Paint) -> String {
    const TITLES: [(&str, Side); 7] = [
        ("CALL", Side::Left),
        ("BACKEND", Side::Left),
        ("OWNER", Side::Left),
        ("METHOD", Side::Left),
        ("AGE", Side::Right),
        ("STATE", Side::Left),
        ("WAITS FOR", Side::Left),
    ];
    // Without several servers behind, the column would be empty.
    let backends = rows.iter().any(|row| row.backend.is_some());
    let row = |row: &CallRow| {
        let age = now.since(Time(row.started));
        let tone = if age >= LONG && row.state != CallState::Listening { Tone::Odd } else { Tone::Plain };
        let method = match &row.tool {
            Some(tool) => format!("{} {tool}", row.method),
            None => row.method.clone(),
        };
        let mut cells = vec![
            Cell::new(&row.label).tone(Tone::Title),
            Cell::new(row.backend.as_deref().unwrap_or("-")),
            Cell::new(row.owner.as_deref().unwrap_or("anonymous")),
            Cell::new(method),
            Cell::new(span(age)).tone(tone),
            Cell::new(state(row)),
            Cell::new(waits_for(row)),
        ];
        if !backends {
            cells.remove(1);
        }
        cells
    };
    let titles: Vec<_> = TITLES.into_iter().filter(|(title, _)| backends || *title != "BACKEND").collect();
    table(&titles, &rows.iter().map(row).collect::<Vec<_>>(), paint)
}

fn state(row: &CallRow) -> &'static str {
    match row.state {
        CallState::Running if row.in_session => "in a session",
        CallState::Running => "running",
        CallState::Parked => "parked",
        CallState::Task => "task",
        CallState::Listening => "listening",
    }
}

fn waits_for(row: &CallRow) -> String {
    match row.waits_for {
        CallWait::Server => "the server behind".to_owned(),
        CallWait::Client if row.questions == 1 => "the client to answer a question".to_owned(),
        CallWait::Client if row.questions > 1 => {
            format!("the client to answer {} questions", row.questions)
        }
        CallWait::Client => "the client to come back".to_owned(),
        CallWait::Reader => "the client to read".to_owned(),
        CallWait::News => "news".to_owned(),
        CallWait::NextProcess => "the next process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_says_what_each_call_waits_for() {
        let now = Time(1_000_000_000);
        let row = |age: u64, rest: serde_json::Value| -> CallRow {
            let mut row = json!({
                "label": "x-1", "in_session": false, "method": "tools/call", "started": now.0 - age * 1000,
                "state": "running", "waits_for": "server",
            });
            row.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            serde_json::from_value(row).unwrap()
        };
        let rows = [
            row(3600, json!({ "method": "subscriptions/listen", "state": "listening", "waits_for": "news" })),
            row(252, json!({ "tool": "dig", "owner": "alice", "attempts": 1 })),
            row(30, json!({ "tool": "ask", "state": "parked", "waits_for": "client", "questions": 2 })),
            row(20, json!({ "tool": "ask", "state": "task", "waits_for": "client", "questions": 1 })),
            row(9, json!({ "label": "s-00000001", "in_session": true, "tool": "dig" })),
            row(2, json!({ "method": "prompts/get", "waits_for": "reader" })),
            row(1, json!({ "method": "resources/read", "waits_for": "next_process" })),
        ];
        expect_test::expect![[r#"
            CALL        OWNER      METHOD                   AGE  STATE         WAITS FOR
            x-1         anonymous  subscriptions/listen      1h  listening     news
            x-1         alice      tools/call dig        4m 12s  running       the server behind
            x-1         anonymous  tools/call ask           30s  parked        the client to answer 2 questions
            x-1         anonymous  tools/call ask           20s  task          the client to answer a question
            s-00000001  anonymous  tools/call dig            9s  in a session  the server behind
            x-1         anonymous  prompts/get               2s  running       the client to read
            x-1         anonymous  resources/read            1s  running       the next process
        "#]].assert_eq(&render(&rows, now, Paint::of(false)));
        let coloured = render(&rows, now, Paint::of(true));
        assert!(
            coloured.contains("\x1b[33m4m 12s\x1b[0m") && !coloured.contains("\x1b[33m1h"),
            "{coloured:?}"
        );
    }
}
