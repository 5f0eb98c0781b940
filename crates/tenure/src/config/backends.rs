//! Several servers behind one process: the `[[backend]]` tables of a file.
//!
//! A table has a name, and the keys of `[child]` or of `[upstream]` without the section. Keys that it leaves out have
//! the values of those sections, which thus hold the defaults of all tables.

use super::effective::{Behind, ChildConfig, UpstreamConfig};
use super::error::Problem;
use super::keys::{ConfigKey, Draft, KEYS};
use super::lookup::similar;
use super::sources::{SettingEntry, SettingTable, ValueOrigin};
use super::value::{SettingValue, quoted};
use crate::url_text::marked_in;

/// The longest name, so that there is room for the names of tools.
const MAX_NAME: usize = 32;

/// Sections whose keys a table may have.
const SECTIONS: [&str; 2] = ["child", "upstream"];

/// A table that was read: the server, and for `config show` the draft and the keys that the table sets itself.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) behind: Behind,
    pub(super) draft: Draft,
    pub(super) set: Vec<(&'static str, ValueOrigin)>,
}

/// Reads all tables; the sections are the defaults.
pub(super) fn read(tables: &[SettingTable], defaults: &Draft, problems: &mut Vec<Problem>) -> Vec<Backend> {
    let mut backends: Vec<Backend> = Vec::new();
    for table in tables {
        match one(table, defaults, &backends) {
            Ok(backend) => backends.push(backend),
            Err(found) => problems.extend(found),
        }
    }
    let both = !defaults.config.child.command.is_empty() || defaults.config.upstream.url.is_some();
    if let (Some(table), true) = (tables.first(), both) {
        problems.push(problem(
            &table.origin,
            "there is a `[[backend]]` beside `child.command` or `upstream.url`",
            "write the one server as a `[[backend]]` too",
        ));
    }
    backends
}

fn one(table: &SettingTable, defaults: &Draft, earlier: &[Backend]) -> Result<Backend, Vec<Problem>> {
    let mut draft = Draft::default();
    draft.config.child = ChildConfig { command: Vec::new(), ..defaults.config.child.clone() };
    draft.config.upstream = UpstreamConfig { url: None, ..defaults.config.upstream.clone() };
    let (mut name, mut prefix, mut set, mut problems) = (None, None, Vec::new(), Vec::new());
    for entry in &table.entries {
        let laid = match entry.name.as_str() {
            "name" => word(entry, &is_name, "small letters, digits and dashes, and not \"sse\"")
                .map(|word| name = Some(word)),
            "prefix" => {
                word(entry, &|text| text.is_empty() || is_prefix(text), "letters, digits and dashes, or \"\"")
                    .map(|word| prefix = Some(word))
            }
            _ => lay(entry, &mut draft)
                .map(|paths| set.extend(paths.into_iter().map(|path| (path, entry.origin.clone())))),
        };
        problems.extend(laid.err());
    }
    let Some(name) = name else {
        if !table.entries.iter().any(|entry| entry.name == "name") {
            let hint = "give it one: its endpoint is `/mcp/NAME`";
            problems.push(problem(&table.origin, "the `[[backend]]` has no `name`", hint));
        }
        return Err(problems);
    };
    let prefix = prefix.unwrap_or_else(|| name.clone());
    let (child, upstream) = (draft.config.child.clone(), draft.config.upstream.clone());
    let mut refuse = |what: String, hint: &str| problems.push(problem(&table.origin, &what, hint));
    if child.command.is_empty() == upstream.url.is_none() {
        let what = format!("the backend `{name}` needs either `command` or `url`");
        refuse(what, "`command` runs a program, `url` names a server elsewhere");
    }
    if earlier.iter().any(|backend| backend.behind.name == name) {
        refuse(format!("there is another backend `{name}`"), "names must differ");
    }
    if earlier.iter().any(|backend| backend.behind.prefix == prefix) {
        let what = format!("the backend `{name}` has the prefix \"{prefix}\", as another one has");
        refuse(what, "prefixes must differ, because they say which server a tool belongs to");
    }
    if problems.is_empty() {
        Ok(Backend { behind: Behind { name, prefix, child, upstream }, draft, set })
    } else {
        Err(problems)
    }
}

/// The keys that a table may have, with the names that they have there.
fn keys() -> impl Iterator<Item = (&'static str, &'static ConfigKey)> {
    let of_sections = KEYS.iter().filter(|key| SECTIONS.contains(&key.split().0));
    of_sections.map(|key| (key.split().1, key))
}

/// Sets the key of an entry, in both sections if both have it: a table uses only one of them.
fn lay(entry: &SettingEntry, draft: &mut Draft) -> Result<Vec<&'static str>, Problem> {
    let named: Vec<_> = keys().filter(|(name, _)| *name == entry.name).map(|(_, key)| key).collect();
    if named.is_empty() {
        let known = keys().map(|(name, _)| name).chain(["name", "prefix"]);
        let hint = match similar(&entry.name, known) {
            Some(name) => format!("did you mean `{name}`?"),
            None => "it takes `name`, `prefix`, and the keys of `[child]` or of `[upstream]`".to_owned(),
        };
        let what = format!("unknown key `{}` in a `[[backend]]`", entry.name);
        return Err(problem(&entry.origin, &what, &hint));
    }
    for key in &named {
        (key.set)(draft, &entry.raw).map_err(|refusal| {
            let (subject, expected) = (entry.origin.subject(&entry.name), (key.expected)());
            Problem { what: format!("{subject} is {}, expected {expected}", entry.found), hint: refusal.hint }
        })?;
    }
    Ok(named.into_iter().map(|key| key.path).collect())
}

fn word(entry: &SettingEntry, fits: &dyn Fn(&str) -> bool, expected: &str) -> Result<String, Problem> {
    match &entry.raw {
        SettingValue::Text(text) if fits(text) => Ok(text.clone()),
        _ => {
            let subject = entry.origin.subject(&entry.name);
            let what = format!("{subject} is {}, expected {expected}, {MAX_NAME} at most", entry.found);
            Err(Problem { what, hint: None })
        }
    }
}

fn is_name(text: &str) -> bool {
    // `/mcp/sse` is one of the doors.
    is_prefix(text) && text != "sse" && !text.bytes().any(|letter| letter.is_ascii_uppercase())
}

fn is_prefix(text: &str) -> bool {
    let fits = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-';
    !text.is_empty() && text.len() <= MAX_NAME && text.bytes().all(fits) && !text.starts_with('-')
}

fn problem(origin: &ValueOrigin, what: &str, hint: &str) -> Problem {
    Problem { what: format!("{}: {what}", origin.place()), hint: Some(hint.to_owned()) }
}

impl Backend {
    /// The table as TOML, with the source of each value.
    pub(super) fn show(&self) -> String {
        let mut text = format!("\n[[backend]]\nname = {}\n", quoted(&self.behind.name));
        text.push_str(&format!("prefix = {}\n", quoted(&self.behind.prefix)));
        let section = if self.behind.upstream.url.is_some() { "upstream" } else { "child" };
        for (name, key) in keys().filter(|(_, key)| key.split().0 == section) {
            let Some(value) = (key.show)(&self.draft) else { continue };
            let origin = self.set.iter().find(|(path, _)| *path == key.path);
            let origin =
                origin.map_or_else(|| format!("as in [{section}]"), |(_, origin)| origin.to_string());
            let setting = format!("{name} = {}", marked_in(&value));
            text.push_str(&format!("{setting:<40} # {origin}\n"));
        }
        text
    }
}
