//! Lists for operators, and the names by which they mean a row: the same for everything that a store keeps.
//!
//! The store has rows in the order of their keys, which means nothing to people, so all pages are read and the newest
//! rows are kept. A thing that operators list has its texts, its columns and its operations in [`Listed`].

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use serde::Serialize;
use tenure_session::SessionKey;
use tenure_session::port::clock::Time;
use tenure_session::record::EndCause;

use super::paint::{Paint, Tone};
use super::progress::ItemCounter;
use super::table::{Cell, Column, table};
use super::{Failure, note, say};
use crate::control::Operations;
use crate::escape::plain;
use crate::operator::{MissingNode, Page, Revoked, now, parse_key};

/// Rows that are asked for at once.
pub(super) const PAGE: usize = 500;

/// Matches that are listed when a name fits several rows.
pub(super) const MATCHES: usize = 10;

/// The owner of things without one.
pub(super) const ANONYMOUS: &str = "anonymous";

/// A row that operators list.
pub(super) trait Listed: Serialize + Sized {
    /// The noun for one, and for several.
    const NOUN: (&'static str, &'static str);
    /// Where the names are, if one is unknown.
    const UNKNOWN_HINT: &'static str;
    /// What to type, if a name fits several.
    const AMBIGUOUS_HINT: &'static str;

    fn key(&self) -> &str;
    /// Its name in logs.
    fn name(&self) -> &str;
    /// Its state, in few words.
    fn state(&self) -> (String, Tone);
    /// Whether it comes last in a list, however recent, and when it was used last.
    fn order(&self) -> (bool, Option<u64>);
    fn columns(now: Time) -> Vec<Column<'static, Self>>;

    async fn page(store: &Operations, after: Option<SessionKey>) -> Result<Page<Self>, Failure>;
    /// At least one more row than [`MATCHES`] if so many match.
    async fn matching(store: &Operations, name: &str) -> Result<Vec<Self>, Failure>;
    async fn revoke(store: &Operations, key: SessionKey) -> Result<Revoked, Failure>;
}

/// Reads all rows, page by page, until `look` breaks.
pub(super) async fn each_page<Row: Listed>(
    store: &Operations,
    mut look: impl FnMut(Vec<Row>) -> ControlFlow<()>,
) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let page = Row::page(store, after).await?;
        after = page.next.as_deref().and_then(parse_key);
        if look(page.rows).is_break() || after.is_none() {
            return Ok(());
        }
    }
}

/// The most recently used rows that match, up to the limit, and the number of all that match.
pub(super) async fn newest<Row: Listed>(
    store: &Operations,
    limit: NonZeroUsize,
    wants: impl Fn(&Row) -> bool,
) -> Result<(Vec<Row>, usize), Failure> {
    let (mut rows, mut found) = (Vec::new(), 0);
    let mut counter = ItemCounter::start("looked at", Row::NOUN.1);
    let keep_newest = |rows: &mut Vec<Row>| {
        rows.sort_by_key(|row| {
            let (is_last, used) = row.order();
            (is_last, Reverse(used))
        });
        rows.truncate(limit.get());
    };
    each_page(store, |page: Vec<Row>| {
        counter.add(page.len());
        let before = rows.len();
        rows.extend(page.into_iter().filter(&wants));
        found += rows.len() - before;
        // Sort only when the buffer has doubled: memory stays bounded, and sorting stays cheap.
        if rows.len() > limit.get().saturating_mul(2) {
            keep_newest(&mut rows);
        }
        ControlFlow::Continue(())
    })
    .await?;
    keep_newest(&mut rows);
    Ok((rows, found))
}

/// Prints a list, and how many rows are not shown.
pub(super) fn print_list<Row: Listed>(rows: &[Row], found: usize, is_json: bool) -> Result<(), Failure> {
    let (_, nouns) = Row::NOUN;
    print_rows(rows, is_json, &Row::columns(now()), &format!("no {nouns}"))?;
    note_cut(rows.len(), found, nouns);
    Ok(())
}

/// Says how to see the rows that are not shown.
pub(super) fn note_cut(shown: usize, found: usize, nouns: &str) {
    if found > shown {
        note(&format!("{shown} of {found} {nouns}; `--limit {found}` shows all"));
    }
}

/// Says which nodes of a cluster did not answer, on standard error: their rows are missing in the output.
pub(super) fn note_missing(store: &Operations) {
    for missing in store.missing_nodes() {
        note(&missing_words(&missing));
    }
}

fn missing_words(MissingNode { node, address, why }: &MissingNode) -> String {
    let (address, why) = (plain(address), plain(why));
    format!(
        "node {node} at {address} did not answer ({why}): sessions and calls in its memory are not shown; see `tenure nodes`"
    )
}

/// Prints rows: as JSON, one object a line, or as a table, or says that the list is empty.
pub(super) fn print_rows<Row: Serialize>(
    rows: &[Row],
    is_json: bool,
    columns: &[Column<'_, Row>],
    none: &str,
) -> Result<(), Failure> {
    if is_json {
        let line = |row: &Row| serde_json::to_string(row).expect("a row has a JSON form") + "\n";
        return say(&rows.iter().map(line).collect::<String>());
    }
    if rows.is_empty() {
        note(none);
        return Ok(());
    }
    say(&table(columns, rows, Paint::stdout()))
}

/// Prints one thing as JSON.
pub(super) fn print_json(thing: &impl Serialize) -> Result<(), Failure> {
    say(&(serde_json::to_string_pretty(thing).expect("an answer has a JSON form") + "\n"))
}

/// Whether a value is the wanted one, if one is wanted.
pub(super) fn is_wanted(wanted: Option<&String>, value: Option<&str>) -> bool {
    wanted.is_none_or(|wanted| Some(wanted.as_str()) == value)
}

/// The row that a name means, and its key.
pub(super) async fn resolve<Row: Listed>(
    store: &Operations,
    name: &str,
) -> Result<(Row, SessionKey), Failure> {
    let mut rows = Row::matching(store, name).await?;
    if rows.len() > 1 {
        return Err(ambiguous(name, &rows));
    }
    let row = rows.pop().ok_or_else(|| unknown::<Row>(name))?;
    let key = parse_key(row.key()).ok_or_else(|| unknown::<Row>(name))?;
    Ok((row, key))
}

/// The rows that these names mean, each once. Finds all of them before the caller changes the first, so that a mistyped
/// name changes nothing.
pub(super) async fn resolve_all<Row: Listed>(
    store: &Operations,
    names: &[String],
) -> Result<Vec<(Row, SessionKey)>, Failure> {
    let mut found: Vec<(Row, SessionKey)> = Vec::new();
    for name in names {
        let (row, key) = resolve(store, name).await?;
        if !found.iter().any(|(_, known)| *known == key) {
            found.push((row, key));
        }
    }
    Ok(found)
}

pub(super) fn unknown<Row: Listed>(name: &str) -> Failure {
    Failure::new(format!("no {} is called `{name}`", Row::NOUN.0)).hint(Row::UNKNOWN_HINT)
}

fn ambiguous<Row: Listed>(name: &str, rows: &[Row]) -> Failure {
    let mut what = format!("`{name}` fits several {}:", Row::NOUN.1);
    for row in rows.iter().take(MATCHES) {
        what.push_str(&format!("\n  {}  {}", row.key(), row.state().0));
    }
    if rows.len() > MATCHES {
        what.push_str("\n  and more");
    }
    Failure::new(what).hint(Row::AMBIGUOUS_HINT)
}

/// Ends all that these names mean.
pub(super) async fn revoke<Row: Listed>(store: &Operations, names: &[String]) -> Result<(), Failure> {
    for (row, key) in resolve_all::<Row>(store, names).await? {
        let name = row.name();
        match Row::revoke(store, key).await? {
            Revoked::Now => say(&format!("revoked {name}\n"))?,
            Revoked::Before(end) => say(&format!("{name} was {} before\n", end_word(end)))?,
            Revoked::Unknown => return Err(unknown::<Row>(name)),
        }
    }
    Ok(())
}

/// The field for the state of a row.
pub(super) fn state_cell<Row: Listed>(row: &Row) -> Cell {
    let (words, tone) = row.state();
    Cell::new(words).tone(tone)
}

/// A state and, if that is known, how it came about.
pub(super) fn state_words(state: &str, end: Option<EndCause>) -> String {
    match end {
        Some(end) => format!("{state} ({})", end_word(end)),
        None => state.to_owned(),
    }
}

/// How something ended.
fn end_word(end: EndCause) -> &'static str {
    match end {
        EndCause::Deleted => "deleted",
        EndCause::Expired => "expired",
        EndCause::Revoked => "revoked",
    }
}
