//! One call that is carried out for a client, as the server behind sees it.
//!
//! A call outlives an attempt if it asks its client something: the attempt ends with the questions, the call waits,
//! and goes on with the attempt that brings the answers. So whatever is said goes to the attempt of the moment.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::capability::{self, Capability};
use super::ladder::Streams;
use super::limits::ExchangeLimits;
use super::meta::{Level, Meta};
use crate::bridge::rules::edit::{self, Object};
use crate::bridge::rules::questions::{self, KeyedBy, Question};
use crate::call::{Became, Fanout, News, Stage, TaskWish};
use crate::error::{Error, Reason, RpcError};
use crate::id::{Principal, Route};
use crate::message::{self, RawJson, Request};
use crate::method::Method;
use crate::port::BoxFuture;
use crate::port::backend::Reply;
use crate::port::clock::Time;
use crate::protocol::{MODERN, Revision};
use crate::rules;
use crate::task::Live;

/// A call.
pub(super) struct Work {
    /// Itself, for futures that outlive a borrow.
    me: Weak<Self>,
    pub(super) number: u64,
    pub(super) method: Method,
    pub(super) principal: Principal,
    /// Its secret name while it waits for an attempt; made with the first wait.
    pub(super) park: OnceLock<u128>,
    pub(super) started: Time,
    pub(super) fanout: Fanout,
    pub(super) limits: Arc<ExchangeLimits>,
    label: OnceLock<Box<str>>,
    /// Made when somebody asks for it, which few calls do.
    cancellation: OnceLock<CancellationToken>,
    /// Woken when there is room for messages again, when a listen was acknowledged, and when the call became a task.
    pub(super) room: Notify,
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
    pub(super) asked: Vec<Asked>,
    /// When the first and the last of those questions were asked.
    pub(super) asked_at: Option<(Instant, Instant)>,
    questions: usize,
    pub(super) progressed: Option<Instant>,
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
}

impl State {
    /// The questions, to be answered by the next attempt.
    pub(super) fn questions(&mut self, until: Instant) -> Vec<Question> {
        self.asked_at = None;
        self.parked_until = Some(until);
        self.waker = None;
        self.asked.iter().map(|asked| asked.question.clone()).collect()
    }
}

impl Work {
    pub(super) fn new(
        number: u64,
        (method, principal): (Method, Principal),
        attempt: Attempt,
        (fanout, limits, started): (Fanout, Arc<ExchangeLimits>, Time),
    ) -> Arc<Self> {
        let state = State {
            attempt,
            turn: 1,
            parked_until: None,
            is_over: false,
            said: VecDeque::new(),
            asked: Vec::new(),
            asked_at: None,
            questions: 0,
            progressed: None,
            lacking: Vec::new(),
            outcome: None,
            end: None,
            wishes: Vec::new(),
            task: None,
            watched: Vec::new(),
            is_acknowledged: false,
            waker: None,
        };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            number,
            method,
            principal,
            park: OnceLock::new(),
            started,
            fanout,
            limits,
            label: OnceLock::new(),
            cancellation: OnceLock::new(),
            room: Notify::new(),
            state: Mutex::new(state),
        })
    }

    pub(super) fn is_listen(&self) -> bool {
        self.method == Method::Listen
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

    /// Ends it from outside.
    pub(super) fn end(&self, end: End) {
        let waker = {
            let mut state = self.state.lock();
            state.end.get_or_insert(end);
            state.waker.take()
        };
        wake(waker);
    }

    /// Takes what was said next.
    pub(super) fn take_said(&self, state: &mut State) -> Option<Bytes> {
        let said = state.said.pop_front()?;
        self.room.notify_waiters();
        Some(said)
    }

    /// Whether the call can ask its client anything.
    pub(super) fn may_ask(method: &Method) -> bool {
        matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead)
    }

    /// Goes on with another attempt, which may bring answers. Those that it brings not, or in a shape that is none,
    /// are asked for again. Returns the attempt's turn; `None` if the call is over.
    pub(super) fn resume(&self, attempt: Attempt) -> Option<u64> {
        let mut state = self.state.lock();
        if state.is_over {
            return None;
        }
        state.turn += 1;
        state.parked_until = None;
        state.said.clear();
        state.progressed = Some(Instant::now());
        if let Some(responses) = &attempt.responses {
            let asked = std::mem::take(&mut state.asked);
            for one in asked {
                match questions::answer(responses, &one.question.key) {
                    // Whoever asked may have given up since.
                    Some(answer) => drop(one.answer.send(Ok(answer))),
                    None => state.asked.push(one),
                }
            }
        }
        let now = Instant::now();
        state.asked_at = (!state.asked.is_empty()).then_some((now, now));
        state.attempt = attempt;
        let (turn, waker) = (state.turn, state.waker.take());
        drop(state);
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
            state.outcome.get_or_insert(outcome);
            state.waker.take()
        };
        wake(waker);
        None
    }

    /// What becomes of a notification of the server.
    fn sort(&self, method: &Method, params: Option<&RawJson>) -> Option<Bytes> {
        if self.is_listen() {
            let params = match method {
                Method::Acknowledged => self.with_watched(params),
                _ => None,
            }
            .or_else(|| params.cloned());
            return is_news(method).then(|| message::write_notification(method, params.as_ref()));
        }
        match method {
            Method::Progress => {
                let mut state = self.state.lock();
                state.progressed = Some(Instant::now());
                let token = state.attempt.meta.token.as_ref()?;
                Some(message::write_notification(method, Some(&with_token(params?, token))))
            }
            Method::LogMessage => {
                let Some(Level::From(wanted)) = self.state.lock().attempt.meta.level else { return None };
                let is_wanted = rules::log_level(params).is_none_or(|level| level >= wanted);
                is_wanted.then(|| message::write_notification(method, params))
            }
            Method::ToolsListChanged => self.tell(News::Tools),
            Method::PromptsListChanged => self.tell(News::Prompts),
            Method::ResourcesListChanged => self.tell(News::Resources),
            Method::ResourceUpdated => {
                if let Some(uri) = rules::subscription_uri(params) {
                    self.fanout.resource_updated(&uri);
                }
                None
            }
            method => {
                tracing::debug!(%method, "dropped: it belongs to no exchange");
                None
            }
        }
    }

    /// News is no part of the answer to a request; it goes to whoever listens.
    fn tell(&self, news: News) -> Option<Bytes> {
        self.fanout.list_changed(news);
        None
    }

    /// Puts a message in front of the reader; `Err` with it if there is no room.
    fn say(&self, message: Bytes) -> Result<(), Bytes> {
        let mut state = self.state.lock();
        if state.is_over
            || state.task.is_some()
            || state.parked_until.is_some()
            || state.attempt.streams == Streams::No
            || state.end.is_some()
        {
            // Nobody is there to hear it.
            return Ok(());
        }
        if state.said.len() >= self.limits.max_waiting {
            return Err(message);
        }
        state.said.push_back(message);
        // What comes first on a listen is its acknowledgement.
        let acknowledges = self.is_listen() && !std::mem::replace(&mut state.is_acknowledged, true);
        let waker = state.waker.take();
        drop(state);
        if acknowledges {
            self.room.notify_waiters();
        }
        wake(waker);
        Ok(())
    }

    fn put(&self, method: &Method, params: Option<&RawJson>) -> Result<oneshot::Receiver<Reply>, Reply> {
        if !Self::may_ask(&self.method) {
            return Err(questions::refusal(method));
        }
        let needed = capability::of_question(method, params).map_err(|error| Err(error.to_rpc()))?;
        let mut state = self.state.lock();
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
        let here = state.attempt.responses.as_ref().filter(|_| keyed == KeyedBy::Server);
        if let Some(answer) = here.and_then(|responses| questions::answer(responses, &question.key)) {
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

impl Work {
    /// The params of an acknowledgement with the tasks of ours that the listen hears of.
    fn with_watched(&self, params: Option<&RawJson>) -> Option<RawJson> {
        let ids = RawJson::of(&Some(&self.state.lock().watched).filter(|ids| !ids.is_empty())?);
        let mut object = Object::read(edit::text(params?))?;
        let mut heard = object.get("notifications").and_then(Object::read)?;
        heard.set("taskIds", edit::text(&ids));
        let heard = heard.write().into_owned();
        object.set("notifications", heard);
        Some(RawJson::trusted(object.write().into_owned()))
    }
}

/// The params of a progress report under the token of the attempt that hears it.
fn with_token(params: &RawJson, token: &RawJson) -> RawJson {
    let Some(mut object) = Object::read(edit::text(params)) else { return params.clone() };
    if object.get("progressToken") == Some(edit::text(token)) {
        return params.clone();
    }
    object.set("progressToken", edit::text(token));
    edit::kept(params, object.write())
}

/// What may come on the stream of a listen.
fn is_news(method: &Method) -> bool {
    matches!(
        method,
        Method::Acknowledged
            | Method::ToolsListChanged
            | Method::PromptsListChanged
            | Method::ResourcesListChanged
            | Method::ResourceUpdated
            | Method::TaskChanged
    )
}

/// Never under the lock of the one that it wakes.
pub(super) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Stage for Work {
    fn notify(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<(), Error>> {
        let done = |result| Box::pin(std::future::ready(result));
        let Some(message) = self.sort(method, params) else { return done(Ok(())) };
        let limit = self.limits.max_event_bytes;
        if message.len() > limit {
            let error = Error::new(Reason::EventTooLarge, format!("A message is larger than {limit} bytes"));
            return done(Err(error.with("limit", limit)));
        }
        let Err(message) = self.say(message) else { return done(Ok(())) };
        let me = Weak::clone(&self.me);
        Box::pin(async move {
            let gone = || Error::new(Reason::Cancelled, "The request is over");
            let mut message = message;
            loop {
                let me = me.upgrade().ok_or_else(gone)?;
                let room = me.room.notified();
                tokio::pin!(room);
                // Before the queue is looked at, so that the reader's next step is not missed.
                room.as_mut().enable();
                if me.state.lock().is_over {
                    return Err(gone());
                }
                match me.say(message) {
                    Ok(()) => return Ok(()),
                    Err(back) => message = back,
                }
                room.await;
            }
        })
    }

    fn ask(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<RawJson, RpcError>> {
        match self.put(method, params) {
            Err(reply) => Box::pin(std::future::ready(reply)),
            Ok(answered) => Box::pin(async move {
                answered.await.unwrap_or_else(|_| {
                    Err(RpcError::of(Reason::ClientGone, "The client went away before it answered"))
                })
            }),
        }
    }

    fn cancellation(&self) -> CancellationToken {
        let token = self.cancellation.get_or_init(CancellationToken::new).clone();
        // It may have been over before there was a token.
        if self.state.lock().is_over {
            token.cancel();
        }
        token
    }

    fn capabilities(&self) -> RawJson {
        self.state.lock().attempt.meta.capabilities.raw().clone()
    }

    fn client_info(&self) -> Option<RawJson> {
        self.state.lock().attempt.meta.info.clone()
    }

    fn protocol(&self) -> &'static str {
        MODERN
    }

    fn revision(&self) -> Revision {
        Revision::LATEST
    }

    fn timeout(&self) -> Duration {
        self.limits.request_timeout
    }

    fn started(&self) -> Time {
        self.started
    }

    fn label(&self) -> &str {
        self.label.get_or_init(|| format!("x-{}", self.number).into())
    }

    fn route(&self) -> &Route {
        self.fanout.route()
    }

    fn become_task(&self, wish: TaskWish) -> BoxFuture<Result<Became, RpcError>> {
        match self.wish(wish) {
            Err(became) => Box::pin(std::future::ready(Ok(became))),
            Ok(answered) => Box::pin(async move {
                let gone = |_| RpcError::of(Reason::ClientGone, "The client went away");
                answered.await.map_err(gone)?
            }),
        }
    }
}
