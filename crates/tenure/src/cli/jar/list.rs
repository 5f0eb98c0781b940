//! `tenure jar list`: the sessions in the jar, server by server.

use clap::Args;
use serde_json::{Value, json};
use tenure_client::{JarRecord, KeptCookie};
use tenure_session::port::clock::Time;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::short_id;
use crate::cli::paint::{Paint, Tone};
use crate::cli::table::{Cell, known, left, table};
use crate::cli::target::{JarArgs, moment};
use crate::cli::words::short;
use crate::cli::{Failure, note, say};
use crate::escape::plain;
use crate::operator::now;
use crate::time_text::{ago, until};
use crate::url_text;

/// Letters of a reason that are shown.
const REASON: usize = 40;

#[derive(Args, Debug)]
pub(in crate::cli) struct JarListArgs {
    /// Only sessions of the server at this URL.
    #[arg(value_name = "URL")]
    words: Vec<String>,
    /// Only sessions of the server that this command starts.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// Print JSON, one object a line.
    #[arg(long)]
    json: bool,
    /// Show whole ids and addresses, and in JSON whole cookies. A person who sees them can use your sessions.
    #[arg(long)]
    show_secrets: bool,
    #[command(flatten)]
    jar: JarArgs,
}

/// Whether secrets are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sight {
    Safe,
    Secrets,
}

/// Whether calls can use a session of the jar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum JarState {
    InUse,
    Active,
    Expired,
    Invalidated,
}

pub(super) fn run(args: &JarListArgs) -> Result<(), Failure> {
    let wanted = match args.words.is_empty() && args.command.is_empty() {
        true => None,
        false => super::split(&args.words, &args.command, 0)?.0.server(args.jar.principal()).key(),
    };
    let jar = args.jar.open()?;
    let book = jar.read().map_err(|error| Failure::new("cannot read the jar").caused_by(error))?;
    let is_wanted = |record: &JarRecord| match (&wanted, args.jar.principal()) {
        (Some(key), _) => record.key == *key,
        (None, Some(principal)) => record.principal.as_deref() == Some(principal),
        (None, None) => true,
    };
    let mut records = book.records();
    records.retain(|record| !record.cookies.is_empty() && is_wanted(record));
    let sight = if args.show_secrets { Sight::Secrets } else { Sight::Safe };
    if args.json {
        let lines = records.iter().flat_map(|record| json_lines(record, moment(), sight));
        return say(&lines.map(|line| format!("{line}\n")).collect::<String>());
    }
    if records.is_empty() {
        let place = args.jar.path().map(|path| format!(" in `{}`", path.display()));
        note(&format!("no sessions{}", place.unwrap_or_default()));
        return Ok(());
    }
    let texts = records.iter().map(|record| render(record, now(), moment(), sight, Paint::stdout()));
    say(&texts.collect::<Vec<_>>().join("\n"))
}

fn render(record: &JarRecord, now: Time, moment: OffsetDateTime, sight: Sight, paint: Paint) -> String {
    let mut head = paint.tint(Tone::Title, &plain(&target(record, sight)));
    if let Some(name) = &record.identity {
        head.push_str(&format!("  {}", plain(name)));
    }
    if let Some(principal) = &record.principal {
        head.push_str(&format!("  for {}", plain(principal)));
    }
    type Kept<'a> = (&'a KeptCookie, JarState);
    let state = |row: &Kept<'_>| match row.1 {
        JarState::InUse => Cell::new("in use").tone(Tone::Good),
        JarState::Active => Cell::new("active"),
        JarState::Expired => Cell::new("expired").tone(Tone::Quiet),
        JarState::Invalidated => Cell::new(invalidated(row.0)).tone(Tone::Quiet),
    };
    let updated = |row: &Kept<'_>| row.0.updated_at.as_deref().and_then(milliseconds).map(|at| ago(at, now));
    let expires = |row: &Kept<'_>| {
        row.0.cookie.expiry().map(|expiry| match milliseconds(expiry) {
            Some(at) if at > now.0 => until(at, now),
            Some(at) => ago(at, now),
            None => short(&plain(expiry), REASON),
        })
    };
    let columns = [
        left("SESSION", |row: &Kept<'_>| session(row.0, sight)),
        left("STATE", state),
        left("UPDATED", |row: &Kept<'_>| known(updated(row))),
        left("EXPIRES", |row: &Kept<'_>| known(expires(row))),
    ];
    let lines = table(&columns, &states(record, moment).collect::<Vec<_>>(), paint);
    let lines: String = lines.lines().map(|line| format!("  {line}\n")).collect();
    format!("{head}\n{lines}")
}

fn json_lines(record: &JarRecord, moment: OffsetDateTime, sight: Sight) -> Vec<Value> {
    let line = |(kept, state): (&KeptCookie, JarState)| {
        let mut line = json!({
            "target": target(record, sight),
            "server": record.identity,
            "session": session(kept, sight),
            "state": match state {
                JarState::InUse | JarState::Active => "active",
                JarState::Expired => "expired",
                JarState::Invalidated => "invalidated",
            },
            "in_use": state == JarState::InUse,
            "updated": kept.updated_at,
            "expires": kept.cookie.expiry(),
        });
        if let Some(principal) = &record.principal {
            line["principal"] = json!(principal);
        }
        if let Some((at, why)) = &kept.invalidated {
            line["invalidated"] = json!(at);
            line["reason"] = json!(why);
        }
        if sight == Sight::Secrets {
            line["cookie"] = Value::Object(kept.cookie.reveal().clone());
        }
        line
    };
    states(record, moment).map(line).collect()
}

/// The sessions of a server with their states, the last changed first.
fn states(record: &JarRecord, moment: OffsetDateTime) -> impl Iterator<Item = (&KeptCookie, JarState)> {
    let updated = |kept: &KeptCookie| kept.updated_at.as_deref().and_then(milliseconds);
    let is_active = |kept: &KeptCookie| kept.invalidated.is_none() && !kept.cookie.is_expired(moment);
    let mut cookies: Vec<_> = record.cookies.iter().collect();
    // Among equally new ones, the last in the file comes first.
    cookies.reverse();
    cookies.sort_by_key(|kept| std::cmp::Reverse(updated(kept)));
    let last_used = cookies.iter().position(|kept| kept.last_used && is_active(kept));
    let in_use = last_used.or_else(|| cookies.iter().position(|kept| is_active(kept)));
    cookies.into_iter().enumerate().map(move |(index, kept)| {
        let state = match () {
            () if kept.invalidated.is_some() => JarState::Invalidated,
            () if kept.cookie.is_expired(moment) => JarState::Expired,
            () if Some(index) == in_use => JarState::InUse,
            () => JarState::Active,
        };
        (kept, state)
    })
}

fn invalidated(kept: &KeptCookie) -> String {
    match &kept.invalidated {
        Some((_, Some(why))) => format!("invalidated ({})", short(&plain(why), REASON)),
        _ => "invalidated".to_owned(),
    }
}

fn session(kept: &KeptCookie, sight: Sight) -> String {
    match sight {
        Sight::Safe => short_id(kept.cookie.id().reveal()),
        Sight::Secrets => plain(kept.cookie.id().reveal()),
    }
}

/// The URL or the command of a server, or its name if the jar knows only that.
fn target(record: &JarRecord, sight: Sight) -> String {
    let key = match &record.principal {
        Some(principal) => record.key.strip_prefix(&format!("principal:{}:{principal}|", principal.len())),
        None => None,
    };
    let key = key.unwrap_or(&record.key);
    match (key.strip_prefix("url:"), sight) {
        (Some(url), Sight::Safe) => url_text::marked(url),
        (Some(url), Sight::Secrets) => url.to_owned(),
        (None, _) => key.strip_prefix("cmd:").unwrap_or(key).to_owned(),
    }
}

fn milliseconds(text: &str) -> Option<u64> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()
}

#[cfg(test)]
mod tests;
