//! Requests without a session, on a connection that may have one too.
//!
//! The connection does not choose an era: each request is of the one that it says it is. A client that withdraws a
//! request says so, and hears nothing more of it, not even an error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tenure_protocol::era::{self, Shape};
use tenure_protocol::{
    Era, Eras, Error, Message, Method, Notification, Reason, Request, RequestId, message, modern, params,
};
use tenure_session::call::Caller;
use tenure_session::exchange::{Answer, Exchanges};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::connection::{Tasks, refusal};
use super::outgoing::Outgoing;

/// The requests of one client.
#[derive(Clone)]
pub(crate) struct Exchanging {
    exchanges: Exchanges,
    running: Arc<Running>,
}

/// Those in flight, and how each is withdrawn.
#[derive(Default)]
struct Running(Mutex<HashMap<RequestId, CancellationToken>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
        // What is in there is whole at any moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has to deal with a request.
pub(super) enum Belongs {
    Session,
    Exchange,
    /// It is of an era that is not served here.
    Nobody(Error),
}

impl Exchanging {
    pub(crate) fn new(exchanges: Exchanges) -> Self {
        Self { exchanges, running: Arc::default() }
    }

    pub(super) fn belongs(&self, request: &Request) -> Belongs {
        let eras = self.exchanges.eras();
        match (era::belongs(Shape::Request, request.params.as_ref(), None), eras) {
            (_, Eras::Legacy) | (Era::Legacy, Eras::Both) => Belongs::Session,
            (Era::Modern, Eras::Both | Eras::Modern) => Belongs::Exchange,
            (Era::Legacy, Eras::Modern) => {
                let asked = era::requested(&Message::Request(request.clone()));
                Belongs::Nobody(era::not_served(asked.as_deref().unwrap_or_default(), eras))
            }
        }
    }

    /// Sends a request on its way.
    pub(super) async fn request(
        &self,
        request: Request,
        caller: Caller,
        output: &mpsc::Sender<Outgoing>,
        tasks: &Tasks,
    ) {
        let id = request.id.clone();
        let seat = match self.seat(&id) {
            Ok(seat) => seat,
            Err(error) => return drop(output.send(Outgoing::plain(refusal(&error, Some(&id)))).await),
        };
        let (exchanges, output) = (self.exchanges.clone(), output.clone());
        let withdrawn = seat.withdrawn.clone();
        let mut call = Box::pin(async move {
            unless_withdrawn(&withdrawn, answer(&exchanges, request, caller, &output)).await;
            drop(seat);
        });
        // Polled here until it has to wait, so that the next line finds the request in flight: it may withdraw it.
        let done = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
        if !done {
            tasks.spawn(call);
        }
    }

    /// Hears that a request is withdrawn, if it is one of these.
    pub(super) fn hears(&self, notification: &Notification) -> bool {
        if notification.method != Method::Cancelled {
            return false;
        }
        let id = params::cancelled_id(notification.params.as_ref());
        let withdrawn = id.and_then(|id| self.running.lock().get(&id).cloned());
        withdrawn.map(|withdrawn| withdrawn.cancel()).is_some()
    }

    fn seat(&self, id: &RequestId) -> Result<Seat, Error> {
        let withdrawn = CancellationToken::new();
        let mut running = self.running.lock();
        if running.contains_key(id) {
            return Err(Error::new(Reason::DuplicateRequestId, "A request with this id is in flight"));
        }
        running.insert(id.clone(), withdrawn.clone());
        Ok(Seat { running: Arc::clone(&self.running), id: id.clone(), withdrawn })
    }
}

/// Answers a request unless it is withdrawn. If both happen at once it is withdrawn: its client has said so, and expects
/// to hear nothing more of it.
async fn unless_withdrawn(withdrawn: &CancellationToken, answered: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = withdrawn.cancelled() => {}
        () = answered => {}
    }
}

/// A request as long as it is in flight.
struct Seat {
    running: Arc<Running>,
    id: RequestId,
    withdrawn: CancellationToken,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.running.lock().remove(&self.id);
    }
}

/// Answers a request, and says everything that belongs to it.
///
/// # Cancel safety
/// Dropping it withdraws the request.
async fn answer(exchanges: &Exchanges, request: Request, caller: Caller, output: &mpsc::Sender<Outgoing>) {
    let (id, is_listen) = (request.id.clone(), request.method == Method::Listen);
    let answer = match modern::check(request, None, exchanges.eras()) {
        Ok(checked) => exchanges.request(checked, caller).await,
        Err(error) => Answer::Refused(error),
    };
    // If nobody reads any more, nobody waits.
    let say = async |body| output.send(Outgoing::plain(body)).await.is_ok();
    match answer {
        Answer::Json { body, .. } => drop(say(body).await),
        Answer::Refused(error) => drop(say(refusal(&error, Some(&id))).await),
        Answer::Stream(mut flow) => {
            while let Some(body) = flow.next().await {
                if !say(body).await {
                    return;
                }
            }
            if is_listen {
                // Its result is the end of it; older readings of the revision wait for this.
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
