//! DELETE: the client ends its session.

use http::request::Parts;
use http::{Response, StatusCode};
use tenure_protocol::{Error, Reason};

use super::access::Sender;
use super::body::Body;
use super::elsewhere::{Carried, Hold, PeerAnswer, Placed, is_left_to_others};
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
        let (mut hold, mut has_tried) = (None, sender.attempt() == RequestTry::Again);
        loop {
            if let Some(relay) = &self.0.relay {
                let hold = hold.get_or_insert_with(|| Hold::of(sender));
                match self.placed(relay, &id, parts, sender, Carried::NOTHING, hold).await? {
                    Placed::Here => has_tried |= hold.attempt() == RequestTry::Again,
                    Placed::Elsewhere(answer) => return Ok(Some(answer)),
                }
            }
            match self.0.sessions.delete(&id, &sender.principal).await {
                Ok(()) => break,
                // An earlier try has ended it, here or at a node that was lost.
                Err(error) if has_tried && error.reason() == Reason::SessionDeleted => break,
                Err(error) if is_left_to_others(sender, &error) => return Ok(Some(PeerAnswer::NotHere)),
                // Another node has taken the session just before.
                Err(error) if self.waits(sender, &mut hold, &error).await => has_tried = true,
                Err(error) => return Err(error),
            }
        }
        if let Some(notes) = sender.notes {
            notes.label(&id.key().label());
        }
        Ok(None)
    }
}
