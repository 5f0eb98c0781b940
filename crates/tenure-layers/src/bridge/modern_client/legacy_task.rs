//! A call that a session's server carries out as a task, for a modern client.
//!
//! When the server has made a task of the call, the call becomes a task of our own if its client knows tasks;
//! otherwise the client waits. Either way we send `tasks/result`, which the server answers when the task has ended,
//! and pass its questions to the call's own context. The session belongs to the task until then. If the call is
//! cancelled or dropped, we cancel the server's task and close the session.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::translate::tasks::{self, Status, TaskSnapshot};
use tenure_protocol::{Method, Reason, Reply, Request, RpcError};
use tenure_session::call::TaskWish;
use tokio::time::Instant;

use crate::bridge::modern_client::pool::Lease;
use crate::bridge::modern_client::pooled_request::PooledRequest;
use crate::bridge::modern_client::pooled_session::PooledSession;

/// The poll interval for a server that answers `tasks/result` before the task has ended, if it names none.
const POLL: Duration = Duration::from_secs(1);
/// Bounds of the interval that a server may name.
const MIN_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(30);
/// How long `tasks/get` may fail.
const FAULTS: Duration = Duration::from_secs(60);
/// How long a server may take to answer `tasks/cancel`.
const CANCEL: Duration = Duration::from_secs(3);

/// Follows a task of a server to its end. Returns the lease if its session can be used again.
///
/// # Errors
/// When the call could not become a task, or was cancelled.
///
/// # Cancel safety
/// The task is cancelled.
pub(super) async fn run(
    lease: Lease,
    pooled: &Arc<PooledRequest>,
    created: TaskSnapshot,
) -> Result<(Reply, Lease), RpcError> {
    let poll = created.poll.map(|poll| poll.clamp(MIN_POLL, MAX_POLL));
    let task = LegacyTask { lease: Some(lease), id: created.id };
    let context = pooled.context();
    context.become_task(TaskWish { ttl: created.ttl, poll }).await?;
    let reply = tokio::select! {
        biased;
        () = context.cancelled() => {
            return Err(RpcError::of(Reason::Cancelled, "The request was cancelled"));
        }
        reply = task.outcome(pooled, poll.unwrap_or(POLL)) => reply,
    };
    Ok((reply, task.done()))
}

/// A task of a server. If it is dropped before its end is known, the server's task is cancelled.
struct LegacyTask {
    /// Taken when the task is done.
    lease: Option<Lease>,
    id: String,
}

/// The state of a task whose server has not given the outcome.
enum LegacyTaskStatus {
    /// The outcome can be read now.
    Ended,
    /// The task goes on, and may have questions.
    GoesOn,
    /// There will be no outcome.
    Over(RpcError),
}

impl LegacyTask {
    fn session(&self) -> &Arc<PooledSession> {
        self.lease.as_ref().expect("the lease is there until the task is done").session()
    }

    fn done(mut self) -> Lease {
        self.lease.take().expect("a task is done once")
    }

    /// Waits for the outcome of the task.
    async fn outcome(&self, pooled: &Arc<PooledRequest>, poll: Duration) -> Reply {
        let mut has_ended = false;
        loop {
            let request = Request {
                id: pooled.context().request_id().clone(),
                method: Method::TasksResult,
                params: Some(tasks::named(&self.id)),
            };
            let error = match self.session().call(request, pooled).await {
                Ok(result) => return Ok(result),
                // The error is the outcome: the task has ended.
                Err(error) if has_ended && !self.session().client.is_lost() => return Err(error),
                Err(error) => error,
            };
            // Either this error is the outcome, or the server does not wait for the end: the status says which.
            tracing::debug!(session = %self.session().label(), %error, "a task has no outcome yet");
            match self.status(poll).await {
                LegacyTaskStatus::Ended => has_ended = true,
                LegacyTaskStatus::GoesOn => {}
                LegacyTaskStatus::Over(error) => return Err(error),
            }
        }
    }

    /// Polls until the task has ended, has questions or has failed.
    async fn status(&self, poll: Duration) -> LegacyTaskStatus {
        let session = self.session();
        let mut failing_since = None;
        let mut first = true;
        loop {
            if session.client.is_lost() {
                return LegacyTaskStatus::Over(lost());
            }
            match session.inquire(&Method::TasksGet, tasks::named(&self.id)).await {
                Ok(got) => match tasks::seen(&got).map(|seen| seen.status) {
                    Some(Status::Completed | Status::Failed) => return LegacyTaskStatus::Ended,
                    Some(Status::Cancelled) => {
                        let words = "The server cancelled the task";
                        return LegacyTaskStatus::Over(RpcError::of(Reason::Cancelled, words));
                    }
                    // The server sends its questions while `tasks/result` is open.
                    Some(Status::InputRequired) if !first => return LegacyTaskStatus::GoesOn,
                    Some(Status::InputRequired | Status::Working) => failing_since = None,
                    None => {
                        let words = "The server's task cannot be read";
                        return LegacyTaskStatus::Over(RpcError::of(Reason::Internal, words));
                    }
                },
                Err(error) if error.is(Reason::BackendUnavailable) || error.is(Reason::TimedOut) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > FAULTS {
                        // Not an error that allows a retry: the server took the call.
                        return LegacyTaskStatus::Over(RpcError::server_lost());
                    }
                }
                Err(error) => return LegacyTaskStatus::Over(error),
            }
            tokio::select! {
                () = tokio::time::sleep(poll) => {}
                () = session.client.lost() => {}
            }
            first = false;
        }
    }
}

impl Drop for LegacyTask {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        // Without a runtime the process is ending.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (params, pool) = (tasks::named(&self.id), Arc::clone(&lease.pool));
        let cancel = async move {
            let telling = lease.session().inquire(&Method::TasksCancel, params);
            match tokio::time::timeout(CANCEL, telling).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(session = %lease.session().label(), %error, "a task was not cancelled")
                }
                Err(_) => {
                    tracing::debug!(session = %lease.session().label(), "a task may not have been cancelled")
                }
            }
            // The lease is not released: later messages of the server are about the task.
            drop(lease);
        };
        drop(pool.tasks.spawn_on(cancel, &runtime));
    }
}

fn lost() -> RpcError {
    let words = "The session with the server was lost, and with it the task that the server worked on";
    RpcError::of(Reason::Interrupted, words)
}
