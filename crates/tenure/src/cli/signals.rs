//! The signals that tell a serving process to stop, or to put its audit log aside.

use super::Failure;

/// SIGINT, SIGTERM and SIGUSR1, from the moment of listening on.
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    reopen: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Listens. From here on no signal of these ends the process by itself.
    pub(super) fn listen() -> Result<Self, Failure> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |error| Failure::new("cannot listen for signals").caused_by(error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            reopen: signal(SignalKind::user_defined1()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// Waits for the next signal to stop, and calls `reopen` at each SIGUSR1 until then.
    pub(super) async fn next_but(&mut self, reopen: impl Fn()) -> &'static str {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.reopen.recv() => reopen(),
            }
        }
    }

    /// Waits for the next signal to stop, and returns its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
