//! The messages between one session and its server on a single stream, and which request each of them belongs to: a
//! child's pipes, or HTTP+SSE.
//!
//! In: the server's messages. A response is matched by its id, progress by its token. A log message or a question goes
//! to the client's request if exactly one is in flight. Everything else goes to the session's outlet.

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::{Message, Method, Notification, RawJson, Reason, Reply, Request, RpcError, message};
use tenure_session::call::{CallContext, Outlet};
use tokio::sync::mpsc;

use crate::pending::{InFlight, Pending, Sent, gone, too_long};
use crate::questions::Questions;

pub(crate) struct SessionTraffic {
    outlet: Outlet,
    pending: Arc<Pending<SessionCall>>,
    questions: Arc<Questions>,
}

/// The request that waits.
pub(crate) struct SessionCall {
    /// `None` for our `initialize`.
    context: Option<Arc<CallContext>>,
    token: Option<RawJson>,
}

impl SessionTraffic {
    pub(crate) fn new(outlet: Outlet, out: mpsc::Sender<Bytes>) -> Self {
        Self { outlet, questions: Questions::new(out.clone()), pending: Pending::new(out, 0) }
    }

    /// Adds an entry for `initialize`, which is the first request. The caller has still to send the request.
    pub(crate) fn enter_handshake(&self) -> Result<InFlight<SessionCall>, RpcError> {
        let call = SessionCall { context: None, token: None };
        self.pending.enter(self.pending.number(), call).ok_or_else(gone)
    }

    /// Adds an entry for a request. The caller has still to send the request.
    pub(crate) fn enter(&self, context: &Arc<CallContext>) -> Result<InFlight<SessionCall>, RpcError> {
        let call = SessionCall { context: Some(Arc::clone(context)), token: context.progress_token() };
        let entered = self.pending.enter(self.pending.number(), call);
        entered.ok_or_else(|| RpcError::refused("The server has ended"))
    }

    /// Sends `initialize` and waits for its answer.
    pub(crate) async fn shake_hands(&self, params: &RawJson) -> Reply {
        let mut handshake = self.enter_handshake()?;
        let request = message::write_request(&handshake.id(), &Method::Initialize, Some(params));
        let Sent::Taken = handshake.send(request).await else { return Err(gone()) };
        // A client may not cancel `initialize`.
        handshake.is_sent = false;
        handshake.answer().await
    }

    /// Sends a notification; returns `false` if the queue is full or closed.
    pub(crate) fn notify(&self, Notification { method, params }: &Notification) -> bool {
        self.pending.try_send(message::write_notification(method, params.as_ref()))
    }

    /// The server has ended: fails all requests and the questions in flight.
    pub(crate) fn over(&self) {
        self.questions.end();
        for waiting in self.pending.end() {
            // The receiver may have been dropped.
            drop(waiting.answer.send(Err(gone())));
        }
    }

    /// Takes a message of the server.
    pub(crate) async fn hear(&self, message: Message) {
        match message {
            Message::Response(response) => {
                if let Some(waiting) = self.pending.answered(&response.id) {
                    // The outcome shares its buffer with many lines. Code that keeps it must copy it.
                    drop(waiting.answer.send(response.outcome));
                }
            }
            Message::Notification(notification) => self.told(notification).await,
            Message::Request(request) => self.asked(request),
        }
    }

    /// The answer to this request was too long and is dropped: fails the request, which would wait for ever.
    pub(crate) fn answer_is_too_long(&self, number: u64) {
        if let Some(waiting) = self.pending.take(number) {
            drop(waiting.answer.send(Err(too_long())));
        }
    }

    async fn told(&self, Notification { method, params }: Notification) {
        let context = match method {
            Method::Progress => self.by_token(params.as_ref()),
            Method::LogMessage => self.only_one(),
            Method::Cancelled => return self.questions.withdrawn(params.as_ref()),
            _ => None,
        };
        let told = match &context {
            Some(context) => context.notify(&method, params.as_ref()).await,
            // Progress for an unknown request: it has ended, or never existed.
            None if method == Method::Progress => return,
            None => self.outlet.notify(&method, params.as_ref()).await,
        };
        if let Err(error) = told {
            tracing::debug!(
                session = self.outlet.session_label(), %method, %error,
                "could not pass on a message"
            );
        }
    }

    fn asked(&self, request: Request) {
        let (context, outlet) = (self.only_one(), self.outlet.clone());
        self.questions.take(request, |method, params| async move {
            if let Some(context) = context {
                match context.ask(&method, params.as_ref()).await {
                    // The request was answered before its stream took the question, so ask on the session instead.
                    Err(error) if is_over(&error) && context.is_cancelled() => {}
                    reply => return reply,
                }
            }
            outlet.ask(&method, params.as_ref()).await
        });
    }

    fn by_token(&self, params: Option<&RawJson>) -> Option<Arc<CallContext>> {
        #[derive(Deserialize)]
        struct ProgressMessage<'a> {
            #[serde(rename = "progressToken", borrow)]
            token: &'a RawValue,
        }
        let progress: ProgressMessage<'_> = params?.read().ok()?;
        self.pending.find(|call| {
            call.token.as_ref().filter(|token| same(token, progress.token)).and(call.context.clone())
        })
    }

    fn only_one(&self) -> Option<Arc<CallContext>> {
        // Skip our own requests, such as setting the log level: the server's log messages are not about those.
        self.pending.only(|_, call| call.context.as_ref().filter(|context| !context.is_our_own()).cloned())
    }
}

/// Whether two tokens are equal. A server may have written the same string with other escapes.
fn same(token: &RawJson, other: &RawValue) -> bool {
    let read = |text: &[u8]| serde_json::from_slice::<String>(text).ok();
    let other = other.get().as_bytes();
    token.bytes() == other || read(other).is_some_and(|other| read(token.bytes()) == Some(other))
}

/// Whether the error says that the request is no longer in flight.
fn is_over(error: &RpcError) -> bool {
    error.code() == i64::from(Reason::Cancelled.code())
}
