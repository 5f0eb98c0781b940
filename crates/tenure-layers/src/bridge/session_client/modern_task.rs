//! A task that a modern server made of a call, followed to its end while a client in a session waits for the answer.
//!
//! We poll the server for the task at the interval that it names. A failed poll is retried, since polling is safe.
//! Questions of the task go to the client as soon as a poll shows them, and each answer goes to the server when it
//! comes. If the call is cancelled, or its client cannot answer, we cancel the server's task.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hashbrown::HashSet;
use tenure_protocol::translate::questions::{self, Question};
use tenure_protocol::translate::result::{self, ResultKind};
use tenure_protocol::translate::tasks::{self, TaskSnapshot};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::Call;
use tenure_session::call::{CallContext, Client, Origin, input_required};
use tenure_session::port::BoxFuture;
use tokio::time::Instant;

use crate::bridge::session_client::backend::EmulatedSession;
use crate::bridge::session_client::client::SessionClient;

/// The poll interval if the server names none, and the bounds of the interval that it may name.
const POLL: Duration = Duration::from_secs(1);
const MIN_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(5);
/// The first and the longest back-off when the server cannot be reached.
const AGAIN_FIRST: Duration = Duration::from_millis(250);
const AGAIN_LAST: Duration = Duration::from_secs(5);
/// How long a server may be out of reach if its task has no ttl.
const OUT_OF_REACH: Duration = Duration::from_secs(5 * 60);
/// The longest time without a progress report to a client that wants them.
const MAX_SILENCE: Duration = Duration::from_secs(15);
/// How many questions a task may ask.
const MAX_QUESTIONS: usize = 100;
/// How long a server may take to answer `tasks/cancel`.
const CANCEL: Duration = Duration::from_secs(3);

/// Follows a task of the server to its end, and returns the answer to the call.
///
/// # Errors
/// The error that the task failed with, or the reason why its outcome is unknown.
///
/// # Cancel safety
/// The task is cancelled.
pub(super) async fn run(
    session: &Arc<EmulatedSession>,
    client: &Arc<SessionClient>,
    context: &CallContext,
    created: &RawJson,
) -> Reply {
    let task = tasks::seen(created).ok_or_else(broken)?;
    // The task counts its progress from the start, like a request that is sent again.
    client.begins_again();
    let now = Instant::now();
    let cancel_on_drop = CancelOnDrop::new(session, &task.id);
    let reports = ProgressReports { count: 0, told: now, message: None };
    ModernTask { session, client, context, task, began: now, cancel_on_drop, reports }.run().await
}

/// A task and the client that waits for it.
struct ModernTask<'a> {
    session: &'a Arc<EmulatedSession>,
    client: &'a Arc<SessionClient>,
    context: &'a CallContext,
    /// As the last poll showed it.
    task: TaskSnapshot,
    began: Instant,
    cancel_on_drop: CancelOnDrop,
    reports: ProgressReports,
}

/// The progress that the client was told of.
struct ProgressReports {
    count: u64,
    told: Instant,
    message: Option<String>,
}

impl ModernTask<'_> {
    async fn run(mut self) -> Reply {
        let context = self.context;
        let (mut asked, mut asking) = (HashSet::new(), FuturesUnordered::new());
        let mut next = Instant::now() + self.pace();
        loop {
            let answered: Option<QuestionAnswer> = tokio::select! {
                biased;
                Some(answered) = asking.next() => Some(answered),
                () = tokio::time::sleep_until(next) => None,
            };
            match answered {
                Some(Ok((key, answer))) => {
                    let update = tasks::update(&self.task.id, &key, &answer);
                    self.inquire(&Method::TasksUpdate, &update).await?;
                    // The task may have waited for this answer only, so the next poll is soon.
                    next = next.min(Instant::now() + MIN_POLL);
                    continue;
                }
                Some(Err((question, why))) => return abandoned(&question, &why),
                None => {}
            }
            let got = self.inquire(&Method::TasksGet, &tasks::named(&self.task.id)).await?;
            self.task = tasks::seen(&got).ok_or_else(broken)?;
            if let Some(outcome) = tasks::outcome(&got) {
                self.cancel_on_drop.forget();
                return outcome.and_then(complete);
            }
            // The server works on the task, so the request's timeout starts again.
            context.goes_on();
            self.report_progress().await;
            let mut news = tasks::asked(&got)?;
            news.retain(|question| asked.insert(question.key.clone()));
            if asked.len() > MAX_QUESTIONS {
                let words = format!("The server's task asked more than {MAX_QUESTIONS} questions");
                return Err(RpcError::of(Reason::Internal, words));
            }
            // If one question cannot be asked, none is: no user should answer in vain.
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

    /// The time until the next poll.
    fn pace(&self) -> Duration {
        self.task.poll.unwrap_or(POLL).clamp(MIN_POLL, MAX_POLL)
    }

    /// Sends a request about the task, and retries until the server answers or the task's ttl is over.
    async fn inquire(&mut self, method: &Method, params: &RawJson) -> Reply {
        let (mut again, since) = (AGAIN_FIRST, Instant::now());
        loop {
            let request = self.session.about_task(method, params)?;
            let error = match self.session.send(self.client, request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !passes(&error) {
                if error.code() == i64::from(Reason::TaskNotFound.code()) {
                    self.cancel_on_drop.forget();
                }
                let words = format!("The outcome of the server's task is unknown: {}", error.message());
                return Err(RpcError::of(Reason::Internal, words));
            }
            let time = self.task.ttl.map_or(Some(since + OUT_OF_REACH), |ttl| self.began.checked_add(ttl));
            if time.is_some_and(|time| time < Instant::now() + again) {
                let words = "The server was out of reach until its task had expired";
                return Err(RpcError::of(Reason::BackendUnavailable, words));
            }
            tracing::debug!(session = self.context.session_label(), %error, "a request about a task is sent again");
            tokio::time::sleep(again).await;
            again = (again * 2).min(AGAIN_LAST);
        }
    }

    /// Sends a progress report to a client that wants them, if there is a new message or it is time.
    async fn report_progress(&mut self) {
        if self.client.token().is_none() {
            return;
        }
        let ProgressReports { count, told, message } = &mut self.reports;
        let is_new = self.task.message.is_some() && self.task.message != *message;
        if !is_new && told.elapsed() < MAX_SILENCE {
            return;
        }
        (*count, *told) = (*count + 1, Instant::now());
        message.clone_from(&self.task.message);
        let mut params = serde_json::json!({ "progressToken": null, "progress": count });
        if let Some(message) = message {
            params["message"] = message.as_str().into();
        }
        // If the client is gone, the call notices it elsewhere.
        let progress = RawJson::of(&params);
        drop(Arc::clone(self.client).notify(&Origin::Unasked, &Method::Progress, Some(&progress)).await);
    }
}

type PutQuestion = (Question, Option<RawJson>);
type QuestionFailure = (Question, String);
type QuestionAnswer = Result<(String, RawJson), QuestionFailure>;

/// Prepares a question for the client, or says why it cannot be asked.
fn put(context: &CallContext, question: Question) -> Result<PutQuestion, QuestionFailure> {
    match input_required::put(context, &question) {
        Ok(params) => Ok((question, params)),
        Err(why) => Err((question, why)),
    }
}

async fn ask(context: &CallContext, question: Question, params: Option<RawJson>) -> QuestionAnswer {
    match input_required::ask(context, &question, params.as_ref()).await {
        Ok(answer) => Ok((question.key, answer)),
        Err(why) => Err((question, why)),
    }
}

fn abandoned(question: &Question, why: &str) -> Reply {
    questions::abandoned(&Method::ToolsCall, question, why)
}

/// Checks that the result of a task is a complete answer.
fn complete(outcome: RawJson) -> Reply {
    match result::kind(&Method::ToolsCall, &outcome)? {
        ResultKind::Complete => Ok(outcome),
        ResultKind::InputRequired | ResultKind::Task => {
            Err(RpcError::of(Reason::Internal, "The result of the server's task is not an answer"))
        }
    }
}

/// Whether an error is temporary and says nothing about the task.
fn passes(error: &RpcError) -> bool {
    [Reason::BackendUnavailable, Reason::TimedOut, Reason::TooManyRequests].into_iter().any(|it| error.is(it))
}

fn broken() -> RpcError {
    RpcError::of(Reason::Internal, "The server's task cannot be read")
}

/// Cancels the server's task when it is dropped, unless the end of the task is known.
struct CancelOnDrop {
    session: Arc<EmulatedSession>,
    /// Prepared at the start, while the session certainly exists.
    cancel: Option<Call>,
}

impl CancelOnDrop {
    fn new(session: &Arc<EmulatedSession>, id: &str) -> Self {
        let cancel = session.about_task(&Method::TasksCancel, &tasks::named(id));
        Self {
            session: Arc::clone(session),
            cancel: cancel.ok().and_then(|request| session.of_our_own(request)),
        }
    }

    fn forget(&mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(call) = self.cancel.take() else { return };
        // Without a runtime the process is ending.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let cancel: BoxFuture<Reply> = self.session.respond(call);
        let telling = async move {
            match tokio::time::timeout(CANCEL, cancel).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a task was not cancelled"),
                Err(_) => tracing::debug!("a task may not have been cancelled"),
            }
        };
        drop(self.session.tasks.spawn_on(telling, &runtime));
    }
}
