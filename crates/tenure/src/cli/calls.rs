//! `tenure calls`: the running requests of a server, in sessions and without.

use std::num::NonZeroUsize;

use clap::Args;
use tenure_session::port::clock::Time;

use super::paint::Tone;
use super::rows::{ANONYMOUS, is_wanted, note_cut, note_missing, print_rows};
use super::table::{Cell, Column, known, left, right};
use super::which_store::{Absent, StoreArgs};
use super::{Failure, block_on, note};
use crate::operator::{CallList, CallRow, CallState, CallWait, LONG, now};
use crate::time_text::span;

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
    store: StoreArgs,
}

pub(super) fn run(args: &CallsArgs) -> Result<(), Failure> {
    block_on(async {
        let store = args.store.open(Absent::Refuse).await?;
        let Some(CallList { mut rows, .. }) = store.calls().await? else {
            note("no server has this store open, so nothing is under way");
            return Ok(());
        };
        rows.retain(|row| {
            is_wanted(args.owner.as_ref(), Some(row.owner.as_deref().unwrap_or(ANONYMOUS)))
                && is_wanted(args.backend.as_ref(), row.backend.as_deref())
        });
        note_missing(&store);
        let found = rows.len();
        rows.truncate(args.limit.get());
        print_rows(&rows, args.json, &columns(now()), "nothing is under way")?;
        if !args.json {
            note_cut(rows.len(), found, "calls");
        }
        Ok(())
    })
}

fn columns(now: Time) -> [Column<'static, CallRow>; 8] {
    let age = move |row: &CallRow| {
        let age = now.since(Time(row.started));
        let tone = if age >= LONG && row.state != CallState::Listening { Tone::Odd } else { Tone::Plain };
        Cell::new(span(age)).tone(tone)
    };
    let method = |row: &CallRow| match &row.tool {
        Some(tool) => format!("{} {tool}", row.method),
        None => row.method.clone(),
    };
    [
        left("CALL", |row: &CallRow| Cell::new(&row.label).tone(Tone::Title)),
        // Empty without several servers behind.
        left("BACKEND", |row: &CallRow| known(row.backend.as_ref())).if_known(),
        left("OWNER", |row: &CallRow| row.owner.as_deref().unwrap_or(ANONYMOUS).to_owned()),
        left("METHOD", method),
        right("AGE", age),
        left("STATE", state),
        // Empty without a cluster.
        left("NODE", |row: &CallRow| known(row.node.as_ref())).if_known(),
        left("WAITS FOR", waits_for),
    ]
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
    use crate::cli::paint::Paint;
    use crate::cli::table::table;
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
        "#]].assert_eq(&table(&columns(now), &rows, Paint::of(false)));
        let coloured = table(&columns(now), &rows, Paint::of(true));
        assert!(
            coloured.contains("\x1b[33m4m 12s\x1b[0m") && !coloured.contains("\x1b[33m1h"),
            "{coloured:?}"
        );
    }
}
