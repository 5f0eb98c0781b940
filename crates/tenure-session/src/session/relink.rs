//! Gives a session a new server after it lost the last one, and settles the requests that were under way.
//!
//! A link reports its own loss. Its open requests run again on the next link if that is safe; otherwise they end with
//! an error that says that they were interrupted. Requests that arrive while there is no link are in flight and wait.
//! Opening a link is single-flight: the first request starts a task, the others wait for it, and it goes on if they are
//! all cancelled. If it fails they all fail, and the next request tries again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Error, RawJson, Reason, Request, RequestId, RpcError, message};

use crate::backend::{Call, Link, Open, Opening};
use crate::call::{CallContext, Caller, Client, Fanout, Outlet};
use crate::port::BoxFuture;
use crate::session::claim::elsewhere;
use crate::session::give_up::interrupted_error;
use crate::session::link::not_started;
use crate::session::live_session::{Session, SessionState};
use crate::session::request::Answer;
use crate::single_flight::{Attempt, Attempting};

/// How many links one request may lose before it fails. More than one, since servers that die together do not die at
/// the same moment; not many, since the request itself may crash them.
pub(super) const MAX_LOST: u32 = 3;

/// The result of opening another link.
pub(super) type RelinkOutcome = Result<(), Arc<Error>>;

/// A request that waited for a link, and the link to send it on.
pub(super) struct Placed {
    pub(super) link: Arc<dyn Link>,
    pub(super) link_number: u64,
    pub(super) call: Call,
}

impl Session {
    /// Numbers the next link and returns its outlet.
    pub(super) fn next_outlet(self: &Arc<Self>) -> Outlet {
        let mut state = self.state.lock();
        state.link_number += 1;
        let client: Arc<dyn Client> = Arc::clone(self) as _;
        Outlet::of_link(&client, state.link_number)
    }

    /// Takes the report that the link with this number was lost without having been closed.
    pub(crate) fn lost_link(&self, number: u64) {
        let link = {
            let mut state = self.state.lock();
            if state.link_number != number || state.end.is_some() {
                return;
            }
            state.link_lost = number;
            // It is not in use yet: `take_link` sees `link_lost` and fails.
            let Some(link) = state.link.take() else { return };
            self.unlinked.store(true, Ordering::Release);
            link
        };
        tracing::warn!(session = %self.label, "the server behind the session is gone");
        self.inner.closing.spawn(async move { link.close().await });
    }

    /// Whether the link with this number is lost.
    pub(super) fn has_lost(&self, number: u64) -> bool {
        let state = self.state.lock();
        state.link_lost >= number
    }

    pub(super) fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::Acquire)
    }

    /// Waits for a link for a request that arrived when the session had none.
    pub(super) fn place(self: &Arc<Self>, call: Call, number: u64) -> BoxFuture<Result<Placed, RpcError>> {
        let session = Arc::clone(self);
        Box::pin(async move {
            session.relink_for(&call.context).await.map_err(|error| error.to_rpc())?;
            let (link, link_number) = session.link_for(&call.request.id, number)?;
            Ok(Placed { link, link_number, call })
        })
    }

    /// Waits until this node may act, and then for a link: before, it must not send a request to a server.
    pub(super) fn place_once_confirmed(
        self: &Arc<Self>,
        call: Call,
        number: u64,
    ) -> BoxFuture<Result<Placed, RpcError>> {
        let session = Arc::clone(self);
        Box::pin(async move {
            if !session.until_may_act().await {
                return Err(elsewhere().to_rpc());
            }
            session.place(call, number).await
        })
    }

    /// Waits until this node may act for the session. False if it never will, or not soon.
    async fn until_may_act(&self) -> bool {
        // A name that is lost is never confirmed again.
        while self.inner.confirmed().await.is_ok() {
            if self.may_act() {
                return true;
            }
            if self.inner.claimant() != self.by {
                break;
            }
        }
        false
    }

    /// Holds an answer that no log has until this node may act: it must not say what a later owner does not know.
    pub(super) async fn answer_once_confirmed(self: &Arc<Self>, id: RequestId, answer: Answer) -> Answer {
        if !matches!(answer, Answer::Json(_) | Answer::TryLater { .. }) {
            return answer;
        }
        if self.until_may_act().await {
            return answer;
        }
        Answer::Json(message::write_error(Some(&id), &interrupted_error()))
    }

    /// Waits for another link for a request whose link was lost, if the request is safe to repeat. A request that the
    /// server has refused is always safe.
    pub(super) fn repeat(
        self: &Arc<Self>,
        id: &RequestId,
        number: u64,
        refused: bool,
    ) -> BoxFuture<Result<Placed, RpcError>> {
        let (session, id) = (Arc::clone(self), id.clone());
        Box::pin(async move {
            let again = {
                let state = session.state.lock();
                let call = state.calls.get(&id).filter(|call| call.number == number);
                call.map(|call| {
                    let (method, params) = (call.method.clone(), call.params.clone());
                    (Request { id: id.clone(), method, params }, call.scopes.clone())
                })
            };
            let Some((request, scopes)) = again else { return Err(RpcError::server_lost()) };
            let repeat = if refused { Repeat::Safe } else { params::repeat(&request.method) };
            if repeat == Repeat::Never {
                return Err(RpcError::server_lost());
            }
            let caller = Caller { principal: session.owner.clone(), scopes, ..Caller::anonymous("wake") };
            let now = session.inner.clock.now();
            let context = CallContext::numbered(Arc::clone(&session) as _, &request, number, caller, now);
            if let Err(error) = session.relink_for(&context).await {
                // Only the server can say whether a tool may be called twice.
                return Err(if repeat == Repeat::Safe { error.to_rpc() } else { RpcError::server_lost() });
            }
            if repeat == Repeat::AskTool {
                let name = params::tool_name(request.params.as_ref());
                let tools = session.repeatable_tools().await;
                if !name.is_some_and(|name| tools.contains(&name)) {
                    return Err(RpcError::server_lost());
                }
                // The server may have been lost after it listed its tools.
                session.relink_for(&context).await.map_err(|error| error.to_rpc())?;
            }
            // Last, because the client may have cancelled the request during the waits above.
            let (link, link_number) = session.link_for(&id, number)?;
            tracing::info!(session = %session.label, request = ?id, method = %request.method, "running a request again on another server");
            Ok(Placed { link, link_number, call: Call { request, context } })
        })
    }

    /// Waits for a link until the request is cancelled.
    async fn relink_for(self: &Arc<Self>, context: &CallContext) -> Result<(), Error> {
        tokio::select! {
            linked = self.relink() => linked,
            () = context.cancelled() => Err(Error::new(Reason::Cancelled, "The request was cancelled")),
        }
    }

    /// The link for a request, if the request is still in flight.
    fn link_for(&self, id: &RequestId, number: u64) -> Result<(Arc<dyn Link>, u64), RpcError> {
        let state = self.state.lock();
        if state.calls.get(id).is_none_or(|call| call.number != number) {
            return Err(RpcError::of(Reason::Cancelled, "The request was cancelled"));
        }
        self.link_in(&state).ok_or_else(ended_at_once)
    }

    /// The session's current link and its number.
    pub(super) fn current_link(&self) -> Option<(Arc<dyn Link>, u64)> {
        self.link_in(&self.state.lock())
    }

    /// The same under a lock that the caller holds, so that link and number belong together.
    pub(super) fn link_in(&self, state: &SessionState) -> Option<(Arc<dyn Link>, u64)> {
        let link = state.link.as_ref().filter(|_| !self.is_unlinked())?;
        Some((Arc::clone(link), state.link_number))
    }

    /// Waits until the session has a link. Single-flight: all waiters get the same result.
    ///
    /// # Cancel safety
    /// The link is opened in its own task, which goes on.
    pub(super) async fn relink(self: &Arc<Self>) -> Result<(), Error> {
        let Some(attempt) = self.relink_once()? else { return Ok(()) };
        match attempt.outcome().await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(error.again()),
            None => Err(Error::new(Reason::Internal, "The session could not get another server")),
        }
    }

    /// Starts to open a link, unless that is under way. `None` means that the session has a link.
    fn relink_once(self: &Arc<Self>) -> Result<Option<Attempt<RelinkOutcome>>, Error> {
        let (attempting, attempt) = Attempting::begin();
        {
            let mut state = self.state.lock();
            self.check_alive(&state)?;
            // Checked under the lock: a finished attempt clears `unlinked` before it clears `relinking`.
            if !self.is_unlinked() {
                return Ok(None);
            }
            if let Some(attempt) = &state.relinking {
                return Ok(Some(attempt.clone()));
            }
            state.relinking = Some(attempt.clone());
        }
        let relinking = Relinking(Arc::clone(self));
        self.inner.tasks.spawn(async move {
            let session = &relinking.0;
            let linked = tokio::select! {
                linked = session.open_one_that_stays() => linked,
                () = session.inner.stop.cancelled() => Err(Error::new(Reason::Draining, "The server is shutting down")),
            };
            if let Err(error) = &linked {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                tracing::warn!(session = %session.label, %error, cause, "the session could not get another server");
            }
            drop(relinking);
            attempting.done(linked.map_err(Arc::new));
        });
        Ok(Some(attempt))
    }

    /// Opens another link in place of a lost one. If that is lost too before it can be used, tries again.
    async fn open_one_that_stays(self: &Arc<Self>) -> Result<(), Error> {
        let mut tries = 1;
        loop {
            let linked = self.open_another().await;
            if linked.is_ok() || tries >= MAX_LOST || !self.has_lost_last() {
                return linked;
            }
            tries += 1;
        }
    }

    /// Whether the newest link is lost.
    fn has_lost_last(&self) -> bool {
        let state = self.state.lock();
        state.link_lost >= state.link_number
    }

    /// Opens another link in place of a lost one, and sends its server the client's log level and subscriptions.
    async fn open_another(self: &Arc<Self>) -> Result<(), Error> {
        let (params, revision, before) = {
            let state = self.state.lock();
            self.check_alive(&state)?;
            (state.initialize.clone(), state.revision, state.initialize_result.clone())
        };
        let outlet = self.next_outlet();
        let route = self.route.clone();
        let fanout = Fanout::within(Arc::clone(&self.inner.hub), route.clone());
        let open = Open { params, revision, opening: Opening::Wake, route, outlet, fanout };
        let (result, _) = self.inner.open_link(self, open).await.map_err(not_started)?;
        self.greet().await;
        let changed = params::changed_lists(&before, &result);
        {
            let mut state = self.state.lock();
            self.check_alive(&state)?;
            if state.link.is_none() {
                return Err(not_started(ended_at_once()));
            }
            // Only now: requests wait until the server knows the log level and the subscriptions.
            self.unlinked.store(false, Ordering::Release);
            state.initialize_result = result;
            self.save(&mut state);
        }
        tracing::info!(session = %self.label, "the session has a server again");
        for method in changed {
            self.announce(message::write_notification(&method, None));
        }
        Ok(())
    }
}

/// A running attempt to open a link. Drop marks it as done, also after a panic.
struct Relinking(Arc<Session>);

impl Drop for Relinking {
    fn drop(&mut self) {
        self.0.state.lock().relinking = None;
    }
}

pub(super) fn ended_at_once() -> RpcError {
    RpcError::of(Reason::BackendUnavailable, "The server ended right after it began")
}

/// Whether an answer reports the loss of the server.
pub(super) fn says_gone(reply: &Result<RawJson, RpcError>) -> bool {
    reply.as_ref().is_err_and(|error| error.code() == i64::from(Reason::BackendUnavailable.code()))
}
