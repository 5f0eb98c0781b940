//! One call that is carried out for a client, as the server behind sees it.
//!
//! A call outlives an attempt if it asks its client something: the attempt ends with the questions, the call waits,
//! and goes on with the attempt that brings the answers. So whatever is said goes to the attempt of the moment.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_protocol::modern::capability::{self, Capability};
use tenure_protocol::modern::meta::Meta;
use tenure_protocol::modern::validate::Streams;
use tenure_protocol::translate::questions::{self, KeyedBy, Question};
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RpcError, params};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::budget::{Resource, Taken};
use crate::call::{Became, Caller, Fanout, TaskWish};
use crate::exchange::exchanges::Listed;
use crate::exchange::limits::ExchangeLimits;
use crate::exchange::request_state::Parked;
use crate::kept::Kept;
use crate::port::clock::Time;
use crate::task::Live;

/// A call.
pub(super) struct Work {
    /// Itself, for futures that outlive a borrow.
    pub(super) me: Weak<Self>,
    pub(super) number: u64,
    /// As the server gets it; the requests of later attempts differ in their id and in what they bring.
    pub(super) request: Request,
    pub(super) caller: Caller,
    /// Its secret name while it waits for an attempt; made with the first wait.
    pub(super) park: OnceLock<u128>,
    pub(super) started: Time,
    pub(super) fanout: Fanout,
    pub(super) limits: Arc<ExchangeLimits>,
    pub(super) label: OnceLock<Box<str>>,
    /// Made when somebody asks for it, which few calls do.
    pub(super) cancellation: OnceLock<CancellationToken>,
    /// Woken when there is room for messages again, when a listen was acknowledged, and when the call became a task.
    pub(super) room: Notify,
    /// Whether it may be carried out twice, once that was found out.
    pub(super) is_repeatable: OnceLock<bool>,
    /// The call of another process that it takes the place of.
    pub(super) recovers: Option<Parked>,
    /// Its client came back for it to another process than the one that began it.
    pub(super) is_resumed: bool,
    /// It came too late to be begun by this process: its client is to come back.
    pub(super) is_held: bool,
    pub(super) state: Mutex<State>,
}

/// What changes while a call is carried out.
pub(super) struct State {
    /// The attempt of the moment; while the call is parked, the last one.
    pub(super) attempt: Attempt,
    /// Counts attempts, so that one that was overtaken notices.
    pub(super) turn: u64,
    /// While it waits for the next attempt: until when.
    pub(super) parked_until: Option<Instant>,
    /// Nobody waits for it any more, nor ever will.
    pub(super) is_over: bool,
    /// What the attempt was not given yet.
    pub(super) said: VecDeque<Bytes>,
    pub(super) said_bytes: usize,
    /// The memory that it takes from the share of the client, with the outcome that waits for the next attempt.
    said_memory: Option<Taken>,
    /// The place that it has among the calls of the client that wait.
    pub(super) place: Option<Taken>,
    pub(super) asked: Vec<Asked>,
    /// When the first and the last of those questions were asked.
    pub(super) asked_at: Option<(Instant, Instant)>,
    questions: usize,
    pub(super) progressed: Option<Instant>,
    /// The params of the last report of progress.
    pub(super) reported: Option<RawJson>,
    /// How far its client has heard of progress from a server that was lost.
    pub(super) heard: Option<f64>,
    /// Capabilities for want of which the client was not asked.
    pub(super) lacking: Vec<Capability>,
    /// What came of it, if it is carried out by a task of its own.
    pub(super) outcome: Option<Reply>,
    /// An end from outside.
    pub(super) end: Option<End>,
    /// Wishes of the server that the call becomes a task, for the attempt of the moment to grant.
    pub(super) wishes: Vec<Wish>,
    /// The task that it became.
    pub(super) task: Option<Tasked>,
    /// Keeps that task in the list until whoever carries it out takes over.
    pub(super) listed: Option<Listed>,
    /// The note of the attempt of the moment, by which its client can come back.
    pub(super) kept: Option<Arc<Kept<Work>>>,
    /// The tasks of ours that a listen hears of.
    pub(super) watched: Vec<String>,
    /// Whether a listen has been acknowledged.
    pub(super) is_acknowledged: bool,
    /// Whoever waits for any of this.
    pub(super) waker: Option<Waker>,
}

/// An attempt of a client at a request.
pub(super) struct Attempt {
    pub(super) meta: Meta,
    pub(super) streams: Streams,
    /// The answers that it brings.
    pub(super) responses: Option<RawJson>,
    /// The keys of those that were given to the server. It may ask the same once more, and means to ask.
    pub(super) used: Vec<String>,
}

/// A question that waits for its answer.
pub(super) struct Asked {
    pub(super) question: Question,
    pub(super) answer: oneshot::Sender<Reply>,
}

/// A wish of the server that the call becomes a task, and who waits for what comes of it.
pub(super) struct Wish {
    pub(super) wish: TaskWish,
    pub(super) answer: oneshot::Sender<Result<Became, RpcError>>,
}

/// A task, and the request of the attempt that was answered with it.
#[derive(Clone)]
pub(super) struct Tasked {
    pub(super) live: Arc<Live>,
    pub(super) request: Request,
}

/// How a call ends that does not end by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The server takes its leave from a listen.
    Leave,
    /// The process stops.
    Interrupt,
    /// Its client is to come back with the same request: the next process carries it out.
    ComeBack,
    /// Its client is to come back for the rest of its stream: the next process carries it out.
    Resume,
}

/// Where a call comes from, if not from a client's first attempt in this process.
#[derive(Clone, Copy, Default)]
pub(super) struct Origin {
    /// The call of another process that it takes the place of.
    pub(super) recovers: Option<Parked>,
    /// Its client came back for it to another process than the one that began it.
    pub(super) is_resumed: bool,
    /// It came too late to be begun by this process.
    pub(super) is_held: bool,
}

impl State {
    /// Whether the client may make us hold so much that it has not read.
    pub(super) fn may_hold(&mut self, bytes: usize) -> bool {
        self.said_memory.as_mut().is_none_or(|memory| memory.resize(bytes).is_ok())
    }

    /// Counts what the client has not read, whether or not it may be as much: one message may always wait.
    pub(super) fn count_said(&mut self) {
        if let Some(memory) = &mut self.said_memory {
            memory.resize_anyway(self.said_bytes);
        }
    }

    /// Counts an outcome that waits for the next attempt. One that does not fit into the share of the client is lost: a client
    /// that is away can neither read it nor make room.
    fn hold(&mut self, outcome: Reply) -> Reply {
        let bytes =
            outcome.as_ref().map_or_else(|error| error.raw().bytes().len(), |result| result.bytes().len());
        if self.parked_until.is_none() || self.outcome.is_some() || self.may_hold(self.said_bytes + bytes) {
            return outcome;
        }
        let message = "The call has ended, but you hold as much as you may, and its result was not kept";
        Err(Error::new(Reason::TooMuchHeld, message).with("bytes", bytes).to_rpc())
    }

    /// The questions, to be answered by the next attempt. `None` if the server took all of them back.
    pub(super) fn questions(&mut self, until: Instant) -> Option<Vec<Question>> {
        self.asked_at = None;
        self.asked.retain(Asked::is_wanted);
        if self.asked.is_empty() {
            return None;
        }
        self.parked_until = Some(until);
        self.waker = None;
        Some(self.asked.iter().map(|asked| asked.question.clone()).collect())
    }
}

impl Work {
    pub(super) fn new(
        number: u64,
        (request, caller): (Request, Caller),
        attempt: Attempt,
        (fanout, limits, started): (Fanout, Arc<ExchangeLimits>, Time),
        Origin { recovers, is_resumed, is_held }: Origin,
    ) -> Arc<Self> {
        let state = State {
            attempt,
            turn: 1,
            parked_until: None,
            is_over: false,
            said: VecDeque::new(),
            said_bytes: 0,
            said_memory: caller.share().map(|share| share.take_anyway(Resource::Memory, 0)),
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

    /// The call goes to another server: progress of which its client has heard is not reported again.
    pub(super) fn begins_again(&self) {
        let mut state = self.state.lock();
        let reported = state.reported.take();
        let heard = params::progress_value(reported.as_ref());
        state.heard = [state.heard, heard].into_iter().flatten().reduce(f64::max);
    }

    /// Nobody waits for it any more: it was answered, or withdrawn.
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

    /// Ends it from outside, and says whether there was anything to end.
    pub(super) fn end(&self, end: End) -> bool {
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

    /// Takes what was said next.
    pub(super) fn take_said(&self, state: &mut State) -> Option<Bytes> {
        let said = state.said.pop_front()?;
        state.said_bytes -= said.len();
        state.count_said();
        self.room.notify_waiters();
        Some(said)
    }

    /// Whether the call can ask its client anything.
    pub(super) fn may_ask(method: &Method) -> bool {
        matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
    }

    /// Goes on with another attempt, which may bring answers. Those that it brings not, or in a shape that is none,
    /// are asked for again. Returns the attempt's turn; `None` if the call is over, or has become a task.
    pub(super) fn resume(&self, mut attempt: Attempt) -> Option<u64> {
        let mut state = self.state.lock();
        // Of a task its client hears by asking for it.
        if state.is_over || state.task.is_some() {
            return None;
        }
        state.turn += 1;
        state.kept = None;
        state.parked_until = None;
        state.said.clear();
        state.said_bytes = 0;
        state.count_said();
        state.progressed = Some(Instant::now());
        // What an earlier attempt could not do, this one perhaps can.
        state.lacking.retain(|one| !attempt.meta.capabilities.has(one));
        let asked = std::mem::take(&mut state.asked);
        for one in asked.into_iter().filter(Asked::is_wanted) {
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
        let (turn, waker) = (state.turn, state.waker.take());
        drop(state);
        wake(waker);
        // The queue is empty, and whoever waits for that may be waiting since the last attempt.
        self.room.notify_waiters();
        Some(turn)
    }

    /// Goes on with another connection of the same attempt. Returns its turn; `None` if the call is over, waits for the
    /// next attempt, or has become a task.
    pub(super) fn reconnect(&self, kept: &Arc<Kept<Self>>) -> Option<u64> {
        let mut state = self.state.lock();
        let is_same = state.kept.as_ref().is_some_and(|of_now| Arc::ptr_eq(of_now, kept));
        if state.is_over || state.task.is_some() || state.parked_until.is_some() || !is_same {
            return None;
        }
        state.turn += 1;
        let (turn, waker) = (state.turn, state.waker.take());
        drop(state);
        // The connection of before lets go of the call.
        wake(waker);
        Some(turn)
    }

    /// The client did not come back: whoever asked is told so.
    pub(super) fn give_up(&self) {
        let asked = std::mem::take(&mut self.state.lock().asked);
        for one in asked {
            drop(one.answer.send(questions::expiry(&one.question.method)));
        }
    }

    /// What came of it, for the attempt of the moment; given back if it is a task by now.
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
            // Of a task that its handler left behind: there will be no attempt that could bring the answer.
            return Err(Err(client_gone()));
        }
        if let Err(error) = state.attempt.meta.capabilities.require(&needed) {
            let State { lacking, attempt, .. } = &mut *state;
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
        // A key that the server chose means the same in every attempt, so an answer may be here already.
        let fresh = keyed == KeyedBy::Server && !state.attempt.used.contains(&question.key);
        let here = state.attempt.responses.as_ref().filter(|_| fresh);
        if let Some(answer) = here.and_then(|responses| questions::answer(responses, &question.key)) {
            state.attempt.used.push(question.key);
            return Err(Ok(answer));
        }
        while state.asked.iter().any(|other| other.question.key == question.key) {
            question.key.push('\'');
        }
        state.asked.push(Asked { question, answer });
        let now = Instant::now();
        state.asked_at = Some((state.asked_at.map_or(now, |(first, _)| first), now));
        let waker = state.waker.take();
        drop(state);
        wake(waker);
        Ok(answered)
    }
}

impl Asked {
    /// Whether whoever asked still waits for the answer.
    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }
}

/// The answer to a question that nobody can answer any more.
pub(super) fn client_gone() -> RpcError {
    RpcError::of(Reason::ClientGone, "The client went away before it answered")
}

/// Never under the lock of the one that it wakes.
pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
