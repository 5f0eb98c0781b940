//! The requests of many exchanges on their way to one child, and what it says to each.
//!
//! Every request has a number of ours, which is its id towards the child and, if the client wants to hear of progress,
//! part of a token of ours. What comes back is put where it belongs: a response by its id, progress by its token, news
//! by the listen that it names. A log message names nothing: it is the only request's in flight that wants any, or
//! nobody's. Each request has a queue of its own, so that none waits for another's client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tenure_session::bridge::probe::Answer;
use tenure_session::bridge::rules::news;
use tenure_session::call::CallContext;
use tenure_session::exchange::meta::{LOG_LEVEL, SUBSCRIPTION};
use tenure_session::message::{self, Message, Notification, Request, Response};
use tenure_session::port::backend::Call;
use tenure_session::{Method, RawJson, Reason, RequestId, RpcError, rules};
use tokio::sync::{Notify, mpsc, oneshot};

use super::super::pipes::Ear;
use super::super::splice::{self, Marks};
use crate::traffic::{gone, line};

/// What may wait for one request's client. Beyond that, progress and the like is dropped, and a listen ends.
const NEWS: usize = 256;

pub(super) struct Traffic {
    /// Lines to the child.
    out: mpsc::Sender<Bytes>,
    label: Box<str>,
    next: AtomicU64,
    state: Mutex<State>,
    /// Told when the last request has left.
    quiet: Notify,
}

#[derive(Default)]
struct State {
    calls: HashMap<u64, Waiting>,
    /// Nothing more is taken; what is there may still be answered.
    is_closed: bool,
}

/// A request in flight.
struct Waiting {
    /// The client's id for it.
    id: RequestId,
    is_listen: bool,
    wants_logs: bool,
    marks: Option<Marks>,
    news: mpsc::Sender<Said>,
    answer: oneshot::Sender<Answer>,
}

/// Something that belongs to a request.
type Said = (Method, Option<RawJson>);

/// A request on its way. It is forgotten when this is dropped, and withdrawn if there is no answer yet.
struct Sent<'a> {
    traffic: &'a Traffic,
    number: u64,
    /// The child has heard of it, or will.
    is_taken: bool,
}

impl Traffic {
    pub(super) fn new(out: mpsc::Sender<Bytes>, label: &str) -> Arc<Self> {
        let (next, state, quiet) = (AtomicU64::new(1), Mutex::default(), Notify::new());
        Arc::new(Self { out, label: label.into(), next, state, quiet })
    }

    /// Carries a request; everything but its id and its token passes as it is. `None`: the child did not take it.
    ///
    /// # Cancel safety
    /// A request that nobody waits for is withdrawn.
    pub(super) async fn carry(&self, Call { request, context }: &Call) -> Option<Answer> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (params, marks) = match splice::marked(request.params.clone(), number) {
            Ok(marked) => marked,
            Err(error) => return Some(Answer::NotAsked(error)),
        };
        let (news, mut heard) = mpsc::channel(NEWS);
        let (answer, mut answered) = oneshot::channel();
        let level = params.as_ref().and_then(|params| splice::in_meta(params, LOG_LEVEL));
        let waiting = Waiting {
            id: request.id.clone(),
            is_listen: request.method == Method::Listen,
            wants_logs: level.is_some_and(|level| level.get() != "null"),
            marks,
            news,
            answer,
        };
        let mut sent = self.enter(number, waiting)?;
        let id = RequestId::from_number(number);
        let text = line(&message::write_request(&id, &request.method, params.as_ref()));
        tokio::select! {
            biased;
            // The child is gone before there was room for it.
            _ = &mut answered => return None,
            taken = self.out.send(text) => if taken.is_err() {
                // It takes nothing any more, though it may go on answering.
                self.close();
                return None;
            },
        }
        sent.is_taken = true;
        let answer = loop {
            tokio::select! {
                biased;
                Some(said) = heard.recv() => tell(context, said).await,
                answer = &mut answered => break answer,
            }
        };
        // What was said before the answer is heard before it.
        while let Ok(said) = heard.try_recv() {
            tell(context, said).await;
        }
        Some(answer.unwrap_or_else(|_| Answer::Nothing(gone())))
    }

    fn enter(&self, number: u64, waiting: Waiting) -> Option<Sent<'_>> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        state.calls.insert(number, waiting);
        Some(Sent { traffic: self, number, is_taken: false })
    }

    /// Takes a request out, if it is still there.
    fn take(&self, number: u64) -> Option<Waiting> {
        let mut state = self.state.lock();
        let waiting = state.calls.remove(&number)?;
        if state.calls.is_empty() {
            self.quiet.notify_one();
        }
        Some(waiting)
    }

    /// Resolves when there was no request for this long; there will be none then.
    pub(super) async fn unused_for(&self, idle: Duration) {
        loop {
            let seen = self.next.load(Ordering::Relaxed);
            if !self.state.lock().calls.is_empty() {
                self.quiet.notified().await;
                continue;
            }
            tokio::time::sleep(idle).await;
            let mut state = self.state.lock();
            if state.calls.is_empty() && self.next.load(Ordering::Relaxed) == seen {
                state.is_closed = true;
                return;
            }
        }
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    fn answered(&self, Response { id, outcome }: Response) {
        let Some(waiting) = number_of(id.raw()).and_then(|number| self.take(number)) else {
            return tracing::debug!(label = &*self.label, ?id, "an answer nobody waits for");
        };
        let outcome = match waiting.is_listen {
            // It names the listen by our number.
            true => outcome.map(|result| splice::replace_in_meta(&result, SUBSCRIPTION, waiting.id.raw())),
            false => outcome,
        };
        waiting.answer(Answer::Said(outcome));
    }

    fn told(&self, Notification { method, params }: Notification) {
        match method {
            Method::Progress => self.progress(params.as_ref()),
            Method::LogMessage => match self.only_one_for_logs() {
                Some(number) => self.pass_on(number, method, params),
                None => {
                    tracing::debug!(
                        label = &*self.label,
                        "a log message, and nobody can tell whose it is; dropped"
                    );
                }
            },
            Method::Cancelled => self.ended(params.as_ref()),
            _ => self.news(method, params),
        }
    }

    fn progress(&self, params: Option<&RawJson>) {
        let Some(params) = params else { return };
        let Some((number, said)) = splice::Token::read(params) else { return };
        let own = self.state.lock().calls.get(&number).and_then(|waiting| {
            // A request without a token of its client's has none of ours either.
            let marks = waiting.marks.as_ref().filter(|marks| marks.ours == said)?;
            Some(marks.own.clone())
        });
        if let Some(own) = own {
            self.pass_on(number, Method::Progress, Some(splice::unmark(params, &own)));
        }
    }

    /// The only request in flight that wants log messages.
    fn only_one_for_logs(&self) -> Option<u64> {
        let state = self.state.lock();
        let mut wanting = state.calls.iter().filter(|(_, waiting)| waiting.wants_logs);
        match (wanting.next(), wanting.next()) {
            (Some((number, _)), None) => Some(*number),
            _ => None,
        }
    }

    /// The server has ended a listen. It should answer it instead, or before, but may do only this.
    fn ended(&self, params: Option<&RawJson>) {
        let number = rules::cancelled_id(params).and_then(|id| number_of(id.raw()));
        let Some(number) = number.filter(|number| self.is_listen(*number)) else { return };
        if let Some(waiting) = self.take(number) {
            let end = news::end(&waiting.id);
            waiting.answer(Answer::Said(Ok(end)));
        }
    }

    /// What belongs to a listen.
    fn news(&self, method: Method, params: Option<RawJson>) {
        let named = params.as_ref().and_then(|params| splice::in_meta(params, SUBSCRIPTION));
        let number = named.and_then(listen_of);
        let own = number.and_then(|number| {
            let state = self.state.lock();
            state.calls.get(&number).filter(|waiting| waiting.is_listen).map(|waiting| waiting.id.clone())
        });
        match (number, params, own) {
            (Some(number), Some(params), Some(own)) => {
                self.pass_on(number, method, Some(splice::replace_in_meta(&params, SUBSCRIPTION, own.raw())));
            }
            _ => tracing::debug!(label = &*self.label, %method, "news for nobody; dropped"),
        }
    }

    fn is_listen(&self, number: u64) -> bool {
        self.state.lock().calls.get(&number).is_some_and(|waiting| waiting.is_listen)
    }

    /// Puts something into a request's queue. A listen that is behind ends, since its client would not know what it
    /// has missed.
    fn pass_on(&self, number: u64, method: Method, params: Option<RawJson>) {
        let news = self.state.lock().calls.get(&number).map(|waiting| waiting.news.clone());
        let Some(Err(mpsc::error::TrySendError::Full((method, _)))) =
            news.map(|news| news.try_send((method, params)))
        else {
            return;
        };
        if !self.is_listen(number) {
            return tracing::debug!(label = &*self.label, %method, "a client is behind; dropped a message");
        }
        if let Some(waiting) = self.take(number) {
            self.cancel(number);
            let error = RpcError::of(Reason::SlowReader, "The client does not read what it listens to");
            waiting.answer(Answer::Nothing(error));
        }
    }

    /// There are no questions in this era. A child that does not read either gets no answer.
    fn refuse(&self, Request { id, method, .. }: &Request) {
        let reply = match method {
            Method::Ping => Ok(RawJson::EMPTY_OBJECT),
            _ => Err(RpcError::of(Reason::MethodNotFound, format!("{method}: nobody can be asked here"))),
        };
        let _ = self.out.try_send(line(&message::write_response(id, &reply)));
    }

    fn cancel(&self, number: u64) {
        let id = RequestId::from_number(number);
        let text = line(&message::write_cancelled(&id, "nobody waits for the answer any more"));
        let Err(mpsc::error::TrySendError::Full(text)) = self.out.try_send(text) else { return };
        // Not waited for here, but said: nothing else would stop it.
        let out = self.out.clone();
        #[expect(clippy::disallowed_methods, reason = "ends when the child takes it, or takes nothing more")]
        tokio::spawn(async move { drop(out.send(text).await) });
    }
}

async fn tell(context: &CallContext, (method, params): Said) {
    if let Err(error) = context.notify(&method, params.as_ref()).await {
        tracing::debug!(%method, %error, "could not pass a message on");
    }
}

/// One of our numbers.
fn number_of(raw: &[u8]) -> Option<u64> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// The number of the listen that news names. Some write every id as a text.
fn listen_of(named: &RawValue) -> Option<u64> {
    number_of(named.get().trim_matches('"').as_bytes())
}

impl Waiting {
    fn answer(self, answer: Answer) {
        // Whoever asked may have left.
        drop(self.answer.send(answer));
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if self.traffic.take(self.number).is_some() && self.is_taken {
            self.traffic.cancel(self.number);
        }
    }
}

impl Ear for Traffic {
    async fn hear(&self, message: Message) {
        match message {
            Message::Response(response) => self.answered(response),
            Message::Notification(notification) => self.told(notification),
            Message::Request(request) => self.refuse(&request),
        }
    }

    fn answer_is_too_long(&self, number: u64) {
        if let Some(waiting) = self.take(number) {
            let words = "The server's answer is longer than a line may be";
            waiting.answer(Answer::Nothing(RpcError::of(Reason::EventTooLarge, words)));
        }
    }

    fn lose(&self) {
        let calls = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.calls)
        };
        for (_, waiting) in calls {
            waiting.answer(Answer::Nothing(gone()));
        }
    }

    fn label(&self) -> String {
        self.label.to_string()
    }
}
