//! An error for people: what failed, why, and what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::ConfigError;

/// What a person reads when a command fails. As JSON it goes from a server to the command that asked it.
#[derive(Serialize, Deserialize, Debug)]
pub struct Failure {
    what: String,
    #[serde(default)]
    causes: Vec<String>,
    #[serde(default)]
    hint: Option<String>,
}

impl Failure {
    /// Something failed. A lower-case fragment without a full stop.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), causes: Vec::new(), hint: None }
    }

    /// The first line, without causes and hint.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Adds the cause, with its own causes.
    #[must_use]
    pub(crate) fn caused_by(mut self, cause: impl std::error::Error) -> Self {
        self.causes.push(tidy(&cause));
        let mut next = cause.source();
        while let Some(cause) = next {
            self.causes.push(tidy(&cause));
            next = cause.source();
        }
        self
    }

    /// Adds a cause that is a text, not an error.
    #[must_use]
    pub(crate) fn because(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    /// Adds a hint, unless there is one already.
    #[must_use]
    pub(crate) fn or_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// The failure with its causes as one line, and the hint.
    pub(crate) fn in_one_line(self) -> (String, Option<String>) {
        let text = std::iter::once(self.what).chain(self.causes).collect::<Vec<_>>().join(": ");
        (text, self.hint)
    }

    /// Sets the hint: what to do about it.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// An error's text as a lower-case fragment: messages of the operating system start with a capital and end with a
/// number.
pub(crate) fn tidy(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !letters.as_str().starts_with(char::is_uppercase) => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.what)?;
        for cause in &self.causes {
            writeln!(f, "  caused by: {cause}")?;
        }
        if let Some(hint) = &self.hint {
            writeln!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self { what: error.to_string(), causes: Vec::new(), hint: error.hint().map(str::to_owned) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_why_and_what_to_do() {
        let cause = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let failure = Failure::new("cannot listen on `0.0.0.0:8080`")
            .caused_by(cause)
            .hint("stop the other process, or choose another address with `--listen`");
        expect_test::expect![[r"
            error: cannot listen on `0.0.0.0:8080`
              caused by: address in use

            hint: stop the other process, or choose another address with `--listen`
        "]]
        .assert_eq(&failure.to_string());
    }
}
