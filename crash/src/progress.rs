//! Shows the progress of a run on stderr; stdout carries only the summary.
//!
//! On a terminal it is one line that changes in place, elsewhere plain lines.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The interval between two progress lines without a terminal.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct ProgressLine {
    bar: Option<ProgressBar>,
}

impl ProgressLine {
    pub(crate) fn new() -> ProgressLine {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        ProgressLine { bar }
    }

    /// How often `state` should be called.
    pub(crate) fn every(&self) -> Duration {
        if self.bar.is_some() { Duration::from_millis(200) } else { PLAIN_EVERY }
    }

    /// Shows the state of the run.
    pub(crate) fn state(&self, text: String) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(text);
                bar.tick();
            }
            None => eprintln!("{text}"),
        }
    }

    /// Prints a line that stays.
    pub(crate) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Prints a warning that stays, in red on a terminal.
    pub(crate) fn warn(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("\x1b[31m{text}\x1b[0m")),
            None => eprintln!("{text}"),
        }
    }

    /// Removes the changing line.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Prints the error that ended the run, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("error: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  caused by: {cause}");
    }
}
