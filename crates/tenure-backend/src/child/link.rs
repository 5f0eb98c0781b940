//! The link of one session to its own child: the handshake, requests and answers, and the end.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::{Message, Method, Notification, Reason, Reply, RequestId, RpcError, message};
use tenure_session::backend::{Call, Link, Open, Opened};
use tenure_session::call::Outlet;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backoff::Life;
use super::pipes::{MessageSink, OUT, Pipes};
use super::process::{Handle, Process};
use crate::handshake::params_for;
use crate::pending::{PendingRequests, gone, line};

/// Why there is no link.
pub(super) struct Failure {
    pub(super) error: RpcError,
    pub(super) what: String,
    pub(super) tail: String,
    /// The child ended, or closed its output, before we told it to end.
    pub(super) ended_by_itself: bool,
}

/// Shakes hands with a child.
pub(super) async fn open(
    process: Process,
    max_line_bytes: usize,
    open: &Open,
) -> Result<(Opened, Life), Failure> {
    let began = Instant::now();
    let Process { input, output, mut handle } = process;
    handle.tail.serve(&open.outlet.session_label());
    let ended = handle.ended_by_itself.take();
    let (out, lines) = mpsc::channel(OUT);
    let pending = Arc::new(PendingRequests::new(open.outlet.clone(), out));
    let (outlet, phase) = (open.outlet.clone(), Mutex::new(LinkPhase::Opening));
    let sink = Arc::new(SoleSession { pending: Arc::clone(&pending), outlet, phase });
    let pipes = Pipes::start(input, output, lines, max_line_bytes, &handle, &sink);
    let link = ChildLink { pending, handle, pipes };
    match link.shake_hands(open).await {
        Ok(result) => {
            sink.opened();
            let ended = ended.unwrap_or_else(|| tokio::sync::oneshot::channel().1);
            Ok((Opened { link: Box::new(link), result }, Life { began, ended }))
        }
        Err(error) => {
            // End the child before reading its stderr tail: until it has ended it may write more.
            link.end().await;
            let (what, tail) = (error.to_string(), link.handle.tail.last());
            Err(Failure { error, what, tail, ended_by_itself: link.handle.left_by_itself() })
        }
    }
}

struct ChildLink {
    pending: Arc<PendingRequests>,
    handle: Handle,
    pipes: Pipes,
}

/// The one session that the child's messages go to.
struct SoleSession {
    pending: Arc<PendingRequests>,
    outlet: Outlet,
    phase: Mutex<LinkPhase>,
}

/// Before the handshake is done, the loss of a child is not reported to the session: another child may be tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkPhase {
    Opening,
    Opened,
    Lost,
}

impl SoleSession {
    /// The handshake is done. Tells the session if the child is lost already.
    fn opened(&self) {
        if std::mem::replace(&mut *self.phase.lock(), LinkPhase::Opened) == LinkPhase::Lost {
            self.outlet.link_lost();
        }
    }
}

impl MessageSink for SoleSession {
    async fn hear(&self, message: Message) {
        self.pending.hear(message).await;
    }

    fn answer_is_too_long(&self, number: u64) {
        self.pending.answer_is_too_long(number);
    }

    fn lose(&self) {
        // Before the calls fail: a caller that sees its call fail must find the session without a link.
        if std::mem::replace(&mut *self.phase.lock(), LinkPhase::Lost) == LinkPhase::Opened {
            self.outlet.link_lost();
        }
        self.pending.over(&gone());
    }

    fn label(&self) -> String {
        self.outlet.session_label()
    }
}

impl ChildLink {
    async fn shake_hands(&self, open: &Open) -> Reply {
        let params = params_for(open);
        let request = message::write_request(&RequestId::from_number(0), &Method::Initialize, Some(&params));
        let answer = self.pending.await_handshake();
        self.pending.send(line(&request)).await?;
        answer.await
    }

    fn end(&self) -> BoxFuture<()> {
        self.pending.over(&gone());
        self.pipes.close_input();
        Box::pin(self.handle.end())
    }
}

impl Link for ChildLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let context = Arc::new(context);
        let mut sent = match self.pending.enter(&context) {
            Ok(sent) => sent,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let id = RequestId::from_number(sent.number);
        let text = line(&message::write_request(&id, &request.method, request.params.as_ref()));
        let pending = Arc::clone(&self.pending);
        Box::pin(async move {
            let cancelled = || Err(RpcError::of(Reason::Cancelled, "The request was cancelled"));
            sent.is_taken = tokio::select! {
                biased;
                sent = pending.send(text) => sent.is_ok(),
                // The request was not written, so the child needs no cancellation.
                () = context.cancelled() => return cancelled(),
            };
            tokio::select! {
                biased;
                answer = &mut sent.answer => match answer {
                    // The child takes no more messages, and by now the session knows.
                    _ if !sent.is_taken => Err(RpcError::refused("The server has ended")),
                    Ok(answer) => answer,
                    Err(_) => Err(gone()),
                },
                // Dropping `sent` sends the cancellation, as it does after a timeout.
                () = context.cancelled() => cancelled(),
            }
        })
    }

    fn notify(&self, notification: Notification) {
        let text = line(&message::write_notification(&notification.method, notification.params.as_ref()));
        if !self.pending.try_send(text) {
            tracing::warn!(
                method = %notification.method, child = self.handle.id,
                "the queue to the server is full; dropped a notification"
            );
        }
    }

    fn close(&self) -> BoxFuture<()> {
        self.end()
    }
}
