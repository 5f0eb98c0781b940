//! Where a request without a session is served in a cluster: at the node that has its parked call, its stream or its task,
//! and otherwise anywhere.
//!
//! In: requests, as their clients sent them. Out: a [`Place`]. A node that is gone has nothing any more; the records in the store
//! decide then, here, as after a kill.

use std::sync::atomic::Ordering;

use tenure_protocol::json::object::{self, Object};
use tenure_protocol::{Error, Method, Reason, Request};

use crate::cluster::{Place, Roster};
use crate::exchange::call::ActiveCall;
use crate::exchange::exchanges::{Exchanges, OPEN};
use crate::exchange::request_state::{self, Bound, OpenedState, ParkedName, SealedContent};
use crate::id::{NodeId, Principal};
use crate::kept::{CallId, FoundCall};
use crate::port::store::StoreError;

impl Exchanges {
    /// Makes this process a node of a cluster: its states and notes name it, so that other nodes find its calls. Called
    /// once, before the first request and after [`Exchanges::with_store`].
    #[must_use]
    pub fn with_roster(self, roster: Roster) -> Self {
        if let Some(calls) = self.0.kept_calls.get() {
            calls.join(roster.clone());
        }
        drop(self.0.roster.set(roster));
        self
    }

    /// Reports to the listens of this process that a task has ended, as another node says.
    pub fn task_ended_elsewhere(&self, task: &str) {
        if let Some(tasks) = self.0.tasks() {
            tasks.ended_elsewhere(task);
        }
    }

    /// Whether this process stops, so that new requests are better served by another node.
    pub fn is_leaving(&self) -> bool {
        self.0.stage.load(Ordering::SeqCst) != OPEN
    }

    /// Whether a request comes back to a call that is parked here.
    pub fn has_parked(&self, request: &Request, principal: &Principal) -> bool {
        ActiveCall::may_ask(&request.method)
            && self.state_of(request, principal).is_some_and(|parked| parked.process == self.0.process)
    }

    /// Whether a request comes back to a call that is parked, here or elsewhere.
    pub fn comes_back(&self, request: &Request, principal: &Principal) -> bool {
        ActiveCall::may_ask(&request.method) && self.state_of(request, principal).is_some()
    }

    /// Where a request is served: at the node that has the parked call that it comes back to, or its task.
    ///
    /// # Errors
    /// When this node may not act, or the store does not answer.
    ///
    /// # Cancel safety
    /// Nothing happens.
    pub async fn place(&self, request: &Request, principal: &Principal) -> Result<Place, Error> {
        let Some(roster) = self.0.roster.get() else { return Ok(Place::Here) };
        let node = match request.method {
            Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => {
                return self.place_of_task(request, principal).await;
            }
            _ if ActiveCall::may_ask(&request.method) => {
                let parked = self.state_of(request, principal);
                parked.filter(|parked| parked.process != self.0.process).and_then(|parked| parked.node)
            }
            _ => None,
        };
        at(roster, node).await
    }

    /// Where a client is served that comes back with an event id. `None` if it is not the event id of a call.
    ///
    /// # Errors
    /// As for [`Exchanges::place`].
    ///
    /// # Cancel safety
    /// Nothing happens.
    pub async fn place_of_call(
        &self,
        event_id: &[u8],
        principal: &Principal,
    ) -> Option<Result<Place, Error>> {
        let (calls, roster) = (self.0.kept_calls.get()?, self.0.roster.get()?);
        let id = CallId::parse(event_id)?;
        let node = match calls.find(&id, principal, &self.1).await {
            Ok(FoundCall::Noted(noted)) if noted.outcome.is_empty() => noted.node,
            Ok(FoundCall::Live(..) | FoundCall::Noted(_) | FoundCall::Nothing) => None,
            Err(error) => return Some(Err(error)),
        };
        Some(at(roster, node).await)
    }

    /// The parked call of the state that a request brings.
    fn state_of(&self, request: &Request, principal: &Principal) -> Option<ParkedName> {
        // A state that cannot be read is refused when the request is admitted.
        let state = request_state::brought(request.params.as_ref()).ok()??;
        let bound = Bound::new(request, &self.1, principal);
        match bound.open(&*self.0.seal, &state, self.0.clock.now()) {
            OpenedState::Holds(SealedContent::Parked(parked)) => Some(parked),
            _ => None,
        }
    }

    async fn place_of_task(&self, request: &Request, principal: &Principal) -> Result<Place, Error> {
        let Some(tasks) = self.0.tasks() else { return Ok(Place::Here) };
        let params = request.params.as_ref().and_then(|params| Object::read(object::text(params)));
        let id = params.and_then(|params| params.get("taskId").and_then(object::unquoted));
        let Some(id) = id else { return Ok(Place::Here) };
        match tasks.place(principal, &self.1, &id).await {
            // It may be one of the server's own.
            Err(error) if error.reason() == Reason::TaskNotFound => Ok(Place::Here),
            place => place,
        }
    }
}

/// At this node of a cluster, unless it is this one or gone.
async fn at(roster: &Roster, node: Option<NodeId>) -> Result<Place, Error> {
    let Some(node) = node.filter(|node| *node != roster.node()) else { return Ok(Place::Here) };
    // Only a node that may act can tell that another one is gone.
    roster.confirmed().await?;
    let unavailable = |error: StoreError| {
        Error::new(Reason::StoreUnavailable, "The store of nodes is not available").caused_by(error)
    };
    Ok(match roster.find_gone(node).await.map_err(unavailable)? {
        true => Place::Here,
        false => Place::There(node),
    })
}
