//! How far something is, on standard error: a bar on a terminal, a line every ten percent elsewhere.

use std::io::IsTerminal;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::note;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Bytes,
    /// Things, by the word for many of them.
    Things(&'static str),
}

/// How far something is.
#[derive(Debug)]
pub(super) struct Progress {
    doing: &'static str,
    unit: Unit,
    bar: Option<ProgressBar>,
    /// Tenths that were told of.
    told: u64,
}

impl Progress {
    /// Begins to tell, such as of `copying` things called `records`.
    pub(super) fn start(doing: &'static str, unit: Unit) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let count = match unit {
                Unit::Bytes => "{bytes} of {total_bytes}".to_owned(),
                Unit::Things(name) => format!("{{pos}} of {{len}} {name}"),
            };
            let style = ProgressStyle::with_template(&format!("{{msg}} {{wide_bar}} {count}"));
            let bar = ProgressBar::new(0).with_message(doing);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { doing, unit, bar, told: 0 }
    }

    /// So much of so much is done.
    pub(super) fn at(&mut self, done: u64, of: u64) {
        if let Some(bar) = &self.bar {
            bar.set_length(of);
            bar.set_position(done);
            return;
        }
        let tenths = done.saturating_mul(10).checked_div(of).unwrap_or(10);
        if tenths > self.told {
            self.told = tenths;
            let count = |number: u64| match self.unit {
                Unit::Bytes => HumanBytes(number).to_string(),
                Unit::Things(_) => number.to_string(),
            };
            let name = match self.unit {
                Unit::Bytes => String::new(),
                Unit::Things(name) => format!(" {name}"),
            };
            note(&format!("{}: {} of {}{name}", self.doing, count(done), count(of)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How many of something that nobody has counted: a counter on a terminal, a line now and then elsewhere.
#[derive(Debug)]
pub(super) struct Tally {
    doing: &'static str,
    things: &'static str,
    bar: Option<ProgressBar>,
    count: u64,
}

impl Tally {
    /// Things between two lines.
    const LINE: u64 = 100_000;

    /// Begins to tell, such as of having `looked at` things called `sessions`.
    pub(super) fn start(doing: &'static str, things: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(&format!("{{spinner}} {{msg}} {{human_pos}} {things}"));
            let bar = ProgressBar::no_length().with_message(doing);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        Self { doing, things, bar, count: 0 }
    }

    /// So many more.
    pub(super) fn add(&mut self, more: usize) {
        let before = self.count / Self::LINE;
        self.count += more as u64;
        match &self.bar {
            Some(bar) => bar.set_position(self.count),
            None if self.count / Self::LINE > before => {
                note(&format!("{} {} {}", self.doing, self.count, self.things));
            }
            None => {}
        }
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
