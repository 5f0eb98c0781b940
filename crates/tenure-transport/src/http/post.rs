//! POST: a message, or in revision 2025-03-26 several, from the client.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use tenure_protocol::{
    Eras, Error, Incoming, Message, Method, RawJson, Reason, Request, RequestId, revision,
};
use tenure_session::budget::{Share, Taken};
use tenure_session::call::Caller;

use super::access::{Answers, Sender};
use super::answer::{AnswerFormat, PostedRequests, errors};
use super::body::Body;
use super::elsewhere::{Carried, Found, Hold, is_left_to_others};
use super::endpoint::{Asker, Endpoint, with_session};
use super::receive::{RefusedBody, receive, too_large};
use super::reject::{empty, malformed, reject};
use super::{headers, unnamed};
use crate::cluster::{RequestTry, not_here};
use crate::era_choice::{self, Batch, BatchFault, EraChoice, modern_batch, no_batch};

impl Endpoint {
    pub(super) async fn post<B>(
        &self,
        parts: &Parts,
        body: B,
        sender: &Sender<'_>,
        format: AnswerFormat,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Err(error) = headers::check_content_type(&parts.headers) {
            return reject(&error, None);
        }
        let (body, held) = match self.read(parts, body, self.share(sender.remote)).await {
            Ok(read) => read,
            Err(RefusedBody { error, id }) => {
                // Without a session it may be `initialize`, which no other request depends on yet.
                let header = headers::protocol_version(&parts.headers);
                let has_begun =
                    parts.headers.contains_key(headers::SESSION_ID) || self.has_no_sessions_for(header);
                return format.refuse(&error, id.filter(|_| has_begun).as_ref());
            }
        };
        if let Some(notes) = sender.notes {
            notes.read(body.len());
        }
        if let Err(refusal) = self.check_not_taken_back(sender) {
            return *refusal;
        }
        let asker = Asker { sender, body: &body, held: Arc::new(held) };
        let mut hold = None;
        let response = loop {
            // Read anew for each try: hardly any message needs a second one.
            let (id, tried) = match Incoming::parse(&body) {
                Err(_) | Ok(Incoming::Batch(_))
                    if let Err(error) =
                        self.check_accept(parts, headers::protocol_version(&parts.headers), format) =>
                {
                    break reject(&error, None);
                }
                Err(fault) => break malformed(&fault),
                Ok(Incoming::Batch(elements)) => {
                    (None, Box::pin(self.batch(parts, elements, &asker, format, &mut hold)).await)
                }
                Ok(Incoming::One(message)) => {
                    let id = match &message {
                        Message::Request(request) => Some(request.id.clone()),
                        Message::Notification(_) | Message::Response(_) => None,
                    };
                    (id, self.one(parts, message, &asker, format, &mut hold).await)
                }
            };
            match tried {
                Ok(response) => break response,
                Err(error) if is_left_to_others(sender, &error) => {
                    break not_here(empty(StatusCode::MISDIRECTED_REQUEST));
                }
                Err(error) if self.waits(sender, &mut hold, &error).await => {}
                Err(error) => {
                    let error = match &hold {
                        Some(hold) => hold.given_up(error, parts),
                        None => error,
                    };
                    break refused(&error, id.as_ref(), &body, format);
                }
            }
        };
        // Releases the request's memory before the answer is counted, unless a running call still holds it.
        let share = asker.held.share();
        drop(asker);
        drop(body);
        self.at_pace(parts.version, response, sender, &share)
    }

    async fn one(
        &self,
        parts: &Parts,
        message: Message,
        asker: &Asker<'_>,
        format: AnswerFormat,
        hold: &mut Option<Hold>,
    ) -> Result<Response<Body>, Error> {
        if let Some(notes) = asker.sender.notes {
            notes.message(&message);
        }
        let header = headers::protocol_version(&parts.headers);
        let eras = match format {
            AnswerFormat::Streamable => self.eras(),
            // The doors serve only clients that are older than the modern era.
            AnswerFormat::Json | AnswerFormat::Done => Eras::Legacy,
        };
        let era = era_choice::choose(eras, &message, header);
        let answers = match era {
            EraChoice::Exchange => Answers::Exchange,
            EraChoice::Session | EraChoice::NotServed(_) => Answers::Session,
        };
        if let Err(refusal) = self.check_scopes(asker.sender, &message, answers) {
            return Ok(*refusal);
        }
        match (era, message) {
            (EraChoice::Exchange, Message::Request(request)) if let Some(exchanges) = &self.0.exchanges => {
                Ok(Box::pin(self.exchange(exchanges, parts, request, asker)).await)
            }
            // The modern era has no session that a notification or response could belong to, so it is ignored.
            (EraChoice::Exchange, _) => Ok(empty(StatusCode::ACCEPTED)),
            (EraChoice::NotServed(error), _) => Err(error),
            (EraChoice::Session, message) => match self.check_accept(parts, header, format) {
                Ok(()) => self.of_session(parts, message, (header, format), asker, hold).await,
                Err(error) => Ok(reject(&error, None)),
            },
        }
    }

    /// Checks that `Accept` allows the answers that may come. Skipped if the headers show the modern era, whose
    /// clients may accept JSON alone.
    fn check_accept(&self, parts: &Parts, header: Option<&str>, format: AnswerFormat) -> Result<(), Error> {
        if format == AnswerFormat::Streamable && self.has_no_sessions_for(header) {
            return Ok(());
        }
        format.check_accept(&parts.headers, self.rules().leniencies)
    }

    async fn of_session(
        &self,
        parts: &Parts,
        message: Message,
        (header, format): (Option<&str>, AnswerFormat),
        asker: &Asker<'_>,
        hold: &mut Option<Hold>,
    ) -> Result<Response<Body>, Error> {
        match message {
            Message::Request(request) => {
                let is_first = request.method == Method::Initialize
                    && matches!(headers::session(&parts.headers), headers::SessionHeader::None);
                if is_first {
                    return Box::pin(self.initialize(parts, request, asker, format)).await;
                }
                let (session, attempt) = match self.session_for(parts, header, asker, format, hold).await {
                    Err(error)
                        if error.reason() == Reason::SessionRequired && self.rules().leniencies.mint =>
                    {
                        let unnamed = Box::pin(self.unnamed(parts, request, asker, format)).await;
                        let error = match unnamed {
                            Ok(response) => return Ok(response),
                            Err(error) => error,
                        };
                        let taken = Box::pin(self.taken_by_other(&error, parts, asker, format)).await;
                        return taken.ok_or(error);
                    }
                    found => match found? {
                        Found::Here(session, attempt) => (session, attempt),
                        Found::Elsewhere(answer) => {
                            let requests = std::slice::from_ref(&request.id);
                            return Ok(self.passed_on(answer, parts, asker, format, requests));
                        }
                    },
                };
                let id = request.id.clone();
                let caller = Caller { collect: format.collect(), ..self.caller(parts, asker) };
                let answer = match attempt {
                    RequestTry::First => session.request(request, caller).await,
                    RequestTry::Again => Box::pin(session.request_again(request, caller)).await,
                };
                let response = match answer {
                    Ok(answer) => self.answer(answer, &session, PostedRequests::One(id), format).await,
                    Err(error) if self.may_go_on_elsewhere(&error) => return Err(error),
                    Err(error) => format.refuse(&error, Some(&id)),
                };
                Ok(named(response, parts))
            }
            Message::Notification(notification) => {
                let (session, attempt) = match self.session_for(parts, header, asker, format, hold).await? {
                    Found::Here(session, attempt) => (session, attempt),
                    Found::Elsewhere(answer) => {
                        return Ok(self.passed_on(answer, parts, asker, format, &[]));
                    }
                };
                session.touch();
                if attempt == RequestTry::Again && !may_come_twice(&notification.method) {
                    tracing::debug!(method = %notification.method, "a notification may have come already; it is not given out again");
                    return Ok(empty(StatusCode::ACCEPTED));
                }
                let initialized = notification.method == Method::Initialized;
                match session.notification(notification) {
                    Ok(()) => {}
                    Err(error) if self.may_go_on_elsewhere(&error) => return Err(error),
                    Err(error) => return Ok(named(reject(&error, None), parts)),
                }
                if initialized {
                    // The client sends it only once, so it has to be saved before it is accepted.
                    session.saved().await;
                    // What was not saved the next owner of the session does not know, so it is told again.
                    session.check_is_here()?;
                }
                Ok(empty(StatusCode::ACCEPTED))
            }
            Message::Response(response) => {
                match self.session_for(parts, header, asker, format, hold).await? {
                    // A second answer to the same question is ignored.
                    Found::Here(session, _) => session.response(response)?,
                    Found::Elsewhere(answer) => {
                        return Ok(self.passed_on(answer, parts, asker, format, &[]));
                    }
                }
                Ok(empty(StatusCode::ACCEPTED))
            }
        }
    }

    async fn initialize(
        &self,
        parts: &Parts,
        request: Request,
        asker: &Asker<'_>,
        format: AnswerFormat,
    ) -> Result<Response<Body>, Error> {
        let id = request.id.clone();
        let request = match request.params {
            None if self.rules().leniencies.bare_initialize => {
                unnamed::with_params(request, headers::protocol_version(&parts.headers))?
            }
            _ => request,
        };
        let created =
            match self.0.sessions.create_within(asker.held.share(), request, &asker.sender.principal).await {
                // No session exists that the status could end, and another server may have room for the client.
                Err(error) => {
                    let taken = Box::pin(self.taken_by_other(&error, parts, asker, format)).await;
                    return Ok(taken.unwrap_or_else(|| format.refuse_new(&error, &id)));
                }
                Ok(created) => created,
            };
        let response = format.respond(created.answer);
        Ok(match created.session {
            Some(session) => {
                asker.sender.uses(&session);
                with_session(response, &session)
            }
            None => response,
        })
    }

    async fn batch(
        &self,
        parts: &Parts,
        elements: Vec<RawJson>,
        asker: &Asker<'_>,
        format: AnswerFormat,
        hold: &mut Option<Hold>,
    ) -> Result<Response<Body>, Error> {
        if let Some(notes) = asker.sender.notes {
            notes.batch(elements.len());
        }
        let header = headers::protocol_version(&parts.headers);
        let has_batches = format != AnswerFormat::Streamable
            || self.eras() == Eras::Legacy
            || !self.has_no_sessions_for(header);
        let eras = if format == AnswerFormat::Streamable { self.eras() } else { Eras::Legacy };
        let batch = Batch::read(&elements, eras);
        if !has_batches || matches!(batch, Err(BatchFault::Modern)) {
            return Err(modern_batch());
        }
        let (session, attempt) = match self.session_for(parts, header, asker, format, hold).await {
            Ok(Found::Here(session, attempt)) => (session, attempt),
            Ok(Found::Elsewhere(answer)) => {
                let requests = batch.as_ref().map_or(&[][..], |batch| &batch.requests[..]);
                return Ok(self.passed_on(answer, parts, asker, format, requests));
            }
            Err(error) if error.reason() == Reason::SessionRequired => return Err(no_batch()),
            Err(error) => return Err(error),
        };
        if !session.revision().has_batches() {
            return Err(no_batch());
        }
        let Batch { messages, requests } = match batch {
            Ok(batch) => batch,
            Err(BatchFault::Modern) => return Err(modern_batch()),
            Err(BatchFault::Initialize) => {
                return Err(Error::new(Reason::InvalidRequest, "initialize must not be part of a batch"));
            }
            Err(BatchFault::Malformed(fault)) => return Ok(malformed(&fault)),
        };
        for message in &messages {
            if let Err(refusal) = self.check_scopes(asker.sender, message, Answers::Session) {
                return Ok(*refusal);
            }
        }
        let caller = Caller { collect: format.collect(), ..self.caller(parts, asker) };
        let answered = match attempt {
            RequestTry::First => session.batch(messages, &caller),
            RequestTry::Again => session.batch_again(messages, &caller),
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) if self.may_go_on_elsewhere(&error) => return Err(error),
            Err(error) => return Ok(named(reject(&error, None), parts)),
        };
        // The batch may contain `notifications/initialized`, which has to be saved before it is accepted.
        session.saved().await;
        Ok(match answer {
            Some(answer) => {
                let requests = PostedRequests::Batch(requests);
                named(self.answer(answer, &session, requests, format).await, parts)
            }
            None => empty(StatusCode::ACCEPTED),
        })
    }

    async fn session_for(
        &self,
        parts: &Parts,
        header: Option<&str>,
        asker: &Asker<'_>,
        format: AnswerFormat,
        hold: &mut Option<Hold>,
    ) -> Result<Found, Error> {
        revision::check_header(header)?;
        let carried = Carried::of(asker.body, format);
        let found = self.session(parts, asker.sender, carried, hold).await?;
        if header.is_none()
            && let Found::Here(session, _) = &found
        {
            session.note_unversioned();
        }
        Ok(found)
    }

    /// Reads the body. Its size, its time and the memory of its sender are bounded. A body that comes in one piece is
    /// not copied.
    pub(super) async fn read<B>(
        &self,
        parts: &Parts,
        body: B,
        share: Share,
    ) -> Result<(Bytes, Taken), RefusedBody>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let limit = self.0.rules.max_body_bytes;
        let declared = parts.headers.get(http::header::CONTENT_LENGTH);
        let declared = declared.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        if declared.is_some_and(|length| length > limit) {
            return Err(too_large(limit).into());
        }
        let mut read = pin!(receive(body, share, declared, limit));
        // Nearly every body is already here; only a late one needs a timer.
        if let std::task::Poll::Ready(body) = futures_now(read.as_mut()).await {
            return body;
        }
        match tokio::time::timeout(self.0.rules.body_timeout, read).await {
            Ok(body) => body,
            Err(_) => Err(Error::new(Reason::BodyTimeout, "The body did not arrive in time").into()),
        }
    }
}

/// The response for an error. If requests of a batch may have been carried out, each of them has an answer: a refusal of the whole
/// would tell the client to send them again.
fn refused(error: &Error, id: Option<&RequestId>, body: &Bytes, format: AnswerFormat) -> Response<Body> {
    if matches!(error.reason(), Reason::Interrupted | Reason::EventTooLarge)
        && let Ok(Incoming::Batch(elements)) = Incoming::parse(body)
        && let Ok(Batch { requests, .. }) = Batch::read(&elements, Eras::Legacy)
        && !requests.is_empty()
    {
        return format.respond(errors(&requests, error));
    }
    format.refuse(error, id)
}

/// Repeats the client's session id in a response, even in a refusal. Not in a 404, because that session is gone.
pub(super) fn named(mut response: Response<Body>, parts: &Parts) -> Response<Body> {
    if response.status() == StatusCode::NOT_FOUND {
        return response;
    }
    if let Some(id) = parts.headers.get(headers::SESSION_ID) {
        response.headers_mut().insert(headers::SESSION_ID, id.clone());
    }
    response
}

/// Whether a notification means the same if it comes twice. Any other one is delivered at most once.
fn may_come_twice(method: &Method) -> bool {
    matches!(method, Method::Initialized | Method::Cancelled | Method::Progress | Method::RootsListChanged)
}

/// Polls once, with the task's own waker.
async fn futures_now<F: Future>(mut future: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx))).await
}
