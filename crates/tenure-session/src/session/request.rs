//! A request from the client: admitted, carried to the backend, answered.
//!
//! The answer is JSON if it is the first thing to say and comes soon; otherwise the request becomes a
//! stream. The backend's future is polled in place by the connection that brought the request. If that
//! connection goes away, or the request has become a stream, the future moves to a tracked task: a
//! client that hangs up has not cancelled anything.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::params::{self, LogLevel};
use tenure_protocol::{
    Error, Message, Method, RawJson, Reason, Reply, Request, RequestId, RpcError, message,
};
use tokio::time::{Instant, Sleep};

use crate::backend::{Call, Link};
use crate::call::{CallContext, Caller, Collect};
use crate::id::{Position, StreamId};
use crate::port::BoxFuture;
use crate::port::store::Place;
use crate::session::backlog::{self, Noted};
use crate::session::drain::{self, draining};
use crate::session::phase::Phase;
use crate::session::reader::{Reader, too_many_streams};
use crate::session::relink::{self, Placed};
use crate::session::rules::{self, Admission};
use crate::session::session::{InFlight, Session, State};
use crate::session::stream::{Stream, too_large};

/// The longest uri that can be watched; it is kept as long as the session.
const MAX_URI_BYTES: usize = 8 << 10;

/// What a POST is answered with.
#[derive(Debug)]
pub enum Answer {
    /// One message, as JSON.
    Json(Bytes),
    /// A stream.
    Stream(Reader),
    /// Nothing: the client withdrew the request.
    Withdrawn,
}

/// What the session remembers when a request succeeds.
enum Afterwards {
    Nothing,
    Subscribe(Box<str>),
    Unsubscribe(Box<str>),
    SetLevel(LogLevel),
}

impl Session {
    /// Answers a request of the client.
    ///
    /// # Errors
    /// When the request is not admitted: the session is over, a limit is reached, the id is in use.
    ///
    /// # Cancel safety
    /// A request that was admitted goes on when this future is dropped.
    pub async fn request(self: &Arc<Self>, request: Request, caller: Caller) -> Result<Answer, Error> {
        self.touch();
        let id = request.id.clone();
        match self.admit(request, caller, None)? {
            Admitted::Runs(run) => Ok(Waiting { run: Some(run), soon: None }.await),
            Admitted::Done => Ok(Answer::Json(message::write_result(&id, &RawJson::EMPTY_OBJECT))),
            Admitted::Held(reader) => {
                self.flush();
                Ok(Answer::Stream(reader))
            }
        }
    }

    /// Answers an array of messages; all responses come on one stream.
    ///
    /// # Errors
    /// As for a single request; a batch of notifications and answers alone is `Ok(None)`.
    pub fn batch(self: &Arc<Self>, messages: Vec<Message>, caller: &Caller) -> Result<Option<Answer>, Error> {
        self.touch();
        let share = self.open_stream(&messages)?;
        // Attached before anything is answered, so that nothing can complete and be forgotten before.
        let reader = share.map(|stream| self.reader_of(stream));
        for message in messages {
            match (message, share) {
                (Message::Request(request), Some(stream)) => self.batch_request(request, caller, stream),
                (Message::Request(_), None) => {}
                (Message::Notification(notification), _) => self.notification(notification)?,
                (Message::Response(response), _) => self.response(response)?,
            }
        }
        self.flush();
        Ok(reader.map(Answer::Stream))
    }

    fn batch_request(self: &Arc<Self>, request: Request, caller: &Caller, stream: StreamId) {
        let id = request.id.clone();
        let reply = match self.admit(request, caller.clone(), Some(stream)) {
            Ok(Admitted::Runs(run)) => {
                self.inner.tasks.spawn(run.run_alone());
                return;
            }
            Ok(Admitted::Done) => Ok(RawJson::EMPTY_OBJECT),
            // Requests of a batch are refused instead.
            Ok(Admitted::Held(_)) => return,
            Err(error) => Err(error.to_rpc()),
        };
        let body = message::write_response(&id, &reply);
        self.answer_on(&mut self.state.lock(), stream, &id, body);
        self.flush();
    }

    fn open_stream(self: &Arc<Self>, messages: &[Message]) -> Result<Option<StreamId>, Error> {
        let request = |message: &Message| match message {
            Message::Request(request) => Some(Noted::of(request)),
            Message::Notification(_) | Message::Response(_) => None,
        };
        let requests: Vec<Noted> = messages.iter().filter_map(request).collect();
        if requests.is_empty() {
            return Ok(None);
        }
        let note = backlog::note_of(&requests);
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        if state.count_streams() >= self.inner.limits.max_streams {
            return Err(too_many_streams(self.inner.limits.max_streams));
        }
        let id = StreamId::new(state.next_stream);
        let stream = Stream { open: requests.len(), requests, ..Stream::default() };
        self.begin_stream(&mut state, id, stream, note);
        Ok(Some(id))
    }

    fn reader_of(self: &Arc<Self>, stream: StreamId) -> Reader {
        self.reader(&mut self.state.lock(), stream, Some(Position::START))
    }

    /// Takes a request in.
    fn admit(
        self: &Arc<Self>,
        request: Request,
        caller: Caller,
        stream: Option<StreamId>,
    ) -> Result<Admitted, Error> {
        params::check_progress_token(request.params.as_ref())?;
        let now = self.inner.clock.now();
        let limits = &self.inner.limits;
        let afterwards = afterwards(&request);
        let (link, number) = {
            let mut state = self.state.lock();
            self.check_alive(&state)?;
            state.requests += 1;
            match rules::admit_request(state.phase, &request)? {
                Admission::Pong => {
                    let echoes = || state.link.as_ref().is_some_and(|link| link.echoes_cookies());
                    // Answered here, unless the answer has to bring back a cookie.
                    if state.phase != Phase::Initialized
                        || !params::has_meta(request.params.as_ref())
                        || !echoes()
                    {
                        return Ok(Admitted::Done);
                    }
                }
                Admission::Forward => {}
            }
            if state.running >= limits.max_pending {
                return Err(Error::new(
                    Reason::TooManyRequests,
                    "The session has as many requests in flight as it may",
                )
                .with("limit", limits.max_pending));
            }
            if stream.is_none() && state.count_streams() >= limits.max_streams {
                return Err(too_many_streams(limits.max_streams));
            }
            if let Afterwards::Subscribe(uri) = &afterwards
                && uri.len() > MAX_URI_BYTES
            {
                return Err(
                    Error::new(Reason::InvalidParams, "The uri is too long").with("limit", MAX_URI_BYTES)
                );
            }
            if let Afterwards::Subscribe(uri) = &afterwards
                && state.subscriptions.len() >= limits.max_subscriptions
                && !state.subscriptions.contains(uri)
            {
                let error = Error::new(
                    Reason::TooManySubscriptions,
                    "The session watches as many resources as it may",
                );
                return Err(error.with("limit", limits.max_subscriptions));
            }
            if state.calls.contains_key(&request.id) {
                return Err(Error::new(
                    Reason::DuplicateRequestId,
                    "A request with this id is already in flight",
                ));
            }
            // Looked at under the lock: a stop that holds requests back finds this one in flight, or it is held.
            let stage = self.inner.stage();
            let is_alone = stream.is_none() && caller.collect == Collect::Resumes;
            if stage >= drain::Stage::Holding {
                return self.hold(&mut state, request, is_alone, stage).map(Admitted::Held);
            }
            // One that began now could be cut off at the end of the stop, though it is shorter than the grace.
            if stage != drain::Stage::Open
                && self.can_hold(&state, is_alone)
                && !self.is_known_to_be_safe(&request)
            {
                return self.hold(&mut state, request, is_alone, stage).map(Admitted::Held);
            }
            // A session that lost its server gets another one; the request waits for it, in flight like any other.
            let link = self.link_in(&state);
            if link.is_none() && !self.is_unlinked() {
                let what = "The session has no server behind it";
                return Err(Error::new(Reason::BackendUnavailable, what));
            }
            state.next_call += 1;
            state.running += 1;
            let number = state.next_call;
            let call = InFlight {
                number,
                method: request.method.clone(),
                params: request.params.clone(),
                started: now,
                stream,
                waiter: None,
                cancel: None,
                progressed: None,
                quiet_since: None,
                progress_floor: None,
                is_again: false,
                is_late: self.inner.stage() != drain::Stage::Open,
                is_held: false,
                collect: caller.collect,
                asking: 0,
                said_bytes: 0,
            };
            state.calls.insert(request.id.clone(), call);
            (link, number)
        };
        let context = CallContext::new(Arc::clone(self), &request, number, caller, now);
        Ok(Admitted::Runs(self.launch(Call { request, context }, number, link)))
    }

    /// Notes a request for the next process, which runs it, and sends its client there. The caller flushes.
    fn hold(
        self: &Arc<Self>,
        state: &mut State,
        request: Request,
        is_alone: bool,
        stage: drain::Stage,
    ) -> Result<Reader, Error> {
        if !self.can_hold(state, is_alone) {
            return Err(draining());
        }
        let note = backlog::held_note(&request);
        let stream = StreamId::new(state.next_stream);
        state.next_call += 1;
        let call = InFlight {
            number: state.next_call,
            method: request.method,
            params: request.params,
            started: self.inner.clock.now(),
            stream: Some(stream),
            waiter: None,
            cancel: None,
            progressed: None,
            quiet_since: None,
            progress_floor: None,
            is_again: false,
            is_late: true,
            is_held: true,
            collect: Collect::Resumes,
            asking: 0,
            said_bytes: 0,
        };
        state.calls.insert(request.id, call);
        self.begin_stream(state, stream, Stream { open: 1, ..Stream::default() }, note);
        let reader = self.reader(state, stream, Some(Position::START));
        // Until then this process can still say when it is time to come back.
        if stage >= drain::Stage::Holding
            && let Some(slot) = state.streams.get_mut(&stream).and_then(|stream| stream.reader.as_mut())
        {
            slot.closing = Some(self.stop_retry(stream));
        }
        Ok(reader)
    }

    /// Whether a request can be left to the next process without being begun.
    fn can_hold(&self, state: &State, is_alone: bool) -> bool {
        is_alone && !state.left && state.revision.primes_streams() && self.inner.outlives_us()
    }

    /// Sends a request to the server behind the given link, or makes it wait for a server.
    fn launch(self: &Arc<Self>, call: Call, number: u64, link: Option<(Arc<dyn Link>, u64)>) -> Run {
        // From here on `Run` answers for the call, also if the backend panics while starting it.
        let mut run = Run::new(self, call.request.id.clone(), number);
        match link {
            Some((link, link_number)) => run.start(link.as_ref(), link_number, call),
            None => run.stage = Stage::Waits(self.place(call, number)),
        }
        run
    }

    /// Sends a request once more that was open when the process ended; its answer goes to its stream.
    pub(super) fn run_again(self: &Arc<Self>, request: Request, number: u64) {
        let now = self.inner.clock.now();
        let link = {
            let mut state = self.state.lock();
            // The client may have withdrawn it meanwhile.
            if state.calls.get(&request.id).is_none_or(|call| call.number != number) {
                return;
            }
            state.running += 1;
            self.link_in(&state)
        };
        tracing::info!(session = %self.label, request = ?request.id, method = %request.method, "run again after a restart");
        let caller = Caller { principal: self.owner.clone(), ..Caller::anonymous("wake") };
        let context = CallContext::new(Arc::clone(self), &request, number, caller, now);
        let run = self.launch(Call { request, context }, number, link);
        self.inner.tasks.spawn(run.run_alone());
    }

    /// Takes the backend's answer. Gives it back as JSON if the request has not become a stream.
    fn answered(self: &Arc<Self>, run: &Run, reply: &Reply) -> Outcome {
        let mut state = self.state.lock();
        // What was left to the next process is answered there.
        let is_wanted = state.calls.get(&run.id).is_some_and(|call| call.number == run.number) && !state.left;
        if !is_wanted {
            drop(state);
            tracing::debug!(session = %self.label, request = ?run.id, "dropped the answer to a request nobody waits for");
            return Outcome::Dropped;
        }
        let Some(call) = state.calls.remove(&run.id) else { return Outcome::Dropped };
        state.errors += u64::from(reply.is_err());
        let mut body = message::write_response(&run.id, reply);
        let limit = self.inner.limits.max_event_bytes;
        if body.len() > limit {
            body = message::write_error(Some(&run.id), &too_large(body.len(), limit).to_rpc());
        }
        match call.stream {
            None => Outcome::Json(body),
            Some(stream) => {
                self.answer_on(&mut state, stream, &run.id, body);
                drop(state);
                self.flush();
                Outcome::OnStream(stream)
            }
        }
    }

    /// Puts a response on a stream; the last one completes it.
    pub(super) fn answer_on(&self, state: &mut State, id: StreamId, request: &RequestId, body: Bytes) {
        let place = if state.answered_one(id, request) { Place::End } else { Place::Middle };
        self.push(state, id, body, place);
    }

    /// Remembers what a request has changed, now that its server agrees.
    fn take_note(self: &Arc<Self>, id: &RequestId, afterwards: &Afterwards) -> Result<(), RpcError> {
        let mut state = self.state.lock();
        if !state.watches_what_it_leaves(afterwards, id) {
            return Err(RpcError::of(Reason::NotSubscribed, "The session does not watch this resource"));
        }
        self.remember(&mut state, afterwards);
        Ok(())
    }

    fn remember(self: &Arc<Self>, state: &mut State, afterwards: &Afterwards) {
        if state.end.is_some() {
            return;
        }
        match afterwards {
            Afterwards::Nothing => return,
            Afterwards::SetLevel(level) => state.log_level = Some(*level),
            Afterwards::Subscribe(uri) => {
                self.inner.watchers.add(uri, self.id);
                state.subscriptions.insert(uri.clone());
            }
            Afterwards::Unsubscribe(uri) => {
                self.inner.watchers.remove(uri, &self.id);
                state.subscriptions.remove(uri);
            }
        }
        self.save(state);
    }
}

impl State {
    /// Whether the resource is watched that a request wants to watch no more. One that is run once more may have done its
    /// work the first time. The server is asked all the same: it may have no resources to watch at all, and says so.
    fn watches_what_it_leaves(&self, afterwards: &Afterwards, id: &RequestId) -> bool {
        match afterwards {
            Afterwards::Unsubscribe(uri) => {
                self.subscriptions.contains(uri) || self.calls.get(id).is_some_and(|call| call.is_again)
            }
            Afterwards::Nothing | Afterwards::SetLevel(_) | Afterwards::Subscribe(_) => true,
        }
    }
}

fn afterwards(request: &Request) -> Afterwards {
    let uri = || params::subscription_uri(request.params.as_ref()).map(String::into_boxed_str);
    let found = match request.method {
        Method::ResourcesSubscribe => uri().map(Afterwards::Subscribe),
        Method::ResourcesUnsubscribe => uri().map(Afterwards::Unsubscribe),
        Method::LoggingSetLevel => params::log_level(request.params.as_ref()).map(Afterwards::SetLevel),
        _ => None,
    };
    found.unwrap_or(Afterwards::Nothing)
}

/// What became of a request that may pass.
enum Admitted {
    Runs(Run),
    /// It is answered already.
    Done,
    /// The process stops, and the next one runs it.
    Held(Reader),
}

enum Outcome {
    Json(Bytes),
    OnStream(StreamId),
    Dropped,
}

/// A backend's future, with its deadline, and answering for its panics.
struct Run {
    session: Arc<Session>,
    id: RequestId,
    number: u64,
    stage: Stage,
    timer: Option<Timer>,
    /// The number of the link it was sent on.
    link: u64,
    /// How many links were lost under it.
    lost: u32,
}

/// Wakes a request when its time may be up. By a clock that cannot be set, or a correction of the time of day would
/// make requests hang or end.
struct Timer {
    began: Instant,
    sleep: Pin<Box<Sleep>>,
}

enum Stage {
    /// There is no link to send it on yet.
    Waits(BoxFuture<Result<Placed, RpcError>>),
    Sent(BoxFuture<Reply>),
    /// Not sent, or its handler panicked.
    Failed,
}

impl Run {
    fn new(session: &Arc<Session>, id: RequestId, number: u64) -> Self {
        let session = Arc::clone(session);
        Self { session, id, number, stage: Stage::Failed, timer: None, link: 0, lost: 0 }
    }

    fn start(&mut self, link: &dyn Link, link_number: u64, call: Call) {
        self.link = link_number;
        let afterwards = afterwards(&call.request);
        let started = std::panic::catch_unwind(AssertUnwindSafe(|| link.call(call)));
        self.stage = match (started, afterwards) {
            (Ok(reply), Afterwards::Nothing) => Stage::Sent(reply),
            (Ok(reply), afterwards) => {
                let (session, id) = (Arc::clone(&self.session), self.id.clone());
                Stage::Sent(Box::pin(async move {
                    let reply = reply.await;
                    if reply.is_ok() {
                        session.take_note(&id, &afterwards)?;
                        // The client must not believe in something that a crash could undo.
                        session.saved().await;
                    }
                    reply
                }))
            }
            (Err(_), _) => Stage::Failed,
        };
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let reply = match &mut self.stage {
            Stage::Sent(reply) => reply,
            Stage::Waits(place) => match place.as_mut().poll(cx) {
                Poll::Ready(Ok(placed)) => {
                    self.start(placed.link.as_ref(), placed.link_number, placed.call);
                    return self.poll_reply(cx);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return self.poll_deadline(cx),
            },
            Stage::Failed => return Poll::Ready(Err(self.panicked())),
        };
        match std::panic::catch_unwind(AssertUnwindSafe(|| reply.as_mut().poll(cx))) {
            Ok(Poll::Ready(reply)) if self.lost_link(&reply) => {
                self.lost += 1;
                let refused = reply.as_ref().is_err_and(RpcError::is_refused);
                self.stage = Stage::Waits(self.session.repeat(&self.id, self.number, refused));
                self.poll_reply(cx)
            }
            Ok(Poll::Ready(reply)) => Poll::Ready(reply),
            Ok(Poll::Pending) => self.poll_deadline(cx),
            Err(_) => {
                self.stage = Stage::Failed;
                Poll::Ready(Err(self.panicked()))
            }
        }
    }

    /// Whether this is no answer, but the end of the link.
    fn lost_link(&self, reply: &Reply) -> bool {
        if self.lost >= relink::MAX_LOST || !relink::says_gone(reply) || !self.session.has_lost(self.link) {
            return false;
        }
        let mut state = self.session.state.lock();
        if let Some(call) = state.calls.get_mut(&self.id).filter(|call| call.number == self.number) {
            call.is_again = true;
        }
        true
    }

    fn panicked(&self) -> RpcError {
        tracing::error!(session = %self.session.label, request = ?self.id, "a handler panicked");
        RpcError::of(Reason::Internal, "The server failed while handling the request")
    }

    /// A request may take `request_timeout` without progress and `max_request_time` in all.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let limits = &self.session.inner.limits;
        // Made when the request is first waited for, so that those that are answered at once do without it.
        let timer = self.timer.get_or_insert_with(|| Timer {
            began: Instant::now(),
            sleep: Box::pin(tokio::time::sleep(limits.request_timeout)),
        });
        loop {
            std::task::ready!(timer.sleep.as_mut().poll(cx));
            let now = Instant::now();
            let state = self.session.state.lock();
            let call = state.calls.get(&self.id).filter(|call| call.number == self.number);
            let end = call.map(|call| {
                // While the client is asked something, the time is the client's.
                let quiet_since = if call.asking > 0 { now } else { call.quiet_since.unwrap_or(timer.began) };
                (quiet_since + limits.request_timeout).min(timer.began + limits.max_request_time)
            });
            drop(state);
            match end.filter(|end| *end > now) {
                Some(end) => timer.sleep.as_mut().reset(end),
                None => break,
            }
        }
        if let Some(cancel) = self.session.cancel_token(&self.id, self.number) {
            cancel.cancel();
        }
        let seconds = limits.request_timeout.as_secs_f32();
        tracing::warn!(session = %self.session.label, request = ?self.id, "no answer from the backend in time");
        Poll::Ready(Err(Error::new(
            Reason::TimedOut,
            format!("The server gave no answer within {seconds} s"),
        )
        .to_rpc()))
    }

    /// Runs to the end with nobody waiting for a JSON answer.
    async fn run_alone(mut self) {
        let session = Arc::clone(&self.session);
        let reply = tokio::select! {
            reply = std::future::poll_fn(|cx| self.poll_reply(cx)) => reply,
            () = session.inner.stop.cancelled() => return,
        };
        if matches!(session.answered(&self, &reply), Outcome::Json(_)) {
            tracing::debug!(session = %session.label, request = ?self.id, "the client left before the answer came");
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        state.running -= 1;
        // Normally the answer took the entry; a task that was aborted must not leave it behind.
        if state.calls.get(&self.id).is_some_and(|call| call.number == self.number) {
            state.calls.remove(&self.id);
        }
        drop(state);
        self.session.inner.stir();
    }
}

/// The connection that waits for the answer to its request.
struct Waiting {
    run: Option<Run>,
    soon: Option<Pin<Box<Sleep>>>,
}

impl Future for Waiting {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(mut run) = self.run.take() else { return Poll::Ready(Answer::Withdrawn) };
        let session = Arc::clone(&run.session);
        if let Poll::Ready(reply) = run.poll_reply(cx) {
            return Poll::Ready(match session.answered(&run, &reply) {
                Outcome::Json(body) => Answer::Json(body),
                // The answer came in the same breath as the first event: the stream is complete already.
                Outcome::OnStream(stream) => Answer::Stream(session.reader_of(stream)),
                Outcome::Dropped => session.lost_answer(&run),
            });
        }
        let wait = session.inner.limits.json_wait;
        let mut late = false;
        if wait > Duration::ZERO {
            let soon = self.soon.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
            late = soon.as_mut().poll(cx).is_ready();
        }
        match session.look(&run, cx, late) {
            Look::Wait => {
                self.run = Some(run);
                Poll::Pending
            }
            Look::Stream(reader) => {
                session.inner.tasks.spawn(run.run_alone());
                Poll::Ready(Answer::Stream(reader))
            }
            Look::Gone => {
                let answer = session.lost_answer(&run);
                session.inner.tasks.spawn(run.run_alone());
                Poll::Ready(answer)
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            let tasks = run.session.inner.tasks.clone();
            tasks.spawn(run.run_alone());
        }
    }
}

enum Look {
    Wait,
    Stream(Reader),
    Gone,
}

impl Session {
    /// Looks whether a request has become a stream, or makes it one because its answer is late.
    fn look(self: &Arc<Self>, run: &Run, cx: &Context<'_>, late: bool) -> Look {
        let mut state = self.state.lock();
        let Some(call) = state.calls.get_mut(&run.id).filter(|call| call.number == run.number) else {
            return Look::Gone;
        };
        let stream = match call.stream {
            Some(stream) => stream,
            None if late => match self.stream_of(&mut state, &run.id, run.number) {
                Ok(stream) => stream,
                Err(_) => return Look::Gone,
            },
            None => {
                call.waiter = Some(cx.waker().clone());
                return Look::Wait;
            }
        };
        let reader = self.reader(&mut state, stream, Some(Position::START));
        drop(state);
        self.flush();
        Look::Stream(reader)
    }

    /// Nobody can answer any more: the client withdrew the request, or the session is over.
    fn lost_answer(&self, run: &Run) -> Answer {
        match &self.state.lock().settled {
            Some(error) => Answer::Json(message::write_error(Some(&run.id), error)),
            None => Answer::Withdrawn,
        }
    }

    /// The token that tells a request's handler to stop.
    pub(crate) fn cancel_token(
        &self,
        id: &RequestId,
        number: u64,
    ) -> Option<tokio_util::sync::CancellationToken> {
        let mut state = self.state.lock();
        let call = state.calls.get_mut(id).filter(|call| call.number == number)?;
        Some(call.cancel.get_or_insert_default().clone())
    }
}
