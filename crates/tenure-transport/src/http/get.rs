//! GET: opens the standalone stream, or resumes any stream after the event that `Last-Event-ID` names.

use http::Response;
use http::request::Parts;
use tenure_protocol::{Error, revision};

use super::access::{Hop, Sender};
use super::body::Body;
use super::elsewhere::{Carried, Found, PeerAnswer, is_left_to_others};
use super::endpoint::Endpoint;
use super::event_body::SessionEvents;
use super::headers::{self, RequiredAccept};
use super::post::named;
use super::reject::reject;
use crate::cluster::beginning_after;

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
        Ok(match self.opened(parts, sender).await? {
            Opened::Here(Ok(events)) => {
                let after = events.reader.after();
                let response = named(self.stream_events(*events), parts);
                match sender.hop {
                    Hop::Client => response,
                    Hop::Peer(_) => beginning_after(response, &after),
                }
            }
            Opened::Here(Err(error)) => named(reject(&error, None), parts),
            Opened::Elsewhere(answer) => self.passed_on_stream(answer, parts, sender),
        })
    }

    /// Opens the stream that the headers name, here or at the node that has the session.
    pub(super) async fn opened(&self, parts: &Parts, sender: &Sender<'_>) -> Result<Opened, Error> {
        let leniencies = self.rules().leniencies;
        let mut hold = None;
        loop {
            let (error, is_found) = match self.session(parts, sender, Carried::NOTHING, &mut hold).await {
                Ok(Found::Elsewhere(answer)) => return Ok(Opened::Elsewhere(answer)),
                Ok(Found::Here(session, _)) => {
                    let last_event_id = parts.headers.get(headers::LAST_EVENT_ID);
                    let last_event_id = last_event_id
                        .map(|value| leniencies.event_id(value.as_bytes(), session.event_names()));
                    match session.listen(last_event_id.as_deref()).await {
                        Ok(reader) => {
                            let events = self.events_while_usable(reader, leniencies.wording(), sender);
                            return Ok(Opened::Here(Ok(Box::new(events))));
                        }
                        Err(error) => (error, true),
                    }
                }
                Err(error) => (error, false),
            };
            if is_left_to_others(sender, &error) {
                return Ok(Opened::Elsewhere(PeerAnswer::NotHere));
            }
            if self.waits(sender, &mut hold, &error).await {
                continue;
            }
            return if is_found { Ok(Opened::Here(Err(error))) } else { Err(error) };
        }
    }
}

/// A stream that was opened.
pub(super) enum Opened {
    /// The stream of a session of this node, or the error.
    Here(Result<Box<SessionEvents>, Error>),
    /// The answer of another node.
    Elsewhere(PeerAnswer),
}

/// Checks the revision of a GET or DELETE, which only the header can name, because there is no body.
pub(super) fn check(parts: &Parts) -> Result<(), Error> {
    let header = headers::protocol_version(&parts.headers);
    revision::check_header(header)
}
