//! Where values are written: a file, the environment, flags.
//!
//! Each source becomes a list of [`Entry`]s; whether a name is known is decided in `lookup`.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::backends::Table;
use super::error::Problem;
use super::forms::Raw;
use super::keys::{SECTIONS, key};
use super::profile::Profile;

/// What the caller found: texts, not yet read.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file: its path, for messages, and its text.
    pub file: Option<(PathBuf, String)>,
    /// The environment. Only names that start with `TENURE_` are looked at.
    pub env: Vec<(String, String)>,
    /// Flags as the path of a key and a value.
    pub flags: Vec<(String, String)>,
    /// The command after `--`, if there is one. It is served, whatever else names a server.
    pub command: Vec<String>,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Default,
    Profile(Profile),
    /// The switch for clients of earlier designs.
    Compat,
    File {
        path: String,
        line: usize,
    },
    Variable(String),
    Flag(String),
}

/// A name with a value, as one source has it.
#[derive(Debug)]
pub(super) struct Entry {
    /// The name as it was written: a path, or a variable.
    pub(super) name: String,
    pub(super) raw: Raw,
    /// The value as it was written, for messages.
    pub(super) found: String,
    pub(super) origin: Origin,
}

impl Origin {
    /// Where to look, in few words.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Profile(profile) => format!("profile {}", profile.as_str()),
            Self::Compat => "compat".to_owned(),
            Self::File { path, line } => format!("{path}:{line}"),
            Self::Variable(name) | Self::Flag(name) => name.clone(),
        }
    }

    /// The subject of a message about a key: with file and line, or by the name it has there.
    pub(super) fn subject(&self, path: &str) -> String {
        match self {
            Self::Default | Self::Profile(_) | Self::Compat => format!("`{path}`"),
            Self::File { .. } => format!("{}: `{path}`", self.place()),
            Self::Variable(name) | Self::Flag(name) => format!("`{name}`"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Default | Self::Profile(_) | Self::Compat => "",
            Self::File { .. } => "file ",
            Self::Variable(_) => "env ",
            Self::Flag(_) => "flag ",
        };
        write!(f, "{kind}{}", self.place())
    }
}

/// The entries of a file, in the order of its lines, and its `[[backend]]` tables.
pub(super) fn file(path: &Path, text: &str) -> Result<(Vec<Entry>, Vec<Table>), Problem> {
    let path = path.display().to_string();
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        let what = format!("{path}:{line}: not valid TOML: {}", error.message());
        Problem { what, hint: None }
    })?;
    let mut walk = Walk { path: &path, text, entries: Vec::new(), backends: Vec::new() };
    walk.table(table.get_ref(), "");
    sort(&mut walk.entries);
    Ok((walk.entries, walk.backends))
}

fn sort(entries: &mut [Entry]) {
    entries.sort_by_key(|entry| match entry.origin {
        Origin::File { line, .. } => line,
        _ => 0,
    });
}

struct Walk<'a> {
    path: &'a str,
    text: &'a str,
    entries: Vec<Entry>,
    backends: Vec<Table>,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>, section: &str) {
        for (name, value) in table {
            let line = line_at(self.text, name.span().start);
            // A quoted name may have a dot in it, and must not pass for a path.
            let name = if name.get_ref().contains('.') {
                format!("{:?}", name.get_ref())
            } else {
                name.get_ref().to_string()
            };
            let name = if section.is_empty() { name } else { format!("{section}.{name}") };
            if let DeValue::Table(inner) = value.get_ref()
                && key(&name).is_none()
                // An unknown section is told of by its keys, or by itself if it has none.
                && (is_section(&name) || !inner.is_empty())
            {
                self.table(inner, &name);
                continue;
            }
            if name == "backend" && self.backends_of(value.get_ref()) {
                continue;
            }
            let origin = Origin::File { path: self.path.to_owned(), line };
            let (raw, found) = (raw(value.get_ref()), self.found(value));
            self.entries.push(Entry { name, raw, found, origin });
        }
    }

    /// Takes an array of tables; false if it is none.
    fn backends_of(&mut self, value: &DeValue<'_>) -> bool {
        let DeValue::Array(tables) = value else { return false };
        let tables = tables.iter().map(|table| match table.get_ref() {
            DeValue::Table(inner) => Some((table.span().start, inner)),
            _ => None,
        });
        let Some(tables) = tables.collect::<Option<Vec<_>>>() else { return false };
        for (start, table) in tables {
            let before = std::mem::take(&mut self.entries);
            self.table(table, "");
            let mut entries = std::mem::replace(&mut self.entries, before);
            sort(&mut entries);
            let origin = Origin::File { path: self.path.to_owned(), line: line_at(self.text, start) };
            self.backends.push(Table { entries, origin });
        }
        true
    }

    fn found(&self, value: &Spanned<DeValue<'_>>) -> String {
        match value.get_ref() {
            DeValue::Table(_) => "a table".to_owned(),
            _ => shorten(self.text.get(value.span()).unwrap_or_default()),
        }
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Raw::Other, Raw::Number)
        }
        DeValue::Boolean(flag) => Raw::Flag(*flag),
        DeValue::Array(items) => {
            let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().map_or(Raw::Other, Raw::List)
        }
        DeValue::Table(_) => Raw::Table,
        DeValue::Float(_) | DeValue::Datetime(_) => Raw::Other,
    }
}

/// Variables that stand for flags of commands and are no settings: the file itself, and the jar of client commands,
/// which a server that such a command starts gets to see too.
const COMMANDS: [&str; 2] = ["TENURE_CONFIG", "TENURE_JAR"];

/// The entries of the environment. An empty variable counts as not set.
pub(super) fn environment(variables: &[(String, String)]) -> Vec<Entry> {
    let mut entries: Vec<_> = variables
        .iter()
        .filter(|(name, value)| name.starts_with("TENURE_") && !value.is_empty())
        .filter(|(name, value)| !COMMANDS.contains(&&**name) && !is_service_link(name, value))
        .map(|(name, value)| untyped(name, value, Origin::Variable(name.clone())))
        .collect();
    // The environment has no order of its own; messages and tests want one.
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

/// The entries of the command line.
pub(super) fn flags(flags: &[(String, String)]) -> Vec<Entry> {
    let name = |path: &str| match key(path).and_then(|(_, key)| key.flag()) {
        Some(flag) => flag.to_owned(),
        None => format!("--set {path}"),
    };
    flags.iter().map(|(path, value)| untyped(path, value, Origin::Flag(name(path)))).collect()
}

fn untyped(name: &str, value: &str, origin: Origin) -> Entry {
    let value = value.trim();
    let found = shorten(&format!("{value:?}"));
    Entry { name: name.to_owned(), raw: Raw::Untyped(value.to_owned()), found, origin }
}

/// Whether Kubernetes made this variable, as it does in every pod for a service called `tenure…`.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || (name.ends_with("_PORT") && is_url)
        || ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| {
            name.split_once("_PORT_").is_some_and(|(_, port)| {
                port.starts_with(|letter: char| letter.is_ascii_digit()) && port.contains(protocol)
            })
        })
}

/// Whether this is the name of a section.
pub(super) fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|(section, _)| *section == name)
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

fn shorten(text: &str) -> String {
    const MOST: usize = 60;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MOST {
        return line;
    }
    line.chars().take(MOST).chain(['…']).collect()
}
