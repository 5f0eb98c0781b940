//! Checks that no client waits too long for a sign of life.

use std::time::Duration;

use super::{CheckFault, FaultKind};

/// The longest that nodes hold a request while an owner is being found.
const HOLD: Duration = Duration::from_secs(10);

/// What a busy machine may add.
const SLACK: Duration = Duration::from_millis(1500);

/// How long a client has to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Patience {
    /// How many troubles could show meanwhile. Each has a hold of its own.
    pub(crate) troubles: usize,
}

impl Patience {
    /// Whether a client that has waited this long had to.
    pub(crate) fn judge(self, waited: Duration) -> Result<(), CheckFault> {
        let holds = u32::try_from(self.troubles.clamp(1, 3)).unwrap_or(1);
        if waited <= HOLD * holds + SLACK {
            return Ok(());
        }
        let detail =
            format!("{:.1} s without a sign of life, {} troubles", waited.as_secs_f32(), self.troubles);
        Err(CheckFault::new(FaultKind::Late, detail))
    }
}
