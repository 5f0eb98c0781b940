//! A link to a server elsewhere: the handshake, requests, notifications in their order, and its end.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{
    Message, Method, Notification, RawJson, Reason, Reply, Request, RequestId, RpcError, message,
};
use tenure_session::backend::{Call, Link, Open, Opened};
use tenure_session::call::{CallContext, Outlet};
use tenure_session::port::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::listen::listen;
use super::outage::{Away, Fault, Reached, Waits};
use super::questions::{Questions, answer};
use crate::handshake::params_for;
use crate::remote::http_client::{Answer, Door, Visit, broken, error_of, refused_with};
use crate::remote::notifications::Notes;
use crate::remote::session_guard::{FAREWELL, Stay, part};

/// How long it may take to post something that has no answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a request waits for the stream of what belongs to no request.
const HEAD_START: Duration = Duration::from_millis(500);
/// How many pages of tools are looked through for one that may be called twice.
const MAX_PAGES: usize = 64;
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
    /// The server has forgotten the session.
    is_forgotten: AtomicBool,
}

/// Why there is no session.
pub(super) struct NotOpened {
    pub(super) fault: Fault,
    /// The server takes no messages at this place; it may speak another transport.
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
                return Err(
                    Fault::Away(Away::broke_off("The server broke off its answer to initialize")).into()
                );
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
            return Err(NotOpened { takes_no_post: is_status && !is_newer, fault: Fault::Final(error) });
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
        is_forgotten: AtomicBool::new(false),
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
        let Ok(said) = tokio::time::timeout(PATIENCE, self.post_when_back(message)).await else {
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

    /// Posts something when the server is there. What may have reached it is not said twice.
    async fn post_when_back(&self, message: Bytes) -> Result<Answer, Fault> {
        let mut waits = self.door.waits();
        loop {
            let fault = match self.door.post(&self.visit, message.clone()).await {
                Err(fault) => fault,
                said => return said,
            };
            let pause = match &fault {
                Fault::Away(away) if away.reached == Reached::Nobody => waits.pause(away),
                Fault::Away(_) | Fault::Final(_) => None,
            };
            let Some(pause) = pause else { return Err(fault) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.notes.ended() => return Err(fault),
            }
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
        self.is_forgotten.store(true, Ordering::Release);
        self.outlet.link_lost();
    }

    /// The same, in the middle of a request that it may have carried out.
    pub(super) fn lost(&self) -> RpcError {
        self.forgotten();
        broken("The server has forgotten the session")
    }

    /// Sends a request, again and again while the server is away and that is safe.
    async fn request(self: Arc<Self>, request: Request, context: Arc<CallContext>) -> Reply {
        let (mut waits, mut is_safe) = (self.door.waits(), false);
        loop {
            let away = match self.attempt(&request, &context).await {
                Ok(reply) => return reply,
                Err(away) => away,
            };
            self.wait(&request, away, &mut waits, &mut is_safe).await?;
            context.begins_again();
        }
    }

    /// A request of our own, in the middle of another.
    fn inquire(self: &Arc<Self>, request: Request, context: CallContext) -> BoxFuture<Reply> {
        Box::pin(Arc::clone(self).request(request, Arc::new(context)))
    }

    /// Waits for a server that is away, until a request may be sent again.
    ///
    /// # Errors
    /// When it must not be, or the patience is over.
    async fn wait(
        self: &Arc<Self>,
        request: &Request,
        away: Away,
        waits: &mut Waits<'_>,
        is_safe: &mut bool,
    ) -> Result<(), RpcError> {
        let repeat = match away.reached {
            Reached::Nobody => Repeat::Safe,
            Reached::Perhaps | Reached::Server if *is_safe => Repeat::Safe,
            Reached::Perhaps | Reached::Server => params::repeat(&request.method),
        };
        let pause = waits.pause(&away).filter(|_| repeat != Repeat::Never);
        let Some(pause) = pause else {
            return Err(if repeat == Repeat::Safe { away.error } else { away.unrepeated() });
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // The session gets another link, and decides what to repeat on that.
            () = self.notes.ended() => return Err(away.error),
        }
        if repeat == Repeat::AskTool {
            if !self.may_be_called_twice(request).await {
                // The next server of the session can say it.
                let is_lost = self.is_forgotten.load(Ordering::Acquire);
                return Err(if is_lost { away.error } else { away.unrepeated() });
            }
            *is_safe = true;
        }
        tracing::info!(method = %request.method, url = self.door.place(), "sent again to a server that was away");
        Ok(())
    }

    /// Whether the tool that is called says that calling it twice does no harm.
    async fn may_be_called_twice(self: &Arc<Self>, call: &Request) -> bool {
        let Some(name) = params::tool_name(call.params.as_ref()) else { return false };
        let mut params = RawJson::EMPTY_OBJECT;
        for _ in 0..MAX_PAGES {
            let id = RequestId::from_text("tenure-upstream");
            let list = Request { id, method: Method::ToolsList, params: Some(params) };
            let Ok(context) = self.outlet.inquiry(&list) else { return false };
            let Ok(page) = self.inquire(list, context).await else { return false };
            let (tools, next) = params::repeatable_tools(&page);
            if tools.contains(&name) {
                return true;
            }
            let Some(next) = next else { return false };
            params = RawJson::of(&serde_json::json!({ "cursor": next }));
        }
        false
    }

    async fn attempt(self: &Arc<Self>, request: &Request, context: &Arc<CallContext>) -> Result<Reply, Away> {
        if let Err(over) = self.notes.all_said().await {
            return Ok(Err(over));
        }
        if *self.opening.borrow() {
            let mut opening = self.opening.subscribe();
            if tokio::time::timeout(HEAD_START, opening.wait_for(|opening| !opening)).await.is_err() {
                // Some servers say nothing at all until there is something on it; they are waited for once.
                self.opened();
            }
        }
        // One of its own for every attempt: the server may still work on the last.
        let id = self.next_id();
        let body = message::write_request(&id, &request.method, request.params.as_ref());
        let mut unanswered = Unanswered { remote: Arc::clone(self), id: id.clone(), is_answered: false };
        let reply = self.post(&id, body, context).await;
        unanswered.is_answered = reply.as_ref().map_or_else(|away| away.reached == Reached::Nobody, |_| true);
        reply
    }

    async fn post(
        self: &Arc<Self>,
        id: &RequestId,
        body: Bytes,
        context: &Arc<CallContext>,
    ) -> Result<Reply, Away> {
        let answer = match self.door.post(&self.visit, body).await {
            Ok(answer) => answer,
            Err(Fault::Away(away)) => return Err(away),
            Err(Fault::Final(error)) => return Ok(Err(error)),
        };
        Ok(match answer {
            Answer::Json(body) => self.hear(&body, id, context).await.unwrap_or_else(|| Err(no_answer())),
            Answer::Stream(events) => return self.follow(events, id, context).await,
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
        })
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
        Answer::Refused(status, body) => error_of(&body).unwrap_or_else(|| refused_with(status)),
        Answer::Unknown => broken("The server has forgotten the session"),
        Answer::Accepted => broken("The server took the request and gave no answer"),
        Answer::Json(_) | Answer::Stream(_) => no_answer(),
    }
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
