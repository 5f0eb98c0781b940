//! One attempt at a call: polls the server's reply, and decides how the attempt ends.
//!
//! | what happens first | what the client gets | the call |
//! |---|---|---|
//! | the reply | the answer | is over |
//! | a message, and the client takes streams | a stream | goes on, and is cancelled with the stream |
//! | silence for `stream_after`, and the client takes streams | a stream | the same |
//! | the process leaves, and the client can resume a stream | a stream that ends | runs in the next process |
//! | a question, and no other for `gather` | `input_required` | waits, in its own runtime task, for the next attempt |
//! | the wish to become a task, and the task is in the store | the task | goes on in its own runtime task |
//! | the client hangs up | nothing | is cancelled |
//!
//! The task that waits for the attempt polls the server's future itself. A call that is answered at once costs no
//! runtime task, no timer and no entry in any table.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::modern::validate::StreamSupport;
use tenure_protocol::translate::notifications;
use tenure_protocol::translate::questions::{self, Question};
use tenure_protocol::{Error, Reason, Reply, Request, RpcError, message};
use tokio::time::{Instant, Sleep};

use crate::call::Client;
use crate::exchange::become_task::{Becoming, TaskCause};
use crate::exchange::call::{ActiveCall, ActiveCallState, ForcedEnd};
use crate::exchange::exchanges::{ExchangesInner, ListGuard, RunningGuard};
use crate::exchange::flow::{Flow, FlowItem};
use crate::exchange::repeat;
use crate::kept::CallNote;
use crate::port::BoxFuture;

/// The answer to an attempt.
#[derive(Debug)]
pub enum ExchangeAnswer {
    /// One message.
    Json {
        /// The response.
        body: Bytes,
        /// The code of the error, if the response is one.
        code: Option<i64>,
    },
    /// The request was refused, and the server did not get it.
    Refused(Error),
    /// Several messages; the last one is the response.
    Stream(Box<Flow>),
}

/// One attempt at a call.
pub(super) struct Run {
    pub(super) inner: Arc<ExchangesInner>,
    pub(super) work: Arc<ActiveCall>,
    pub(super) request: Request,
    pub(super) generation: u64,
    pub(super) source: Source,
    /// The task that the call is about to become.
    pub(super) becoming: Option<Becoming>,
    pub(super) began: Instant,
    /// When the call becomes a task because of its run time; set when the attempt first has to wait.
    pub(super) task_at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Set when the attempt first has to wait.
    listed: Option<ListGuard>,
    /// Whether the source already repeats the call when its server is lost (see `repeat`).
    is_repeated: bool,
    /// Whether the client has been given a stream.
    is_stream: bool,
    /// The note of the attempt, with which its client can come back for the stream.
    pub(super) kept: Option<Arc<CallNote<ActiveCall>>>,
    pub(super) is_over: bool,
    _running: RunningGuard,
}

/// The owner of the call's future.
pub(super) enum Source {
    /// This attempt polls the reply.
    Here(BoxFuture<Reply>),
    /// A runtime task, because an earlier attempt ended with questions; or another process, if the call is held.
    Elsewhere,
    /// None: the handler panicked when it was called.
    Panicked,
}

/// The next step of an attempt.
pub(super) enum AttemptStep {
    /// A message.
    Message(Bytes),
    /// The response.
    Done { body: Bytes, code: Option<i64> },
    /// No message for a long time, and the client has no stream yet.
    Quiet,
    /// The process leaves: the client has to come back for the rest of the stream.
    SentAway,
    /// The client came back on another connection, which now gets the messages.
    Overtaken,
}

impl Run {
    pub(super) fn new(
        inner: &Arc<ExchangesInner>,
        work: Arc<ActiveCall>,
        request: Request,
        (generation, source): (u64, Source),
        running: RunningGuard,
    ) -> Self {
        // The source of such a call repeats it by itself.
        let is_repeated = work.recovers.is_some() || work.is_resumed;
        Self {
            inner: Arc::clone(inner),
            work,
            request,
            generation,
            source,
            becoming: None,
            began: Instant::now(),
            task_at: None,
            timer: None,
            listed: None,
            is_repeated,
            is_stream: false,
            kept: None,
            is_over: false,
            _running: running,
        }
    }

    /// Waits until the form of the answer is decided: one message or a stream.
    ///
    /// # Cancel safety
    /// Dropping it cancels the call.
    pub(super) async fn answer(mut self) -> ExchangeAnswer {
        let first = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.note_unless_done(&first).await;
        let first = match first {
            AttemptStep::Done { body, code } => return ExchangeAnswer::Json { body, code },
            AttemptStep::Message(body) => Some(FlowItem::Message(body)),
            AttemptStep::SentAway => match self.come_back_later() {
                None => return self.interrupted(),
                later => later,
            },
            AttemptStep::Quiet | AttemptStep::Overtaken => None,
        };
        ExchangeAnswer::Stream(Box::new(self.into_flow(first)))
    }

    /// The answer of an attempt whose process leaves, and whose client cannot come back for it.
    fn interrupted(&self) -> ExchangeAnswer {
        let (body, code) = self.written(Err(shut_down()));
        ExchangeAnswer::Json { body, code }
    }

    /// The rest of the attempt as a stream.
    pub(super) fn into_flow(mut self, first: Option<FlowItem>) -> Flow {
        self.is_stream = true;
        let resumable = self.kept.as_ref().map(|kept| {
            let retry = self.inner.retry(&kept.id);
            FlowItem::Resumable { id: kept.id.expose(), retry }
        });
        Flow::new(self, resumable.into_iter().chain(first))
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<AttemptStep> {
        let work = Arc::clone(&self.work);
        loop {
            let reply = self.poll_reply(cx);
            let mut state = work.state.lock();
            if state.generation != self.generation {
                drop(state);
                return Poll::Ready(self.overtaken());
            }
            // Messages that were queued before the reply go to the client before it.
            if let Poll::Ready(reply) = reply {
                state.outcome = Some(reply);
            }
            if let Some(message) = work.pop_message(&mut state) {
                return Poll::Ready(AttemptStep::Message(message));
            }
            if let Some(reply) = state.outcome.take() {
                drop(state);
                return Poll::Ready(self.finish(reply));
            }
            if let Some(end) = state.end {
                drop(state);
                return Poll::Ready(match end {
                    ForcedEnd::ComeBack => self.come_back(),
                    ForcedEnd::Resume => self.send_away(),
                    ForcedEnd::Leave => self.finish(Ok(notifications::end(&self.request.id))),
                    ForcedEnd::Interrupt => self.finish(Err(shut_down())),
                    ForcedEnd::Revoke => self.finish(Err(revoked())),
                    ForcedEnd::Cancel => self.finish(Err(cancelled_by_operator())),
                });
            }
            let now = Instant::now();
            let is_due = self.task_at.is_some_and(|at| at <= now) && state.task.is_none();
            let wish = state.wishes.first().map(|wish| TaskCause::ByServer(wish.wish));
            if let Some(wish) = wish.or(is_due.then_some(TaskCause::ByTime)) {
                drop(state);
                match self.poll_wishes(wish, cx) {
                    Poll::Ready(Some(created)) => return Poll::Ready(created),
                    Poll::Ready(None) => continue,
                    Poll::Pending => state = work.state.lock(),
                }
                // The waker is not registered yet, so changes since the last check have to be checked here.
                let is_new = !state.queue.is_empty() || state.outcome.is_some() || state.end.is_some();
                if is_new || state.generation != self.generation {
                    continue;
                }
            }
            let mut next = self.deadline(&state, now);
            if next <= now {
                drop(state);
                let message = "The server did not answer in time";
                return Poll::Ready(self.finish(Err(RpcError::of(Reason::TimedOut, message))));
            }
            if let Some((first, last)) = state.asked_at {
                let ripe = (last + work.limits.gather).min(first + work.limits.gather_at_most);
                if ripe <= now {
                    let asked = state.questions(now + work.limits.ask_timeout);
                    drop(state);
                    match asked {
                        Some(asked) => return Poll::Ready(self.park(&asked)),
                        None => continue,
                    }
                }
                next = next.min(ripe);
            }
            if !self.is_stream && state.attempt.streams != StreamSupport::No {
                let quiet = self.began + work.limits.stream_after;
                if quiet <= now {
                    return Poll::Ready(AttemptStep::Quiet);
                }
                next = next.min(quiet);
            }
            if let Some(at) = self.task_at.filter(|at| *at > now) {
                next = next.min(at);
            }
            keep(&mut state.waker, cx.waker());
            drop(state);
            if self.listed.is_none() {
                self.task_at = self.task_at();
                next = self.task_at.map_or(next, |at| next.min(at));
                self.listed = Some(self.inner.list(&work, self.generation));
                // A drain or stop may have ended all listed calls just before this call was added.
                if self.inner.ends(&work) {
                    continue;
                }
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
            // An early timer does no harm: it only causes another pass of the loop.
            if timer.deadline() > next || timer.is_elapsed() {
                timer.as_mut().reset(next);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }

    /// When the server's time is up. A listen has no limit once it was acknowledged.
    fn deadline(&self, state: &ActiveCallState, now: Instant) -> Instant {
        let limits = &self.work.limits;
        if self.work.is_listen() && state.is_acknowledged {
            return now + FAR;
        }
        let quiet = state.progressed.unwrap_or(self.began).max(self.began) + limits.request_timeout;
        quiet.min(self.began + limits.max_request_time)
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        loop {
            let reply = match &mut self.source {
                Source::Here(reply) => {
                    match std::panic::catch_unwind(AssertUnwindSafe(|| reply.as_mut().poll(cx))) {
                        Ok(reply) => ready!(reply),
                        Err(_) => Err(panicked(&self.work)),
                    }
                }
                Source::Elsewhere => return Poll::Pending,
                Source::Panicked => Err(panicked(&self.work)),
            };
            self.discard();
            if self.is_repeated || !repeat::is_lost(&self.work, &reply) {
                return Poll::Ready(reply);
            }
            self.is_repeated = true;
            let again = Arc::clone(&self.inner).once_more(Arc::clone(&self.work), reply);
            self.source = Source::Here(Box::pin(again));
        }
    }

    /// Takes the reply out of the attempt, for a runtime task that goes on with the call. `None` if one has it already.
    pub(super) fn hand_over(&mut self) -> Option<BoxFuture<Reply>> {
        match std::mem::replace(&mut self.source, Source::Elsewhere) {
            Source::Here(reply) if self.is_repeated => Some(reply),
            Source::Here(reply) => Some(self.inner.see_through(&self.work, reply)),
            Source::Elsewhere | Source::Panicked => None,
        }
    }

    /// Drops the server's future. Its destructors may use the call's context, so the caller must not hold a lock. They
    /// may also panic, and this may run in a connection that serves other requests too, so the panic is caught.
    fn discard(&mut self) {
        let source = std::mem::replace(&mut self.source, Source::Elsewhere);
        if std::panic::catch_unwind(AssertUnwindSafe(|| drop(source))).is_err() {
            panicked(&self.work);
        }
    }

    /// Ends the attempt, and with it the call.
    fn finish(&mut self, reply: Reply) -> AttemptStep {
        let reply = self.inner.judge(&self.work, &self.request, reply);
        self.close();
        self.respond(reply)
    }

    /// Ends the call and drops the server's future.
    pub(super) fn close(&mut self) {
        self.is_over = true;
        self.inner.unpark(&self.work);
        self.work.close();
        self.becoming = None;
        self.discard();
    }

    /// Another attempt or another connection has taken over the call.
    fn overtaken(&mut self) -> AttemptStep {
        self.let_go();
        if self.kept.is_some() {
            return AttemptStep::Overtaken;
        }
        let error =
            Error::new(Reason::InvalidRequestState, "Another attempt with this requestState took over");
        self.respond(Err(error.to_rpc()))
    }

    /// Leaves the call to another connection of the same client.
    fn let_go(&mut self) {
        self.is_over = true;
        if let Some(reply) = self.hand_over() {
            self.inner.go_on(&self.work, reply);
        }
    }

    /// Ends the attempt with the questions; the call waits for the next one.
    fn park(&mut self, asked: &[Question]) -> AttemptStep {
        let state = match self.inner.park(&self.work, &self.request) {
            Ok(state) => state,
            Err(error) => return self.finish(Err(error.to_rpc())),
        };
        let step = self.respond(Ok(questions::input_required(asked, Some(&state))));
        if matches!(step, AttemptStep::Done { code: Some(_), .. }) {
            // The questions do not fit into an answer, so the client cannot come back with answers.
            self.close();
            return step;
        }
        if let Some(reply) = self.hand_over() {
            self.inner.go_on(&self.work, reply);
        }
        self.is_over = true;
        step
    }

    pub(super) fn respond(&self, reply: Reply) -> AttemptStep {
        let (body, code) = self.written(reply);
        AttemptStep::Done { body, code }
    }

    /// The response, and the code of its error if it is one.
    fn written(&self, reply: Reply) -> (Bytes, Option<i64>) {
        let mut reply = self.inner.complete(self.work.fanout.route(), &self.request, reply);
        let mut body = message::write_response(&self.request.id, &reply);
        let limit = self.work.limits.max_event_bytes;
        if body.len() > limit {
            let error = Error::new(Reason::EventTooLarge, format!("The answer is larger than {limit} bytes"));
            reply = Err(error.with("limit", limit).to_rpc());
            body = message::write_response(&self.request.id, &reply);
        }
        (body, reply.err().map(|error| error.code()))
    }
}

/// The deadline of a listen, which has no limit: a timer needs one.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.work.state.lock().generation != self.generation {
            // Its client came back on another connection, and this attempt was not polled since.
            return self.let_go();
        }
        // The client closed the connection, which withdraws the request.
        tracing::debug!(exchange = %self.work.label(), method = %self.work.request.method, "withdrawn by its client");
        self.close();
        if let Some(kept) = &self.kept {
            kept.withdrawn();
        }
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("request", &self.request.id).finish_non_exhaustive()
    }
}

pub(super) fn shut_down() -> RpcError {
    RpcError::of(Reason::Interrupted, "The server shut down before the answer came")
}

fn revoked() -> RpcError {
    RpcError::of(Reason::Unauthorized, "The credentials of the caller were revoked")
}

fn cancelled_by_operator() -> RpcError {
    RpcError::of(Reason::Cancelled, "An operator cancelled the request")
}

pub(super) fn panicked(work: &ActiveCall) -> RpcError {
    tracing::error!(exchange = %work.label(), method = %work.request.method, "a handler panicked");
    RpcError::of(Reason::Internal, "The server failed while handling the request")
}

fn keep(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(kept) => kept.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}
