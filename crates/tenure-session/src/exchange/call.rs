//! One running call, and its state.
//!
//! A call outlives an attempt if it asks its client something: the attempt ends with the questions, the call waits, and
//! goes on with the attempt that brings the answers. So its messages always go to the current attempt.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_protocol::modern::capability::{self, Capability};
use tenure_protocol::modern::meta::Meta;
use tenure_protocol::modern::validate::StreamSupport;
use tenure_protocol::translate::questions::{self, KeyedBy, Question};
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RpcError, params};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::{Resource, Taken};
use crate::call::{Became, Caller, Fanout, TaskWish};
use crate::exchange::exchanges::ListGuard;
use crate::exchange::limits::ExchangeLimits;
use crate::exchange::request_state::ParkedName;
use crate::exchange::task_names::NamedTask;
use crate::kept::CallNote;
use crate::port::clock::Time;
use crate::task::LiveTask;

/// A call.
pub(super) struct ActiveCall {
    /// Itself, for futures that outlive a borrow.
    pub(super) me: Weak<Self>,
    pub(super) number: u64,
    /// The request as the server gets it. The requests of later attempts have other ids, states and answers.
    pub(super) request: Request,
    pub(super) caller: Caller,
    /// Its secret name while it is parked; made when it is parked for the first time.
    pub(super) park: OnceLock<u128>,
    pub(super) started: Time,
    pub(super) fanout: Fanout,
    pub(super) limits: Arc<ExchangeLimits>,
    pub(super) label: OnceLock<Box<str>>,
    /// Made on demand, because few calls need it.
    pub(super) cancellation: OnceLock<CancellationToken>,
    /// Notified when the queue has room again, when a listen was acknowledged, and when the call became a task or is
    /// over.
    pub(super) room: Notify,
    /// Whether it may run twice, once this is known.
    pub(super) is_repeatable: OnceLock<bool>,
    /// The parked call of another process that this call replaces.
    pub(super) recovers: Option<ParkedName>,
    /// Whether another process began the call, and its client came back to this one.
    pub(super) is_resumed: bool,
    /// Whether it came too late to be started by this process: its client has to come back.
    pub(super) is_held: bool,
    pub(super) state: Mutex<ActiveCallState>,
}

/// The part of a call that changes.
pub(super) struct ActiveCallState {
    /// The current attempt; while the call is parked, the last one.
    pub(super) attempt: ClientAttempt,
    /// Counts attempts and reconnects, so that an attempt notices that another one has replaced it.
    pub(super) generation: u64,
    /// While it is parked: the time until which it waits for the next attempt.
    pub(super) parked_until: Option<Instant>,
    /// The call is answered or withdrawn, and no attempt will wait for it.
    pub(super) is_over: bool,
    /// Messages that the attempt has not taken yet.
    pub(super) queue: VecDeque<Bytes>,
    pub(super) queue_bytes: usize,
    /// The memory from the client's share for the queue, and for an outcome that waits for the next attempt.
    queue_memory: Option<Taken>,
    /// Its permit among the parked calls of the client.
    pub(super) place: Option<Taken>,
    pub(super) asked: Vec<OpenQuestion>,
    /// When the first and the last of the open questions were asked.
    pub(super) asked_at: Option<(Instant, Instant)>,
    questions: usize,
    pub(super) progressed: Option<Instant>,
    /// The params of the last report of progress.
    pub(super) reported: Option<RawJson>,
    /// The last progress value that the client got from a lost server.
    pub(super) heard: Option<f64>,
    /// Capabilities that the client lacks and a question needed.
    pub(super) lacking: Vec<Capability>,
    /// The reply, if the call runs in its own task.
    pub(super) outcome: Option<Reply>,
    /// The end that a drain or stop has set.
    pub(super) end: Option<ForcedEnd>,
    /// Wishes of the server to turn the call into a task; the current attempt grants them.
    pub(super) wishes: Vec<Wish>,
    /// The task that the call became.
    pub(super) task: Option<Tasked>,
    /// Keeps that task in the list until the runtime task that runs it takes over.
    pub(super) listed: Option<ListGuard>,
    /// The note of the current attempt, with which its client can come back.
    pub(super) kept: Option<Arc<CallNote<ActiveCall>>>,
    /// The ids of our tasks that a listen watches.
    pub(super) watched: Vec<String>,
    /// The tasks that the server watches for a listen, if its caller has other names for them than the server.
    pub(super) named_tasks: Option<Vec<NamedTask>>,
    /// Whether a listen has been acknowledged.
    pub(super) is_acknowledged: bool,
    /// The waker of the current attempt.
    pub(super) waker: Option<Waker>,
}

/// An attempt of a client at a request.
pub(super) struct ClientAttempt {
    pub(super) meta: Meta,
    pub(super) streams: StreamSupport,
    /// The answers that it brings.
    pub(super) responses: Option<RawJson>,
    /// The keys of answers that the server already got. If the server uses such a key again, it asks a new question.
    pub(super) used: Vec<String>,
}

/// A question without an answer yet.
pub(super) struct OpenQuestion {
    pub(super) question: Question,
    pub(super) answer: oneshot::Sender<Reply>,
}

/// A wish of the server to turn the call into a task, and the sender for its outcome.
pub(super) struct Wish {
    pub(super) wish: TaskWish,
    pub(super) answer: oneshot::Sender<Result<Became, RpcError>>,
}

/// A task, and the request of the attempt that was answered with it.
#[derive(Clone)]
pub(super) struct Tasked {
    pub(super) live: Arc<LiveTask>,
    pub(super) request: Request,
}

/// How a drain or stop, or an operator, ends a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ForcedEnd {
    /// A listen ends normally.
    Leave,
    /// The call fails, because the process stops.
    Interrupt,
    /// Its client has to send the same request again: the next process runs it.
    ComeBack,
    /// Its client has to come back for the rest of its stream: the next process runs the call.
    Resume,
    /// The credentials of its caller were revoked.
    Revoke,
    /// An operator cancelled it.
    Cancel,
}

/// How a call came to this process. The default is a client's first attempt.
#[derive(Clone, Copy, Default)]
pub(super) struct CallOrigin {
    /// The parked call of another process that it replaces.
    pub(super) recovers: Option<ParkedName>,
    /// Whether another process began it, and its client came back to this one.
    pub(super) is_resumed: bool,
    /// Whether it came too late to be started by this process.
    pub(super) is_held: bool,
}

impl ActiveCallState {
    /// Takes memory for this many unread bytes. False if the client's share does not allow it.
    pub(super) fn may_hold(&mut self, bytes: usize) -> bool {
        self.queue_memory.as_mut().is_none_or(|memory| memory.resize(bytes).is_ok())
    }

    /// Counts the bytes in the queue, even beyond the client's share: one message is always queued.
    pub(super) fn count_queue(&mut self) {
        if let Some(memory) = &mut self.queue_memory {
            memory.resize_anyway(self.queue_bytes);
        }
    }

    /// Counts an outcome that waits for the next attempt. An outcome that does not fit into the client's share is
    /// replaced by an error: a client that is away can neither read it nor make room.
    fn hold(&mut self, outcome: Reply) -> Reply {
        let bytes =
            outcome.as_ref().map_or_else(|error| error.raw().bytes().len(), |result| result.bytes().len());
        if self.parked_until.is_none() || self.outcome.is_some() || self.may_hold(self.queue_bytes + bytes) {
            return outcome;
        }
        let message = "The call has ended, but you hold as much as you may, and its result was not kept";
        Err(Error::new(Reason::TooMuchHeld, message).with("bytes", bytes).to_rpc())
    }

    /// Parks the call, and returns the questions for the next attempt. `None` if the server withdrew all of them.
    pub(super) fn questions(&mut self, until: Instant) -> Option<Vec<Question>> {
        self.asked_at = None;
        self.asked.retain(OpenQuestion::is_wanted);
        if self.asked.is_empty() {
            return None;
        }
        self.parked_until = Some(until);
        self.waker = None;
        Some(self.asked.iter().map(|asked| asked.question.clone()).collect())
    }
}

impl ActiveCall {
    pub(super) fn new(
        number: u64,
        (request, caller): (Request, Caller),
        attempt: ClientAttempt,
        (fanout, limits, started): (Fanout, Arc<ExchangeLimits>, Time),
        CallOrigin { recovers, is_resumed, is_held }: CallOrigin,
    ) -> Arc<Self> {
        let state = ActiveCallState {
            attempt,
            generation: 1,
            parked_until: None,
            is_over: false,
            queue: VecDeque::new(),
            queue_bytes: 0,
            queue_memory: caller.share().map(|share| share.take_anyway(Resource::Memory, 0)),
            place: None,
            asked: Vec::new(),
            asked_at: None,
            questions: 0,
            progressed: None,
            reported: None,
            heard: None,
            lacking: Vec::new(),
            outcome: None,
            end: None,
            wishes: Vec::new(),
            task: None,
            listed: None,
            kept: None,
            watched: Vec::new(),
            named_tasks: None,
            is_acknowledged: false,
            waker: None,
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            number,
            request,
            caller,
            park: OnceLock::new(),
            started,
            fanout,
            limits,
            label: OnceLock::new(),
            cancellation: OnceLock::new(),
            room: Notify::new(),
            is_repeatable: OnceLock::new(),
            recovers,
            is_resumed,
            is_held,
            state: Mutex::new(state),
        })
    }

    pub(super) fn is_listen(&self) -> bool {
        self.request.method == Method::Listen
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// The call goes to another server: progress that its client already got is not reported again.
    pub(super) fn begins_again(&self) {
        let mut state = self.state.lock();
        let reported = state.reported.take();
        let heard = params::progress_value(reported.as_ref());
        state.heard = [state.heard, heard].into_iter().flatten().reduce(f64::max);
    }

    /// Ends the call after it was answered or withdrawn.
    pub(super) fn close(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_over = true;
            (std::mem::take(&mut state.asked), std::mem::take(&mut state.wishes))
        };
        drop(waiting);
        if let Some(token) = self.cancellation.get() {
            token.cancel();
        }
        self.room.notify_waiters();
    }

    /// Ends the call for a drain, a stop or an operator. False if it was over before.
    pub(super) fn end(&self, end: ForcedEnd) -> bool {
        let waker = {
            let mut state = self.state.lock();
            if state.is_over {
                return false;
            }
            state.end.get_or_insert(end);
            state.waker.take()
        };
        wake(waker);
        true
    }

    /// Takes the next message from the queue.
    pub(super) fn pop_message(&self, state: &mut ActiveCallState) -> Option<Bytes> {
        let message = state.queue.pop_front()?;
        state.queue_bytes -= message.len();
        state.count_queue();
        self.room.notify_waiters();
        Some(message)
    }

    /// Whether the call can ask its client anything.
    pub(super) fn may_ask(method: &Method) -> bool {
        matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
    }

    /// Goes on with another attempt, which may bring answers. Questions without a valid answer are asked again. Returns
    /// the attempt's generation; `None` if the call is over, or has become a task.
    pub(super) fn resume(&self, mut attempt: ClientAttempt) -> Option<u64> {
        let mut state = self.state.lock();
        // The client of a task polls the task instead.
        if state.is_over || state.task.is_some() {
            return None;
        }
        state.generation += 1;
        state.kept = None;
        state.parked_until = None;
        state.queue.clear();
        state.queue_bytes = 0;
        state.count_queue();
        state.progressed = Some(Instant::now());
        // This attempt may declare capabilities that the earlier one lacked.
        state.lacking.retain(|one| !attempt.meta.capabilities.has(one));
        let asked = std::mem::take(&mut state.asked);
        for one in asked.into_iter().filter(OpenQuestion::is_wanted) {
            let responses = attempt.responses.as_ref();
            match responses.and_then(|responses| questions::answer(responses, &one.question.key)) {
                Some(answer) => {
                    attempt.used.push(one.question.key);
                    drop(one.answer.send(Ok(answer)));
                }
                None => state.asked.push(one),
            }
        }
        let now = Instant::now();
        state.asked_at = (!state.asked.is_empty()).then_some((now, now));
        state.attempt = attempt;
        let (generation, waker) = (state.generation, state.waker.take());
        drop(state);
        wake(waker);
        // The queue is empty now, and a sender may have waited for room since the last attempt.
        self.room.notify_waiters();
        Some(generation)
    }

    /// Goes on with another connection of the same attempt. Returns its generation; `None` if the call is over, waits
    /// for the next attempt, or has become a task.
    pub(super) fn reconnect(&self, kept: &Arc<CallNote<Self>>) -> Option<u64> {
        let mut state = self.state.lock();
        let is_same = state.kept.as_ref().is_some_and(|of_now| Arc::ptr_eq(of_now, kept));
        if state.is_over || state.task.is_some() || state.parked_until.is_some() || !is_same {
            return None;
        }
        state.generation += 1;
        let (generation, waker) = (state.generation, state.waker.take());
        drop(state);
        // The old connection then leaves the call to the new one.
        wake(waker);
        Some(generation)
    }

    /// The client did not come back: answers all open questions with an error.
    pub(super) fn give_up(&self) {
        let asked = std::mem::take(&mut self.state.lock().asked);
        for one in asked {
            drop(one.answer.send(questions::expiry(&one.question.method)));
        }
    }

    /// Stores the reply for the current attempt. Returns it with the task if the call has become one.
    pub(super) fn settle(&self, outcome: Reply) -> Option<(Tasked, Reply)> {
        let waker = {
            let mut state = self.state.lock();
            if let Some(task) = &state.task {
                return Some((task.clone(), outcome));
            }
            let outcome = state.hold(outcome);
            state.outcome.get_or_insert(outcome);
            state.waker.take()
        };
        wake(waker);
        None
    }

    pub(super) fn put(
        &self,
        method: &Method,
        params: Option<&RawJson>,
    ) -> Result<oneshot::Receiver<Reply>, Reply> {
        if !Self::may_ask(&self.request.method) {
            return Err(questions::refusal(method));
        }
        let needed = capability::of_question(method, params).map_err(|error| Err(error.to_rpc()))?;
        let mut state = self.state.lock();
        if state.is_over {
            // A background job of the handler still asks: no further attempt can bring the answer.
            return Err(Err(client_gone()));
        }
        if let Err(error) = state.attempt.meta.capabilities.require(&needed) {
            let ActiveCallState { lacking, attempt, .. } = &mut *state;
            lacking.extend(needed.into_iter().filter(|one| !attempt.meta.capabilities.has(one)));
            return Err(Err(error.to_rpc()));
        }
        state.questions += 1;
        let Some((mut question, keyed)) = questions::of_server(method, params, state.questions) else {
            return Err(questions::refusal(method));
        };
        let (answer, answered) = oneshot::channel();
        if let Some(Tasked { live, .. }) = &state.task {
            let live = Arc::clone(live);
            drop(state);
            live.ask(question, answer);
            return Ok(answered);
        }
        // A key that the server chose means the same question in every attempt, so the attempt may already have the
        // answer.
        let fresh = keyed == KeyedBy::Server && !state.attempt.used.contains(&question.key);
        let here = state.attempt.responses.as_ref().filter(|_| fresh);
        if let Some(answer) = here.and_then(|responses| questions::answer(responses, &question.key)) {
            state.attempt.used.push(question.key);
            return Err(Ok(answer));
        }
        while state.asked.iter().any(|other| other.question.key == question.key) {
            question.key.push('\'');
        }
        state.asked.push(OpenQuestion { question, answer });
        let now = Instant::now();
        state.asked_at = Some((state.asked_at.map_or(now, |(first, _)| first), now));
        let waker = state.waker.take();
        drop(state);
        wake(waker);
        Ok(answered)
    }
}

impl OpenQuestion {
    /// Whether the asker still waits for the answer.
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }
}

/// The error for a question whose client is gone.
pub(super) fn client_gone() -> RpcError {
    RpcError::of(Reason::ClientGone, "The client went away before it answered")
}

/// Wakes a waiting attempt. The caller must not hold the lock of the call's state.
pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
