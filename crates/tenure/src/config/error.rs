//! Errors and warnings about a configuration, as people read them.

use std::fmt;

/// Why a configuration cannot be used: one problem or several.
#[derive(Debug)]
pub struct ConfigError {
    /// Never empty; in the order of the layers, and of the lines within a file.
    problems: Vec<Problem>,
}

/// Something odd with which the server still starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    text: String,
}

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    /// What is wrong and where, as a fragment.
    pub(super) what: String,
    /// What to do about it.
    pub(super) hint: Option<String>,
}

impl ConfigError {
    /// `Err` with these problems, or `Ok` if the list is empty.
    pub(super) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }

    /// The hint, if there is one problem. The text of several problems contains their hints.
    pub(crate) fn hint(&self) -> Option<&str> {
        match &self.problems[..] {
            [problem] => problem.hint.as_deref(),
            _ => None,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = &self.problems[..] {
            return f.write_str(&problem.what);
        }
        write!(f, "the configuration has {} problems", self.problems.len())?;
        for Problem { what, hint } in &self.problems {
            write!(f, "\n  {what}")?;
            if let Some(hint) = hint {
                write!(f, "\n    hint: {hint}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

impl Warning {
    pub(super) fn new(text: String) -> Self {
        Self { text }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
