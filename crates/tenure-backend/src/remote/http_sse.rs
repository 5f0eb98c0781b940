//! A link over HTTP+SSE of 2024-11-05: one stream carries all messages of the server, and names the endpoint for our
//! messages.
//!
//! The stream is the session at the server. When it breaks, the session has ended, as with a child that has died: all
//! requests in flight fail, and the next request opens another stream. `crate::session_traffic` matches messages with
//! requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Method, Notification, Reply, RpcError, message};
use tenure_session::backend::{Call, Link, Open, Opened};
use tenure_session::call::Outlet;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::events::UpstreamEvents;
use super::link::refusal;
use super::outage::{Fault, Reached};
use crate::handshake::params_for;
use crate::pending::{InFlight, unless_cancelled};
use crate::remote::credentials::OnBehalf;
use crate::remote::http_client::{HttpAnswer, HttpClient, SessionHeaders, may_pass};
use crate::remote::notifications::NotificationQueue;
use crate::remote::session_guard::spawn_last;
use crate::session_traffic::{SessionCall, SessionTraffic};

/// How long a server may take to name its endpoint.
const FIRST: Duration = Duration::from_secs(5);
/// How long it may take to post a message that has no answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after a broken connection the stream may still end, or after a failed POST its answer may still come.
const MOMENT: Duration = Duration::from_millis(500);
/// Capacity of the queue of answers and cancellations.
const OUT: usize = 64;

/// A stream that has named the endpoint.
pub(super) struct SseStream {
    endpoint: HttpClient,
    events: UpstreamEvents,
}

/// Opens the stream; `None` if the server does not speak HTTP+SSE.
///
/// # Errors
/// When the transport cannot be detected, or the endpoint has another origin.
pub(super) async fn begin(http: &HttpClient, whom: OnBehalf) -> Result<Option<SseStream>, Fault> {
    let named = async {
        let mut events = match http.get(&SessionHeaders::of(whom), None).await? {
            HttpAnswer::Stream(events) => events,
            refused @ HttpAnswer::Unauthorized(_) => return Err(Fault::Final(refusal(refused))),
            HttpAnswer::Refused(status, body) if may_pass(status) => {
                return Err(Fault::Final(refusal(HttpAnswer::Refused(status, body))));
            }
            _ => return Ok(None),
        };
        Ok(events.endpoint().await.map(|name| (name, events)))
    };
    // A server of another transport may have a stream here too, without events.
    let Ok(named) = tokio::time::timeout(FIRST, named).await else { return Ok(None) };
    let Some((name, events)) = named? else { return Ok(None) };
    Ok(Some(SseStream { endpoint: http.at(&name).map_err(Fault::Final)?, events }))
}

/// Opens a session on a stream.
pub(super) async fn open(stream: SseStream, open: &Open) -> Result<Opened, RpcError> {
    let SseStream { endpoint, events } = stream;
    let (out, answers) = mpsc::channel(OUT);
    let (notifications, waiting) = NotificationQueue::new();
    let session = Arc::new(SseSession {
        endpoint: Arc::new(endpoint),
        whom: OnBehalf::client_of(&open.outlet),
        outlet: open.outlet.clone(),
        traffic: SessionTraffic::new(open.outlet.clone(), out),
        notifications,
    });
    let tasks = [
        spawn(read(events, Arc::clone(&session))),
        spawn(notify(Arc::clone(&session), waiting)),
        spawn(answer(Arc::clone(&session), answers)),
    ];
    let link = SseLink { session: Arc::clone(&session), tasks: Mutex::new(Some(tasks)) };
    let mut handshake = session.traffic.enter_handshake()?;
    let body = message::write_request(&handshake.id(), &Method::Initialize, Some(&params_for(open)));
    let result = session.exchange(&session.whom, body, Repeat::Safe, handshake.answer()).await??;
    Ok(Opened { link: Box::new(link), result })
}

#[expect(clippy::disallowed_methods, reason = "held by the link, and aborted with it")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// The server as one session sees it.
struct SseSession {
    endpoint: Arc<HttpClient>,
    /// The session's client, for messages that belong to none of its requests.
    whom: OnBehalf,
    outlet: Outlet,
    traffic: SessionTraffic,
    /// A request waits for earlier notifications, so that it does not overtake them.
    notifications: NotificationQueue,
}

impl SseSession {
    /// Posts a message that has no answer. It has a timeout, so that a server that does not take it cannot delay later
    /// messages.
    async fn say(&self, message: Bytes) {
        let post = post(Arc::clone(&self.endpoint), self.whom.telling(), message);
        match tokio::time::timeout(PATIENCE, post).await {
            Ok(Ok(HttpAnswer::Accepted | HttpAnswer::Json(_) | HttpAnswer::Stream(_)) | Err(_)) => {}
            Ok(Ok(HttpAnswer::Unknown)) => self.forgotten(),
            Ok(Ok(HttpAnswer::Refused(status, _) | HttpAnswer::Unauthorized(status))) => {
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

    async fn request(
        &self,
        whom: &OnBehalf,
        sent: &mut InFlight<SessionCall>,
        body: Bytes,
        repeat: Repeat,
    ) -> Reply {
        self.notifications.all_posted().await?;
        sent.is_sent = true;
        let reply = self.exchange(whom, body, repeat, sent.answer()).await;
        // If the server refused it, the server needs no cancellation.
        sent.is_sent = reply.is_ok();
        reply?
    }

    /// Posts a request and waits for its answer on the stream. While the stream is open, retries a request that the
    /// server did not take, and also one that it may have taken if that is safe.
    ///
    /// # Errors
    /// When the server did not take it.
    async fn exchange(
        &self,
        whom: &OnBehalf,
        body: Bytes,
        repeat: Repeat,
        answer: impl Future<Output = Reply>,
    ) -> Result<Reply, RpcError> {
        let (mut answer, mut waits) = (std::pin::pin!(answer), self.endpoint.waits());
        loop {
            let mut post = Box::pin(post(Arc::clone(&self.endpoint), whom.clone(), body.clone()));
            // Concurrently: some servers end the POST only after they have answered, and may ask something before that.
            let posted = tokio::select! {
                biased;
                reply = &mut answer => {
                    // Let the POST finish in the background, so that its connection can be reused.
                    spawn_last(async move { drop(post.await) });
                    return Ok(reply);
                }
                posted = &mut post => posted,
            };
            let fault = match posted {
                Ok(HttpAnswer::Accepted | HttpAnswer::Json(_) | HttpAnswer::Stream(_)) => {
                    return Ok(answer.await);
                }
                Ok(HttpAnswer::Unknown) => {
                    self.forgotten();
                    return Err(RpcError::refused("The server has forgotten the session"));
                }
                Ok(answer) => return Err(refusal(answer)),
                Err(fault) => fault,
            };
            // If the server has ended, the stream ends too, but we may see that later, and only then know that the
            // session is lost. The request may also have arrived before its connection broke.
            match tokio::time::timeout(MOMENT, &mut answer).await {
                Ok(Err(_)) if self.notifications.is_over() => return Err(fault.into_error()),
                Ok(reply) => return Ok(reply),
                Err(_) => {}
            }
            let away = match fault {
                Fault::Away(away) if away.reached == Reached::NotSent || repeat == Repeat::Safe => away,
                Fault::Away(away) => return Ok(Err(away.unrepeated())),
                Fault::Final(error) => return Err(error),
            };
            let Some(pause) = waits.pause(&away) else { return Err(away.error) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                reply = &mut answer => {
                    return if self.notifications.is_over() { Err(away.error) } else { Ok(reply) };
                }
            }
        }
    }

    /// The server has forgotten the session, though its stream is open.
    fn forgotten(&self) {
        tracing::info!(
            url = self.endpoint.place(),
            session = self.outlet.session_label(),
            "the server upstream has forgotten the session"
        );
        self.outlet.link_lost();
    }

    /// Ends the link: stops notifications and fails all requests in flight.
    fn over(&self) {
        self.notifications.end();
        self.traffic.over();
    }
}

/// Posts a message. The endpoint's URL names the session, so a refusal may mean that the session is unknown.
async fn post(endpoint: Arc<HttpClient>, whom: OnBehalf, message: Bytes) -> Result<HttpAnswer, Fault> {
    Ok(endpoint.post(&SessionHeaders::of(whom), message).await?.within_session())
}

/// Reads the server's messages until the stream ends.
async fn read(mut events: UpstreamEvents, session: Arc<SseSession>) {
    while let Some(event) = events.next().await {
        if let Some(Some(number)) = event.too_long {
            session.traffic.answer_is_too_long(number);
        }
        let Some(data) = event.data else { continue };
        for message in session.endpoint.messages(&data) {
            session.traffic.hear(message).await;
        }
    }
    // Before the calls fail: a caller that sees its call fail must find the session without a link.
    session.outlet.link_lost();
    session.over();
}

/// Posts notifications one after the other.
async fn notify(session: Arc<SseSession>, mut waiting: mpsc::Receiver<Bytes>) {
    while let Some(note) = waiting.recv().await {
        session.say(note).await;
        session.notifications.posted();
    }
}

/// Posts answers to the server's questions, and cancellations.
async fn answer(session: Arc<SseSession>, mut answers: mpsc::Receiver<Bytes>) {
    while let Some(answer) = answers.recv().await {
        session.say(answer).await;
    }
}

struct SseLink {
    session: Arc<SseSession>,
    /// The reader task holds the stream. When it ends, the stream closes, and with it the session at the server.
    tasks: Mutex<Option<[AbortOnDropHandle<()>; 3]>>,
}

impl Link for SseLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let context = Arc::new(context);
        let mut sent = match self.session.traffic.enter(&context) {
            Ok(sent) => sent,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let body = message::write_request(&sent.id(), &request.method, request.params.as_ref());
        let (session, repeat) = (Arc::clone(&self.session), params::repeat(&request.method));
        let whom = OnBehalf::caller(context.caller());
        Box::pin(async move {
            // Dropping `sent` sends the cancellation, as it does after a timeout.
            unless_cancelled(&context, session.request(&whom, &mut sent, body, repeat)).await
        })
    }

    fn notify(&self, notification: Notification) {
        let body = message::write_notification(&notification.method, notification.params.as_ref());
        if !self.session.notifications.add(body) {
            tracing::warn!(
                method = %notification.method,
                "the queue to the server upstream is full; dropped a notification"
            );
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.end();
        Box::pin(std::future::ready(()))
    }
}

impl SseLink {
    fn end(&self) {
        self.session.over();
        *self.tasks.lock() = None;
    }
}

impl Drop for SseLink {
    fn drop(&mut self) {
        self.end();
    }
}
