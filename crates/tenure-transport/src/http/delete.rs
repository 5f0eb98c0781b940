//! DELETE: the client ends its session.

use http::request::Parts;
use http::{Response, StatusCode};
use tenure_protocol::{Error, Reason};

use super::access::Sender;
use super::body::Body;
use super::elsewhere::{Carried, Hold, PeerAnswer, Placed};
use super::endpoint::{Endpoint, session_id};
use super::get::check;
use super::reject::{empty, reject};
use crate::cluster::RequestTry;

impl Endpoint {
    pub(super) async fn delete(&self, parts: &Parts, sender: &Sender<'_>) -> Response<Body> {
        match self.end(parts, sender).await {
            Ok(None) => empty(StatusCode::NO_CONTENT),
            Ok(Some(answer)) => self.passed_on_stream(answer, parts, sender),
            Err(error) => reject(&error, None),
        }
    }

    /// Ends the session, here or at the node that has it, whose answer is returned then.
    async fn end(&self, parts: &Parts, sender: &Sender<'_>) -> Result<Option<PeerAnswer>, Error> {
        check(parts)?;
        let id = session_id(parts)?;
        let mut attempt = sender.attempt();
        if let Some(relay) = &self.0.relay {
            let mut hold = Hold::of(sender);
            match self.placed(relay, &id, parts, sender, Carried::NOTHING, &mut hold).await? {
                Placed::Here => attempt = hold.attempt(),
                Placed::Elsewhere(answer) => return Ok(Some(answer)),
            }
        }
        match self.0.sessions.delete(&id, &sender.principal).await {
            // The node that was lost had ended it already.
            Err(error) if attempt == RequestTry::Again && error.reason() == Reason::SessionDeleted => {}
            deleted => deleted?,
        }
        if let Some(notes) = sender.notes {
            notes.label(&id.key().label());
        }
        Ok(None)
    }
}
