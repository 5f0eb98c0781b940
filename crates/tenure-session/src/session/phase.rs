//! The phases of a session, and all transitions between them.

use crate::limits::Gate;

/// The phase of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// `initialize` arrived; the client has not sent `notifications/initialized`.
    Initializing,
    /// Requests are accepted.
    Initialized,
    /// The session has ended.
    Closed,
}

/// An event that changes the phase.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// The backend answered `initialize` with its capabilities.
    InitializeAnswered,
    /// `notifications/initialized` arrived.
    InitializedSaid,
    /// DELETE, expiry, an operator, or the end of the process.
    Stopped,
}

impl Phase {
    /// The phase after `step`, or `None` if the step is not possible here.
    #[must_use]
    pub(crate) fn after(self, step: Step, gate: Gate) -> Option<Self> {
        Some(match (self, step) {
            (Self::Initializing, Step::InitializeAnswered) => match gate {
                Gate::Strict => Self::Initializing,
                Gate::Lenient => Self::Initialized,
            },
            // A second `notifications/initialized` is harmless.
            (Self::Initializing | Self::Initialized, Step::InitializedSaid) => Self::Initialized,
            (_, Step::Stopped) => Self::Closed,
            _ => return None,
        })
    }

    /// The phase's name in records, logs and operator output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Initialized => "initialized",
            Self::Closed => "closed",
        }
    }

    /// Reads a name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Initializing, Self::Initialized, Self::Closed].into_iter().find(|phase| phase.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transition() {
        use Phase::{Closed, Initialized, Initializing};
        use Step::{InitializeAnswered, InitializedSaid, Stopped};
        let steps = [InitializeAnswered, InitializedSaid, Stopped];
        // One row per phase, one column per step, in the order above; strict gate.
        let table = [
            (Initializing, [Some(Initializing), Some(Initialized), Some(Closed)]),
            (Initialized, [None, Some(Initialized), Some(Closed)]),
            (Closed, [None, None, Some(Closed)]),
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
