//! The link of one session to its own child: the handshake, requests and answers, and the end.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::{Message, Notification, Reply, RpcError, message};
use tenure_session::backend::{Call, Link, Open, Opened};
use tenure_session::call::Outlet;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::pipes::{MessageSink, OUT, Pipes};
use super::process::{Handle, Process};
use super::restarts::Life;
use crate::handshake::params_for;
use crate::pending::unless_cancelled;
use crate::session_traffic::SessionTraffic;

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
    let (out, messages) = mpsc::channel(OUT);
    let traffic = Arc::new(SessionTraffic::new(open.outlet.clone(), out));
    let (outlet, phase) = (open.outlet.clone(), Mutex::new(LinkPhase::Opening));
    let sink = Arc::new(SoleSession { traffic: Arc::clone(&traffic), outlet, phase });
    let pipes = Pipes::start(input, output, messages, max_line_bytes, &handle, &sink);
    let link = ChildLink { traffic, handle, pipes };
    match link.traffic.shake_hands(&params_for(open)).await {
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
    traffic: Arc<SessionTraffic>,
    handle: Handle,
    pipes: Pipes,
}

/// The one session that the child's messages go to.
struct SoleSession {
    traffic: Arc<SessionTraffic>,
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
        self.traffic.hear(message).await;
    }

    fn answer_is_too_long(&self, number: u64) {
        self.traffic.answer_is_too_long(number);
    }

    fn lose(&self) {
        // Before the calls fail: a caller that sees its call fail must find the session without a link.
        if std::mem::replace(&mut *self.phase.lock(), LinkPhase::Lost) == LinkPhase::Opened {
            self.outlet.link_lost();
        }
        self.traffic.over();
    }

    fn label(&self) -> String {
        self.outlet.session_label()
    }
}

impl ChildLink {
    fn end(&self) -> BoxFuture<()> {
        self.traffic.over();
        self.pipes.close_input();
        Box::pin(self.handle.end())
    }
}

impl Link for ChildLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let Call { request, context } = call;
        let context = Arc::new(context);
        let entered = match self.traffic.enter(&context) {
            Ok(entered) => entered,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let text = message::write_request(&entered.id(), &request.method, request.params.as_ref());
        Box::pin(async move { unless_cancelled(&context, entered.ask(text)).await })
    }

    fn notify(&self, notification: Notification) {
        if !self.traffic.notify(&notification) {
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
