//! DELETE: the client ends its session.

use http::request::Parts;
use http::{Response, StatusCode};
use tenure_protocol::Error;

use super::access::Sender;
use super::body::Body;
use super::endpoint::{Endpoint, session_id};
use super::get::check;
use super::reject::{empty, reject};

impl Endpoint {
    pub(super) async fn delete(&self, parts: &Parts, sender: &Sender<'_>) -> Response<Body> {
        match self.end(parts, sender).await {
            Ok(()) => empty(StatusCode::NO_CONTENT),
            Err(error) => reject(&error, None),
        }
    }

    async fn end(&self, parts: &Parts, sender: &Sender<'_>) -> Result<(), Error> {
        check(parts)?;
        let id = session_id(parts)?;
        self.0.sessions.delete(&id, &sender.principal).await?;
        if let Some(notes) = sender.notes {
            notes.label(&id.key().label());
        }
        Ok(())
    }
}
