//! POST of the modern era: a request that stands alone.

use http::request::Parts;
use http::{HeaderMap, HeaderName, Response};
use tenure_protocol::era::{self, Shape};
use tenure_protocol::modern::{self, Header, Heads, Streams};
use tenure_protocol::{Era, Eras, Message, RawJson, Request};
use tenure_session::exchange::{Answer, Exchanges, Flow};

use super::body::Body;
use super::endpoint::{Asker, Endpoint, Remote, event_stream};
use super::headers;
use super::reject::{json, modern_status, reject_exchange};
use crate::http::exchange_body::Flowing;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const PARAM: &str = "mcp-param-";

/// Who has to deal with a message.
pub(super) enum Belongs<'a> {
    /// Sessions.
    Session,
    /// Exchanges.
    Exchange(&'a Exchanges),
    /// Nobody: it is of an era that is not served here.
    Nobody(Eras),
}

impl Endpoint {
    /// Which eras are served.
    pub(super) fn eras(&self) -> Eras {
        self.0.exchanges.as_ref().map_or(Eras::Legacy, Exchanges::eras)
    }

    /// Whether there are no sessions that a request with this version in its header could be about.
    pub(super) fn has_no_sessions_for(&self, version: Option<&str>) -> bool {
        // The header alone says it, while nothing is known of a body.
        let is_modern = era::belongs(Shape::NoMessage, None, version) == Era::Modern;
        is_modern || self.eras() == Eras::Modern
    }

    /// Who has to deal with a message. Without exchanges, sessions deal with everything.
    pub(super) fn belongs(
        &self,
        shape: Shape,
        params: Option<&RawJson>,
        header: Option<&str>,
    ) -> Belongs<'_> {
        let Some(exchanges) = &self.0.exchanges else { return Belongs::Session };
        match (era::belongs(shape, params, header), exchanges.eras()) {
            (_, Eras::Legacy) | (Era::Legacy, Eras::Both) => Belongs::Session,
            (Era::Modern, Eras::Both | Eras::Modern) => Belongs::Exchange(exchanges),
            (Era::Legacy, Eras::Modern) => Belongs::Nobody(Eras::Modern),
        }
    }

    /// Whether an array of messages has one of the modern era, which has no arrays.
    pub(super) fn is_modern_batch(&self, elements: &[RawJson], header: Option<&str>) -> bool {
        let modern = |shape, params: Option<&RawJson>| {
            matches!(self.belongs(shape, params, header), Belongs::Exchange(_) | Belongs::Nobody(_))
        };
        modern(Shape::NoMessage, None)
            || elements.iter().any(|element| match Message::parse(element.bytes()) {
                Ok(Message::Request(request)) => modern(Shape::Batch, request.params.as_ref()),
                _ => false,
            })
    }

    /// Answers a request.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request: that is what it means when a client hangs up.
    pub(super) async fn exchange(
        &self,
        exchanges: &Exchanges,
        parts: &Parts,
        request: Request,
        asker: &Asker<'_>,
    ) -> Response<Body> {
        let id = request.id.clone();
        let mut checked = match modern::check(request, Some(heads(&parts.headers)), exchanges.eras()) {
            Ok(checked) => checked,
            Err(error) => return reject_exchange(&error, Some(&id)),
        };
        checked.streams = match headers::accepts_events(&parts.headers) {
            true => Streams::Resumable,
            false => Streams::No,
        };
        match exchanges.request(checked, self.caller(parts, asker)).await {
            Answer::Json { body, code } => json(modern_status(code), body),
            Answer::Refused(error) => reject_exchange(&error, Some(&id)),
            Answer::Stream(flow) => self.flow(*flow),
        }
    }

    /// Goes on with a call whose stream broke. `None` if the headers do not name one.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request.
    pub(super) async fn resume_call(&self, parts: &Parts, remote: Option<&Remote>) -> Option<Response<Body>> {
        let exchanges = self.0.exchanges.as_ref()?;
        // Looked at first: to go on with a call takes it away from the connection that it had.
        let event_id =
            parts.headers.get(headers::LAST_EVENT_ID).filter(|_| headers::accepts_events(&parts.headers))?;
        let resumed = exchanges.resume(event_id.as_bytes(), self.bodiless(parts, remote)).await?;
        let response = match resumed {
            Ok(flow) => self.flow(flow),
            Err(error) => reject_exchange(&error, None),
        };
        Some(self.at_pace(parts.version, response, &self.share(remote)))
    }

    fn flow(&self, flow: Flow) -> Response<Body> {
        event_stream(Body::flow(Flowing::new(flow, self.0.rules.keep_alive)))
    }
}

/// The headers that repeat what the body says.
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
