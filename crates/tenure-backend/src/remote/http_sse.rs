//! A link over HTTP+SSE of 2024-11-05: one stream carries all that the server says, and names the endpoint that takes
//! messages.
//!
//! The stream is the session there. When it breaks, the session is gone, as with a child that has died: whatever waits
//! is settled, and the next request opens another. What belongs to which request `traffic` says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Method, Notification, Reason, Reply, RequestId, RpcError, message};
use tenure_session::backend::{Call, Link, Open, Opened};
use tenure_session::call::Outlet;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::events::Events;
use super::link::refusal;
use super::outage::{Fault, Reached};
use crate::handshake::params_for;
use crate::pending::{Sent, Traffic, gone};
use crate::remote::http_client::{Answer, Door, Visit, may_pass};
use crate::remote::notifications::Notes;
use crate::remote::session_guard::part;

/// How long a server may take to name its endpoint.
const FIRST: Duration = Duration::from_secs(5);
/// How long it may take to post something that has no answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of the stream may be behind a connection that broke, or an answer behind its POST.
const MOMENT: Duration = Duration::from_millis(500);
/// Answers and cancellations that may wait to be posted.
const OUT: usize = 64;

/// A stream that has named the endpoint.
pub(super) struct Stream {
    endpoint: Door,
    events: Events,
}

/// Opens the stream; `None` if the server does not speak like this.
///
/// # Errors
/// When nothing can be said of how it speaks, or its endpoint is somewhere else.
pub(super) async fn begin(door: &Door) -> Result<Option<Stream>, Fault> {
    let named = async {
        let mut events = match door.get(&Visit::default(), None).await? {
            Answer::Stream(events) => events,
            Answer::Refused(status, body) if may_pass(status) || matches!(status.as_u16(), 401 | 403) => {
                return Err(Fault::Final(refusal(Answer::Refused(status, body))));
            }
            _ => return Ok(None),
        };
        Ok(events.endpoint().await.map(|name| (name, events)))
    };
    // A server that speaks otherwise may have a stream here too, with nothing on it.
    let Ok(named) = tokio::time::timeout(FIRST, named).await else { return Ok(None) };
    let Some((name, events)) = named? else { return Ok(None) };
    Ok(Some(Stream { endpoint: door.at(&name).map_err(Fault::Final)?, events }))
}

/// Opens a session on a stream.
pub(super) async fn open(stream: Stream, open: &Open) -> Result<Opened, RpcError> {
    let Stream { endpoint, events } = stream;
    let (out, answers) = mpsc::channel(OUT);
    let (notes, waiting) = Notes::new();
    let talk = Arc::new(Talk {
        endpoint: Arc::new(endpoint),
        outlet: open.outlet.clone(),
        traffic: Arc::new(Traffic::new(open.outlet.clone(), out)),
        notes,
    });
    let tasks = [
        spawn(read(events, Arc::clone(&talk))),
        spawn(notify(Arc::clone(&talk), waiting)),
        spawn(answer(Arc::clone(&talk), answers)),
    ];
    let link = SseLink { talk: Arc::clone(&talk), tasks: Mutex::new(Some(tasks)) };
    let params = params_for(open);
    let body = message::write_request(&RequestId::from_number(0), &Method::Initialize, Some(&params));
    let answer = talk.traffic.await_handshake();
    let result = talk.exchange(body, Repeat::Safe, answer).await??;
    Ok(Opened { link: Box::new(link), result })
}

#[expect(clippy::disallowed_methods, reason = "held by the link, and aborted with it")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// The server as one session sees it.
struct Talk {
    endpoint: Arc<Door>,
    outlet: Outlet,
    traffic: Arc<Traffic>,
    /// A request waits for the notifications before it, so that it does not overtake them.
    notes: Notes,
}

impl Talk {
    /// Posts something that has no answer. A server that does not take it must not hold up what comes after it.
    async fn say(&self, message: Bytes) {
        let post = post(Arc::clone(&self.endpoint), message);
        match tokio::time::timeout(PATIENCE, post).await {
            Ok(Ok(Answer::Accepted | Answer::Json(_) | Answer::Stream(_)) | Err(_)) => {}
            Ok(Ok(Answer::Unknown)) => self.forgotten(),
            Ok(Ok(Answer::Refused(status, _))) => {
                tracing::warn!(url = self.endpoint.place(), %status, "the server upstream refused a message");
            }
            Err(_) => {
                tracing::warn!(
                    url = self.endpoint.place(),
                    "the server upstream did not take a message in time"
                );
            }
        }
    }

    async fn request(&self, sent: &mut Sent, body: Bytes, repeat: Repeat) -> Reply {
        self.notes.all_said().await?;
        sent.is_taken = true;
        let answer = async { (&mut sent.answer).await.unwrap_or_else(|_| Err(gone())) };
        match self.exchange(body, repeat, answer).await {
            Ok(reply) => reply,
            Err(refused) => {
                sent.is_taken = false;
                Err(refused)
            }
        }
    }

    /// Posts a request and waits for its answer on the stream. As long as the stream is there, a request that the server
    /// did not take is posted again, and so is any that it may have taken if that is safe.
    ///
    /// # Errors
    /// When the server did not take it.
    async fn exchange(
        &self,
        body: Bytes,
        repeat: Repeat,
        answer: impl Future<Output = Reply>,
    ) -> Result<Reply, RpcError> {
        let (mut answer, mut waits) = (std::pin::pin!(answer), self.endpoint.waits());
        loop {
            let mut post = Box::pin(post(Arc::clone(&self.endpoint), body.clone()));
            // Side by side: some servers end the POST only when they have answered, and may ask something before that.
            let posted = tokio::select! {
                biased;
                reply = &mut answer => {
                    // It is left to end by itself, so that its connection can be used again.
                    part(async move { drop(post.await) });
                    return Ok(reply);
                }
                posted = &mut post => posted,
            };
            let fault = match posted {
                Ok(Answer::Accepted | Answer::Json(_) | Answer::Stream(_)) => return Ok(answer.await),
                Ok(Answer::Unknown) => {
                    self.forgotten();
                    return Err(RpcError::refused("The server has forgotten the session"));
                }
                Ok(answer) => return Err(refusal(answer)),
                Err(fault) => fault,
            };
            // When the server ends, the stream does too, but that may be seen later; only then is it known that the
            // session is gone. The request may also have arrived before its connection broke.
            match tokio::time::timeout(MOMENT, &mut answer).await {
                Ok(Err(_)) if self.notes.is_over() => return Err(fault.into_error()),
                Ok(reply) => return Ok(reply),
                Err(_) => {}
            }
            let away = match fault {
                Fault::Away(away) if away.reached == Reached::Nobody || repeat == Repeat::Safe => away,
                Fault::Away(away) => return Ok(Err(away.unrepeated())),
                Fault::Final(error) => return Err(error),
            };
            let Some(pause) = waits.pause(&away) else { return Err(away.error) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                reply = &mut answer => {
                    return if self.notes.is_over() { Err(away.error) } else { Ok(reply) };
                }
            }
        }
    }

    /// The server does not know the session any more, though its stream is there.
    fn forgotten(&self) {
        tracing::info!(
            url = self.endpoint.place(),
            session = self.outlet.session_label(),
            "the server upstream has forgotten the session"
        );
        self.outlet.link_lost();
    }

    /// Nothing more is said or heard.
    fn over(&self) {
        self.notes.end();
        self.traffic.over(&gone());
    }
}

/// Posts a message. The endpoint names the session, and so what is refused may be the session.
async fn post(endpoint: Arc<Door>, message: Bytes) -> Result<Answer, Fault> {
    Ok(endpoint.post(&Visit::default(), message).await?.within_session())
}

/// Takes what the server says until the stream ends.
async fn read(mut events: Events, talk: Arc<Talk>) {
    while let Some(event) = events.next().await {
        if let Some(Some(number)) = event.too_long {
            talk.traffic.answer_is_too_long(number);
        }
        let Some(data) = event.data else { continue };
        for message in talk.endpoint.messages(&data) {
            talk.traffic.hear(message).await;
        }
    }
    // First, so that whoever is told that the server is gone finds the session without one.
    talk.outlet.link_lost();
    talk.over();
}

/// Posts notifications one after the other.
async fn notify(talk: Arc<Talk>, mut waiting: mpsc::Receiver<Bytes>) {
    while let Some(note) = waiting.recv().await {
        talk.say(note).await;
        talk.notes.said();
    }
}

/// Posts answers to the server's questions, and cancellations.
async fn answer(talk: Arc<Talk>, mut answers: mpsc::Receiver<Bytes>) {
    while let Some(answer) = answers.recv().await {
        talk.say(answer).await;
    }
}

struct SseLink {
    talk: Arc<Talk>,
    /// The stream is among them: it closes, and with it the session there, when they end.
    tasks: Mutex<Option<[AbortOnDropHandle<()>; 3]>>,
}

impl Link for SseLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let context = Arc::new(context);
        let mut sent = match self.talk.traffic.enter(&context) {
            Ok(sent) => sent,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let id = RequestId::from_number(sent.number);
        let body = message::write_request(&id, &request.method, request.params.as_ref());
        let (talk, repeat) = (Arc::clone(&self.talk), params::repeat(&request.method));
        Box::pin(async move {
            tokio::select! {
                biased;
                reply = talk.request(&mut sent, body, repeat) => reply,
                // The server is told when `sent` is dropped, as it is when the time is up.
                () = context.cancelled() => Err(RpcError::of(Reason::Cancelled, "The request was cancelled")),
            }
        })
    }

    fn notify(&self, notification: Notification) {
        let body = message::write_notification(&notification.method, notification.params.as_ref());
        if !self.talk.notes.add(body) {
            tracing::warn!(method = %notification.method, "the server upstream is behind; dropped a notification");
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.end();
        Box::pin(std::future::ready(()))
    }
}

impl SseLink {
    fn end(&self) {
        self.talk.over();
        *self.tasks.lock() = None;
    }
}

impl Drop for SseLink {
    fn drop(&mut self) {
        self.end();
    }
}
