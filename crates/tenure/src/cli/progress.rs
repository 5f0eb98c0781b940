//! Progress on standard error: a bar on a terminal, a line every ten percent elsewhere.

use std::io::IsTerminal;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::note;

/// The unit of the progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Bytes,
    /// Items, with their plural.
    Things(&'static str),
}

/// The progress of work whose size is known.
#[derive(Debug)]
pub(super) struct WorkProgress {
    doing: &'static str,
    unit: Unit,
    bar: Option<ProgressBar>,
    /// Tenths that were printed.
    told: u64,
}

impl WorkProgress {
    /// Starts to show progress, such as `copying` of `records`.
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

    /// Shows that `done` of `of` is done.
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

impl Drop for WorkProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The progress of work whose size is unknown: a counter on a terminal, a line now and then elsewhere.
#[derive(Debug)]
pub(super) struct ItemCounter {
    doing: &'static str,
    things: &'static str,
    bar: Option<ProgressBar>,
    count: u64,
}

impl ItemCounter {
    /// Items between two progress lines.
    const LINE: u64 = 100_000;

    /// Starts to count, such as the `sessions` that were `looked at`.
    pub(super) fn start(doing: &'static str, things: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(&format!("{{spinner}} {{msg}} {{human_pos}} {things}"));
            let bar = ProgressBar::no_length().with_message(doing);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        Self { doing, things, bar, count: 0 }
    }

    /// Adds items to the count.
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

impl Drop for ItemCounter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
