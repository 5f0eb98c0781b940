//! What a person sees while the run goes on, on stderr; stdout carries the summary alone.
//!
//! A line that changes in place on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Where there is no terminal, a line about the state of things comes this often.
const PLAIN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Progress { bar }
    }

    /// How often `state` should be called.
    pub(crate) fn every(&self) -> Duration {
        if self.bar.is_some() { Duration::from_millis(200) } else { PLAIN_EVERY }
    }

    /// How things stand.
    pub(crate) fn state(&self, text: String) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(text);
                bar.tick();
            }
            None => eprintln!("{text}"),
        }
    }

    /// One line that stays.
    pub(crate) fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// Something is wrong.
    pub(crate) fn warn(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("\x1b[31m{text}\x1b[0m")),
            None => eprintln!("{text}"),
        }
    }

    /// Takes the changing line away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The error that ended the run, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("error: {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  caused by: {cause}");
    }
}
