//! A call that a session's server carries out as a task, for a modern client.
//!
//! When the server has made a task of the call, the call becomes one of ours, if its client knows tasks; otherwise the
//! client waits. Either way the server is asked for the outcome, which it gives when there is one, and whatever it asks
//! meanwhile is asked of the call's own context. The session belongs to the task until then. If the call is withdrawn
//! or dropped, the server is told so, and the session is closed.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::translate::tasks::{self, Seen, Status};
use tenure_protocol::{Method, Reason, Reply, Request, RpcError};
use tenure_session::call::TaskWish;
use tokio::time::Instant;

use crate::bridge::modern_client::pool::Lease;
use crate::bridge::modern_client::pooled_request::Turn;
use crate::bridge::modern_client::pooled_session::Slot;

/// How often a server that does not wait for the outcome is asked where its task is, if it does not say.
const POLL: Duration = Duration::from_secs(1);
/// What it may say.
const MIN_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(30);
/// How long a server may fail to say where its task is.
const FAULTS: Duration = Duration::from_secs(60);
/// How long a server may take to hear that a task is not wanted any more.
const CANCEL: Duration = Duration::from_secs(3);

/// Sees a task of a server through to its end. The lease comes back if its session can be used again.
///
/// # Errors
/// When the call could not become a task, or was withdrawn.
///
/// # Cancel safety
/// The task is cancelled.
pub(super) async fn run(lease: Lease, turn: &Arc<Turn>, created: Seen) -> Result<(Reply, Lease), RpcError> {
    let poll = created.poll.map(|poll| poll.clamp(MIN_POLL, MAX_POLL));
    let errand = Errand { lease: Some(lease), id: created.id };
    let context = turn.context();
    context.become_task(TaskWish { ttl: created.ttl, poll }).await?;
    let reply = tokio::select! {
        biased;
        () = context.cancelled() => {
            return Err(RpcError::of(Reason::Cancelled, "The request was cancelled"));
        }
        reply = errand.outcome(turn, poll.unwrap_or(POLL)) => reply,
    };
    Ok((reply, errand.done()))
}

/// A task of a server. Dropped before its end is known, it is cancelled.
struct Errand {
    /// Until it is done.
    lease: Option<Lease>,
    id: String,
}

/// What a server says of its task when it has not given the outcome.
enum Standing {
    /// There is one now.
    Ended,
    /// It goes on, and may want something.
    GoesOn,
    /// There will be none.
    Over(RpcError),
}

impl Errand {
    fn slot(&self) -> &Arc<Slot> {
        self.lease.as_ref().expect("it is there until the errand is done").slot()
    }

    fn done(mut self) -> Lease {
        self.lease.take().expect("it is done once")
    }

    /// Waits for what the task comes to.
    async fn outcome(&self, turn: &Arc<Turn>, poll: Duration) -> Reply {
        let mut has_ended = false;
        loop {
            let request = Request {
                id: turn.context().request_id().clone(),
                method: Method::TasksResult,
                params: Some(tasks::named(&self.id)),
            };
            let error = match self.slot().call(request, turn).await {
                Ok(result) => return Ok(result),
                // What the call would have been answered with.
                Err(error) if has_ended && !self.slot().seat.is_lost() => return Err(error),
                Err(error) => error,
            };
            // Either that is the outcome, or the server does not wait for one: its word on the task says which.
            tracing::debug!(session = %self.slot().label(), %error, "no outcome of a task yet");
            match self.standing(poll).await {
                Standing::Ended => has_ended = true,
                Standing::GoesOn => {}
                Standing::Over(error) => return Err(error),
            }
        }
    }

    /// Waits until the server may have more to say of the task.
    async fn standing(&self, poll: Duration) -> Standing {
        let slot = self.slot();
        let mut failing_since = None;
        let mut first = true;
        loop {
            if slot.seat.is_lost() {
                return Standing::Over(lost());
            }
            match slot.inquire(&Method::TasksGet, tasks::named(&self.id)).await {
                Ok(got) => match tasks::seen(&got).map(|seen| seen.status) {
                    Some(Status::Completed | Status::Failed) => return Standing::Ended,
                    Some(Status::Cancelled) => {
                        let words = "The server cancelled the task";
                        return Standing::Over(RpcError::of(Reason::Cancelled, words));
                    }
                    // Its questions come while it is asked for the outcome.
                    Some(Status::InputRequired) if !first => return Standing::GoesOn,
                    Some(Status::InputRequired | Status::Working) => failing_since = None,
                    None => {
                        let words = "The server's task cannot be read";
                        return Standing::Over(RpcError::of(Reason::Internal, words));
                    }
                },
                Err(error) if error.is(Reason::BackendUnavailable) || error.is(Reason::TimedOut) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > FAULTS {
                        // Not an error for which the call could be sent again: the server took it.
                        return Standing::Over(RpcError::server_lost());
                    }
                }
                Err(error) => return Standing::Over(error),
            }
            tokio::select! {
                () = tokio::time::sleep(poll) => {}
                () = slot.seat.lost() => {}
            }
            first = false;
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        // Without a runtime the process is ending.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (params, pool) = (tasks::named(&self.id), Arc::clone(&lease.pool));
        let cancel = async move {
            let telling = lease.slot().inquire(&Method::TasksCancel, params);
            match tokio::time::timeout(CANCEL, telling).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    tracing::debug!(session = %lease.slot().label(), %error, "a task was not cancelled")
                }
                Err(_) => {
                    tracing::debug!(session = %lease.slot().label(), "a task may not have been cancelled")
                }
            }
            // Not given back: what its server still says is about the task.
            drop(lease);
        };
        drop(pool.tasks.spawn_on(cancel, &runtime));
    }
}

fn lost() -> RpcError {
    let words = "The session with the server was lost, and with it the task that the server worked on";
    RpcError::of(Reason::Interrupted, words)
}
