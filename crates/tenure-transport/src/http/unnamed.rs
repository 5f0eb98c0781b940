//! Requests that name no session, where [`Leniencies::mint`](super::leniencies::Leniencies::mint) gives them one.
//!
//! In: a request of a client that has never sent `initialize`. Out: the answer, from a session that the server opened
//! with its own `initialize`. At `/mcp` and GET `/mcp/sse` the response names the session, and the client may go on
//! in it; at `/rpc` and POST `/sse` clients know no sessions, so the session ends when the request is answered.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::Response;
use http::request::Parts;
use tenure_protocol::{Error, Message, Reason, Request, revision};
use tenure_session::Session;
use tenure_session::budget::Share;
use tenure_session::call::Caller;

use super::access::Sender;
use super::answer::{AnswerFormat, PostedRequests};
use super::body::Body;
use super::endpoint::{Asker, Endpoint, event_stream, with_session};
use super::headers::{self, RequiredAccept, SessionHeader};
use super::leniencies::named_event;
use super::reject::reject;
use super::sse::{self, Ids, Wording};

/// The revision of a client that names none.
const ASSUMED: &str = "2025-03-26";

impl Endpoint {
    /// Answers a request that names no session.
    pub(super) async fn unnamed(
        &self,
        parts: &Parts,
        request: Request,
        asker: &Asker<'_>,
        format: AnswerFormat,
    ) -> Result<Response<Body>, Error> {
        let session = self.mint(parts, asker.sender, asker.held.share(), format).await?;
        let caller = Caller { collect: format.collect(), ..self.caller(parts, asker) };
        let id = request.id.clone();
        if format == AnswerFormat::Streamable {
            let response = match session.request(request, caller).await {
                Ok(answer) => self.answer(answer, &session, PostedRequests::One(id), format).await,
                Err(error) => format.refuse(&error, Some(&id)),
            };
            return Ok(with_session(response, &session));
        }
        let endpoint = self.clone();
        let principal = asker.sender.principal.clone();
        // Runs as its own task, so that the session ends even if the client hangs up.
        let work = self.0.tasks.spawn(async move {
            let answered = match session.request(request, caller).await {
                Ok(answer) => Ok(endpoint.whole(answer, &session, PostedRequests::One(id)).await),
                Err(error) => Err(error),
            };
            if let Err(error) = endpoint.0.sessions.delete(session.id(), &principal).await {
                tracing::debug!(%error, "a session of one request is left to expire");
            }
            answered
        });
        let body = work
            .await
            .map_err(|error| Error::new(Reason::Internal, "The request failed").caused_by(error))??;
        Ok(match format {
            AnswerFormat::Done => done(&body),
            AnswerFormat::Streamable | AnswerFormat::Json => format.respond(body),
        })
    }

    /// GET `/mcp/sse`: the stream of the session that the header or `Last-Event-ID` names, or of a new session.
    pub(super) async fn get_unnamed(&self, parts: &Parts, sender: &Sender<'_>) -> Response<Body> {
        if !self.rules().leniencies.mint || !matches!(headers::session(&parts.headers), SessionHeader::None) {
            return self.get(parts, sender).await;
        }
        match self.listen_unnamed(parts, sender).await {
            Ok(response) => self.at_pace(parts.version, response, sender, &self.share(sender.remote)),
            Err(error) => reject(&error, None),
        }
    }

    async fn listen_unnamed(&self, parts: &Parts, sender: &Sender<'_>) -> Result<Response<Body>, Error> {
        let leniencies = self.rules().leniencies;
        leniencies.check_accept(&parts.headers, RequiredAccept::Events)?;
        let last = parts.headers.get(headers::LAST_EVENT_ID);
        let named = last.and_then(|last| named_event(last.to_str().ok()?));
        let session = match named {
            Some((id, _)) => {
                let share = || Some(self.share(sender.remote));
                self.0.sessions.find_within(share, &id, &sender.principal).await?
            }
            None => self.mint(parts, sender, self.share(sender.remote), AnswerFormat::Streamable).await?,
        };
        sender.uses(&session);
        let last = last.map(|last| leniencies.event_id(last.as_bytes(), session.event_names()));
        let reader = session.listen(last.as_deref()).await?;
        let wording = Wording { ids: Ids::Named(*session.id()), ..leniencies.wording() };
        Ok(with_session(self.stream_while_usable(reader, wording, sender), &session))
    }

    /// Opens a session for a client that did not ask for one.
    async fn mint(
        &self,
        parts: &Parts,
        sender: &Sender<'_>,
        share: Share,
        format: AnswerFormat,
    ) -> Result<Arc<Session>, Error> {
        let header = headers::protocol_version(&parts.headers);
        revision::check_header(header)?;
        let request = greeting(header)?;
        let (sessions, principal) = (&self.0.sessions, &sender.principal);
        let created = match format {
            AnswerFormat::Streamable => sessions.create_within(share, request, principal).await?,
            AnswerFormat::Json | AnswerFormat::Done => {
                sessions.create_briefly(share, request, principal).await?
            }
        };
        let session = created.session.ok_or_else(|| {
            Error::new(Reason::BackendUnavailable, "The server behind refused to open a session")
        })?;
        let ready = Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        if let Ok(Message::Notification(ready)) = Message::parse(&ready) {
            session.notification(ready)?;
        }
        session.saved().await;
        Ok(session)
    }
}

/// Adds the params to an `initialize` whose client left them out.
pub(super) fn with_params(request: Request, header: Option<&str>) -> Result<Request, Error> {
    let greeting = greeting(header)?;
    Ok(Request { params: greeting.params, ..request })
}

fn greeting(header: Option<&str>) -> Result<Request, Error> {
    let version = header.unwrap_or(ASSUMED);
    let params = serde_json::json!({
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": { "name": "unknown", "version": "0" },
    });
    let text = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#);
    match Message::parse(&Bytes::from(text)) {
        Ok(Message::Request(request)) => Ok(request),
        _ => Err(Error::new(Reason::Internal, "The session could not be opened")),
    }
}

/// A stream of one answer without an `event:` field, and then the `done` event.
fn done(body: &Bytes) -> Response<Body> {
    let mut out = BytesMut::new();
    sse::write_data(body, &mut out);
    out.put_slice(sse::DONE);
    event_stream(Body::full(out.freeze()))
}
