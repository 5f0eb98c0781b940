//! A link to a child: the handshake, requests in and answers out, and its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tenure_session::message::{self, Incoming, Message};
use tenure_session::port::BoxFuture;
use tenure_session::port::backend::{Call, Link, Open, Opened, Reply};
use tenure_session::runtime::Outlet;
use tenure_session::{Method, Notification, Reason, RequestId, RpcError};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::backoff::Life;
use super::lines::{Line, Lines};
use super::pool::Pool;
use super::process::{Handle, Process};
use crate::handshake::params_for;
use crate::overlong;
use crate::traffic::{Traffic, gone, line};

/// Lines to a child that may wait.
const OUT: usize = 64;

/// Bytes that are written at once, about.
const TOGETHER: usize = 64 << 10;

/// How long a child that is gone is listened to, should its output not end with it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why there is no link.
pub(super) struct Failure {
    pub(super) error: RpcError,
    pub(super) what: String,
    pub(super) tail: String,
}

/// Takes a child and shakes hands with it.
pub(super) async fn open(pool: &Pool, open: Open) -> Result<(Opened, Life), Failure> {
    let began = Instant::now();
    let unavailable = |what: &str| RpcError::of(Reason::BackendUnavailable, what.to_owned());
    let Process { input, output, mut handle } = pool.take().map_err(|error| Failure {
        error: unavailable("The server could not be started"),
        what: error.to_string(),
        tail: String::new(),
    })?;
    handle.tail.serve(&open.outlet.session_label());
    let ended = handle.ended_by_itself.take();
    let (out, lines) = mpsc::channel(OUT);
    let traffic = Arc::new(Traffic::new(open.outlet.clone(), out));
    #[expect(clippy::disallowed_methods, reason = "held by the link, and aborted with it")]
    let (writer, reader) = (
        tokio::spawn(write(input, lines, Arc::clone(&traffic), open.outlet.clone(), handle.hang_up())),
        tokio::spawn(read(
            Lines::new(output, pool.command().limits.max_line_bytes),
            Arc::clone(&traffic),
            open.outlet.clone(),
            handle.gone(),
            handle.hang_up(),
        )),
    );
    let link = ChildLink {
        traffic,
        handle,
        writer: AbortOnDropHandle::new(writer),
        _reader: AbortOnDropHandle::new(reader),
    };
    match link.shake_hands(&open).await {
        Ok(result) => {
            let ended = ended.unwrap_or_else(|| tokio::sync::oneshot::channel().1);
            Ok((Opened { link: Box::new(link), result }, Life { began, ended }))
        }
        Err(error) => {
            // Before its last words are looked at: until it is gone there may be more of them.
            link.end().await;
            let (what, tail) = (error.to_string(), link.handle.tail.last());
            Err(Failure { error, what, tail })
        }
    }
}

struct ChildLink {
    traffic: Arc<Traffic>,
    handle: Handle,
    /// Holds the child's input, which closes when this ends.
    writer: AbortOnDropHandle<()>,
    _reader: AbortOnDropHandle<()>,
}

impl ChildLink {
    async fn shake_hands(&self, open: &Open) -> Reply {
        let params = params_for(open);
        let request = message::write_request(&RequestId::from_number(0), &Method::Initialize, Some(&params));
        let answer = self.traffic.await_handshake();
        self.traffic.send(line(&request)).await?;
        answer.await
    }

    fn end(&self) -> BoxFuture<()> {
        self.traffic.over(&gone());
        // Closes the child's input, which is how it is asked to leave.
        self.writer.abort();
        Box::pin(self.handle.end())
    }
}

impl Link for ChildLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let context = Arc::new(context);
        let mut sent = match self.traffic.enter(&context) {
            Ok(sent) => sent,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let id = RequestId::from_number(sent.number);
        let text = line(&message::write_request(&id, &request.method, request.params.as_ref()));
        let traffic = Arc::clone(&self.traffic);
        Box::pin(async move {
            let cancelled = || Err(RpcError::of(Reason::Cancelled, "The request was cancelled"));
            sent.is_taken = tokio::select! {
                biased;
                sent = traffic.send(text) => sent.is_ok(),
                // The child takes nothing; it has not heard of the request.
                () = context.cancelled() => return cancelled(),
            };
            tokio::select! {
                biased;
                answer = &mut sent.answer => match answer {
                    // It takes nothing any more, and by now the session knows.
                    _ if !sent.is_taken => Err(RpcError::refused("The server has ended")),
                    Ok(answer) => answer,
                    Err(_) => Err(gone()),
                },
                // The child is told when `sent` is dropped, as it is when the time is up.
                () = context.cancelled() => cancelled(),
            }
        })
    }

    fn notify(&self, notification: Notification) {
        let text = line(&message::write_notification(&notification.method, notification.params.as_ref()));
        if !self.traffic.try_send(text) {
            tracing::warn!(method = %notification.method, child = self.handle.id, "the server is behind; dropped a notification");
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.end()
    }
}

/// Writes lines until there are no more, or the child does not take them.
async fn write(
    mut to: ChildStdin,
    mut lines: mpsc::Receiver<Bytes>,
    traffic: Arc<Traffic>,
    outlet: Outlet,
    hang_up: impl FnOnce(),
) {
    loop {
        let Some(first) = lines.recv().await else { return };
        let written = match lines.is_empty() {
            true => to.write_all(&first).await,
            false => {
                let mut together = BytesMut::from(first);
                while together.len() < TOGETHER
                    && let Ok(next) = lines.try_recv()
                {
                    together.extend_from_slice(&next);
                }
                to.write_all(&together).await
            }
        };
        if written.is_err() {
            // Whoever sends from here on knows that it was not taken.
            drop(lines);
            break take_leave(&traffic, &outlet, hang_up).await;
        }
    }
}

/// The child has closed its input. Mostly it is about to end, which is seen elsewhere when its last answers are read.
async fn take_leave(traffic: &Traffic, outlet: &Outlet, hang_up: impl FnOnce()) {
    tokio::time::sleep(LAST_WORDS).await;
    tracing::warn!(session = outlet.session_label(), "the server takes no more messages");
    lose(traffic, outlet, hang_up);
}

fn lose(traffic: &Traffic, outlet: &Outlet, hang_up: impl FnOnce()) {
    // Before the link is closed, so that it does not pass for one that was told to go.
    hang_up();
    // First, so that whoever is told that the server is gone finds the session without one.
    outlet.link_lost();
    traffic.over(&gone());
}

/// Reads what the child says until it says no more.
async fn read(
    mut lines: Lines<ChildStdout>,
    traffic: Arc<Traffic>,
    outlet: Outlet,
    gone_for_good: impl Future<Output = ()>,
    hang_up: impl FnOnce(),
) {
    // A process that it has left behind, out of its group, may keep its output open.
    let last_words = async {
        gone_for_good.await;
        tokio::time::sleep(LAST_WORDS).await;
    };
    tokio::select! {
        () = hear_all(&mut lines, &traffic, &outlet) => {}
        () = last_words => tracing::warn!(session = outlet.session_label(), "the server has ended, but somebody keeps its output open"),
    }
    lose(&traffic, &outlet, hang_up);
}

async fn hear_all(lines: &mut Lines<ChildStdout>, traffic: &Arc<Traffic>, outlet: &Outlet) {
    loop {
        match lines.next().await {
            Ok(Some(Line::Whole(text))) if text.iter().all(u8::is_ascii_whitespace) => {}
            Ok(Some(Line::Whole(text))) => hear(&text, traffic, outlet).await,
            Ok(Some(Line::TooLong(start, end))) => {
                tracing::error!(session = outlet.session_label(), start = %String::from_utf8_lossy(&start), "the server wrote a line that is too long; dropped");
                if let Some(number) = overlong::answers(&start, &end) {
                    traffic.answer_is_too_long(number);
                }
            }
            Ok(None) | Err(_) => return,
        }
    }
}

async fn hear(text: &Bytes, traffic: &Arc<Traffic>, outlet: &Outlet) {
    match Incoming::parse(text) {
        Ok(Incoming::One(message)) => traffic.hear(message).await,
        Ok(Incoming::Batch(messages)) => {
            for message in messages {
                match Message::parse(message.bytes()) {
                    Ok(message) => traffic.hear(message).await,
                    Err(_) => garbage(outlet, message.bytes()),
                }
            }
        }
        Err(_) => garbage(outlet, text),
    }
}

/// Many servers print what they should log.
fn garbage(outlet: &Outlet, text: &[u8]) {
    let start = String::from_utf8_lossy(&text[..text.len().min(256)]).into_owned();
    tracing::warn!(
        session = outlet.session_label(),
        start,
        "the server wrote something that is not a message"
    );
}
