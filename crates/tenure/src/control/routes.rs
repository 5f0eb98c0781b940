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
use serde::de::DeserializeOwned;
use tenure_session::SessionKey;
use tenure_session::session::Existing;

use super::lines::LineBody;
use super::{BASE, BackupLine, BackupOrder, HandOver, PrincipalOrder, missing, take_over};
use crate::admin::difference;
use crate::audit::{AdminAction, AdminIdentity};
use crate::failure::Failure;
use crate::operator::{
    DataFate, DataName, Extent, HalfRevoked, MAX_LINE_BYTES, Operator, Prefix, Saved, Show, parse_key,
};
use crate::wire::{BackedUp, ByteProgress};

/// How long a request's body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Rows of a page if the request has no limit.
const ROWS: usize = 100;

pub(super) type ControlAnswer = Response<Either<Full<Bytes>, LineBody>>;

/// Answers one request.
pub(super) async fn answer(
    operator: Operator,
    hand_over: Option<HandOver>,
    uid: Option<u32>,
    request: Request<Incoming>,
) -> Result<ControlAnswer, Infallible> {
    let operator = operator.for_one();
    let asked = operator.clone();
    let audit = operator.audit().cloned();
    let done = audit.as_ref().and_then(|_| action(request.method(), request.uri()));
    let mut answer = answered(operator, hand_over, request).await;
    missing::name(&asked.missing_nodes(), answer.headers_mut());
    if let (Some(audit), Some((method, name))) = (audit, done) {
        // Only the route knows the names in the body, and the values from before the change.
        let name = answer.extensions().get::<ActedOn>().map_or(name, |acted| acted.0.clone());
        let change = answer.extensions().get::<Changed>().map(|changed| changed.0.as_str());
        let is_done = answer.status().is_success() || answer.status().is_informational();
        audit.operator_did(&AdminAction {
            who: AdminIdentity::User(uid),
            operation: &method,
            about: &name,
            is_done,
            change,
            reason: None,
            remote: None,
        });
    }
    Ok(answer)
}

/// The audit record of a request: of each that changes something, or shows data of clients. Keys are shown as the names
/// that they have in logs.
fn action(method: &Method, uri: &hyper::Uri) -> Option<(String, String)> {
    let path = uri.path().strip_prefix(BASE)?.trim_matches('/');
    let query = uri.query().unwrap_or_default();
    let shows_contents = path.ends_with("/export") || Query(query).get("contents") == Some("true");
    let only_looks = *method != Method::POST || matches!(path, "limits" | "principals/show");
    if only_looks && !shows_contents {
        return None;
    }
    let (mut words, mut name) = (Vec::new(), String::new());
    for word in path.split('/') {
        match parse_key(word) {
            Some(key) => name = key.label(),
            None => words.push(word),
        }
    }
    if shows_contents && !path.ends_with("/export") {
        words.push("contents");
    }
    Some((words.join("."), name))
}

/// The name of what a request was about, if its body has it.
#[derive(Clone)]
struct ActedOn(String);

/// The changes of a request, for the audit log: the members that differ, each with its old and its new value.
#[derive(Clone)]
struct Changed(String);

async fn answered(
    operator: Operator,
    hand_over: Option<HandOver>,
    request: Request<Incoming>,
) -> ControlAnswer {
    let path = request.uri().path().strip_prefix(BASE);
    if let (Some(take_over::PATH), &Method::POST, Some(hand_over)) = (path, request.method(), &hand_over) {
        return hand_over.answer(request);
    }
    let answer = route(operator, request).await;
    answer.unwrap_or_else(|failure| json(StatusCode::UNPROCESSABLE_ENTITY, &failure))
}

async fn route(operator: Operator, request: Request<Incoming>) -> Result<ControlAnswer, Failure> {
    let (head, body) = request.into_parts();
    let query = Query(head.uri.query().unwrap_or_default());
    let Some(path) = head.uri.path().strip_prefix(BASE) else {
        return Ok(refused(StatusCode::NOT_FOUND));
    };
    let path: Vec<_> = path.split('/').skip(1).collect();
    let data = operator.data();
    match (&head.method, &path[..]) {
        (&Method::GET, ["sessions"]) => match query.get("prefix") {
            Some(prefix) => {
                let prefix = Prefix::parse(prefix).ok_or_else(|| bad("the first digits of a key"))?;
                ok(&operator.matching(&prefix, query.limit()).await?)
            }
            None => ok(&operator.page(query.after()?, query.limit()).await?),
        },
        (&Method::POST, ["sessions"]) => {
            let existing =
                if query.get("replace") == Some("true") { Existing::Replace } else { Existing::Keep };
            let line = read_body(body).await?;
            let saved = Saved::parse(&line).map_err(|error| bad("a saved session").caused_by(error))?;
            ok(&operator.import(saved, existing).await?)
        }
        (&Method::GET, ["sessions", key]) => ok(&operator.show(read_key(key)?).await?),
        (&Method::GET, ["sessions", key, "export"]) => ok(&operator.export(read_key(key)?).await?),
        (&Method::POST, ["sessions", key, "revoke"]) => ok(&operator.revoke(read_key(key)?).await?),
        (&Method::POST, ["sessions", key, "settings"]) => {
            let (key, changes) = (read_key(key)?, read_json(body, "changes of a session").await?);
            let before = match operator.audit() {
                Some(_) => operator.show(key).await?.map(|shown| shown.settings),
                None => None,
            };
            let after = operator.annotate(key, &changes).await?;
            let mut answer = json(StatusCode::OK, &after);
            let change =
                before.zip(after).and_then(|(before, after)| difference(&before, &after).map(Changed));
            if let Some(change) = change {
                answer.extensions_mut().insert(change);
            }
            Ok(answer)
        }
        (&Method::GET, ["data"]) => match query.get("name") {
            Some(name) => {
                let name = DataName::parse(name).ok_or_else(|| bad("the name of a data session"))?;
                ok(&data.matching(&name, query.limit()).await?)
            }
            None => ok(&data.page(query.after()?, query.limit()).await?),
        },
        (&Method::POST, ["data"]) => {
            ok(&data.create(read_json(body, "a data session to make").await?).await?)
        }
        (&Method::GET, ["data", "count"]) => ok(&data.count().await?),
        (&Method::GET, ["data", key]) => {
            let show = if query.get("contents") == Some("true") { Show::Contents } else { Show::Facts };
            ok(&data.show(read_key(key)?, show).await?)
        }
        (&Method::POST, ["data", key, "resume"]) => ok(&data.resume(read_key(key)?).await?),
        (&Method::GET, ["data", key, "names"]) => ok(&data.select(read_key(key)?).await?),
        (&Method::POST, ["data", key, "clear"]) => ok(&data.clear(read_key(key)?).await?),
        (&Method::POST, ["data", key, "revoke"]) => ok(&data.revoke(read_key(key)?).await?),
        (&Method::GET, ["principals"]) => ok(&operator.principals(Extent::All).await?.rows),
        (&Method::POST, ["principals", verb @ ("show" | "revoke" | "reinstate")]) => {
            let PrincipalOrder { principal, data } = read_json(body, "a principal").await?;
            let fate = if data { DataFate::Ended } else { DataFate::Kept };
            let mut half = None;
            let done = match *verb {
                "show" => operator.principal(&principal, Extent::All).await.and_then(|shown| ok(&shown)),
                "revoke" => match operator.revoke_principal(&principal, fate).await {
                    Ok(done) => ok(&done),
                    Err(HalfRevoked { failure, ended }) => {
                        half = ended;
                        Err(failure)
                    }
                },
                _ => operator.reinstate_principal(&principal).await.and_then(|done| ok(&done)),
            };
            let mut answer = done.unwrap_or_else(|failure| json(StatusCode::UNPROCESSABLE_ENTITY, &failure));
            answer.extensions_mut().insert(ActedOn(principal));
            if let Some(ended) = half {
                answer.extensions_mut().insert(Changed(serde_json::json!({ "ended": ended }).to_string()));
            }
            Ok(answer)
        }
        (&Method::GET, ["calls"]) => ok(&operator.calls_everywhere().await),
        (&Method::GET, ["usage"]) => ok(&operator.usage_everywhere().await),
        (&Method::POST, ["limits"]) => {
            let principal: Option<String> = read_json(body, "the name of a principal, or none").await?;
            ok(&operator.limits_left(principal.as_deref()).await)
        }
        (&Method::GET, ["nodes"]) => ok(&operator.nodes().await?),
        (&Method::GET, ["engine"]) => ok(&operator.engine()),
        (&Method::GET, ["loops"]) => ok(&operator.loops()),
        (&Method::POST, ["backup"]) => {
            let order = read_json(body, "a backup").await?;
            Ok(backup(operator, order))
        }
        (
            _,
            ["sessions" | "data" | "principals", ..]
            | ["backup"]
            | ["calls"]
            | ["usage"]
            | ["limits"]
            | ["nodes"]
            | ["engine"]
            | ["loops"],
        ) => Ok(refused(StatusCode::METHOD_NOT_ALLOWED)),
        _ => Ok(refused(StatusCode::NOT_FOUND)),
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

fn read_key(text: &str) -> Result<SessionKey, Failure> {
    parse_key(text).ok_or_else(|| bad("a key"))
}

async fn read_body(body: Incoming) -> Result<Bytes, Failure> {
    let read = Limited::new(body, MAX_LINE_BYTES).collect();
    match tokio::time::timeout(BODY_TIME, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(Failure::new("cannot read the body of the request").caused_by(error.as_ref())),
        Err(_) => Err(Failure::new("the body of the request took too long to arrive")),
    }
}

async fn read_json<T: DeserializeOwned>(body: Incoming, what: &str) -> Result<T, Failure> {
    serde_json::from_slice(&read_body(body).await?).map_err(|error| bad(what).caused_by(error))
}

fn bad(what: &str) -> Failure {
    Failure::new(format!("the server expected {what} and got something else"))
}

fn ok(value: &impl Serialize) -> Result<ControlAnswer, Failure> {
    Ok(json(StatusCode::OK, value))
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

/// The query of a URL. All values are digits or words, so none is escaped.
struct Query<'a>(&'a str);

impl<'a> Query<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        let mut pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// How many rows a page may have.
    fn limit(&self) -> usize {
        self.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(ROWS)
    }

    /// The key after which a page begins.
    fn after(&self) -> Result<Option<SessionKey>, Failure> {
        self.get("after").map(read_key).transpose()
    }
}
