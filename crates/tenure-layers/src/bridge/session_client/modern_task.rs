//! A task that a modern server made of a call, pursued for a client in a session, which waits for the answer.
//!
//! The server is asked for the task again and again, at the pace that it wants; a fault on the way there is no end,
//! since asking does no harm. What the task waits for is asked of the client as soon as it is seen, and each answer
//! goes to the server when it comes. Should the call be withdrawn, or its client unable to answer, the server is told
//! that the task is not wanted any more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hashbrown::HashSet;
use tenure_protocol::translate::questions::{self, Question};
use tenure_protocol::translate::result::{self, Kind};
use tenure_protocol::translate::tasks::{self, Seen};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::Call;
use tenure_session::call::{CallContext, Stage, input_required};
use tenure_session::port::BoxFuture;
use tokio::time::Instant;

use crate::bridge::session_client::backend::Way;
use crate::bridge::session_client::client::Guise;

/// How often a task is asked for if its server does not say, and what it may say.
const POLL: Duration = Duration::from_secs(1);
const MIN_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(5);
/// How soon a server that could not be reached is asked again, and how late at most.
const AGAIN_FIRST: Duration = Duration::from_millis(250);
const AGAIN_LAST: Duration = Duration::from_secs(5);
/// How long a server may be out of reach whose task has no time of its own.
const OUT_OF_REACH: Duration = Duration::from_secs(5 * 60);
/// How long a client that wants to hear of progress hears nothing.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How many questions a task may ask. Nobody answers more.
const MAX_QUESTIONS: usize = 100;
/// How long a server may take to hear that a task is not wanted any more.
const CANCEL: Duration = Duration::from_secs(3);

/// Sees a task of the server through to its end; the answer is that of the call.
///
/// # Errors
/// What the task failed with, or why nobody knows what it came to.
///
/// # Cancel safety
/// The task is cancelled.
pub(super) async fn pursue(
    way: &Arc<Way>,
    guise: &Arc<Guise>,
    context: &CallContext,
    created: &RawJson,
) -> Reply {
    let task = tasks::seen(created).ok_or_else(broken)?;
    // It counts from the start, like a request that is sent once more.
    guise.begins_again();
    let now = Instant::now();
    let unwanted = Unwanted::new(way, &task.id);
    let signs = Signs { count: 0, told: now, message: None };
    Pursuit { way, guise, context, task, began: now, unwanted, signs }.run().await
}

/// A task and the client that waits for it.
struct Pursuit<'a> {
    way: &'a Arc<Way>,
    guise: &'a Arc<Guise>,
    context: &'a CallContext,
    /// As it was seen last.
    task: Seen,
    began: Instant,
    unwanted: Unwanted,
    signs: Signs,
}

/// What a client that wants to hear of progress was told.
struct Signs {
    count: u64,
    told: Instant,
    message: Option<String>,
}

impl Pursuit<'_> {
    async fn run(mut self) -> Reply {
        let context = self.context;
        let (mut asked, mut asking) = (HashSet::new(), FuturesUnordered::new());
        let mut next = Instant::now() + self.pace();
        loop {
            let answered: Option<Answered> = tokio::select! {
                biased;
                Some(answered) = asking.next() => Some(answered),
                () = tokio::time::sleep_until(next) => None,
            };
            match answered {
                Some(Ok((key, answer))) => {
                    let update = tasks::update(&self.task.id, &key, &answer);
                    self.inquire(&Method::TasksUpdate, &update).await?;
                    // That may have been all that it waited for.
                    next = next.min(Instant::now() + MIN_POLL);
                    continue;
                }
                Some(Err((question, why))) => return abandoned(&question, &why),
                None => {}
            }
            let got = self.inquire(&Method::TasksGet, &tasks::named(&self.task.id)).await?;
            self.task = tasks::seen(&got).ok_or_else(broken)?;
            if let Some(outcome) = tasks::outcome(&got) {
                self.unwanted.forget();
                return outcome.and_then(complete);
            }
            // Somebody works on it, so that nobody's time is up.
            context.goes_on();
            self.show_life().await;
            let mut news = tasks::asked(&got)?;
            news.retain(|question| asked.insert(question.key.clone()));
            if asked.len() > MAX_QUESTIONS {
                let words = format!("The server's task asked more than {MAX_QUESTIONS} questions");
                return Err(RpcError::of(Reason::Internal, words));
            }
            // Nothing is asked if not all of it can be: no user should answer for nothing.
            let put: Result<Vec<_>, _> = news.into_iter().map(|question| put(context, question)).collect();
            match put {
                Ok(put) => {
                    asking.extend(put.into_iter().map(|(question, params)| ask(context, question, params)))
                }
                Err((question, why)) => return abandoned(&question, &why),
            }
            next = Instant::now() + self.pace();
        }
    }

    /// How long to wait until the server is asked for the task again.
    fn pace(&self) -> Duration {
        self.task.poll.unwrap_or(POLL).clamp(MIN_POLL, MAX_POLL)
    }

    /// Asks the server something about the task, until it answers or the task's time is up.
    async fn inquire(&mut self, method: &Method, params: &RawJson) -> Reply {
        let (mut again, since) = (AGAIN_FIRST, Instant::now());
        loop {
            let request = self.way.about_task(method, params)?;
            let error = match self.way.send(self.guise, request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !passes(&error) {
                if error.code() == i64::from(Reason::TaskNotFound.code()) {
                    self.unwanted.forget();
                }
                let words = format!("The server does not say what became of its task: {}", error.message());
                return Err(RpcError::of(Reason::Internal, words));
            }
            let time = self.task.ttl.map_or(Some(since + OUT_OF_REACH), |ttl| self.began.checked_add(ttl));
            if time.is_some_and(|time| time < Instant::now() + again) {
                let words = "The server was out of reach until its task had expired";
                return Err(RpcError::of(Reason::BackendUnavailable, words));
            }
            tracing::debug!(session = self.context.session_label(), %error, "asking for a task again");
            tokio::time::sleep(again).await;
            again = (again * 2).min(AGAIN_LAST);
        }
    }

    /// Tells a client that wants to hear of progress that there is some.
    async fn show_life(&mut self) {
        if self.guise.token().is_none() {
            return;
        }
        let Signs { count, told, message } = &mut self.signs;
        let is_new = self.task.message.is_some() && self.task.message != *message;
        if !is_new && told.elapsed() < SIGN_OF_LIFE {
            return;
        }
        (*count, *told) = (*count + 1, Instant::now());
        message.clone_from(&self.task.message);
        let mut params = serde_json::json!({ "progressToken": null, "progress": count });
        if let Some(message) = message {
            params["message"] = message.as_str().into();
        }
        // If nobody hears it any more, that is found out elsewhere.
        drop(self.guise.notify(&Method::Progress, Some(&RawJson::of(&params))).await);
    }
}

type Put = (Question, Option<RawJson>);
type Unanswered = (Question, String);
type Answered = Result<(String, RawJson), Unanswered>;

/// A question as it is put to the client; or why it cannot be.
fn put(context: &CallContext, question: Question) -> Result<Put, Unanswered> {
    match input_required::put(context, &question) {
        Ok(params) => Ok((question, params)),
        Err(why) => Err((question, why)),
    }
}

async fn ask(context: &CallContext, question: Question, params: Option<RawJson>) -> Answered {
    match input_required::ask(context, &question, params.as_ref()).await {
        Ok(answer) => Ok((question.key, answer)),
        Err(why) => Err((question, why)),
    }
}

fn abandoned(question: &Question, why: &str) -> Reply {
    questions::abandoned(&Method::ToolsCall, question, why)
}

/// The result of a task, which is nothing but the answer.
fn complete(outcome: RawJson) -> Reply {
    match result::kind(&Method::ToolsCall, &outcome)? {
        Kind::Complete => Ok(outcome),
        Kind::InputRequired | Kind::Task => {
            Err(RpcError::of(Reason::Internal, "The result of the server's task is no answer"))
        }
    }
}

/// Whether an error says nothing about the task.
fn passes(error: &RpcError) -> bool {
    [Reason::BackendUnavailable, Reason::TimedOut, Reason::TooManyRequests].into_iter().any(|it| error.is(it))
}

fn broken() -> RpcError {
    RpcError::of(Reason::Internal, "The server's task cannot be read")
}

/// Tells the server that a task is not wanted any more, unless its end is known.
struct Unwanted {
    way: Arc<Way>,
    /// Made while the session is there for certain.
    cancel: Option<Call>,
}

impl Unwanted {
    fn new(way: &Arc<Way>, id: &str) -> Self {
        let cancel = way.about_task(&Method::TasksCancel, &tasks::named(id));
        Self { way: Arc::clone(way), cancel: cancel.ok().and_then(|request| way.of_our_own(request)) }
    }

    fn forget(&mut self) {
        self.cancel = None;
    }
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        let Some(call) = self.cancel.take() else { return };
        // Without a runtime the process is ending.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let cancel: BoxFuture<Reply> = self.way.respond(call);
        let telling = async move {
            match tokio::time::timeout(CANCEL, cancel).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a task was not cancelled"),
                Err(_) => tracing::debug!("a task may not have been cancelled"),
            }
        };
        drop(self.way.tasks.spawn_on(telling, &runtime));
    }
}
