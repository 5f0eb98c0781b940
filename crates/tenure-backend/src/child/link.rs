//! A link to a child: the handshake, requests in and answers out, and its end.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::{Message, Method, Notification, Reason, Reply, RequestId, RpcError, message};
use tenure_session::backend::{Call, Link, Open, Opened};
use tenure_session::call::Outlet;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::backoff::Life;
use super::pipes::{Ear, OUT, Pipes};
use super::process::{Handle, Process};
use crate::handshake::params_for;
use crate::pending::{Traffic, gone, line};

/// Why there is no link.
pub(super) struct Failure {
    pub(super) error: RpcError,
    pub(super) what: String,
    pub(super) tail: String,
    /// The child ended, or closed its output, before anybody told it to go.
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
    let traffic = Arc::new(Traffic::new(open.outlet.clone(), out));
    let (outlet, fate) = (open.outlet.clone(), Mutex::new(Fate::Opening));
    let ear = Arc::new(Own { traffic: Arc::clone(&traffic), outlet, fate });
    let pipes = Pipes::start(input, output, lines, max_line_bytes, &handle, &ear);
    let link = ChildLink { traffic, handle, pipes };
    match link.shake_hands(open).await {
        Ok(result) => {
            ear.opened();
            let ended = ended.unwrap_or_else(|| tokio::sync::oneshot::channel().1);
            Ok((Opened { link: Box::new(link), result }, Life { began, ended }))
        }
        Err(error) => {
            // Before its last words are looked at: until it is gone there may be more of them.
            link.end().await;
            let (what, tail) = (error.to_string(), link.handle.tail.last());
            Err(Failure { error, what, tail, ended_by_itself: link.handle.left_by_itself() })
        }
    }
}

struct ChildLink {
    traffic: Arc<Traffic>,
    handle: Handle,
    pipes: Pipes,
}

/// The one session that hears what the child says.
struct Own {
    traffic: Arc<Traffic>,
    outlet: Outlet,
    fate: Mutex<Fate>,
}

/// Until the hands are shaken, the loss of the child is no loss to the session: another may be tried in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Opening,
    Opened,
    Lost,
}

impl Own {
    /// The session has a link from here on, and is told if it is lost already.
    fn opened(&self) {
        if std::mem::replace(&mut *self.fate.lock(), Fate::Opened) == Fate::Lost {
            self.outlet.link_lost();
        }
    }
}

impl Ear for Own {
    async fn hear(&self, message: Message) {
        self.traffic.hear(message).await;
    }

    fn answer_is_too_long(&self, number: u64) {
        self.traffic.answer_is_too_long(number);
    }

    fn lose(&self) {
        // First, so that whoever is told that the server is gone finds the session without one.
        if std::mem::replace(&mut *self.fate.lock(), Fate::Lost) == Fate::Opened {
            self.outlet.link_lost();
        }
        self.traffic.over(&gone());
    }

    fn label(&self) -> String {
        self.outlet.session_label()
    }
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
        self.pipes.close_input();
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
