//! A link to a server elsewhere: the handshake, requests, notifications in their order, and its end.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_session::message::{self, Message};
use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Call, Link, Open, Opened, Reply};
use tenure_session::runtime::{CallContext, Outlet};
use tenure_session::{Error, Method, Notification, RawJson, Reason, RequestId, RpcError};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::door::{Answer, Door, Visit, broken};
use super::listen::listen;
use super::notes::Notes;
use super::questions::{Questions, answer};
use super::stay::{FAREWELL, Stay, part};
use crate::handshake::params_for;

/// How long it may take to post something that has no answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a request waits for the stream of what belongs to no request.
const HEAD_START: Duration = Duration::from_millis(500);
/// Errors of a server that speaks the stateless protocol, and so not the oldest transport.
const NEWER: RangeInclusive<i64> = -32022..=-32020;
/// The same server may not know `initialize` at all.
const METHOD_NOT_FOUND: i64 = -32601;

/// The server as one session sees it.
pub(super) struct Remote {
    pub(super) door: Arc<Door>,
    pub(super) outlet: Outlet,
    pub(super) visit: Visit,
    next: AtomicU64,
    /// A request waits for the notifications before it, so that it does not overtake them.
    notes: Notes,
    /// The stream of what belongs to no request is being opened. Requests wait for it: what the server says or asks on
    /// it while there is none may be lost.
    opening: watch::Sender<bool>,
    /// Questions to the client under way.
    pub(super) questions: Arc<Questions>,
}

/// Why there is no session.
pub(super) struct NotOpened {
    pub(super) error: RpcError,
    /// The server takes no messages at this place; it may speak another transport.
    pub(super) takes_no_post: bool,
}

impl From<RpcError> for NotOpened {
    fn from(error: RpcError) -> Self {
        Self { error, takes_no_post: false }
    }
}

/// Opens a session there.
pub(super) async fn open(door: &Arc<Door>, open: &Open) -> Result<Opened, NotOpened> {
    #[derive(Deserialize)]
    struct Answered {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    let id = RequestId::from_number(0);
    let params = params_for(open);
    let body = message::write_request(&id, &Method::Initialize, Some(&params));
    let (response, mut stay) = Stay::begin(door, body).await?;
    let result = match door.answer(response).await? {
        Answer::Json(body) => outcome(door, &body, &id).unwrap_or_else(|| Err(no_answer()))?,
        Answer::Stream(mut events) => loop {
            let Some(event) = events.next().await else {
                return Err(broken("The server broke off its answer to initialize").into());
            };
            if let Some(outcome) = event.data.and_then(|data| outcome(door, &data, &id)) {
                break outcome?;
            }
        },
        answer => {
            let is_status =
                matches!(&answer, Answer::Refused(status, _) if matches!(status.as_u16(), 400 | 404 | 405));
            let error = refusal(answer);
            let is_newer = NEWER.contains(&error.code()) || error.code() == METHOD_NOT_FOUND;
            return Err(NotOpened { takes_no_post: is_status && !is_newer, error });
        }
    };
    let answered = result.read::<Answered>().ok();
    stay.agreed(answered.and_then(|answered| HeaderValue::from_str(&answered.version).ok()));
    let (notes, waiting) = Notes::new();
    let (questions, answers) = Questions::new();
    let remote = Arc::new(Remote {
        door: Arc::clone(door),
        outlet: open.outlet.clone(),
        visit: stay.visit().clone(),
        next: AtomicU64::new(0),
        notes,
        opening: watch::Sender::new(false),
        questions,
    });
    let link = RemoteLink {
        stay: Mutex::new(Some(stay)),
        speaker: spawn(speak(Arc::clone(&remote), waiting)),
        answerer: spawn(answer(Arc::clone(&remote), answers)),
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
        remote.notes.said();
    }
}

impl Remote {
    /// Posts something that has no answer. A server that does not take it must not hold up what comes after it.
    pub(super) async fn say(&self, message: Bytes) {
        let Ok(said) = tokio::time::timeout(PATIENCE, self.door.post(&self.visit, message)).await else {
            tracing::warn!(url = self.door.place(), "the server upstream did not take a message in time");
            return;
        };
        match said {
            Ok(Answer::Accepted | Answer::Json(_) | Answer::Stream(_)) => {}
            Ok(Answer::Unknown) => self.forgotten(),
            Ok(Answer::Refused(status, _)) => {
                tracing::warn!(url = self.door.place(), %status, "the server upstream refused a message");
            }
            Err(_) => {}
        }
    }

    /// Whether the server has forgotten the session, by its answer to a ping. A GET that is refused does not say that: it
    /// may be the stream that is missing. `false` if the server cannot be asked.
    pub(super) async fn is_gone(&self) -> bool {
        let ping = message::write_request(&self.next_id(), &Method::Ping, None);
        let answer = tokio::time::timeout(PATIENCE, self.door.post(&self.visit, ping)).await;
        matches!(answer, Ok(Ok(Answer::Unknown)))
    }

    fn next_id(&self) -> RequestId {
        RequestId::from_number(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The server does not know the session any more. If there was none, it means something else by 404.
    pub(super) fn forgotten(&self) {
        if self.visit.session.is_none() {
            return;
        }
        tracing::info!(
            url = self.door.place(),
            session = self.outlet.session_label(),
            "the server upstream has forgotten the session"
        );
        self.outlet.link_lost();
    }

    /// The same, in the middle of a request that it may have carried out.
    pub(super) fn lost(&self) -> RpcError {
        self.forgotten();
        broken("The server has forgotten the session")
    }

    async fn request(self: &Arc<Self>, id: &RequestId, body: Bytes, context: &Arc<CallContext>) -> Reply {
        self.notes.all_said().await?;
        if *self.opening.borrow() {
            let mut opening = self.opening.subscribe();
            if tokio::time::timeout(HEAD_START, opening.wait_for(|opening| !opening)).await.is_err() {
                // Some servers say nothing at all until there is something on it; they are waited for once.
                self.opened();
            }
        }
        let mut unanswered = Unanswered { remote: Arc::clone(self), id: id.clone(), is_answered: false };
        let reply = self.post(id, body, context).await;
        unanswered.is_answered = true;
        reply
    }

    async fn post(self: &Arc<Self>, id: &RequestId, body: Bytes, context: &Arc<CallContext>) -> Reply {
        match self.door.post(&self.visit, body).await? {
            Answer::Json(body) => self.hear(&body, id, context).await.unwrap_or_else(|| Err(no_answer())),
            Answer::Stream(events) => self.follow(events, id, context).await,
            Answer::Unknown if self.visit.session.is_some() => {
                self.forgotten();
                Err(RpcError::refused("The server has forgotten the session"))
            }
            answer => Err(match refusal(answer) {
                error if NEWER.contains(&error.code()) => {
                    // Another server has taken its place. It did not take the request, and the way to it is another.
                    self.outlet.link_lost();
                    RpcError::refused("The server no longer keeps sessions")
                }
                error => error,
            }),
        }
    }

    /// The stream of what belongs to no request is there, or will not be.
    pub(super) fn opened(&self) {
        self.opening.send_if_modified(std::mem::take);
    }

    /// Resolves when the link has ended and the server has had time to end its answers.
    async fn left_behind(&self) {
        self.notes.ended().await;
        tokio::time::sleep(FAREWELL).await;
    }
}

/// A request that the server may be working on. Nobody waits for it once this is dropped, and the server is told.
struct Unanswered {
    remote: Arc<Remote>,
    id: RequestId,
    is_answered: bool,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let remote = Arc::clone(&self.remote);
        let note = message::write_cancelled(&self.id, "nobody waits for the answer any more");
        match remote.notes.is_over() {
            // The end of its session says it all.
            true if remote.visit.session.is_some() => {}
            true => part(async move { remote.say(note).await }),
            false if remote.notes.add(note) => {}
            false => {
                tracing::warn!(url = remote.door.place(), "the server upstream is behind; cannot cancel")
            }
        }
    }
}

/// How a request ended, if what came says it. What else the server says before the session has begun has no place to go.
fn outcome(door: &Door, data: &Bytes, id: &RequestId) -> Option<Reply> {
    door.messages(data).into_iter().find_map(|message| match message {
        Message::Response(response) if response.id == *id => Some(response.outcome),
        _ => None,
    })
}

pub(super) fn no_answer() -> RpcError {
    broken("The server's answer is not an answer")
}

/// The error for an answer that is none: the server's own, if it sent one.
pub(super) fn refusal(answer: Answer) -> RpcError {
    match answer {
        Answer::Refused(status, body) => error_of(&body).unwrap_or_else(|| {
            let words = format!("The server answered {status}");
            Error::new(Reason::BackendUnavailable, words).with("status", status.as_u16()).to_rpc()
        }),
        Answer::Unknown => broken("The server has forgotten the session"),
        Answer::Accepted => broken("The server took the request and gave no answer"),
        Answer::Json(_) | Answer::Stream(_) => no_answer(),
    }
}

/// The error that the body of a refusal carries.
pub(super) fn error_of(body: &Bytes) -> Option<RpcError> {
    match Message::parse(body) {
        Ok(Message::Response(response)) => response.outcome.err(),
        // An error without an id is no response, but says what is wrong.
        _ => error_in(body),
    }
}

fn error_in(body: &Bytes) -> Option<RpcError> {
    #[derive(Deserialize)]
    struct Carries<'a> {
        #[serde(borrow)]
        error: &'a serde_json::value::RawValue,
    }
    let carries: Carries<'_> = serde_json::from_slice(body).ok()?;
    let error = carries.error.get();
    error.starts_with('{').then(|| RpcError::from_raw(RawJson::trusted(body.slice_ref(error.as_bytes()))))
}

struct RemoteLink {
    remote: Arc<Remote>,
    /// Until it is closed.
    stay: Mutex<Option<Stay>>,
    speaker: AbortOnDropHandle<()>,
    answerer: AbortOnDropHandle<()>,
    listener: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Link for RemoteLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let (remote, context) = (Arc::clone(&self.remote), Arc::new(context));
        let id = remote.next_id();
        let body = message::write_request(&id, &request.method, request.params.as_ref());
        Box::pin(async move {
            tokio::select! {
                biased;
                reply = remote.request(&id, body, &context) => reply,
                () = context.cancelled() => Err(RpcError::of(Reason::Cancelled, "The request was cancelled")),
                () = remote.left_behind() => Err(broken("The session's link to the server has ended")),
            }
        })
    }

    fn notify(&self, notification: Notification) {
        let begun = notification.method == Method::Initialized;
        let body = message::write_notification(&notification.method, notification.params.as_ref());
        if !self.remote.notes.add(body) {
            tracing::warn!(method = %notification.method, "the server upstream is behind; dropped a notification");
        }
        if begun {
            self.remote.opening.send_replace(true);
            let remote = Arc::clone(&self.remote);
            let listener = spawn(async move {
                if remote.notes.all_said().await.is_ok() {
                    listen(remote).await;
                }
            });
            *self.listener.lock() = Some(listener);
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.end();
        let (remote, stay) = (Arc::clone(&self.remote), self.stay.lock().take());
        let speaker = self.speaker.abort_handle();
        Box::pin(async move {
            // Cancellations may still wait, and to many servers the end of a session does not say the same.
            drop(tokio::time::timeout(FAREWELL, remote.notes.drained()).await);
            speaker.abort();
            if let Some(stay) = stay {
                stay.end().await;
            }
        })
    }
}

impl RemoteLink {
    fn end(&self) {
        self.remote.notes.end();
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
