//! Requests without a session that another node serves: the node that has their call or task, or any node while this one
//! stops.
//!
//! In: a request of a client whose connection, body and credentials have been checked here. Out: the answer of the other
//! node, or nothing if the request is served here. If the node that has a call or a task is gone, it is served here from what the
//! store has, as after a kill.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Method as HttpMethod, Request, Response, StatusCode};
use ring::rand::{SecureRandom, SystemRandom};
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Error, Message, Method, Reason, Request as McpRequest};
use tenure_session::call::Caller;
use tenure_session::cluster::Place;
use tenure_session::id::NodeId;
use tenure_session::{Session, SessionId};
use tokio::time::Instant;

use super::access::{Hop, Sender};
use super::answer::AnswerFormat;
use super::body::Body;
use super::elsewhere::{Carried, Hold, LOST, NoAnswer, PeerAnswer, is_between_nodes, no_node, too_large};
use super::endpoint::{Asker, Endpoint};
use super::headers;
use super::reject::{empty, reject};
use crate::cluster::{Relay, RelayedWish, RequestTry, not_here};

/// The part of a request that says which node serves it.
#[derive(Clone, Copy)]
pub(super) enum Home<'a> {
    /// The parked call, or the task, that it is about.
    OfRequest(&'a McpRequest),
    /// The call whose event id this is.
    OfCall(&'a [u8]),
    /// It names the node.
    AtNode(NodeId),
}

impl Endpoint {
    /// The answer of the node that a request belongs to; that node is looked up again before each try. `None` if it is served
    /// here.
    ///
    /// # Cancel safety
    /// As of a request that is served here.
    pub(super) async fn at_its_node(
        &self,
        home: Home<'_>,
        parts: &Parts,
        sender: &Sender<'_>,
        carried: Carried<'_>,
    ) -> Result<Option<PeerAnswer>, Error> {
        let Some(relay) = &self.0.relay else { return Ok(None) };
        let mut hold = Hold::of(sender);
        loop {
            let node = match self.place_of(home, sender).await {
                Ok(Place::Here) => return Ok(None),
                Ok(Place::There(_)) if sender.hop != Hop::Client => return Ok(Some(PeerAnswer::NotHere)),
                Ok(Place::There(node)) => node,
                Err(error) if is_between_nodes(&error) && hold.wait().await => continue,
                Err(error) => return Err(error),
            };
            let sent = Instant::now();
            match self.ask(relay, node, parts, sender, carried, RequestTry::First).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(NoAnswer::TooLarge(most)) => return Err(too_large(most)),
                Err(NoAnswer::Broken) if !hold.broke(sent) => return Err(no_node()),
                Err(NoAnswer::Broken | NoAnswer::NotHere | NoAnswer::NotSent) => {}
            }
            if !hold.wait().await {
                return Err(no_node());
            }
        }
    }

    /// This node of a cluster.
    pub(super) fn node(&self) -> Option<NodeId> {
        self.0.relay.as_ref().map(|relay| relay.roster().node())
    }

    async fn place_of(&self, home: Home<'_>, sender: &Sender<'_>) -> Result<Place, Error> {
        let Some(relay) = &self.0.relay else { return Ok(Place::Here) };
        let node = match (home, &self.0.exchanges) {
            (Home::OfRequest(request), Some(exchanges)) => {
                return exchanges.place(request, &sender.principal).await;
            }
            (Home::OfCall(event_id), Some(exchanges)) => {
                let place = exchanges.place_of_call(event_id, &sender.principal).await;
                return place.unwrap_or(Ok(Place::Here));
            }
            (Home::AtNode(node), _) => node,
            (Home::OfRequest(_) | Home::OfCall(_), None) => return Ok(Place::Here),
        };
        relay.roster().confirmed().await?;
        match relay.roster().find_gone(node).await {
            Ok(true) => Ok(Place::Here),
            Ok(false) => Ok(Place::There(node)),
            Err(error) => Err(no_node().caused_by(error)),
        }
    }

    /// The session that a connection at this node carries from now on: found here, or given back by the node that has it.
    ///
    /// # Cancel safety
    /// It may be given back, so that no node has it.
    pub(super) async fn claimed(
        &self,
        id: &SessionId,
        caller: &Caller,
        sender: &Sender<'_>,
    ) -> Result<Arc<Session>, Error> {
        let sessions = &self.0.sessions;
        let mut hold = Hold::of(sender);
        loop {
            let placed = match (&self.0.relay, sessions.place(id, &caller.principal).await) {
                (Some(relay), Ok(Place::There(node))) => {
                    let parts = naming(id);
                    let wish = Some(&RelayedWish::GiveBack);
                    let carried = Carried { wish, ..Carried::NOTHING };
                    let asked = self.ask(relay, node, &parts, sender, carried, RequestTry::First).await;
                    sessions.forget_place(id);
                    match asked {
                        Ok(PeerAnswer::Whole(answer)) if answer.status() == StatusCode::NO_CONTENT => Ok(()),
                        _ => Err(no_node()),
                    }
                }
                (_, placed) => placed.map(drop),
            };
            let found = match placed {
                Ok(()) => sessions.find_within(|| caller.share(), id, &caller.principal).await,
                Err(error) => Err(error),
            };
            match found {
                Err(error) if self.may_go_on_elsewhere(&error) && hold.wait().await => {}
                found => return found,
            }
        }
    }

    /// The answer of any other node, to a request that this node has not begun because it stops. `None` if no other node takes
    /// it.
    ///
    /// # Cancel safety
    /// As of a request that is served here.
    pub(super) async fn at_any_node(
        &self,
        request: &McpRequest,
        parts: &Parts,
        sender: &Sender<'_>,
        carried: Carried<'_>,
    ) -> Result<Option<PeerAnswer>, Error> {
        let Some(relay) = &self.0.relay else { return Ok(None) };
        if sender.hop != Hop::Client {
            return Ok(None);
        }
        for node in in_any_order(relay) {
            match self.ask(relay, node, parts, sender, carried, RequestTry::First).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(NoAnswer::TooLarge(most)) => return Err(too_large(most)),
                Err(NoAnswer::Broken) => {
                    if !self.may_run_twice(request, parts, sender).await {
                        return Err(lost());
                    }
                }
                Err(NoAnswer::NotHere | NoAnswer::NotSent) => {}
            }
        }
        Ok(None)
    }

    /// Whether a request without a session may be carried out once more. For a tool its server is asked.
    pub(super) async fn may_run_twice(
        &self,
        request: &McpRequest,
        parts: &Parts,
        sender: &Sender<'_>,
    ) -> bool {
        match (params::repeat(&request.method), &self.0.exchanges) {
            // A second session, whose id no client has, expires.
            _ if request.method == Method::Initialize => true,
            (Repeat::Safe, _) => true,
            (Repeat::AskTool, Some(exchanges)) => {
                exchanges.is_repeatable(request, self.bodiless(parts, sender)).await
            }
            (Repeat::AskTool | Repeat::Never, _) => false,
        }
    }

    /// The response to a request without a session that was refused with this error because this node stops: that of another
    /// node. `None` if it stays refused.
    pub(super) async fn taken_by_other(
        &self,
        error: &Error,
        parts: &Parts,
        asker: &Asker<'_>,
        format: AnswerFormat,
    ) -> Option<Response<Body>> {
        if error.reason() != Reason::Draining {
            return None;
        }
        let Ok(Message::Request(request)) = Message::parse(asker.body) else { return None };
        let (carried, requests) = (Carried::of(asker.body, format), std::slice::from_ref(&request.id));
        match self.at_any_node(&request, parts, asker.sender, carried).await {
            Ok(Some(answer)) => Some(self.passed_on(answer, parts, asker, format, requests)),
            Ok(None) if asker.sender.hop != Hop::Client => {
                Some(not_here(empty(StatusCode::MISDIRECTED_REQUEST)))
            }
            Ok(None) => None,
            Err(error) => Some(reject(&error, Some(&request.id))),
        }
    }
}

/// The request may have been carried out by a node that was lost.
pub(super) fn lost() -> Error {
    Error::new(Reason::Interrupted, LOST)
}

/// The head of a request that only names a session.
fn naming(id: &SessionId) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = HttpMethod::POST;
    if let Ok(id) = HeaderValue::from_str(&id.expose()) {
        parts.headers.insert(headers::SESSION_ID, id);
    }
    parts
}

/// The nodes that take new requests. Each time another one is first.
fn in_any_order(relay: &Relay) -> Vec<NodeId> {
    let mut takers = relay.roster().takers();
    let mut byte = [0];
    // Without randomness the first one gets all, which is correct too.
    let draw = SystemRandom::new().fill(&mut byte).map_or(0, |()| usize::from(byte[0]));
    let first = draw % takers.len().max(1);
    takers.rotate_left(first);
    takers
}
