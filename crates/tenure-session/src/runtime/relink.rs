//! A session whose server went away: it gets another one with its next request, and what was under way is settled
//! as after a restart.
//!
//! A link says itself that it is lost. Requests that were on it are run again on the next one if that is safe, and
//! otherwise end with an error that says that they were interrupted.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::context::{CallContext, Caller, Fanout, Outlet};
use super::session::Session;
use crate::error::{Error, Reason, RpcError};
use crate::id::RequestId;
use crate::message::{self, RawJson, Request};
use crate::port::BoxFuture;
use crate::port::backend::{Call, Link, Open, Opening, Reply};
use crate::rules::{self, Repeat};

impl Session {
    /// Makes room for a link, and returns the outlet that belongs to it.
    pub(super) fn next_outlet(self: &Arc<Self>) -> Outlet {
        let mut state = self.state.lock();
        state.link_number += 1;
        Outlet::of_link(self, state.link_number)
    }

    /// The link of that number is gone without having been closed.
    pub(super) fn link_lost(&self, number: u64) {
        let link = {
            let mut state = self.state.lock();
            if state.link_number != number || state.end.is_some() {
                return;
            }
            state.link_lost = number;
            // Before it was taken into use: whoever opened it finds out.
            let Some(link) = state.link.take() else { return };
            self.unlinked.store(true, Ordering::Release);
            link
        };
        tracing::warn!(session = %self.label, "the server behind the session is gone");
        self.inner.tasks.spawn(async move { link.close().await });
    }

    /// Whether the link of that number is lost.
    pub(super) fn has_lost(&self, number: u64) -> bool {
        let state = self.state.lock();
        state.link_lost >= number
    }

    pub(super) fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::Acquire)
    }

    /// Opens another link in place of one that was lost.
    pub(super) async fn relink(self: &Arc<Self>) -> Result<(), Error> {
        let _alone = self.linking.acquire().await;
        if !self.is_unlinked() {
            return Ok(());
        }
        let (params, revision, before) = {
            let state = self.state.lock();
            self.check_alive(&state)?;
            (state.initialize.clone(), state.revision, state.initialize_result.clone())
        };
        let outlet = self.next_outlet();
        let fanout = Fanout(Arc::downgrade(&self.inner));
        let open = Open { params, revision, opening: Opening::Wake, outlet, fanout };
        let (result, _) = self.inner.open_link(self, open).await.map_err(|error| {
            Error::new(Reason::BackendUnavailable, "The server behind the session could not be started again")
                .caused_by(error)
        })?;
        {
            // Under the lock: the new link may be lost already, and then the session must not pass for one that has it.
            let state = self.state.lock();
            self.unlinked.store(state.link.is_none(), Ordering::Release);
        }
        tracing::info!(session = %self.label, "the session has a server again");
        self.greet().await;
        let changed = rules::changed_lists(&before, &result);
        {
            let mut state = self.state.lock();
            state.initialize_result = result;
            self.save(&mut state);
        }
        for method in changed {
            self.announce(message::write_notification(&method, None));
        }
        Ok(())
    }

    /// Runs a request once more whose link was lost, if that is safe. What the server did not take always is.
    pub(super) fn repeat(self: &Arc<Self>, id: &RequestId, number: u64, refused: bool) -> BoxFuture<Reply> {
        let (session, id) = (Arc::clone(self), id.clone());
        Box::pin(async move {
            let request = {
                let state = session.state.lock();
                let call = state.calls.get(&id).filter(|call| call.number == number);
                call.map(|call| Request { id, method: call.method.clone(), params: call.params.clone() })
            };
            let Some(request) = request else { return Err(interrupted()) };
            if !refused && rules::repeat(&request.method) == Repeat::Never {
                return Err(interrupted());
            }
            if let Err(error) = session.relink().await {
                // Whether a tool may be called twice only the server could have said.
                let sure = refused || rules::repeat(&request.method) == Repeat::Safe;
                return Err(if sure { error.to_rpc() } else { interrupted() });
            }
            let link = session.state.lock().link.clone();
            let Some(link) = link else { return Err(interrupted()) };
            if !refused && !session.may_repeat(&link, &request).await {
                return Err(interrupted());
            }
            tracing::info!(session = %session.label, request = ?request.id, method = %request.method, "run again on another server");
            let caller = Caller { principal: session.owner.clone(), ..Caller::anonymous("wake") };
            let now = session.inner.clock.now();
            let context = CallContext::new(Arc::clone(&session), &request, number, caller, now);
            link.call(Call { request, context }).await
        })
    }

    async fn may_repeat(self: &Arc<Self>, link: &Arc<dyn Link>, request: &Request) -> bool {
        match rules::repeat(&request.method) {
            Repeat::Never => false,
            Repeat::Safe => true,
            Repeat::AskTool => match rules::tool_name(request.params.as_ref()) {
                Some(name) => self.repeatable_tools(link).await.contains(&name),
                None => false,
            },
        }
    }
}

fn interrupted() -> RpcError {
    RpcError::of(
        Reason::Interrupted,
        "The server ended before the answer came; the request may or may not have been carried out",
    )
}

/// Whether an answer says that the server is gone.
pub(super) fn says_gone(reply: &Result<RawJson, RpcError>) -> bool {
    reply.as_ref().is_err_and(|error| error.code() == i64::from(Reason::BackendUnavailable.code()))
}
