//! POST of the modern era: one request without a session.

use http::request::Parts;
use http::{HeaderMap, HeaderName, Response};
use tenure_protocol::modern::{self, Header, Heads, StreamSupport};
use tenure_protocol::{Eras, Error, Message, Method, Request, params};
use tenure_session::exchange::{ExchangeAnswer, Exchanges, Flow};

use super::access::{Hop, Sender};
use super::answer::AnswerFormat;
use super::at_node::{Home, lost};
use super::body::Body;
use super::elsewhere::{Carried, PeerAnswer};
use super::endpoint::{Asker, Endpoint, event_stream};
use super::event_body::ListenEvents;
use super::headers;
use super::reject::{answered, reject_discover, reject_exchange};
use crate::era_choice::is_modern;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const PARAM: &str = "mcp-param-";

impl Endpoint {
    /// Which eras are served.
    pub(super) fn eras(&self) -> Eras {
        self.0.exchanges.as_ref().map_or(Eras::Legacy, Exchanges::eras)
    }

    /// Whether a request with this version in its header cannot belong to a session.
    pub(super) fn has_no_sessions_for(&self, version: Option<&str>) -> bool {
        // Decided by the header alone, because the body was not read yet.
        is_modern(version) || self.eras() == Eras::Modern
    }

    /// Answers a request, or gets the answer of the node that has its call or its task. While this node stops, other nodes
    /// answer requests that are not begun.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request, because the client has hung up.
    pub(super) async fn exchange(
        &self,
        exchanges: &Exchanges,
        parts: &Parts,
        request: Request,
        asker: &Asker<'_>,
    ) -> Response<Body> {
        let id = request.id.clone();
        let refuse = match request.method {
            Method::Discover => reject_discover,
            _ => reject_exchange,
        };
        let mut checked = match modern::check(request, Some(heads(&parts.headers)), exchanges.eras()) {
            Ok(checked) => checked,
            Err(error) => return refuse(&error, Some(&id)),
        };
        if let Some(notes) = asker.sender.notes
            && let Some(name) = params::text_member(checked.meta.info.as_ref(), "name")
        {
            notes.client(&name);
        }
        checked.streams = match headers::accepts_events(&parts.headers) {
            true => StreamSupport::Resumable,
            false => StreamSupport::No,
        };
        if self.0.relay.is_some() {
            let elsewhere = Box::pin(self.exchanged_elsewhere(exchanges, &checked.request, parts, asker));
            match elsewhere.await {
                Ok(None) => {}
                Ok(Some(answer)) => {
                    let requests = std::slice::from_ref(&id);
                    return self.passed_on(answer, parts, asker, AnswerFormat::Streamable, requests);
                }
                Err(error) => return refuse(&error, Some(&id)),
            }
        }
        match exchanges.request(checked, self.caller(parts, asker)).await {
            ExchangeAnswer::Json { body, code } => answered(body, code),
            ExchangeAnswer::Refused(error) => {
                let taken = self.taken_by_other(&error, parts, asker, AnswerFormat::Streamable);
                match Box::pin(taken).await {
                    Some(response) => response,
                    None => refuse(&error, Some(&id)),
                }
            }
            ExchangeAnswer::Stream(flow) => self.flow(*flow, asker.sender),
        }
    }

    /// The answer of another node to a request without a session, if another one serves it.
    async fn exchanged_elsewhere(
        &self,
        exchanges: &Exchanges,
        request: &Request,
        parts: &Parts,
        asker: &Asker<'_>,
    ) -> Result<Option<PeerAnswer>, Error> {
        let carried = Carried::of(asker.body, AnswerFormat::Streamable);
        let answer = self.at_its_node(Home::OfRequest(request), parts, asker.sender, carried).await?;
        if answer.is_some() || !exchanges.is_leaving() {
            return Ok(answer);
        }
        let is_of_task =
            matches!(request.method, Method::TasksGet | Method::TasksUpdate | Method::TasksCancel);
        if is_of_task || exchanges.has_parked(request, &asker.sender.principal) {
            return Ok(None);
        }
        match (asker.sender.hop, &self.0.relay) {
            // The node that has sent it did not know yet that this one stops.
            (Hop::Peer(_), Some(relay)) if !relay.roster().takers().is_empty() => {
                Ok(Some(PeerAnswer::NotHere))
            }
            _ => self.at_any_node(request, parts, asker.sender, carried).await,
        }
    }

    /// The answer of another node to a request without a session whose node was lost before its client had an event id. `None`
    /// if it is served here.
    ///
    /// # Errors
    /// [`Reason::Interrupted`] if it may have been carried out, and must not run twice.
    pub(super) async fn exchanged_again(
        &self,
        parts: &Parts,
        asker: &Asker<'_>,
    ) -> Result<Option<PeerAnswer>, Error> {
        let (Some(exchanges), Ok(Message::Request(request))) =
            (&self.0.exchanges, Message::parse(asker.body))
        else {
            return Err(lost());
        };
        // The state of a parked call names its node; if that is gone, the call is taken up as after a kill.
        if !exchanges.comes_back(&request, &asker.sender.principal)
            && !self.may_run_twice(&request, parts, asker.sender).await
        {
            return Err(lost());
        }
        self.exchanged_elsewhere(exchanges, &request, parts, asker).await
    }

    /// Resumes a call whose stream broke. `None` if the headers do not name a call.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request.
    pub(super) async fn resume_call(&self, parts: &Parts, sender: &Sender<'_>) -> Option<Response<Body>> {
        let response = match self.resumed(parts, sender).await? {
            Ok(ResumedCall::Here(flow)) => self.flow(*flow, sender),
            Ok(ResumedCall::Elsewhere(answer)) => self.passed_on_stream(answer, parts, sender),
            Err(error) => reject_exchange(&error, None),
        };
        Some(self.at_pace(parts.version, response, sender, &self.share(sender.remote)))
    }

    /// The rest of a call whose stream broke, here or from the node that has it.
    pub(super) async fn resumed(
        &self,
        parts: &Parts,
        sender: &Sender<'_>,
    ) -> Option<Result<ResumedCall, Error>> {
        let exchanges = self.0.exchanges.as_ref()?;
        // Checked first, because a resume takes the call away from its old connection.
        let event_id =
            parts.headers.get(headers::LAST_EVENT_ID).filter(|_| headers::accepts_events(&parts.headers))?;
        let event_id = event_id.as_bytes();
        if self.0.relay.is_some() {
            // Any other id is looked up here, and not found.
            let home = Home::OfCall(event_id);
            match Box::pin(self.at_its_node(home, parts, sender, Carried::NOTHING)).await {
                Ok(None) => {}
                Ok(Some(answer)) => return Some(Ok(ResumedCall::Elsewhere(answer))),
                Err(error) => return Some(Err(error)),
            }
        }
        let resumed = exchanges.resume(event_id, self.bodiless(parts, sender)).await?;
        Some(resumed.map(|flow| ResumedCall::Here(Box::new(flow))))
    }

    /// The rest of a call as the body of a response.
    pub(super) fn rest_of_call(&self, flow: Flow, sender: &Sender<'_>) -> Body {
        self.flow(flow, sender).into_body()
    }

    /// The stream of a call goes on to its answer; a listen has none, so it ends with its credentials.
    fn flow(&self, flow: Flow, sender: &Sender<'_>) -> Response<Body> {
        let keep_alive = self.0.rules.keep_alive;
        event_stream(match self.opener(sender).filter(|_| flow.is_listen()) {
            Some(opener) => {
                let retry = self.0.sessions.limits().stop_retry;
                Body::events(ListenEvents::new(flow, opener, retry), keep_alive)
            }
            None => Body::events(flow, keep_alive),
        })
    }
}

/// The rest of a call.
pub(super) enum ResumedCall {
    /// It is at this node.
    Here(Box<Flow>),
    /// The answer of the node that has it.
    Elsewhere(PeerAnswer),
}

/// The headers that repeat parts of the body.
fn heads(headers: &HeaderMap) -> Heads<'_> {
    let params = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(PARAM)?;
        Some((name, value.as_bytes()))
    });
    Heads {
        version: only(headers, &headers::PROTOCOL_VERSION),
        method: only(headers, &METHOD),
        name: only(headers, &NAME),
        params: params.collect(),
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Header<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Header::Absent,
        (Some(value), None) => value.to_str().map_or(Header::Unreadable, Header::One),
        (Some(_), Some(_)) => Header::Twice,
    }
}
