//! Decides when a child may be started, and reports a start that failed.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Error, Reason, RpcError};
use tokio::time::Instant;

use super::command::ChildCommand;
use super::link::Failure;
use super::pool::{NoChild, Pool, TakenChild, WantedChild};
use super::restarts::Restarts;

/// The longest back-off pause that a session waits for, and how long it waits for a permit.
const PATIENCE: Duration = Duration::from_millis(1500);

pub(super) struct Starter {
    pub(super) command: ChildCommand,
    pub(super) pool: Arc<Pool>,
    pub(super) restarts: Restarts,
}

impl Starter {
    /// An unused process, after the back-off of the last failures. The label names the session; the variables are set for a
    /// process that is started now.
    ///
    /// # Cancel safety
    /// Dropping it leaves nothing behind.
    pub(super) async fn process(
        &self,
        label: &str,
        wanted: WantedChild,
        variables: &[(&'static str, String)],
    ) -> Result<TakenChild, RpcError> {
        self.wait_out(label).await?;
        match self.pool.take(wanted, variables, PATIENCE).await {
            Ok(taken) => Ok(taken),
            Err(NoChild::Full) => Err(self.full()),
            Err(NoChild::Failed(error)) => Err(self.failed(label, &not_started(&error))),
        }
    }

    /// Waits for a short back-off pause; a long one is an error. Checks again after each pause, because the end of the
    /// last server may be noticed late.
    async fn wait_out(&self, label: &str) -> Result<(), RpcError> {
        let patience = Instant::now() + PATIENCE;
        while let Some(wait) = self.restarts.wait(label) {
            if Instant::now() + wait > patience {
                let seconds = wait.as_secs_f32();
                let words = format!(
                    "The server keeps failing; it is started again in {seconds:.1} s at the earliest"
                );
                return Err(RpcError::of(Reason::BackendUnavailable, words));
            }
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn full(&self) -> RpcError {
        let words = "As many servers run as may; try again later";
        Error::new(Reason::TooManyProcesses, words).with("limit", self.command.limits.max).to_rpc()
    }

    /// Logs that a spare ended before it was used. It does not count as a failure of the command, because the cause may
    /// have ended all processes on the machine.
    pub(super) fn threw_away(&self, label: &str, failure: &Failure) {
        let program = self.command.program.display();
        tracing::info!(
            backend = self.command.name.as_deref(), session = label, %program, stderr = failure.tail,
            "a server that was started ahead has ended; another is started"
        );
    }

    /// The child did not start: logs it and begins the back-off.
    pub(super) fn failed(&self, label: &str, failure: &Failure) -> RpcError {
        let next_try_ms = u64::try_from(self.restarts.failed().as_millis()).unwrap_or(u64::MAX);
        let program = self.command.program.display();
        tracing::error!(
            backend = self.command.name.as_deref(), session = label, %program, stderr = failure.tail, next_try_ms,
            "the server could not be started: {}", failure.what
        );
        failure.error.clone()
    }
}

fn not_started(error: &std::io::Error) -> Failure {
    Failure {
        error: RpcError::of(Reason::BackendUnavailable, "The server could not be started"),
        what: error.to_string(),
        tail: String::new(),
        ended_by_itself: false,
    }
}
