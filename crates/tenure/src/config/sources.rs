//! Where values are written: a file, the environment, flags.
//!
//! Each source becomes a list of [`SettingEntry`]s; whether a name is known is decided in `lookup`.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::Problem;
use super::keys::{SECTIONS, key};
use super::profile::Profile;
use super::value::SettingValue;

/// The texts of all sources, not yet parsed.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file: its path, for messages, and its text.
    pub file: Option<(PathBuf, String)>,
    /// The environment. Only names that start with `TENURE_` are looked at.
    pub env: Vec<(String, String)>,
    /// Flags as the path of a key and a value.
    pub flags: Vec<(String, String)>,
    /// The command after `--`, if there is one. It wins over every other configured server.
    pub command: Vec<String>,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ValueOrigin {
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
pub(super) struct SettingEntry {
    /// The name as it was written: a path, or a variable.
    pub(super) name: String,
    pub(super) raw: SettingValue,
    /// The value as it was written, for messages.
    pub(super) found: String,
    pub(super) origin: ValueOrigin,
}

/// A table of an array of tables, such as `[[backend]]`, as it was written.
#[derive(Debug)]
pub(super) struct SettingTable {
    pub(super) entries: Vec<SettingEntry>,
    /// Where it begins.
    pub(super) origin: ValueOrigin,
}

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    /// In the order of its lines.
    pub(super) entries: Vec<SettingEntry>,
    pub(super) backends: Vec<SettingTable>,
    pub(super) issuers: Vec<SettingTable>,
}

impl ValueOrigin {
    /// The place in few words, for messages.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Profile(profile) => format!("profile {}", profile.as_str()),
            Self::Compat => "compat".to_owned(),
            Self::File { path, line } => format!("{path}:{line}"),
            Self::Variable(name) | Self::Flag(name) => name.clone(),
        }
    }

    /// The subject of a message about a key: its path with file and line, or the name of its variable or flag.
    pub(super) fn subject(&self, path: &str) -> String {
        match self {
            Self::Default | Self::Profile(_) | Self::Compat => format!("`{path}`"),
            Self::File { .. } => format!("{}: `{path}`", self.place()),
            Self::Variable(name) | Self::Flag(name) => format!("`{name}`"),
        }
    }
}

impl fmt::Display for ValueOrigin {
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

/// Reads a file.
pub(super) fn file(path: &Path, text: &str) -> Result<FileSettings, Problem> {
    let path = path.display().to_string();
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(text, span.start));
        let what = format!("{path}:{line}: not valid TOML: {}", error.message());
        Problem { what, hint: None }
    })?;
    let mut walk = Walk { path: &path, text, found: FileSettings::default(), is_in_table: false };
    walk.table(table.get_ref(), "");
    sort(&mut walk.found.entries);
    Ok(walk.found)
}

fn sort(entries: &mut [SettingEntry]) {
    entries.sort_by_key(|entry| match entry.origin {
        ValueOrigin::File { line, .. } => line,
        _ => 0,
    });
}

struct Walk<'a> {
    path: &'a str,
    text: &'a str,
    found: FileSettings,
    /// Within a table of an array, whose keys are its own.
    is_in_table: bool,
}

impl Walk<'_> {
    fn table(&mut self, table: &DeTable<'_>, section: &str) {
        for (name, value) in table {
            let line = line_at(self.text, name.span().start);
            // A quoted name may contain a dot and must not be read as a path.
            let name = if name.get_ref().contains('.') {
                format!("{:?}", name.get_ref())
            } else {
                name.get_ref().to_string()
            };
            let name = if section.is_empty() { name } else { format!("{section}.{name}") };
            if let DeValue::Table(inner) = value.get_ref()
                && key(&name).is_none()
                // An unknown section is reported by its keys, or by itself if it is empty.
                && (is_section(&name) || !inner.is_empty())
            {
                self.table(inner, &name);
                continue;
            }
            if matches!(name.as_str(), "backend" | "issuer")
                && let Some(mut tables) = self.tables_of(value.get_ref())
            {
                let FileSettings { backends, issuers, .. } = &mut self.found;
                (if name == "backend" { backends } else { issuers }).append(&mut tables);
                continue;
            }
            // `auth = "none"` is short for the one key of the section that excludes all others.
            let name = if name == "auth" && !self.is_in_table { "auth.mode".to_owned() } else { name };
            let origin = ValueOrigin::File { path: self.path.to_owned(), line };
            let (raw, found) = (raw(value.get_ref()), self.written(value));
            self.found.entries.push(SettingEntry { name, raw, found, origin });
        }
    }

    /// Reads an array of tables; `None` if the value is something else.
    fn tables_of(&mut self, value: &DeValue<'_>) -> Option<Vec<SettingTable>> {
        let DeValue::Array(tables) = value else { return None };
        let tables = tables.iter().map(|table| match table.get_ref() {
            DeValue::Table(inner) => Some((table.span().start, inner)),
            _ => None,
        });
        let mut found = Vec::new();
        for (start, table) in tables.collect::<Option<Vec<_>>>()? {
            let before = std::mem::take(&mut self.found.entries);
            self.is_in_table = true;
            self.table(table, "");
            self.is_in_table = false;
            let mut entries = std::mem::replace(&mut self.found.entries, before);
            sort(&mut entries);
            let origin = ValueOrigin::File { path: self.path.to_owned(), line: line_at(self.text, start) };
            found.push(SettingTable { entries, origin });
        }
        Some(found)
    }

    fn written(&self, value: &Spanned<DeValue<'_>>) -> String {
        match value.get_ref() {
            DeValue::Table(_) => "a table".to_owned(),
            _ => shorten(self.text.get(value.span()).unwrap_or_default()),
        }
    }
}

fn raw(value: &DeValue<'_>) -> SettingValue {
    match value {
        DeValue::String(text) => SettingValue::Text(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(SettingValue::Other, SettingValue::Number),
        DeValue::Boolean(flag) => SettingValue::Flag(*flag),
        DeValue::Array(items) => {
            let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
            texts.collect::<Option<Vec<_>>>().map_or(SettingValue::Other, SettingValue::List)
        }
        DeValue::Table(_) => SettingValue::Table,
        DeValue::Float(_) | DeValue::Datetime(_) => SettingValue::Other,
    }
}

/// Variables for flags of commands, which are not settings: the configuration file, and the jar of client commands. A
/// server that such a command starts inherits the latter.
const COMMANDS: [&str; 4] = ["TENURE_CONFIG", "TENURE_JAR", "TENURE_PRINCIPAL", "TENURE_CLIENT"];

/// The entries of the environment. An empty variable counts as not set.
pub(super) fn environment(variables: &[(String, String)]) -> Vec<SettingEntry> {
    let mut entries: Vec<_> = variables
        .iter()
        .filter(|(name, value)| name.starts_with("TENURE_") && !value.is_empty())
        .filter(|(name, value)| !COMMANDS.contains(&&**name) && !is_service_link(name, value))
        .map(|(name, value)| untyped(name, value, ValueOrigin::Variable(name.clone())))
        .collect();
    // The environment has no order; messages and tests need one.
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

/// The entries of the command line.
pub(super) fn flags(flags: &[(String, String)]) -> Vec<SettingEntry> {
    let name = |path: &str| match key(path).and_then(|(_, key)| key.flag()) {
        Some(flag) => flag.to_owned(),
        None => format!("--set {path}"),
    };
    flags.iter().map(|(path, value)| untyped(path, value, ValueOrigin::Flag(name(path)))).collect()
}

fn untyped(name: &str, value: &str, origin: ValueOrigin) -> SettingEntry {
    let value = value.trim();
    let found = shorten(&format!("{value:?}"));
    SettingEntry { name: name.to_owned(), raw: SettingValue::Untyped(value.to_owned()), found, origin }
}

/// Whether Kubernetes made this variable: it does so in every pod for a service called `tenure…`.
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
