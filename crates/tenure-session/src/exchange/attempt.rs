//! How a call is carried out for an attempt, and how the attempt ends.
//!
//! | what happens first | what the client gets | the call |
//! |---|---|---|
//! | the reply | the answer | is over |
//! | a message, and the client takes streams | a stream | goes on, and is cancelled with the stream |
//! | silence for `stream_after`, and the client takes streams | a stream | the same |
//! | the process leaves, and the client can come back for a stream | a stream that ends | goes on in the next process |
//! | a question, and no other for `gather` | `input_required` | waits in a task of its own for an attempt with answers |
//! | the wish to become a task, and the task is in the store | the task | goes on in a task of its own |
//! | the client hangs up | nothing | is cancelled |
//!
//! The server's future is polled by whoever waits for the attempt. A call that is answered at once costs no task, no
//! timer and no entry in any table.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::modern::validate::Streams;
use tenure_protocol::translate::notifications;
use tenure_protocol::translate::questions::{self, Question};
use tenure_protocol::{Error, Reason, Reply, Request, RpcError, message};
use tokio::time::{Instant, Sleep};

use crate::call::Stage;
use crate::exchange::become_task::{Becoming, Wanted};
use crate::exchange::call::{End, State, Work};
use crate::exchange::exchanges::{Inner, Listed, Running};
use crate::exchange::flow::{Flow, FlowItem};
use crate::exchange::repeat;
use crate::kept::Kept;
use crate::port::BoxFuture;

/// What an attempt is answered with.
#[derive(Debug)]
pub enum Answer {
    /// One message. `code` is that of the error, if it is one.
    Json {
        /// The response.
        body: Bytes,
        /// The code of its error.
        code: Option<i64>,
    },
    /// The request is not carried out.
    Refused(Error),
    /// Messages, and the response as the last one.
    Stream(Box<Flow>),
}

/// One attempt at a call.
pub(super) struct Run {
    pub(super) inner: Arc<Inner>,
    pub(super) work: Arc<Work>,
    pub(super) request: Request,
    pub(super) turn: u64,
    pub(super) source: Source,
    /// The task that it is about to become.
    pub(super) becoming: Option<Becoming>,
    pub(super) began: Instant,
    /// When it becomes a task by itself; known from the first time that it has to wait.
    pub(super) task_at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// From the first time that it has to wait.
    listed: Option<Listed>,
    /// Its server was lost, and `repeat` does the rest.
    is_repeated: bool,
    /// Whether the client has been given a stream.
    is_stream: bool,
    /// The note of the attempt, by which its client can come back for the stream.
    pub(super) kept: Option<Arc<Kept<Work>>>,
    pub(super) is_over: bool,
    _running: Running,
}

/// Who carries the call out.
pub(super) enum Source {
    /// Whoever polls the attempt.
    Here(BoxFuture<Reply>),
    /// A task, since an earlier attempt ended with questions; or another process, if its client is to come back.
    Elsewhere,
    /// Nobody: its handler panicked.
    Nobody,
}

/// What an attempt has to say next.
pub(super) enum Turn {
    /// A message.
    Said(Bytes),
    /// The response.
    Done { body: Bytes, code: Option<i64> },
    /// Nothing for a long time, and the client does not know yet that it has been heard.
    Quiet,
    /// The process leaves: the client has to come back for the rest of the stream.
    SentAway,
    /// The client came back on another connection, which gets the rest.
    Overtaken,
}

impl Run {
    pub(super) fn new(
        inner: &Arc<Inner>,
        work: Arc<Work>,
        request: Request,
        (turn, source): (u64, Source),
        running: Running,
    ) -> Self {
        // Such a call sees to its repetition by itself.
        let is_repeated = work.recovers.is_some() || work.is_resumed;
        Self {
            inner: Arc::clone(inner),
            work,
            request,
            turn,
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

    /// Waits until it is known what the answer looks like.
    ///
    /// # Cancel safety
    /// Dropping it cancels the call.
    pub(super) async fn answer(mut self) -> Answer {
        let first = std::future::poll_fn(|cx| self.poll(cx)).await;
        self.note_unless_done(&first).await;
        let first = match first {
            Turn::Done { body, code } => return Answer::Json { body, code },
            Turn::Said(body) => Some(FlowItem::Message(body)),
            Turn::SentAway => match self.come_back_later() {
                None => return self.interrupted(),
                later => later,
            },
            Turn::Quiet | Turn::Overtaken => None,
        };
        Answer::Stream(Box::new(self.into_flow(first)))
    }

    /// The answer of an attempt whose process leaves, and whose client cannot come back for it.
    fn interrupted(&self) -> Answer {
        let (body, code) = self.written(Err(shut_down()));
        Answer::Json { body, code }
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

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        let work = Arc::clone(&self.work);
        loop {
            let reply = self.poll_reply(cx);
            let mut state = work.state.lock();
            if state.turn != self.turn {
                drop(state);
                return Poll::Ready(self.overtaken());
            }
            // What was said before the reply comes before it.
            if let Poll::Ready(reply) = reply {
                state.outcome = Some(reply);
            }
            if let Some(said) = work.take_said(&mut state) {
                return Poll::Ready(Turn::Said(said));
            }
            if let Some(reply) = state.outcome.take() {
                drop(state);
                return Poll::Ready(self.finish(reply));
            }
            if let Some(end) = state.end {
                drop(state);
                return Poll::Ready(match end {
                    End::ComeBack => self.come_back(),
                    End::Resume => self.send_away(),
                    End::Leave => self.finish(Ok(notifications::end(&self.request.id))),
                    End::Interrupt => self.finish(Err(shut_down())),
                });
            }
            let now = Instant::now();
            let is_due = self.task_at.is_some_and(|at| at <= now) && state.task.is_none();
            let wish = state.wishes.first().map(|wish| Wanted::ByServer(wish.wish));
            if let Some(wish) = wish.or(is_due.then_some(Wanted::ByTime)) {
                drop(state);
                match self.poll_wishes(wish, cx) {
                    Poll::Ready(Some(created)) => return Poll::Ready(created),
                    Poll::Ready(None) => continue,
                    Poll::Pending => state = work.state.lock(),
                }
                // Nobody was there to be woken by what happened meanwhile.
                let is_new = !state.said.is_empty() || state.outcome.is_some() || state.end.is_some();
                if is_new || state.turn != self.turn {
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
            if !self.is_stream && state.attempt.streams != Streams::No {
                let quiet = self.began + work.limits.stream_after;
                if quiet <= now {
                    return Poll::Ready(Turn::Quiet);
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
                self.listed = Some(self.inner.list(&work, self.turn));
                // Whoever ends all that are listed may just have been here.
                if self.inner.ends(&work) {
                    continue;
                }
            }
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next)));
            // One that is set too early is as good: then everything is looked at anew.
            if timer.deadline() > next || timer.is_elapsed() {
                timer.as_mut().reset(next);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }

    /// When the server's time is up. A listen has none once it was acknowledged.
    fn deadline(&self, state: &State, now: Instant) -> Instant {
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
                Source::Nobody => Err(panicked(&self.work)),
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

    /// The reply of the call, for a task that goes on with it when the attempt has ended. `None` if one does already.
    pub(super) fn hand_over(&mut self) -> Option<BoxFuture<Reply>> {
        match std::mem::replace(&mut self.source, Source::Elsewhere) {
            Source::Here(reply) if self.is_repeated => Some(reply),
            Source::Here(reply) => Some(self.inner.see_through(&self.work, reply)),
            Source::Elsewhere | Source::Nobody => None,
        }
    }

    /// Drops the server's future. What it does then is its own affair: it may look at its context, so no lock is held,
    /// and it may panic, while whoever drops it may be a connection that carries the requests of others too.
    fn discard(&mut self) {
        let source = std::mem::replace(&mut self.source, Source::Elsewhere);
        if std::panic::catch_unwind(AssertUnwindSafe(|| drop(source))).is_err() {
            panicked(&self.work);
        }
    }

    /// Ends the attempt, and with it the call.
    fn finish(&mut self, reply: Reply) -> Turn {
        let reply = self.inner.judge(&self.work, &self.request, reply);
        self.close();
        self.respond(reply)
    }

    /// Whatever still works on the call need not.
    pub(super) fn close(&mut self) {
        self.is_over = true;
        self.inner.unpark(&self.work);
        self.work.close();
        self.becoming = None;
        self.discard();
    }

    /// The call is another attempt's now, or another connection's.
    fn overtaken(&mut self) -> Turn {
        self.let_go();
        if self.kept.is_some() {
            return Turn::Overtaken;
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
    fn park(&mut self, asked: &[Question]) -> Turn {
        let state = match self.inner.park(&self.work, &self.request) {
            Ok(state) => state,
            Err(error) => return self.finish(Err(error.to_rpc())),
        };
        let turn = self.respond(Ok(questions::input_required(asked, Some(&state))));
        if matches!(turn, Turn::Done { code: Some(_), .. }) {
            // The client does not get them, and could not come back.
            self.close();
            return turn;
        }
        if let Some(reply) = self.hand_over() {
            self.inner.go_on(&self.work, reply);
        }
        self.is_over = true;
        turn
    }

    pub(super) fn respond(&self, reply: Reply) -> Turn {
        let (body, code) = self.written(reply);
        Turn::Done { body, code }
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

/// A listen has no deadline; timers want one.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.work.state.lock().turn != self.turn {
            // Its client came back on another connection, and this one did not hear of it.
            return self.let_go();
        }
        // The client hung up, which is how it withdraws a request.
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

pub(super) fn panicked(work: &Work) -> RpcError {
    tracing::error!(exchange = %work.label(), method = %work.request.method, "a handler panicked");
    RpcError::of(Reason::Internal, "The server failed while handling the request")
}

fn keep(place: &mut Option<Waker>, waker: &Waker) {
    match place {
        Some(kept) => kept.clone_from(waker),
        None => *place = Some(waker.clone()),
    }
}
