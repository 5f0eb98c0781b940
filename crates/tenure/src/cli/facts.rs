//! Everything about one thing on a terminal: its name, its values, a line each, and lists below.
//!
//! Most texts come from clients and servers, so control characters are escaped here.

use super::paint::{Paint, Tone};
use crate::escape::plain;

/// The lines about one thing.
#[derive(Debug)]
pub(super) struct Facts {
    text: String,
    paint: Paint,
}

impl Facts {
    /// Begins with the thing's name and its key.
    pub(super) fn new(name: &str, key: &str, paint: Paint) -> Self {
        Self { text: format!("{}  {key}\n", paint.tint(Tone::Title, name)), paint }
    }

    /// Adds a line of its own.
    pub(super) fn line(&mut self, tone: Tone, line: &str) {
        self.text.push_str(&format!("{}\n", self.paint.tint(tone, &plain(line))));
    }

    /// Adds a value under its name, if it is known.
    pub(super) fn add(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.add_toned(name, Tone::Plain, &value);
        }
    }

    pub(super) fn add_toned(&mut self, name: &str, tone: Tone, value: &str) {
        let name = self.paint.tint(Tone::Quiet, &format!("{name:<13}"));
        self.text.push_str(&format!("  {name} {}\n", self.paint.tint(tone, &plain(value))));
    }

    /// Adds a list under a title, unless it is empty.
    pub(super) fn section(&mut self, title: &str, lines: impl IntoIterator<Item = String>) {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_some() {
            self.text.push_str(&format!("\n{}\n", self.paint.tint(Tone::Title, title)));
            self.text.extend(lines.map(|line| format!("  {}", plain(&line)).trim_end().to_owned() + "\n"));
        }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}
