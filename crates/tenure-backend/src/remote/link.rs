//! A link to a remote server: the handshake, requests, notifications in order, and the end.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::HeaderValue;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{
    Message, Method, Notification, RawJson, Reason, Reply, Request, RequestId, RpcError, message,
};
use tenure_session::backend::{Call, Link, Open, Opened, repeatable_tools};
use tenure_session::call::{CallContext, Outlet};
use tenure_session::port::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::listen::listen;
use super::outage::{Away, Fault, Reached, Waits};
use crate::handshake::params_for;
use crate::questions::Questions;
use crate::remote::credentials::OnBehalf;
use crate::remote::http_client::{
    HttpAnswer, HttpClient, SessionHeaders, broken, error_of, refused_with, unauthorized,
};
use crate::remote::notifications::NotificationQueue;
use crate::remote::session_guard::{FAREWELL, SessionGuard, spawn_last};

/// How long it may take to post a message that has no answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Capacity of the queue of answers to the server's questions.
const ANSWERS: usize = 64;
/// Answers that are posted at once. More than one, because a server may block one answer until it gets another.
const AT_ONCE: usize = 4;

/// How long a request waits for the listen stream to open.
const HEAD_START: Duration = Duration::from_millis(500);
/// Error codes of a server that speaks the stateless protocol, and so does not speak the oldest transport.
const NEWER: RangeInclusive<i64> = -32022..=-32020;
/// Such a server may not know `initialize` at all.
const METHOD_NOT_FOUND: i64 = -32601;

/// The server as one session sees it.
pub(super) struct Remote {
    pub(super) http: Arc<HttpClient>,
    pub(super) outlet: Outlet,
    pub(super) session: SessionHeaders,
    next: AtomicU64,
    /// A request waits for earlier notifications, so that it does not overtake them.
    notifications: NotificationQueue,
    /// The listen stream is being opened. Requests wait for it, because messages that the server sends before the
    /// stream is open may be lost.
    opening: watch::Sender<bool>,
    /// Questions to the client in flight.
    pub(super) questions: Arc<Questions>,
    /// The server has forgotten the session.
    is_forgotten: AtomicBool,
}

/// Why there is no session.
pub(super) struct NotOpened {
    pub(super) fault: Fault,
    /// The server takes no messages at this URL; it may speak another transport.
    pub(super) takes_no_post: bool,
}

impl From<Fault> for NotOpened {
    fn from(fault: Fault) -> Self {
        Self { fault, takes_no_post: false }
    }
}

impl From<RpcError> for NotOpened {
    fn from(error: RpcError) -> Self {
        Fault::Final(error).into()
    }
}

/// Opens a session at the server.
pub(super) async fn open(http: &Arc<HttpClient>, open: &Open) -> Result<Opened, NotOpened> {
    #[derive(Deserialize)]
    struct AgreedVersion {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    let id = RequestId::from_number(0);
    let params = params_for(open);
    let body = message::write_request(&id, &Method::Initialize, Some(&params));
    let (response, mut guard) = SessionGuard::begin(http, OnBehalf::client_of(&open.outlet), body).await?;
    let result = match http.answer(response).await? {
        HttpAnswer::Json(body) => outcome(http, &body, &id).unwrap_or_else(|| Err(no_answer()))?,
        HttpAnswer::Stream(mut events) => loop {
            let Some(event) = events.next().await else {
                return Err(
                    Fault::Away(Away::broke_off("The server broke off its answer to initialize")).into()
                );
            };
            if let Some(outcome) = event.data.and_then(|data| outcome(http, &data, &id)) {
                break outcome?;
            }
        },
        answer => {
            let is_status = match &answer {
                HttpAnswer::Refused(status, _) => matches!(status.as_u16(), 400 | 404 | 405),
                _ => false,
            };
            let error = refusal(answer);
            let is_newer = NEWER.contains(&error.code()) || error.code() == METHOD_NOT_FOUND;
            return Err(NotOpened { takes_no_post: is_status && !is_newer, fault: Fault::Final(error) });
        }
    };
    let answered = result.read::<AgreedVersion>().ok();
    guard.agreed(answered.and_then(|answered| HeaderValue::from_str(&answered.version).ok()));
    let (notifications, waiting) = NotificationQueue::new();
    let (answers, waiting_answers) = mpsc::channel(ANSWERS);
    let remote = Arc::new(Remote {
        http: Arc::clone(http),
        outlet: open.outlet.clone(),
        session: guard.session().clone(),
        next: AtomicU64::new(0),
        notifications,
        opening: watch::Sender::new(false),
        questions: Questions::new(answers),
        is_forgotten: AtomicBool::new(false),
    });
    let link = RemoteLink {
        guard: Mutex::new(Some(guard)),
        speaker: spawn(speak(Arc::clone(&remote), waiting)),
        answerer: spawn(answer(Arc::clone(&remote), waiting_answers)),
        listener: Mutex::default(),
        remote,
    };
    Ok(Opened { link: Box::new(link), result })
}

#[expect(clippy::disallowed_methods, reason = "held by the link, and aborted with it")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Posts notifications one after the other.
async fn speak(remote: Arc<Remote>, mut waiting: mpsc::Receiver<Bytes>) {
    while let Some(note) = waiting.recv().await {
        remote.say(note).await;
        remote.notifications.posted();
    }
}

/// Posts answers to the server's questions, a few at a time.
async fn answer(remote: Arc<Remote>, mut waiting: mpsc::Receiver<Bytes>) {
    let answers = stream::poll_fn(|context| waiting.poll_recv(context));
    answers.for_each_concurrent(AT_ONCE, |answer| remote.say(answer)).await;
}

impl Remote {
    /// Posts a message that has no answer. It has a timeout, so that a server that does not take it cannot delay later
    /// messages.
    pub(super) async fn say(&self, message: Bytes) {
        let Ok(said) = tokio::time::timeout(PATIENCE, self.post_when_back(message)).await else {
            tracing::warn!(url = self.http.place(), "the server upstream did not take a message in time");
            return;
        };
        match said {
            Ok(HttpAnswer::Accepted | HttpAnswer::Json(_) | HttpAnswer::Stream(_)) => {}
            Ok(HttpAnswer::Unknown) => self.forgotten(),
            Ok(HttpAnswer::Refused(status, _) | HttpAnswer::Unauthorized(status)) => {
                tracing::warn!(url = self.http.place(), %status, "the server upstream refused a message");
            }
            Err(_) => {}
        }
    }

    /// Posts a message, and retries while the server is away. A message that may have reached the server is not sent
    /// twice.
    async fn post_when_back(&self, message: Bytes) -> Result<HttpAnswer, Fault> {
        let (mut waits, session) = (self.http.waits(), self.session.telling());
        loop {
            let fault = match self.http.post(&session, message.clone()).await {
                Err(fault) => fault,
                said => return said,
            };
            let pause = match &fault {
                Fault::Away(away) if away.reached == Reached::NotSent => waits.pause(away),
                Fault::Away(_) | Fault::Final(_) => None,
            };
            let Some(pause) = pause else { return Err(fault) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.notifications.ended() => return Err(fault),
            }
        }
    }

    /// Asks the server with a ping whether it has forgotten the session. A refused GET does not prove that, because
    /// only the stream may be missing. `false` if there is no answer.
    pub(super) async fn is_gone(&self) -> bool {
        let ping = message::write_request(&self.next_id(), &Method::Ping, None);
        let answer = tokio::time::timeout(PATIENCE, self.http.post(&self.session, ping)).await;
        matches!(answer, Ok(Ok(HttpAnswer::Unknown)))
    }

    fn next_id(&self) -> RequestId {
        RequestId::from_number(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The server has forgotten the session. Without a session id, a 404 means something else.
    pub(super) fn forgotten(&self) {
        if self.session.id.is_none() {
            return;
        }
        tracing::info!(
            url = self.http.place(),
            session = self.outlet.session_label(),
            "the server upstream has forgotten the session"
        );
        self.is_forgotten.store(true, Ordering::Release);
        self.outlet.link_lost();
    }

    /// The same, during a request that the server may have carried out.
    pub(super) fn lost(&self) -> RpcError {
        self.forgotten();
        broken("The server has forgotten the session")
    }

    /// Sends a request, and retries while the server is away and a retry is safe.
    async fn request(self: Arc<Self>, request: Request, context: Arc<CallContext>) -> Reply {
        let (mut waits, mut is_safe) = (self.http.waits(), false);
        loop {
            let away = match self.attempt(&request, &context).await {
                Ok(reply) => return reply,
                Err(away) => away,
            };
            self.wait(&request, away, &mut waits, &mut is_safe).await?;
            context.begins_again();
        }
    }

    /// Sends a request of our own, during a client's request.
    fn inquire(self: &Arc<Self>, request: Request, context: CallContext) -> BoxFuture<Reply> {
        Box::pin(Arc::clone(self).request(request, Arc::new(context)))
    }

    /// Waits until a request may be sent again to a server that is away.
    ///
    /// # Errors
    /// When the request must not be sent again, or the patience is over.
    async fn wait(
        self: &Arc<Self>,
        request: &Request,
        away: Away,
        waits: &mut Waits<'_>,
        is_safe: &mut bool,
    ) -> Result<(), RpcError> {
        let repeat = match away.reached {
            Reached::NotSent => Repeat::Safe,
            Reached::Perhaps | Reached::Server if *is_safe => Repeat::Safe,
            Reached::Perhaps | Reached::Server => params::repeat(&request.method),
        };
        let pause = waits.pause(&away).filter(|_| repeat != Repeat::Never);
        let Some(pause) = pause else {
            return Err(if repeat == Repeat::Safe { away.error } else { away.unrepeated() });
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // The session opens another link and decides which requests to repeat on it.
            () = self.notifications.ended() => return Err(away.error),
        }
        if repeat == Repeat::AskTool {
            if !self.may_be_called_twice(request).await {
                // If the session is lost, it asks the server again over its next link.
                let is_lost = self.is_forgotten.load(Ordering::Acquire);
                return Err(if is_lost { away.error } else { away.unrepeated() });
            }
            *is_safe = true;
        }
        tracing::info!(
            method = %request.method, url = self.http.place(),
            "sending a request again to a server that was away"
        );
        Ok(())
    }

    /// Whether the called tool is declared safe to call twice.
    async fn may_be_called_twice(self: &Arc<Self>, call: &Request) -> bool {
        let Some(name) = params::tool_name(call.params.as_ref()) else { return false };
        let (tools, _) = repeatable_tools(async |cursor| {
            let params = cursor.map(|cursor| RawJson::of(&serde_json::json!({ "cursor": cursor })));
            let params = Some(params.unwrap_or(RawJson::EMPTY_OBJECT));
            let id = RequestId::from_text("tenure-upstream");
            let list = Request { id, method: Method::ToolsList, params };
            let context = self.outlet.inquiry(&list).map_err(|error| error.to_rpc())?;
            self.inquire(list, context).await
        })
        .await;
        tools.contains(&name)
    }

    async fn attempt(self: &Arc<Self>, request: &Request, context: &Arc<CallContext>) -> Result<Reply, Away> {
        if let Err(over) = self.notifications.all_posted().await {
            return Ok(Err(over));
        }
        if *self.opening.borrow() {
            let mut opening = self.opening.subscribe();
            if tokio::time::timeout(HEAD_START, opening.wait_for(|opening| !opening)).await.is_err() {
                // Some servers send no response head until the first message. Wait for them only once.
                self.opened();
            }
        }
        // A new id for every attempt: the server may still work on the last one.
        let id = self.next_id();
        let body = message::write_request(&id, &request.method, request.params.as_ref());
        let mut unanswered =
            UnansweredRequest { remote: Arc::clone(self), id: id.clone(), is_answered: false };
        let reply = self.post(&id, body, context).await;
        unanswered.is_answered =
            reply.as_ref().map_or_else(|away| away.reached == Reached::NotSent, |_| true);
        reply
    }

    async fn post(
        self: &Arc<Self>,
        id: &RequestId,
        body: Bytes,
        context: &Arc<CallContext>,
    ) -> Result<Reply, Away> {
        let session = self.session.for_caller(context.caller());
        let answer = match self.http.post(&session, body).await {
            Ok(answer) => answer,
            Err(Fault::Away(away)) => return Err(away),
            Err(Fault::Final(error)) => return Ok(Err(error)),
        };
        Ok(match answer {
            HttpAnswer::Json(body) => self.hear(&body, id, context).await.unwrap_or_else(|| Err(no_answer())),
            HttpAnswer::Stream(events) => return self.follow(events, id, context).await,
            HttpAnswer::Unknown if self.session.id.is_some() => {
                self.forgotten();
                Err(RpcError::refused("The server has forgotten the session"))
            }
            answer => Err(match refusal(answer) {
                error if NEWER.contains(&error.code()) => {
                    // A stateless server has replaced this one. It refused the request, and needs another kind of link.
                    self.outlet.link_lost();
                    RpcError::refused("The server no longer keeps sessions")
                }
                error => error,
            }),
        })
    }

    /// The listen stream is open, or will not open. Wakes the waiting requests.
    pub(super) fn opened(&self) {
        self.opening.send_if_modified(std::mem::take);
    }

    /// Resolves when the link has ended and the server has had time to finish its answers.
    async fn left_behind(&self) {
        self.notifications.ended().await;
        tokio::time::sleep(FAREWELL).await;
    }
}

/// A request that the server may be working on. Dropping it before it is answered sends a cancellation.
struct UnansweredRequest {
    remote: Arc<Remote>,
    id: RequestId,
    is_answered: bool,
}

impl Drop for UnansweredRequest {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let remote = Arc::clone(&self.remote);
        let note = message::write_cancelled(&self.id, "the client no longer waits for the answer");
        match remote.notifications.is_over() {
            // The end of the session cancels the request.
            true if remote.session.id.is_some() => {}
            true => spawn_last(async move { remote.say(note).await }),
            false if remote.notifications.add(note) => {}
            false => {
                tracing::warn!(
                    url = remote.http.place(),
                    "the queue to the server upstream is full; cannot cancel a request"
                )
            }
        }
    }
}

/// The outcome of request `id`, if the data contains it. Other messages are dropped: the session has not begun yet.
fn outcome(http: &HttpClient, data: &Bytes, id: &RequestId) -> Option<Reply> {
    http.messages(data).into_iter().find_map(|message| match message {
        Message::Response(response) if response.id == *id => Some(response.outcome),
        _ => None,
    })
}

pub(super) fn no_answer() -> RpcError {
    broken("The server's answer is not a response to the request")
}

/// The error for an HTTP answer without a response: the server's own error, if it sent one.
pub(super) fn refusal(answer: HttpAnswer) -> RpcError {
    match answer {
        HttpAnswer::Refused(status, body) => error_of(&body).unwrap_or_else(|| refused_with(status)),
        HttpAnswer::Unauthorized(_) => unauthorized(),
        HttpAnswer::Unknown => broken("The server has forgotten the session"),
        HttpAnswer::Accepted => broken("The server took the request and gave no answer"),
        HttpAnswer::Json(_) | HttpAnswer::Stream(_) => no_answer(),
    }
}

struct RemoteLink {
    remote: Arc<Remote>,
    /// `None` once the link is closed.
    guard: Mutex<Option<SessionGuard>>,
    speaker: AbortOnDropHandle<()>,
    answerer: AbortOnDropHandle<()>,
    listener: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Link for RemoteLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let (remote, context) = (Arc::clone(&self.remote), Arc::new(context));
        Box::pin(async move {
            tokio::select! {
                biased;
                reply = Arc::clone(&remote).request(request, Arc::clone(&context)) => reply,
                () = context.cancelled() => Err(RpcError::of(Reason::Cancelled, "The request was cancelled")),
                () = remote.left_behind() => Err(broken("The session's link to the server has ended")),
            }
        })
    }

    fn notify(&self, notification: Notification) {
        let begun = notification.method == Method::Initialized;
        let body = message::write_notification(&notification.method, notification.params.as_ref());
        if !self.remote.notifications.add(body) {
            tracing::warn!(
                method = %notification.method,
                "the queue to the server upstream is full; dropped a notification"
            );
        }
        if begun {
            self.remote.opening.send_replace(true);
            let remote = Arc::clone(&self.remote);
            let listener = spawn(async move {
                if remote.notifications.all_posted().await.is_ok() {
                    listen(remote).await;
                }
            });
            *self.listener.lock() = Some(listener);
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.end();
        let (remote, guard) = (Arc::clone(&self.remote), self.guard.lock().take());
        let speaker = self.speaker.abort_handle();
        Box::pin(async move {
            // Post waiting cancellations first: many servers do not cancel requests when their session ends.
            drop(tokio::time::timeout(FAREWELL, remote.notifications.drained()).await);
            speaker.abort();
            if let Some(guard) = guard {
                guard.end().await;
            }
        })
    }
}

impl RemoteLink {
    fn end(&self) {
        self.remote.notifications.end();
        *self.listener.lock() = None;
        self.remote.questions.end();
        self.answerer.abort();
    }
}

impl Drop for RemoteLink {
    fn drop(&mut self) {
        self.end();
    }
}
