//! Serves the requests that other nodes relay: the same code as for clients of this node, with a sender that the other node
//! has verified.
//!
//! In: requests of the peer port. Out: answers as clients get them. A request for a session that is at a third node is
//! not relayed once more; the sender looks again. What a client sends is counted and logged at the node that it
//! reached, and its limits hold for its own address. Only the figures of its session are counted here, where the session is.

use std::convert::Infallible;
use std::pin::Pin;

use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tenure_protocol::{Error, Reason};
use tenure_session::budget::Peer;

use super::access::Sender;
use super::body::Body;
use super::doors::Doorkeeper;
use super::endpoint::{Endpoint, Remote, observed, session_id};
use super::reject::{empty, reject};
use super::router::Router;
use crate::cluster::{
    MOST_NEWS_BYTES, QUESTIONS, QuestionDesk, RelayedHead, RelayedNews, RelayedWish, WhatChanged, not_here,
};
use crate::observe::OpenRequest;

/// Answers the requests of other nodes: the service of the peer port. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PeerService {
    router: Router,
    questions: QuestionDesk,
}

impl PeerService {
    /// The endpoints of this router, for other nodes.
    pub fn new(router: Router) -> Self {
        Self { router, questions: QuestionDesk::default() }
    }

    /// Answers questions of operators too.
    #[must_use]
    pub fn with_questions(self, questions: QuestionDesk) -> Self {
        Self { questions, ..self }
    }
}

impl hyper::service::Service<Request<Incoming>> for PeerService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let Self { router, questions } = self.clone();
        Box::pin(async move {
            if request.uri().path() == QUESTIONS {
                return Ok(questions.serve(request).await.map(Body::full));
            }
            Ok(router.relayed(request).await)
        })
    }
}

impl Router {
    async fn relayed(&self, request: Request<Incoming>) -> Response<Body> {
        if request.method() == Method::HEAD {
            // A peer asks whether it is served.
            return empty(StatusCode::NO_CONTENT);
        }
        let Some(head) = RelayedHead::read(request.headers()) else {
            return reject(&Error::new(Reason::InvalidRequest, "The request does not say who asks"), None);
        };
        if head.wish == Some(RelayedWish::News) {
            return self.hears(request.into_body()).await;
        }
        match self.endpoint_named(head.endpoint.as_deref()) {
            Some(endpoint) => endpoint.relayed(request, &head, &self.doors).await,
            // Its servers differ from those of the other node, which may serve it itself.
            None => not_here(empty(StatusCode::MISDIRECTED_REQUEST)),
        }
    }
}

impl Router {
    /// Tells the clients of this node what has changed at servers of another one.
    async fn hears(&self, body: Incoming) -> Response<Body> {
        let text = match Limited::new(body, MOST_NEWS_BYTES).collect().await {
            Ok(text) => text.to_bytes(),
            Err(_) => return reject(&Error::new(Reason::InvalidRequest, "The news cannot be read"), None),
        };
        let Ok(news) = serde_json::from_slice::<Vec<RelayedNews>>(&text) else {
            return reject(&Error::new(Reason::InvalidRequest, "The news cannot be read"), None);
        };
        for RelayedNews { endpoint, what } in news {
            let Some(endpoint) = self.endpoint_named(endpoint.as_deref()) else { continue };
            let fanout = endpoint.sessions().fanout();
            match (what.list(), what) {
                (Some(list), _) => fanout.list_changed_elsewhere(list),
                (None, WhatChanged::Resource(uri)) => fanout.resource_updated_elsewhere(&uri),
                (None, WhatChanged::Task(key)) => {
                    if let Some(exchanges) = &endpoint.0.exchanges {
                        exchanges.task_ended_elsewhere(&key);
                    }
                }
                (None, WhatChanged::Tools | WhatChanged::Prompts | WhatChanged::Resources) => {}
            }
        }
        empty(StatusCode::NO_CONTENT)
    }
}

impl Endpoint {
    async fn relayed(
        &self,
        request: Request<Incoming>,
        head: &RelayedHead,
        doors: &Doorkeeper,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let share = head.address.map_or(Peer::UNKNOWN, |address| Peer::at(address.ip()));
        // A client without an address is one of an embedder's server, and unknown here too.
        let address = head.address.unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
        let remote = Remote {
            share: Some(self.rules().budget.share(share)),
            ..Remote::new(address, if head.is_https { "https" } else { "http" })
        };
        let open = self.observe_relayed(&parts, &remote);
        let mut sender = match self.vouched(&remote, head) {
            Ok(sender) => sender,
            Err(refusal) => return *refusal,
        };
        sender.notes = open.as_ref().map(OpenRequest::notes);
        match &head.wish {
            None => {}
            Some(RelayedWish::Message(stream)) => {
                return doors.take_named(self, stream, &parts, body, &sender).await;
            }
            // Of all endpoints: answered before one is chosen.
            Some(RelayedWish::News) => return empty(StatusCode::NO_CONTENT),
            Some(RelayedWish::GiveBack) => return self.given_back(doors, &parts, &sender).await,
        }
        let response = match parts.method {
            Method::POST => self.post(&parts, body, &sender, head.format.into()).await,
            Method::GET => match Box::pin(self.resume_call(&parts, &sender)).await {
                Some(response) => response,
                None => self.get(&parts, &sender).await,
            },
            Method::DELETE => self.delete(&parts, &sender).await,
            _ => reject(&Error::new(Reason::MethodNotAllowed, "Use POST, GET or DELETE"), None),
        };
        observed(response, open)
    }

    /// Gives back the session that the headers name, for a connection at the other node. 202 while it is in use here.
    async fn given_back(&self, doors: &Doorkeeper, parts: &Parts, sender: &Sender<'_>) -> Response<Body> {
        let id = match session_id(parts) {
            Ok(id) => id,
            Err(error) => return reject(&error, None),
        };
        // The other node learns nothing of another principal's session.
        if self.sessions().live(&id, &sender.principal).is_none() {
            return empty(StatusCode::NO_CONTENT);
        }
        doors.give_up(id.key()).await;
        match self.sessions().give_back(&id.key()).await {
            Ok(true) => empty(StatusCode::NO_CONTENT),
            Ok(false) => empty(StatusCode::ACCEPTED),
            Err(error) => reject(&error, None),
        }
    }
}
