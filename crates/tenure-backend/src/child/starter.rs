//! Starts children: when one may be started, and what is said when it does not come up.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::{Error, Reason, RpcError};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::command::ChildCommand;
use super::link::Failure;
use super::pool::{NoChild, Pool, Taken, Wanted};

/// The longest pause that anybody waits for, and how long for a place.
const PATIENCE: Duration = Duration::from_millis(1500);

pub(super) struct Starter {
    pub(super) command: ChildCommand,
    pub(super) pool: Arc<Pool>,
    pub(super) backoff: Backoff,
}

impl Starter {
    /// A process that nobody has spoken to, when the last failures are long enough ago. The label says for whom.
    ///
    /// # Cancel safety
    /// Nothing is left behind when it is dropped.
    pub(super) async fn process(&self, label: &str, wanted: Wanted) -> Result<Taken, RpcError> {
        self.wait_out(label).await?;
        match self.pool.take(wanted, PATIENCE).await {
            Ok(taken) => Ok(taken),
            Err(NoChild::Full) => Err(self.full()),
            Err(NoChild::Failed(error)) => Err(self.failed(label, &not_started(&error))),
        }
    }

    /// A short pause is waited for; nobody is kept waiting for a long one. Looked at again after each, because the end of
    /// the last server may be noticed only now.
    async fn wait_out(&self, label: &str) -> Result<(), RpcError> {
        let patience = Instant::now() + PATIENCE;
        while let Some(wait) = self.backoff.wait(label) {
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

    /// A spare ended before it could be used. That says nothing about the command: whatever ended it may have ended all
    /// processes there were. It is thrown away, and counts for nothing.
    pub(super) fn threw_away(&self, label: &str, failure: &Failure) {
        let program = self.command.program.display();
        tracing::info!(
            backend = self.command.name.as_deref(), session = label, %program, stderr = failure.tail,
            "a server that was started ahead has ended; another is started"
        );
    }

    /// It did not come up: it is not tried again at once.
    pub(super) fn failed(&self, label: &str, failure: &Failure) -> RpcError {
        let next_try_ms = u64::try_from(self.backoff.failed().as_millis()).unwrap_or(u64::MAX);
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
