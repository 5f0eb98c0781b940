//! A link to a server elsewhere: the handshake, requests, notifications in their order, and its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use http::HeaderValue;
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_session::message::{self, Message};
use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Call, Link, Open, Opened, Reply};
use tenure_session::runtime::{CallContext, Outlet};
use tenure_session::{Method, Notification, RawJson, Reason, RequestId, RpcError, rules};
use tokio::sync::{Notify, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::door::{Answer, Door, Visit, broken};
use super::listen::listen;
use crate::handshake::params_for;

/// Notifications that may wait to be posted.
const WAITING: usize = 64;
/// How long the end of a session upstream may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// The server as one session sees it.
pub(super) struct Remote {
    pub(super) door: Arc<Door>,
    pub(super) outlet: Outlet,
    pub(super) visit: Visit,
    next: AtomicU64,
    /// Notifications that are not posted yet; a request waits for them, so that it does not overtake them.
    unsaid: AtomicUsize,
    said: Notify,
    /// Questions to the client under way, by the server's id for them; dropping one withdraws it.
    asking: Mutex<HashMap<RequestId, AbortOnDropHandle<()>>>,
}

/// Opens a session there.
pub(super) async fn open(door: Arc<Door>, open: Open) -> Result<Opened, RpcError> {
    #[derive(Deserialize)]
    struct Answered {
        #[serde(rename = "protocolVersion")]
        version: String,
    }
    let id = RequestId::from_number(0);
    let params = params_for(&open);
    let body = message::write_request(&id, &Method::Initialize, Some(&params));
    let (answer, session) = door.post(&Visit::default(), body).await?;
    let mut remote = Remote {
        door,
        outlet: open.outlet,
        visit: Visit { session, version: None },
        next: AtomicU64::new(0),
        unsaid: AtomicUsize::new(0),
        said: Notify::new(),
        asking: Mutex::default(),
    };
    let result = match answer {
        Answer::Json(body) => outcome(&body, &id)?,
        Answer::Stream(mut events) => loop {
            let Some(event) = events.next().await else {
                return Err(broken("The server broke off its answer to initialize"));
            };
            // What else it says before the session has begun has no place to go.
            match event.data.as_ref().map(Message::parse) {
                Some(Ok(Message::Response(response))) if response.id == id => break response.outcome?,
                _ => {}
            }
        },
        answer => return Err(refusal(answer)),
    };
    let answered = result.read::<Answered>().ok();
    remote.visit.version = answered.and_then(|answered| HeaderValue::from_str(&answered.version).ok());
    let remote = Arc::new(remote);
    let (notes, waiting) = mpsc::channel(WAITING);
    #[expect(clippy::disallowed_methods, reason = "held by the link, and aborted with it")]
    let speaker = tokio::spawn(speak(Arc::clone(&remote), waiting));
    let link =
        RemoteLink { remote, notes, speaker: AbortOnDropHandle::new(speaker), listener: Mutex::default() };
    Ok(Opened { link: Box::new(link), result })
}

/// Posts notifications one after the other.
async fn speak(remote: Arc<Remote>, mut waiting: mpsc::Receiver<Bytes>) {
    while let Some(note) = waiting.recv().await {
        remote.say(note).await;
        if remote.unsaid.fetch_sub(1, Ordering::AcqRel) == 1 {
            remote.said.notify_waiters();
        }
    }
}

impl Remote {
    /// Posts something that has no answer.
    pub(super) async fn say(&self, message: Bytes) {
        match self.door.post(&self.visit, message).await {
            Ok((Answer::Accepted | Answer::Json(_) | Answer::Stream(_), _)) => {}
            Ok((Answer::Unknown, _)) => self.forgotten(),
            Ok((Answer::Refused(status, _), _)) => {
                tracing::warn!(url = self.door.place(), %status, "the server upstream refused a message");
            }
            Err(_) => {}
        }
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

    /// Something asks the client on the server's behalf.
    pub(super) fn answering(&self, id: RequestId, ask: impl Future<Output = ()> + Send + 'static) {
        #[expect(clippy::disallowed_methods, reason = "held, and aborted with the link")]
        let asking = AbortOnDropHandle::new(tokio::spawn(ask));
        let mut all = self.asking.lock();
        all.retain(|_, asking| !asking.is_finished());
        all.insert(id, asking);
    }

    /// The server takes a question back.
    pub(super) fn withdrawn(&self, params: Option<&RawJson>) {
        if let Some(id) = rules::cancelled_id(params) {
            self.asking.lock().remove(&id);
        }
    }

    /// Resolves when nothing is left that has to be said first.
    async fn all_said(&self) {
        while self.unsaid.load(Ordering::Acquire) > 0 {
            let said = self.said.notified();
            if self.unsaid.load(Ordering::Acquire) > 0 {
                said.await;
            }
        }
    }

    async fn request(self: &Arc<Self>, id: &RequestId, body: Bytes, context: &Arc<CallContext>) -> Reply {
        self.all_said().await;
        match self.door.post(&self.visit, body).await?.0 {
            Answer::Json(body) => outcome(&body, id),
            Answer::Stream(events) => self.follow(events, id, context).await,
            Answer::Unknown if self.visit.session.is_some() => {
                self.forgotten();
                Err(RpcError::refused("The server has forgotten the session"))
            }
            answer => Err(refusal(answer)),
        }
    }
}

/// The outcome that a body carries.
fn outcome(body: &Bytes, id: &RequestId) -> Reply {
    match Message::parse(body) {
        Ok(Message::Response(response)) if response.id == *id => response.outcome,
        _ => Err(broken("The server's answer is not an answer")),
    }
}

/// The error for an answer that is none: the server's own, if it sent one.
fn refusal(answer: Answer) -> RpcError {
    match answer {
        Answer::Refused(status, body) => match Message::parse(&body) {
            Ok(Message::Response(response)) => response.outcome.err().unwrap_or_else(|| broken("no answer")),
            // An error without an id is no response, but says what is wrong.
            _ => error_in(&body).unwrap_or_else(|| broken(&format!("The server answered {status}"))),
        },
        Answer::Unknown => broken("The server answered 404 Not Found"),
        Answer::Accepted => broken("The server took the request and gave no answer"),
        Answer::Json(_) | Answer::Stream(_) => broken("The server's answer is not an answer"),
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
    notes: mpsc::Sender<Bytes>,
    speaker: AbortOnDropHandle<()>,
    listener: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Link for RemoteLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let (remote, context) = (Arc::clone(&self.remote), Arc::new(context));
        let id = RequestId::from_number(remote.next.fetch_add(1, Ordering::Relaxed) + 1);
        let body = message::write_request(&id, &request.method, request.params.as_ref());
        Box::pin(async move {
            tokio::select! {
                biased;
                reply = remote.request(&id, body, &context) => reply,
                () = context.cancelled() => {
                    remote.say(message::write_cancelled(&id, "cancelled by the client")).await;
                    Err(RpcError::of(Reason::Cancelled, "The request was cancelled"))
                }
            }
        })
    }

    fn notify(&self, notification: Notification) {
        let begun = notification.method == Method::Initialized;
        let body = message::write_notification(&notification.method, notification.params.as_ref());
        self.remote.unsaid.fetch_add(1, Ordering::AcqRel);
        if self.notes.try_send(body).is_err() {
            self.remote.unsaid.fetch_sub(1, Ordering::AcqRel);
            tracing::warn!(method = %notification.method, "the server upstream is behind; dropped a notification");
        }
        if begun {
            let remote = Arc::clone(&self.remote);
            #[expect(clippy::disallowed_methods, reason = "held by the link, and aborted with it")]
            let listener = tokio::spawn(async move {
                remote.all_said().await;
                listen(remote).await;
            });
            *self.listener.lock() = Some(AbortOnDropHandle::new(listener));
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.speaker.abort();
        *self.listener.lock() = None;
        self.remote.asking.lock().clear();
        let remote = Arc::clone(&self.remote);
        Box::pin(async move {
            if remote.visit.session.is_some() {
                drop(tokio::time::timeout(FAREWELL, remote.door.delete(&remote.visit)).await);
            }
        })
    }
}
