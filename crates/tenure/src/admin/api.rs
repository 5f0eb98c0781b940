//! The way of a request: found in the table, checked, answered, and recorded if it changes something.
//!
//! In: a request, and who asks. Out: an answer. A change runs in a task of its own, so that a browser that goes away leaves
//! nothing half done, and the audit log hears how it ended.

use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tenure_session::port::clock::Time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::caller::AdminCaller;
use super::error::AdminError;
use super::live::LiveFeed;
use super::login::Logins;
use super::looks::RecentLooks;
use super::request::Asked;
use super::role::AdminRole;
use super::routes::{AdminRoute, ROUTES, Verb};
use super::through::ToolLists;
use super::{answers, changes};
use crate::audit::AdminAction;
use crate::config::{Config, ShownSetting};
use crate::operator::{Operator, now};
use crate::wire::Runtimes;

/// Every path begins with it.
pub(crate) const BASE: &str = "/api/v1";

/// The largest body of a request.
const MAX_BODY_BYTES: usize = 256 << 10;

/// How long a request's body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

pub(super) type AdminBody = UnsyncBoxBody<Bytes, Infallible>;
pub(crate) type AdminAnswer = Response<AdminBody>;

/// The API of a running server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AdminApi(pub(super) Arc<AdminState>);

pub(super) struct AdminState {
    pub(super) operator: Operator,
    pub(super) runtimes: Runtimes,
    pub(super) logins: Logins,
    pub(super) settings: Vec<ShownSetting>,
    pub(super) config: Config,
    pub(super) started: Time,
    /// The address of the page, if it is served.
    pub(super) url: OnceLock<String>,
    pub(super) live: LiveFeed,
    pub(super) tools: ToolLists,
    looks: RecentLooks,
    /// Cancelled when streams have to end.
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// Whether an answer has what a viewer may not see, although it was not asked for by a flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shows {
    Facts,
    Contents,
}

impl Shows {
    pub(super) fn contents_if(has_contents: bool) -> Self {
        if has_contents { Self::Contents } else { Self::Facts }
    }
}

/// What was done, and what the audit log should know of it.
pub(super) struct Outcome {
    pub(super) answer: AdminAnswer,
    shows: Shows,
    /// What it was about.
    about: Option<String>,
    /// From what, to what.
    change: Option<String>,
}

impl Outcome {
    pub(super) fn of(value: &impl Serialize) -> Self {
        Self::answered(json(StatusCode::OK, value))
    }

    /// An answer that is ready.
    pub(super) fn answered(answer: AdminAnswer) -> Self {
        Self { answer, shows: Shows::Facts, about: None, change: None }
    }

    pub(super) fn rows<Row: Serialize>(rows: &[Row]) -> Self {
        #[derive(Serialize)]
        struct Rows<'a, Row> {
            rows: &'a [Row],
        }
        Self::of(&Rows { rows })
    }

    pub(super) fn about(self, about: impl Into<String>) -> Self {
        Self { about: Some(about.into()), ..self }
    }

    pub(super) fn shows(self, shows: Shows) -> Self {
        Self { shows, ..self }
    }

    pub(super) fn change(self, change: Option<String>) -> Self {
        Self { change, ..self }
    }
}

impl AdminApi {
    /// `folder` is that of the store, if it has one: logins are kept there.
    pub(crate) fn new(
        config: &Config,
        operator: Operator,
        runtimes: Runtimes,
        folder: Option<&Path>,
        stop: CancellationToken,
    ) -> Self {
        Self(Arc::new(AdminState {
            operator,
            runtimes,
            logins: Logins::kept_in(folder, now()),
            settings: config.shown.clone(),
            config: config.clone(),
            started: now(),
            url: OnceLock::new(),
            live: LiveFeed::default(),
            tools: ToolLists::default(),
            looks: RecentLooks::default(),
            stop,
            tasks: TaskTracker::new(),
        }))
    }

    /// Answers a request below [`BASE`].
    ///
    /// # Cancel safety
    /// A change that has begun is finished.
    pub(crate) async fn answer(&self, caller: &AdminCaller, request: Request<Incoming>) -> AdminAnswer {
        let path = request.uri().path().strip_prefix(BASE).and_then(|path| path.strip_prefix('/'));
        let path = path.unwrap_or_default().to_owned();
        let route = match find(&path, request.method()) {
            Ok(route) => route,
            Err(answer) => return *answer,
        };
        let asked = read(route, &path, request).await;
        let answered = match asked {
            Ok(asked) if route.is_change() => {
                let (api, caller) = (self.clone(), caller.clone());
                let change = self.0.tasks.spawn(async move { api.changed(route, &caller, &asked).await });
                change
                    .await
                    .unwrap_or_else(|_| Err(AdminError::failed("The server failed while it did this")))
            }
            Ok(asked) => self.looked(route, caller, &asked).await,
            Err(error) => Err(error),
        };
        match answered {
            Ok(answer) => answer,
            Err(error) => refuse(&error),
        }
    }

    async fn looked(
        &self,
        route: &AdminRoute,
        caller: &AdminCaller,
        asked: &Asked,
    ) -> Result<AdminAnswer, AdminError> {
        may(route, caller)?;
        let shows_contents = asked.flag("bodies") || asked.flag("contents");
        let outcome = match shows_contents && caller.role < AdminRole::Payloads {
            true => Err(lacks(AdminRole::Payloads, caller)),
            false => answers::answer(self, route.does, caller, asked).await,
        };
        // What clients keep is theirs, so a look at it is recorded too.
        let looks_by_itself = match &outcome {
            Ok(Outcome { shows: Shows::Contents, about, .. }) => {
                let about = about.clone().unwrap_or_default();
                self.0.looks.is_new(&caller.share(), route.operation(), about, now())
            }
            _ => false,
        };
        if shows_contents || looks_by_itself {
            let operation = format!("{}.contents", route.operation());
            self.record(caller, &operation, asked, &outcome);
        }
        outcome.map(|outcome| outcome.answer)
    }

    async fn changed(
        &self,
        route: &AdminRoute,
        caller: &AdminCaller,
        asked: &Asked,
    ) -> Result<AdminAnswer, AdminError> {
        let outcome = match may(route, caller) {
            Ok(()) => changes::change(self, route.does, caller, asked).await,
            Err(error) => Err(error),
        };
        self.record(caller, &route.operation(), asked, &outcome);
        outcome.map(|outcome| outcome.answer)
    }

    fn record(
        &self,
        caller: &AdminCaller,
        operation: &str,
        asked: &Asked,
        outcome: &Result<Outcome, AdminError>,
    ) {
        let (is_done, about, change) = match outcome {
            Ok(outcome) => (true, outcome.about.clone(), outcome.change.clone()),
            Err(AdminError { done: Some(done), .. }) => {
                (false, Some(done.about.clone()), Some(done.change.clone()))
            }
            Err(_) => (false, None, None),
        };
        let about = about.unwrap_or_else(|| asked.subject());
        tracing::info!(
            operator = caller.name,
            operation,
            about,
            is_done,
            reason = asked.reason(),
            "an operator asked for something"
        );
        if let Some(audit) = self.0.operator.audit() {
            audit.operator_did(&AdminAction {
                who: caller.identity(),
                operation,
                about: &about,
                is_done,
                change: change.as_deref(),
                reason: asked.reason(),
                remote: caller.address(),
            });
        }
    }
}

/// The route for a request, or an answer that says that the path is unknown.
fn find(path: &str, method: &Method) -> Result<&'static AdminRoute, Box<AdminAnswer>> {
    let fitting: Vec<_> = ROUTES.iter().filter(|route| route.matched(path).is_some()).collect();
    if fitting.is_empty() {
        let error = AdminError::not_found("There is no such path").hint("`openapi.json` lists them");
        return Err(Box::new(refuse(&error)));
    }
    fitting.iter().find(|route| route.method.is(method)).copied().ok_or_else(|| {
        let allowed: Vec<_> = fitting.iter().map(|route| route.method.as_str().to_uppercase()).collect();
        let mut answer = refuse(&AdminError::method());
        if let Ok(allowed) = HeaderValue::try_from(allowed.join(", ")) {
            answer.headers_mut().insert(ALLOW, allowed);
        }
        Box::new(answer)
    })
}

/// Reads what was asked, if it fits the route.
async fn read(route: &AdminRoute, path: &str, request: Request<Incoming>) -> Result<Asked, AdminError> {
    let found = route.matched(path).unwrap_or_default();
    let mut asked = Asked::new(found.into_iter().map(|(name, value)| (name, decoded(value))).collect());
    asked.take_query(request.uri().query().unwrap_or_default(), route.query)?;
    if route.method != Verb::Get {
        asked.take_body(&read_body(request.into_body()).await?, route.body)?;
    }
    Ok(asked)
}

/// A part of a path without its escapes.
fn decoded(word: &str) -> String {
    // As in a query, except that `+` means itself.
    let escaped = word.replace('+', "%2B");
    form_urlencoded::parse(format!("x={escaped}").as_bytes())
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

pub(super) async fn read_body(body: Incoming) -> Result<Bytes, AdminError> {
    let read = Limited::new(body, MAX_BODY_BYTES).collect();
    match tokio::time::timeout(BODY_TIME, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(AdminError::bad(format!("The body cannot be read: {error}"))),
        Err(_) => Err(AdminError::bad("The body took too long to arrive")),
    }
}

fn may(route: &AdminRoute, caller: &AdminCaller) -> Result<(), AdminError> {
    if caller.role >= route.role { Ok(()) } else { Err(lacks(route.role, caller)) }
}

fn lacks(needed: AdminRole, caller: &AdminCaller) -> AdminError {
    let (needed, has) = (needed.as_str(), caller.role.as_str());
    AdminError::forbidden(format!("This needs the role `{needed}`, and you are logged in as `{has}`"))
        .hint(format!("`tenure admin open --role {needed}` on the server's machine, or a key with the scope `admin:{needed}`"))
}

/// The answer for an error.
pub(super) fn refuse(error: &AdminError) -> AdminAnswer {
    json(error.status, error)
}

pub(super) fn json(status: StatusCode, value: &impl Serialize) -> AdminAnswer {
    let body = serde_json::to_vec(value).expect("an answer has a JSON form");
    with_type(status, "application/json", body.into())
}

pub(super) fn with_type(status: StatusCode, content_type: &'static str, body: Bytes) -> AdminAnswer {
    let mut answer = Response::new(Full::new(body).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

impl std::fmt::Debug for AdminApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminApi").field("url", &self.0.url.get()).finish_non_exhaustive()
    }
}
