//! The phases of a session, and all transitions between them.

use crate::limits::Gate;

/// The phase of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// Before `initialize`.
    PreInitialization,
    /// `initialize` was called; the client has not sent `notifications/initialized`.
    Initializing,
    /// Requests are accepted.
    Initialized,
    /// The handshake failed or the session broke; only its end can follow.
    Error,
    /// The session has ended.
    Closed,
}

/// An event that changes the phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// `initialize` arrived.
    InitializeCalled,
    /// The backend answered `initialize` with its capabilities.
    InitializeAnswered,
    /// The backend refused, broke the protocol or took too long.
    InitializeFailed,
    /// `notifications/initialized` arrived.
    InitializedSaid,
    /// The protocol was violated, or the link broke beyond repair.
    Broken,
    /// DELETE, expiry, an operator, or the end of the process.
    Stopped,
}

impl Phase {
    /// The phase after `step`, or `None` if the step is not possible here.
    #[must_use]
    pub fn after(self, step: Step, gate: Gate) -> Option<Self> {
        Some(match (self, step) {
            (Self::PreInitialization, Step::InitializeCalled) => Self::Initializing,
            (Self::Initializing, Step::InitializeAnswered) => match gate {
                Gate::Strict => Self::Initializing,
                Gate::Lenient => Self::Initialized,
            },
            // A second `notifications/initialized` is harmless.
            (Self::Initializing | Self::Initialized, Step::InitializedSaid) => Self::Initialized,
            (Self::Initializing, Step::InitializeFailed | Step::Broken)
            | (Self::Initialized, Step::Broken) => Self::Error,
            (_, Step::Stopped) => Self::Closed,
            _ => return None,
        })
    }

    /// The phase's name in records, logs and operator output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PreInitialization => "pre_initialization",
            Self::Initializing => "initializing",
            Self::Initialized => "initialized",
            Self::Error => "error",
            Self::Closed => "closed",
        }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::PreInitialization, Self::Initializing, Self::Initialized, Self::Error, Self::Closed]
            .into_iter()
            .find(|phase| phase.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition() {
        use Phase::{Closed, Error, Initialized, Initializing, PreInitialization};
        use Step::*;
        let steps =
            [InitializeCalled, InitializeAnswered, InitializeFailed, InitializedSaid, Broken, Stopped];
        // One row per phase, one column per step, in the order above; strict gate.
        let table = [
            (PreInitialization, [Some(Initializing), None, None, None, None, Some(Closed)]),
            (
                Initializing,
                [None, Some(Initializing), Some(Error), Some(Initialized), Some(Error), Some(Closed)],
            ),
            (Initialized, [None, None, None, Some(Initialized), Some(Error), Some(Closed)]),
            (Error, [None, None, None, None, None, Some(Closed)]),
            (Closed, [None, None, None, None, None, Some(Closed)]),
        ];
        for (phase, row) in table {
            for (step, expected) in steps.into_iter().zip(row) {
                assert_eq!(phase.after(step, Gate::Strict), expected, "{phase:?} {step:?}");
            }
            assert_eq!(Phase::parse(phase.as_str()), Some(phase));
        }
        assert_eq!(Initializing.after(InitializeAnswered, Gate::Lenient), Some(Initialized));
    }
}
