//! Colours, only on a terminal and only without `NO_COLOR`.

use std::io::IsTerminal;

/// Whether to colour the texts on standard output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    is_on: bool,
}

/// The meaning of a colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tone {
    Plain,
    /// The names of things.
    Title,
    Good,
    /// Neither good nor bad.
    Quiet,
    /// Worth a look.
    Odd,
    Bad,
}

impl Paint {
    pub(super) fn stdout() -> Self {
        let is_wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { is_on: is_wanted && std::io::stdout().is_terminal() }
    }

    #[cfg(test)]
    pub(super) const fn of(is_on: bool) -> Self {
        Self { is_on }
    }

    pub(super) fn tint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Title => "1",
            Tone::Good => "32",
            Tone::Quiet => "2",
            Tone::Odd => "33",
            Tone::Bad => "31",
        };
        if self.is_on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
