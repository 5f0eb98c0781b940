//! Requests without a session, on a connection that may have one too.
//!
//! The connection has no era: each request names its own. A client that cancels a request gets no more messages of it,
//! not even an error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tenure_protocol::{
    Eras, Error, Method, Notification, Reason, Request, RequestId, message, modern, params,
};
use tenure_session::call::Caller;
use tenure_session::exchange::{ExchangeAnswer, Exchanges};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::connection::{Tasks, refusal};
use super::outgoing::Outgoing;
use crate::observe::OpenCalls;

/// The requests of one client.
#[derive(Clone)]
pub(crate) struct Exchanging {
    exchanges: Exchanges,
    running: Arc<RequestsInFlight>,
}

/// The requests in flight, each with the token that cancels it.
#[derive(Default)]
struct RequestsInFlight(Mutex<HashMap<RequestId, CancellationToken>>);

impl RequestsInFlight {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
        // Every change is a single insert or remove, so a panic leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exchanging {
    pub(crate) fn new(exchanges: Exchanges) -> Self {
        Self { exchanges, running: Arc::default() }
    }

    /// Which eras are served.
    pub(super) fn eras(&self) -> Eras {
        self.exchanges.eras()
    }

    /// Starts a request, and spawns a task if its answer does not come at once.
    pub(super) async fn request(
        &self,
        request: Request,
        caller: Caller,
        (output, calls): (&mpsc::Sender<Outgoing>, &OpenCalls),
        tasks: &Tasks,
    ) {
        let id = request.id.clone();
        let in_flight = match self.enter(&id) {
            Ok(in_flight) => in_flight,
            Err(error) => {
                let refusal = refusal(&error, Some(&id));
                calls.end(&id, &refusal);
                return drop(output.send(Outgoing::plain(refusal)).await);
            }
        };
        let (exchanges, output, calls) = (self.exchanges.clone(), output.clone(), calls.clone());
        let (withdrawn, withdrawn_id) = (in_flight.withdrawn.clone(), id);
        let mut call = Box::pin(async move {
            unless_withdrawn(&withdrawn, answer(&exchanges, request, caller, (&output, &calls))).await;
            calls.withdrawn(&withdrawn_id);
            drop(in_flight);
        });
        // Polled here until it has to wait, so that the request is in flight before the next message, which may
        // cancel it.
        let done = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        if !done {
            tasks.spawn(call);
        }
    }

    /// Cancels the request that the notification names. Returns whether it was one of these.
    pub(super) fn cancels(&self, notification: &Notification) -> bool {
        if notification.method != Method::Cancelled {
            return false;
        }
        let id = params::cancelled_id(notification.params.as_ref());
        let withdrawn = id.and_then(|id| self.running.lock().get(&id).cloned());
        withdrawn.map(|withdrawn| withdrawn.cancel()).is_some()
    }

    fn enter(&self, id: &RequestId) -> Result<InFlightRequest, Error> {
        let withdrawn = CancellationToken::new();
        let mut running = self.running.lock();
        if running.contains_key(id) {
            return Err(Error::new(Reason::DuplicateRequestId, "A request with this id is in flight"));
        }
        running.insert(id.clone(), withdrawn.clone());
        Ok(InFlightRequest { running: Arc::clone(&self.running), id: id.clone(), withdrawn })
    }
}

/// Answers a request unless the client withdraws it. If both happen at once, the withdrawal wins, because the client
/// expects no more messages of it.
async fn unless_withdrawn(withdrawn: &CancellationToken, answered: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = withdrawn.cancelled() => {}
        () = answered => {}
    }
}

/// Keeps a request in the table as long as it is in flight.
struct InFlightRequest {
    running: Arc<RequestsInFlight>,
    id: RequestId,
    withdrawn: CancellationToken,
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.running.lock().remove(&self.id);
    }
}

/// Answers a request: sends the messages that belong to it, then the response.
///
/// # Cancel safety
/// Dropping it withdraws the request.
async fn answer(
    exchanges: &Exchanges,
    request: Request,
    caller: Caller,
    (output, calls): (&mpsc::Sender<Outgoing>, &OpenCalls),
) {
    let (id, is_listen) = (request.id.clone(), request.method == Method::Listen);
    let answer = match modern::check(request, None, exchanges.eras()) {
        Ok(checked) => exchanges.request(checked, caller).await,
        Err(error) => ExchangeAnswer::Refused(error),
    };
    // False when the writer is gone; then the client does not wait for an answer.
    let say = async |body| output.send(Outgoing::plain(body)).await.is_ok();
    match answer {
        ExchangeAnswer::Json { body, .. } => {
            calls.end(&id, &body);
            say(body).await;
        }
        ExchangeAnswer::Refused(error) => {
            let refusal = refusal(&error, Some(&id));
            calls.end(&id, &refusal);
            say(refusal).await;
        }
        ExchangeAnswer::Stream(mut flow) => {
            while let Some(body) = flow.next().await {
                calls.passes(&id, &body);
                if !say(body).await {
                    return;
                }
            }
            if is_listen {
                // The result ends the subscription; clients of older drafts of the revision wait for this notification.
                say(message::write_cancelled(&id, "The server ends the subscription")).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_that_is_withdrawn_is_not_answered_though_its_answer_is_there() {
        let withdrawn = CancellationToken::new();
        let mut is_answered = false;
        unless_withdrawn(&withdrawn, async { is_answered = true }).await;
        assert!(std::mem::take(&mut is_answered));
        withdrawn.cancel();
        unless_withdrawn(&withdrawn, async { is_answered = true }).await;
        assert!(!is_answered);
    }
}
