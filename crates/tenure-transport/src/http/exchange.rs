//! POST of the modern era: one request without a session.

use http::request::Parts;
use http::{HeaderMap, HeaderName, Response};
use tenure_protocol::modern::{self, Header, Heads, StreamSupport};
use tenure_protocol::{Eras, Method, Request, params};
use tenure_session::exchange::{ExchangeAnswer, Exchanges, Flow};

use super::access::Sender;
use super::body::Body;
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

    /// Answers a request.
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
        match exchanges.request(checked, self.caller(parts, asker)).await {
            ExchangeAnswer::Json { body, code } => answered(body, code),
            ExchangeAnswer::Refused(error) => refuse(&error, Some(&id)),
            ExchangeAnswer::Stream(flow) => self.flow(*flow, asker.sender),
        }
    }

    /// Resumes a call whose stream broke. `None` if the headers do not name a call.
    ///
    /// # Cancel safety
    /// Dropping it withdraws the request.
    pub(super) async fn resume_call(&self, parts: &Parts, sender: &Sender<'_>) -> Option<Response<Body>> {
        let exchanges = self.0.exchanges.as_ref()?;
        // Checked first, because a resume takes the call away from its old connection.
        let event_id =
            parts.headers.get(headers::LAST_EVENT_ID).filter(|_| headers::accepts_events(&parts.headers))?;
        let resumed = exchanges.resume(event_id.as_bytes(), self.bodiless(parts, sender)).await?;
        let response = match resumed {
            Ok(flow) => self.flow(flow, sender),
            Err(error) => reject_exchange(&error, None),
        };
        Some(self.at_pace(parts.version, response, sender, &self.share(sender.remote)))
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
