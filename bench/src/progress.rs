//! What a person sees while the run goes on, on stderr; stdout carries the report alone.
//!
//! Colour only when stderr is a terminal, so that logs stay plain.

use std::io::IsTerminal;

/// One line about what happens now.
pub(crate) fn note(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("\x1b[2m{text}\x1b[0m");
    } else {
        eprintln!("{text}");
    }
}

/// Something odd that does not stop the run.
pub(crate) fn warn(text: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("\x1b[33mwarning:\x1b[0m {text}");
    } else {
        eprintln!("warning: {text}");
    }
}

/// The error that ended the run, with its causes.
pub(crate) fn error(error: &anyhow::Error) {
    let label = if std::io::stderr().is_terminal() { "\x1b[31merror:\x1b[0m" } else { "error:" };
    eprintln!("{label} {error}");
    for cause in error.chain().skip(1) {
        eprintln!("  caused by: {cause}");
    }
}
