//! `tenure principals`: who has something on a server, and taking back all that one of them can use.
//!
//! Works on a running server and on a store that no server has open, as `tenure sessions` does. What is revoked in a closed
//! store is refused by the next server on it.

use std::cmp::Reverse;
use std::num::NonZeroUsize;

use clap::{Args, Subcommand};
use tenure_session::port::clock::Time;

use super::facts::Facts;
use super::paint::{Paint, Tone};
use super::rows::{ANONYMOUS, note_cut, note_missing, print_json, print_rows};
use super::table::{Cell, Column, known, left, right};
use super::which_store::{Absent, StoreArgs};
use super::{Failure, block_on, note, say};
use crate::escape::plain;
use crate::operator::{DataFate, MissingNode, PrincipalDetail, PrincipalRow, RevokedPrincipal, now};
use crate::time_text::ago;

#[derive(Subcommand, Debug)]
pub(super) enum PrincipalsCommand {
    /// List who has something here: sessions, data sessions, tasks, running calls.
    #[command(
        after_help = "Example:\n  tenure principals list --json | jq -r 'select(.sessions > 10).principal'"
    )]
    List(PrincipalListArgs),
    /// Show what one of them has.
    #[command(after_help = "Example:\n  tenure principals show corp:alice")]
    Show(PrincipalShowArgs),
    /// Refuse all credentials that were issued to a principal until now, and end all that it has, at once.
    #[command(
        after_help = "Tokens and static keys that were issued before are refused from now on, also after a restart. \
        Sessions, their streams and processes, running calls and tasks end. Data sessions stay: they are the principal's \
        own work, and no caller can use them with refused credentials.\n\n\
        A user who can still log in at the authorization server gets a new token there, which is good here after half a minute: \
        lock the account there first to prevent that. A static key needs a new one (`tenure keys new`).\n\n\
        Examples:\n  \
        tenure principals revoke corp:alice\n  \
        tenure principals revoke key:ci --data        data sessions too"
    )]
    Revoke(PrincipalRevokeArgs),
    /// Accept the credentials of a principal again. Ended sessions, calls and tasks stay ended.
    #[command(after_help = "Example:\n  tenure principals reinstate corp:alice")]
    Reinstate(PrincipalArgs),
}

#[derive(Args, Debug)]
pub(super) struct PrincipalListArgs {
    /// Show so many at most, the most recently used first.
    #[arg(long, value_name = "N", default_value = "100")]
    limit: NonZeroUsize,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Args, Debug)]
pub(super) struct PrincipalShowArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    principal: PrincipalArgs,
}

#[derive(Args, Debug)]
pub(super) struct PrincipalRevokeArgs {
    /// End its data sessions too.
    #[arg(long)]
    data: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    principal: PrincipalArgs,
}

/// Which principal.
#[derive(Args, Debug)]
pub(super) struct PrincipalArgs {
    /// Its name, as `tenure principals list` shows it: `ISSUER:SUBJECT`, `key:NAME` or `cert:NAME`.
    #[arg(value_name = "PRINCIPAL")]
    name: String,
    #[command(flatten)]
    store: StoreArgs,
}

impl PrincipalArgs {
    /// The name of a principal, which always says where it is from.
    fn checked(&self) -> Result<&str, Failure> {
        match self.name.split_once(':') {
            Some((issuer, subject)) if !issuer.is_empty() && !subject.is_empty() => Ok(&self.name),
            _ if self.name == ANONYMOUS => Err(Failure::new("anonymous callers have no credentials that could be refused")
                .hint("end their sessions with `tenure sessions revoke`, or ask callers for credentials: docs/auth.md")),
            _ => Err(Failure::new(format!("`{}` is not the name of a principal", self.name))
                .hint("write it with where it is from, such as `corp:alice` or `key:ci`; `tenure principals list` shows them")),
        }
    }
}

pub(super) fn run(command: PrincipalsCommand) -> Result<(), Failure> {
    block_on(async {
        match command {
            PrincipalsCommand::List(args) => list(&args).await,
            PrincipalsCommand::Show(args) => show(&args).await,
            PrincipalsCommand::Revoke(args) => revoke(&args).await,
            PrincipalsCommand::Reinstate(args) => reinstate(&args).await,
        }
    })
}

async fn list(args: &PrincipalListArgs) -> Result<(), Failure> {
    let store = args.store.open(Absent::Refuse).await?;
    let mut rows = store.principals().await?;
    note_missing(&store);
    rows.sort_by_key(|row| Reverse(row.last_used.max(row.revoked)));
    let found = rows.len();
    rows.truncate(args.limit.get());
    print_rows(&rows, args.json, &columns(now()), "no principals")?;
    if !args.json {
        note_cut(rows.len(), found, "principals");
    }
    Ok(())
}

fn columns(now: Time) -> [Column<'static, PrincipalRow>; 8] {
    let revoked = move |row: &PrincipalRow| match row.revoked {
        Some(at) => Cell::new(ago(at, now)).tone(Tone::Bad),
        None => Cell::new("-"),
    };
    [
        left("PRINCIPAL", |row: &PrincipalRow| {
            Cell::new(row.principal.as_deref().unwrap_or(ANONYMOUS)).tone(Tone::Title)
        }),
        right("SESSIONS", |row: &PrincipalRow| row.sessions.to_string()),
        right("AWAKE", |row: &PrincipalRow| row.awake.to_string()),
        right("DATA SESSIONS", |row: &PrincipalRow| row.data_sessions.to_string()),
        right("TASKS", |row: &PrincipalRow| row.tasks.to_string()),
        right("CALLS", |row: &PrincipalRow| row.calls.to_string()),
        left("LAST USED", move |row: &PrincipalRow| known(row.last_used.map(|at| ago(at, now)))),
        left("REVOKED", revoked),
    ]
}

async fn show(args: &PrincipalShowArgs) -> Result<(), Failure> {
    let name = args.principal.checked()?;
    let store = args.principal.store.open(Absent::Refuse).await?;
    let detail = store.principal(name).await?.ok_or_else(|| {
        Failure::new(format!("{name} has nothing here"))
            .hint("`tenure principals list` shows those that have")
    })?;
    note_missing(&store);
    if args.json { print_json(&detail) } else { say(&text(&detail, now(), Paint::stdout())) }
}

fn text(detail: &PrincipalDetail, now: Time, paint: Paint) -> String {
    let row = &detail.row;
    let mut facts = Facts::new(row.principal.as_deref().unwrap_or(ANONYMOUS), "", paint);
    if let Some(at) = row.revoked {
        let words = format!("revoked {}: credentials issued to it before are refused", ago(at, now));
        facts.line(Tone::Bad, &words);
    }
    facts.add("last used", row.last_used.map(|at| ago(at, now)));
    for (name, count) in [
        ("sessions", row.sessions),
        ("data sessions", row.data_sessions),
        ("tasks", row.tasks),
        ("calls", row.calls),
    ] {
        facts.add(name, Some(count.to_string()));
    }
    let used = |at: Option<u64>| at.map(|at| format!(", used {}", ago(at, now))).unwrap_or_default();
    let at =
        |backend: &Option<String>| backend.as_ref().map(|name| format!(" at {name}")).unwrap_or_default();
    let sessions = detail.sessions.iter().map(|session| {
        let (state, backend) = (session.state.as_str(), at(&session.backend));
        format!("{}  {state}{backend}{}", session.label, used(session.last_used))
    });
    facts.section("sessions", sessions);
    let data = detail.data_sessions.iter().map(|data| {
        format!("{}  {}{}", data.name, data.kind.as_deref().unwrap_or("-"), used(data.last_used))
    });
    facts.section("data sessions", data);
    // Those that have ended are shown too, since their outcomes are still there.
    let tasks = detail.tasks.iter().map(|task| {
        let begun = ago(task.created, now);
        format!("{}  {} {}{}, begun {begun}", task.label, task.tool, task.status, at(&task.backend))
    });
    facts.section("tasks", tasks);
    let calls = detail.calls.iter().map(|call| {
        let tool = call.tool.as_deref().map(|tool| format!(" {tool}")).unwrap_or_default();
        let begun = ago(call.started, now);
        format!("{}  {}{tool}{}, begun {begun}", call.label, call.method, at(&call.backend))
    });
    facts.section("calls", calls);
    facts.into_text()
}

async fn revoke(args: &PrincipalRevokeArgs) -> Result<(), Failure> {
    let name = args.principal.checked()?;
    let store = args.principal.store.open(Absent::Refuse).await?;
    let data = if args.data { DataFate::Ended } else { DataFate::Kept };
    let ended = store.revoke_principal(name, data).await?;
    for missing in store.missing_nodes() {
        let MissingNode { node, address, .. } = missing;
        note(&format!(
            "node {node} at {} did not answer: it ends what {name} has there when it reads the store, mostly within two \
             seconds; repeat the command to be sure",
            plain(&address)
        ));
    }
    if args.json {
        return print_json(&ended);
    }
    say(&format!("revoked {name}: {}\n", words(&ended)))?;
    if store.pid().await.is_none() {
        note("no server has this store open; the next one refuses credentials issued to it until now");
    }
    Ok(())
}

/// What was ended, in words.
fn words(ended: &RevokedPrincipal) -> String {
    let counted = [
        (ended.sessions, "session", "sessions"),
        (ended.calls, "call", "calls"),
        (ended.tasks, "task", "tasks"),
        (ended.data_sessions, "data session", "data sessions"),
    ];
    let parts: Vec<String> = counted
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, several)| format!("{count} {}", if *count == 1 { one } else { several }))
        .collect();
    if parts.is_empty() {
        "it had nothing that was running".to_owned()
    } else {
        format!("ended {}", parts.join(", "))
    }
}

async fn reinstate(args: &PrincipalArgs) -> Result<(), Failure> {
    let name = args.checked()?;
    match args.store.open(Absent::Refuse).await?.reinstate_principal(name).await? {
        true => say(&format!("reinstated {name}\n")),
        false => {
            Err(Failure::new(format!("{name} is not revoked")).hint("`tenure principals list` shows who is"))
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::cli::table::table;

    #[test]
    fn a_table_shows_what_each_has_and_who_is_revoked() {
        let now = Time(1_000_000_000);
        let row = |principal: Option<&str>, counts: [usize; 5], last_used, revoked| PrincipalRow {
            principal: principal.map(str::to_owned),
            sessions: counts[0],
            awake: counts[1],
            data_sessions: counts[2],
            tasks: counts[3],
            calls: counts[4],
            last_used,
            revoked,
        };
        let rows = [
            row(Some("corp:alice"), [12, 3, 4, 1, 2], Some(now.0 - 5000), None),
            row(Some("key:ci"), [0, 0, 1, 0, 0], Some(now.0 - 7_200_000), Some(now.0 - 60_000)),
            row(None, [1, 0, 0, 0, 0], None, None),
        ];
        expect![[r#"
            PRINCIPAL   SESSIONS  AWAKE  DATA SESSIONS  TASKS  CALLS  LAST USED  REVOKED
            corp:alice        12      3              4      1      2  5s ago     -
            key:ci             0      0              1      0      0  2h ago     1m ago
            anonymous          1      0              0      0      0  -          -
        "#]]
        .assert_eq(&table(&columns(now), &rows, Paint::of(false)));
    }

    #[test]
    fn what_was_ended_is_told_in_words() {
        let ended = RevokedPrincipal { sessions: 1, calls: 2, ..RevokedPrincipal::default() };
        assert_eq!(words(&ended), "ended 1 session, 2 calls");
        assert_eq!(words(&RevokedPrincipal::default()), "it had nothing that was running");
    }
}
