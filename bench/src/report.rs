//! The figures of one run: as Markdown for people, as JSON for scripts.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::CommonArgs;
use crate::machine::Machine;
use crate::rows::{Bench, Rows};

/// The answer to a question, or to several under one heading.
#[derive(Debug)]
pub(crate) struct Section {
    name: &'static str,
    figures: Value,
    text: String,
    /// Targets that have to hold, and do not.
    failed: Vec<String>,
}

impl Section {
    /// `figures` is an object.
    pub(crate) fn new(name: &'static str, figures: Value, text: String) -> Section {
        Section { name, figures, text, failed: Vec::new() }
    }

    /// The run fails because of these.
    pub(crate) fn failing(mut self, failed: Vec<String>) -> Section {
        self.failed = failed;
        self
    }

    /// Adds a section below.
    pub(crate) fn add(&mut self, part: Section) {
        self.text = format!("{}\n{}", self.text, part.text);
        self.figures[part.name] = part.figures;
    }

    /// The same one level down, with the command that repeats it.
    pub(crate) fn below(mut self, command: &str) -> Section {
        self.text = format!("#{}\n`{command}`\n", self.text);
        self.figures["command"] = json!(command);
        self
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    command: String,
    machine: Machine,
    rows: Vec<Legend>,
    #[serde(flatten)]
    figures: Map<String, Value>,
    #[serde(skip)]
    texts: Vec<String>,
    #[serde(skip)]
    failed: Vec<String>,
}

/// What a row is.
#[derive(Debug, Serialize)]
struct Legend {
    name: &'static str,
    what: &'static str,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report {
            command: std::env::args().skip(1).fold("./dev bench".to_owned(), |line, arg| line + " " + &arg),
            machine: Machine::new(),
            rows: Vec::new(),
            figures: Map::new(),
            texts: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// The rows for a question, which the report then describes.
    pub(crate) fn select(&mut self, common: &CommonArgs, bench: Bench) -> Result<Rows> {
        let rows = Rows::select(common, bench)?;
        self.describe(&rows);
        Ok(rows)
    }

    /// Says in the report what these rows are.
    pub(crate) fn describe(&mut self, rows: &Rows) {
        for row in rows.iter() {
            if self.rows.iter().all(|legend| legend.name != row.name) {
                self.rows.push(Legend { name: row.name, what: row.what });
            }
        }
    }

    pub(crate) fn add(&mut self, section: Section) {
        self.texts.push(section.text);
        self.failed.extend(section.failed);
        self.figures.insert(section.name.to_owned(), section.figures);
    }

    /// Targets that had to hold, and do not.
    pub(crate) fn failed(&self) -> &[String] {
        &self.failed
    }

    pub(crate) fn markdown(&self) -> String {
        let legend = self.rows.iter().map(|Legend { name, what }| format!("- `{name}`: {what}\n"));
        let legend: Option<String> = (!self.rows.is_empty()).then(|| legend.collect());
        let begin = [format!("`{}`\n", self.command), self.machine.markdown()];
        let sections = begin.into_iter().chain(legend).chain(self.texts.iter().cloned());
        sections.collect::<Vec<_>>().join("\n")
    }
}
