//! `tenure audit`: verifies an audit log offline, and shows what it holds.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::paint::Tone;
use super::rows::print_rows;
use super::table::{Cell, Column, known, left};
use super::{Failure, note, say};
use crate::audit::{Broken, Head, LogEnd, LogFile, Verified, head_place, verify};
use crate::config::parse_duration;
use crate::operator::now;
use crate::time_text::stamp;

#[derive(Subcommand, Debug)]
pub(super) enum AuditCommand {
    /// Say whether a log is as it was written, and where it is not.
    #[command(
        after_help = "Every record holds the hash of the one before it, and heads are signed. The exit status is 1 if a record was \
        changed, removed, inserted or moved, and the number of the first one is printed. A head that is kept beside the log, as \
        FILE.head, shows whether the end was cut off; one that is kept elsewhere shows it too if somebody could change both.\n\n\
        Examples:\n  \
        tenure audit verify audit.jsonl                        one file, with audit.jsonl.head if that is there\n  \
        tenure audit verify audit.jsonl*                       all files of a log, in any order\n  \
        tenure audit verify audit.jsonl --head /backup/head    against a head that is kept elsewhere\n  \
        tenure audit verify audit.jsonl --head 4711:9f86d0…    against one that was written down\n  \
        tenure audit verify audit.jsonl --key 3b6a27bc…        signed with this key and no other"
    )]
    Verify(VerifyArgs),
    /// Show what a log holds. It is not verified.
    #[command(after_help = "Examples:\n  \
        tenure audit show audit.jsonl\n  \
        tenure audit show audit.jsonl* --principal corp:alice --since 24h\n  \
        tenure audit show audit.jsonl --tool delete_file --since 2026-11-01\n  \
        tenure audit show audit.jsonl --json | jq 'select(.event == \"refused\")'")]
    Show(ShowArgs),
}

#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// The files of the log.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// A head that was kept outside of the log: a file, or NUMBER:HASH. May be given several times.
    #[arg(long, value_name = "HEAD")]
    head: Vec<String>,
    /// The public key that has to have signed the log.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// The files of the log.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Only what this principal did, such as `corp:alice` or `key:ci`.
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// Only calls of this tool, prompt or resource.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only what is newer: an age such as 24h, or a date such as 2026-11-01 or 2026-11-01T08:30.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print JSON, one record a line, as it is in the log.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: AuditCommand) -> Result<ExitCode, Failure> {
    match command {
        AuditCommand::Verify(args) => check(&args),
        AuditCommand::Show(args) => show(&args).map(|()| ExitCode::SUCCESS),
    }
}

fn check(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    // Heads before the log: a process that writes meanwhile would otherwise sign more than is read.
    let mut heads = args.head.iter().map(|head| given_head(head)).collect::<Result<Vec<_>, _>>()?;
    for file in &args.files {
        heads.extend(head_beside(file)?);
    }
    let logs: Vec<&PathBuf> = args.files.iter().filter(|file| !is_beside(file)).collect();
    let files = logs.iter().map(|file| open(file)).collect::<Result<Vec<_>, _>>()?;
    if files.is_empty() {
        return Err(Failure::new("none of these files is a log").hint("name the file of `audit.file`"));
    }
    let verified = verify(files, heads, args.key.as_deref())
        .map_err(|error| Failure::new("cannot read the audit log").caused_by(error))?;
    match verified {
        Ok(verified) => {
            say(&told(&verified))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(broken) => {
            say(&told_broken(&broken))?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// What people read of a good log.
fn told(verified: &Verified) -> String {
    let Verified { records, first, last, signed, key, end } = verified;
    if *records == 0 {
        return "the log is empty\n".to_owned();
    }
    let mut text = format!("good: {records} records, {first} to {last}\n");
    match (signed, key) {
        (Some(signed), Some(key)) => {
            text.push_str(&format!("signed up to record {signed} by the key {key}\n"))
        }
        _ => text.push_str(
            "nothing is signed yet: the first head comes within a minute, or when the process stops\n",
        ),
    }
    let after = signed.map_or(*last, |signed| last - signed);
    if after > 0 && signed.is_some() {
        text.push_str(&format!(
            "{after} records after the last head: if the end was cut off there, it cannot be seen\n"
        ));
    }
    if *first > 1 {
        text.push_str(&format!("the records before {first} are in files that were not given\n"));
    }
    if *end == LogEnd::Open {
        text.push_str("the log is still being written, or its process was killed\n");
    }
    text
}

fn told_broken(broken: &Broken) -> String {
    let Broken { file, seq, line, why } = broken;
    let place = if *line > 0 { format!("{file}, line {line}") } else { format!("{file}, at its end") };
    format!("broken at record {seq}: {why}\n  {place}\n  the records before it are as they were written\n")
}

/// A head from the command line.
fn given_head(text: &str) -> Result<Head, Failure> {
    if let Some(head) = Head::read(text) {
        return Ok(head);
    }
    let failed = || Failure::new(format!("`--head {text}` is not a head"));
    let content = std::fs::read_to_string(text).map_err(|error| {
        failed()
            .caused_by(error)
            .hint("give a file that the server wrote as `audit.head_file`, or NUMBER:HASH from its log")
    })?;
    Head::read(&content).ok_or_else(|| failed().because("its line was changed, or it is another file"))
}

/// The head that is kept beside a log, if there is one.
fn head_beside(log: &Path) -> Result<Option<Head>, Failure> {
    let place = head_place(log);
    match std::fs::read_to_string(&place) {
        Ok(text) => Head::read(&text).map(Some).ok_or_else(|| {
            Failure::new(format!("the head `{}` was changed, or is not a head", place.display()))
                .hint("move it away to verify the log without it")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::new(format!("cannot read `{}`", place.display())).caused_by(error)),
    }
}

/// Whether a file is the head or the key beside a log, which `audit.jsonl*` names too.
fn is_beside(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "head" || extension == "key")
}

fn open(path: &Path) -> Result<LogFile, Failure> {
    let file = File::open(path)
        .map_err(|error| Failure::new(format!("cannot open `{}`", path.display())).caused_by(error))?;
    Ok(LogFile { name: path.display().to_string(), lines: Box::new(BufReader::new(file)) })
}

/// A record, as far as the table shows it.
#[derive(Deserialize, Serialize, Debug)]
struct ShownRecord {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    time: String,
    #[serde(default)]
    event: String,
    #[serde(default)]
    principal: ShownPrincipal,
    #[serde(default)]
    backend: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    outcome: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    remote: Option<String>,
}

#[derive(Deserialize, Serialize, Default, Debug)]
struct ShownPrincipal {
    #[serde(default)]
    iss: Option<String>,
    #[serde(default)]
    sub: Option<String>,
    #[serde(default)]
    kind: String,
}

impl ShownPrincipal {
    fn text(&self) -> String {
        match (&self.iss, &self.sub) {
            (Some(iss), Some(sub)) => format!("{iss}:{sub}"),
            (None, Some(sub)) => sub.clone(),
            (_, None) => self.kind.clone(),
        }
    }
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let since = args.since.as_deref().map(since).transpose()?;
    let (mut rows, mut unreadable) = (Vec::new(), 0u64);
    let mut logs: Vec<&PathBuf> = args.files.iter().filter(|file| !is_beside(file)).collect();
    logs.sort();
    for path in logs {
        let LogFile { lines, .. } = open(path)?;
        for line in lines.lines() {
            let line = line.map_err(|error| {
                Failure::new(format!("cannot read `{}`", path.display())).caused_by(error)
            })?;
            let Ok(record) = serde_json::from_str::<ShownRecord>(&line) else {
                unreadable += 1;
                continue;
            };
            let fits = args.principal.as_ref().is_none_or(|wanted| record.principal.text() == *wanted)
                && args.tool.as_ref().is_none_or(|wanted| record.name.as_ref() == Some(wanted))
                && since.as_ref().is_none_or(|since| record.time.as_str() >= since.as_str());
            if fits {
                rows.push((record, line));
            }
        }
    }
    if unreadable > 0 {
        note(&format!("warning: {unreadable} lines are not records; `tenure audit verify` says more"));
    }
    rows.sort_by_key(|(record, _)| record.seq);
    if args.json {
        return rows.iter().try_for_each(|(_, line)| say(&format!("{line}\n")));
    }
    let rows: Vec<ShownRecord> = rows.into_iter().map(|(record, _)| record).collect();
    print_rows(&rows, false, &columns(), "there are no such records")
}

/// The start of a time, as records have it.
fn since(text: &str) -> Result<String, Failure> {
    if let Some(age) = parse_duration(text) {
        return Ok(stamp(now().before(age.min(Duration::from_secs(3650 * 86_400)))));
    }
    let is_date = text.len() >= 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            _ => byte.is_ascii_digit() || matches!(byte, b'.' | b'Z'),
        });
    is_date.then(|| text.to_owned()).ok_or_else(|| {
        Failure::new(format!("`--since {text}` is not a time"))
            .hint("write an age such as 24h, or a date such as 2026-11-01")
    })
}

fn columns() -> [Column<'static, ShownRecord>; 8] {
    let tone = |outcome: &str| match outcome {
        "error" | "tool_error" | "given_up" => Tone::Bad,
        _ => Tone::Plain,
    };
    [
        left("SEQ", |row: &ShownRecord| row.seq.to_string()),
        left("TIME", |row: &ShownRecord| row.time.clone()),
        left("EVENT", |row: &ShownRecord| Cell::new(&row.event).tone(Tone::Title)),
        left("WHO", |row: &ShownRecord| known(Some(row.principal.text()).filter(|text| !text.is_empty()))),
        left("WHAT", |row: &ShownRecord| {
            let name = row.name.as_ref().or(row.method.as_ref());
            known(name.map(|name| match &row.backend {
                Some(backend) => format!("{backend}/{name}"),
                None => name.clone(),
            }))
        }),
        left("OUTCOME", move |row: &ShownRecord| match (&row.outcome, &row.reason) {
            (Some(outcome), Some(reason)) => Cell::new(format!("{outcome}: {reason}")).tone(tone(outcome)),
            (Some(outcome), None) => Cell::new(outcome).tone(tone(outcome)),
            (None, Some(reason)) => Cell::new(reason).tone(Tone::Bad),
            (None, None) => Cell::new("-"),
        }),
        left("SESSION", |row: &ShownRecord| known(row.session.as_ref())),
        left("FROM", |row: &ShownRecord| known(row.remote.as_ref())),
    ]
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::cli::paint::Paint;
    use crate::cli::table::table;

    #[test]
    fn a_table_shows_who_did_what_and_how_it_ended() {
        let lines = [
            r#"{"event":"audit_opened","name":"tenure 0.1.0","seq":1,"time":"2026-11-18T08:30:00.123Z"}"#,
            r#"{"backend":"files","event":"call_finished","method":"tools/call","name":"read_file","outcome":"ok","principal":{"iss":"corp","kind":"token","sub":"alice"},"remote":"203.0.113.7","seq":2,"session":"s-4f3a9c01","time":"2026-11-18T08:30:01.000Z"}"#,
            r#"{"code":401,"event":"refused","principal":{"kind":"anonymous"},"reason":"unauthorized","remote":"203.0.113.7","seq":3,"time":"2026-11-18T08:30:02.000Z"}"#,
        ];
        let rows: Vec<ShownRecord> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        expect![[r#"
            SEQ  TIME                      EVENT          WHO         WHAT             OUTCOME       SESSION     FROM
            1    2026-11-18T08:30:00.123Z  audit_opened   -           tenure 0.1.0     -             -           -
            2    2026-11-18T08:30:01.000Z  call_finished  corp:alice  files/read_file  ok            s-4f3a9c01  203.0.113.7
            3    2026-11-18T08:30:02.000Z  refused        anonymous   -                unauthorized  -           203.0.113.7
        "#]].assert_eq(&table(&columns(), &rows, Paint::of(false)));
    }

    #[test]
    fn a_log_is_told_of_in_words() {
        let verified = Verified {
            records: 7,
            first: 5,
            last: 11,
            signed: Some(9),
            key: Some("3b6a".to_owned()),
            end: LogEnd::Open,
        };
        let broken =
            Broken { file: "audit.jsonl".to_owned(), seq: 4, line: 2, why: "the line is not a record" };
        expect![[r#"
            good: 7 records, 5 to 11
            signed up to record 9 by the key 3b6a
            2 records after the last head: if the end was cut off there, it cannot be seen
            the records before 5 are in files that were not given
            the log is still being written, or its process was killed
            broken at record 4: the line is not a record
              audit.jsonl, line 2
              the records before it are as they were written
        "#]]
        .assert_eq(&(told(&verified) + &told_broken(&broken)));
    }

    #[test]
    fn since_takes_an_age_or_a_date() {
        for good in ["2026-11-01", "2026-11-01T08:30", "2026-11-01T08:30:00.123Z", "24h"] {
            assert!(since(good).is_ok(), "{good}");
        }
        for bad in ["", "yesterday", "2026", "2026-11", "2026/11/01", "24"] {
            assert!(since(bad).is_err(), "{bad}");
        }
    }
}
