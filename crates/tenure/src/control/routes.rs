//! The routes of the control socket, and the form of its answers.
//!
//! An answer is JSON with status 200. A request that fails gets 422 with the failure, which the command prints as it
//! is. 404 and 405 mean that command and server have different versions.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tenure_session::session::Existing;

use super::lines::LineBody;
use super::{BASE, BackupLine, BackupOrder, HandOver, data, take_over};
use crate::failure::Failure;
use crate::operator::{MAX_LINE_BYTES, Operator, Prefix, Saved, parse_key};
use crate::wire::{BackedUp, ByteProgress};

/// How long a request's body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Rows of a page if the request has no limit.
pub(super) const ROWS: usize = 100;

pub(super) type ControlAnswer = Response<Either<Full<Bytes>, LineBody>>;

/// Answers one request.
pub(super) async fn answer(
    operator: Operator,
    hand_over: Option<HandOver>,
    request: Request<Incoming>,
) -> Result<ControlAnswer, Infallible> {
    let path = request.uri().path().strip_prefix(BASE);
    if let (Some(take_over::PATH), &Method::POST, Some(hand_over)) = (path, request.method(), &hand_over) {
        return Ok(hand_over.answer(request));
    }
    let answer = route(operator, request).await;
    Ok(answer.unwrap_or_else(|failure| json(StatusCode::UNPROCESSABLE_ENTITY, &failure)))
}

async fn route(operator: Operator, request: Request<Incoming>) -> Result<ControlAnswer, Failure> {
    let (head, body) = request.into_parts();
    let query = Query(head.uri.query().unwrap_or_default());
    let Some(path) = head.uri.path().strip_prefix(BASE) else { return Ok(unknown()) };
    let path: Vec<_> = path.split('/').skip(1).collect();
    match (&head.method, &path[..]) {
        (&Method::GET, ["sessions"]) => {
            let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(ROWS);
            let page = match query.get("prefix") {
                Some(prefix) => operator.matching(&read_prefix(prefix)?, limit).await?,
                None => operator.page(query.get("after").map(read_key).transpose()?, limit).await?,
            };
            Ok(json(StatusCode::OK, &page))
        }
        (&Method::POST, ["sessions"]) => {
            let existing =
                if query.get("replace") == Some("true") { Existing::Replace } else { Existing::Keep };
            let line = read_body(body).await?;
            let saved = Saved::parse(&line).map_err(|error| bad("a saved session").caused_by(error))?;
            operator.import(saved, existing).await?;
            Ok(json(StatusCode::OK, &()))
        }
        (&Method::GET, ["sessions", key]) => Ok(json(StatusCode::OK, &operator.show(read_key(key)?).await?)),
        (&Method::GET, ["sessions", key, "export"]) => {
            Ok(json(StatusCode::OK, &operator.export(read_key(key)?).await?))
        }
        (&Method::POST, ["sessions", key, "revoke"]) => {
            Ok(json(StatusCode::OK, &operator.revoke(read_key(key)?).await?))
        }
        (&Method::POST, ["sessions", key, "settings"]) => {
            let changes = serde_json::from_slice(&read_body(body).await?);
            let changes = changes.map_err(|error| bad("changes of a session").caused_by(error))?;
            Ok(json(StatusCode::OK, &operator.annotate(read_key(key)?, &changes).await?))
        }
        (&Method::GET, ["calls"]) => Ok(json(StatusCode::OK, &operator.calls())),
        (&Method::GET, ["usage"]) => Ok(json(StatusCode::OK, &operator.usage())),
        (&Method::GET, ["loops"]) => Ok(json(StatusCode::OK, &operator.loops())),
        (&Method::POST, ["backup"]) => {
            let order = serde_json::from_slice(&read_body(body).await?);
            Ok(backup(operator, order.map_err(|error| bad("a backup").caused_by(error))?))
        }
        (method, ["data", path @ ..]) => {
            data::route(operator.data(), method, path, &query, read_body(body)).await
        }
        (_, ["sessions", ..] | ["backup"] | ["calls"] | ["usage"] | ["loops"]) => {
            Ok(refused(StatusCode::METHOD_NOT_ALLOWED))
        }
        _ => Ok(unknown()),
    }
}

/// Starts a backup and reports its progress. The backup goes on to its end even if the command is gone.
fn backup(operator: Operator, order: BackupOrder) -> ControlAnswer {
    let lines = LineBody::of(|sender| async move {
        let told = sender.clone();
        let progress = move |stage: ByteProgress| {
            told.offer(&BackupLine::Progress { done: stage.done, of: stage.of });
        };
        let line = match operator.backup(&order.to, progress).await {
            Ok(BackedUp { sessions, data_sessions }) => {
                tracing::info!(to = %order.to.display(), sessions, data_sessions, "backed up");
                BackupLine::Complete { sessions, data_sessions }
            }
            Err(failure) => BackupLine::Failed(failure),
        };
        sender.send(&line).await;
    });
    Response::new(Either::Right(lines))
}

pub(super) fn read_key(text: &str) -> Result<tenure_session::SessionKey, Failure> {
    parse_key(text).ok_or_else(|| bad("a key"))
}

fn read_prefix(text: &str) -> Result<Prefix, Failure> {
    Prefix::parse(text).ok_or_else(|| bad("the first digits of a key"))
}

async fn read_body(body: Incoming) -> Result<Bytes, Failure> {
    let read = Limited::new(body, MAX_LINE_BYTES).collect();
    match tokio::time::timeout(BODY_TIME, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(Failure::new("cannot read what was sent").caused_by(error.as_ref())),
        Err(_) => Err(Failure::new("what was sent took too long to arrive")),
    }
}

pub(super) fn bad(what: &str) -> Failure {
    Failure::new(format!("the server expected {what} and got something else"))
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> ControlAnswer {
    let body = serde_json::to_vec(value).expect("an answer has a JSON form");
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    response
}

pub(super) fn refused(status: StatusCode) -> ControlAnswer {
    json(status, &Failure::new("the server does not know this request"))
}

fn unknown() -> ControlAnswer {
    refused(StatusCode::NOT_FOUND)
}

/// The query of a URL. All values are digits or words, so none is escaped.
pub(super) struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}
