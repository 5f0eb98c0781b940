//! GET: opens the standalone stream, or resumes any stream after the event that `Last-Event-ID` names.

use http::Response;
use http::request::Parts;
use tenure_protocol::{Error, revision};

use super::access::Sender;
use super::body::Body;
use super::endpoint::Endpoint;
use super::headers::{self, RequiredAccept};
use super::post::named;
use super::reject::reject;

impl Endpoint {
    pub(super) async fn get(&self, parts: &Parts, sender: &Sender<'_>) -> Response<Body> {
        match self.listen(parts, sender).await {
            Ok(response) => self.at_pace(parts.version, response, sender, &self.share(sender.remote)),
            Err(error) => reject(&error, None),
        }
    }

    async fn listen(&self, parts: &Parts, sender: &Sender<'_>) -> Result<Response<Body>, Error> {
        let leniencies = self.rules().leniencies;
        leniencies.check_accept(&parts.headers, RequiredAccept::Events)?;
        check(parts)?;
        let session = self.session(parts, sender).await?;
        let last_event_id = parts.headers.get(headers::LAST_EVENT_ID);
        let last_event_id =
            last_event_id.map(|value| leniencies.event_id(value.as_bytes(), session.event_names()));
        let response = match session.listen(last_event_id.as_deref()).await {
            Ok(reader) => self.stream_while_usable(reader, leniencies.wording(), sender),
            Err(error) => reject(&error, None),
        };
        Ok(named(response, parts))
    }
}

/// Checks the revision of a GET or DELETE, which only the header can name, because there is no body.
pub(super) fn check(parts: &Parts) -> Result<(), Error> {
    let header = headers::protocol_version(&parts.headers);
    revision::check_header(header)
}
