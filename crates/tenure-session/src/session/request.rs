//! A request from the client: admitted, carried to the backend, answered.
//!
//! The answer is JSON if it comes soon and no other message comes first; otherwise the request becomes a stream. The
//! connection that brought the request polls the backend's future in place. If that connection closes, or the request
//! becomes a stream, the future moves to a tracked task: closing a connection does not cancel a request.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::params;
use tenure_protocol::{Error, Message, RawJson, Reason, Reply, Request, RequestId, RpcError, message};
use tokio::time::{Instant, Sleep};

use crate::backend::{Call, Link};
use crate::call::{CallContext, Caller, Collect, Granted};
use crate::figures::TimelineEvent;
use crate::id::{Position, StreamId};
use crate::port::BoxFuture;
use crate::port::observer::Happened;
use crate::port::store::EntryPlace;
use crate::session::backlog::{self, NotedRequest};
use crate::session::claim::elsewhere;
use crate::session::drain::{self, Creating, draining};
use crate::session::live_session::{InFlight, Session, SessionState};
use crate::session::on_success::{OnSuccess, on_success};
use crate::session::phase::Phase;
use crate::session::reader::{Reader, too_many_streams};
use crate::session::relink::{self, Placed};
use crate::session::rules::{self, RequestDecision};
use crate::session::stream::{EventStream, too_large};

/// The longest uri that a client can subscribe to; the session keeps it until it ends.
const MAX_URI_BYTES: usize = 8 << 10;

/// The answer to a POST.
#[derive(Debug)]
pub enum Answer {
    /// One message, as JSON.
    Json(Bytes),
    /// An error about a limit, as JSON. The request can be sent again after this time.
    TryLater {
        /// The message.
        body: Bytes,
        /// When there is room again.
        retry_after: Duration,
    },
    /// A stream.
    Stream(Reader),
    /// No message: the client cancelled the request.
    Withdrawn,
}

impl Session {
    /// Answers a request of the client.
    ///
    /// # Errors
    /// When the request is not admitted: the session has ended, a limit is reached, or the id is in use. Also when its
    /// session went to another node before any server has seen it.
    ///
    /// # Cancel safety
    /// An admitted request goes on when this future is dropped.
    pub async fn request(self: &Arc<Self>, request: Request, caller: Caller) -> Result<Answer, Error> {
        if !self.check_term() {
            return Err(elsewhere());
        }
        self.touch();
        let id = request.id.clone();
        let answer = match self.admit(request, caller, None)? {
            Admitted::Runs(run) => PendingAnswer { run: Some(run), soon: None }.await?,
            Admitted::Done => Answer::Json(message::write_result(&id, &RawJson::EMPTY_OBJECT)),
            Admitted::Held(reader) => {
                self.flush();
                return Ok(self.once_noted(id, Answer::Stream(reader)).await);
            }
        };
        let answer = self.answer_if_confirmed(id.clone(), answer).await;
        Ok(self.once_noted(id, answer).await)
    }

    /// Waits only if this node may not act.
    async fn answer_if_confirmed(self: &Arc<Self>, id: RequestId, answer: Answer) -> Answer {
        if self.may_act() {
            return answer;
        }
        Box::pin(self.answer_once_confirmed(id, answer)).await
    }

    /// Answers an array of messages; all responses come on one stream.
    ///
    /// # Errors
    /// As for a single request. A batch without requests returns `Ok(None)`.
    pub fn batch(self: &Arc<Self>, messages: Vec<Message>, caller: &Caller) -> Result<Option<Answer>, Error> {
        self.touch();
        // Before the stage is read: a stop that has set it waits until all requests of the array are in flight.
        let _admitting = Creating::begin(&self.inner);
        // Only here: later, requests of the array may have been started, and the client must not send it again.
        if !self.may_act() {
            return Err(elsewhere());
        }
        if self.inner.leaves_to_others() {
            return Err(draining());
        }
        let share = self.open_stream(&messages, &caller.scopes)?;
        // Attached before the first answer, so that the stream cannot complete and be forgotten earlier.
        let reader = share.map(|stream| self.reader_of(stream));
        for message in messages {
            match (message, share) {
                (Message::Request(request), Some(stream)) => self.batch_request(request, caller, stream),
                (Message::Request(_), None) => {}
                (Message::Notification(notification), _) => {
                    self.refused_in(share, self.take_notification(notification))?;
                }
                (Message::Response(response), _) => self.refused_in(share, self.take_response(response))?,
            }
        }
        self.flush();
        Ok(reader.map(Answer::Stream))
    }

    /// Passes on the refusal of an element, unless the array has requests.
    fn refused_in(&self, share: Option<StreamId>, taken: Result<(), Error>) -> Result<(), Error> {
        match taken {
            Err(error) if share.is_some() => {
                tracing::debug!(session = %self.label, %error, "dropped a message of a batch");
                Ok(())
            }
            taken => taken,
        }
    }

    fn batch_request(self: &Arc<Self>, request: Request, caller: &Caller, stream: StreamId) {
        let id = request.id.clone();
        let reply = match self.admit(request, caller.clone(), Some(stream)) {
            Ok(Admitted::Runs(run)) => {
                self.inner.tasks.spawn(run.run_alone());
                return;
            }
            Ok(Admitted::Done) => Ok(RawJson::EMPTY_OBJECT),
            // Never happens: a stop refuses requests of a batch instead of holding them.
            Ok(Admitted::Held(_)) => return,
            Err(error) => Err(error.to_rpc()),
        };
        let body = message::write_response(&id, &reply);
        self.answer_on(&mut self.state.lock(), stream, &id, body);
        self.flush();
    }

    fn open_stream(
        self: &Arc<Self>,
        messages: &[Message],
        scopes: &Granted,
    ) -> Result<Option<StreamId>, Error> {
        let request = |message: &Message| match message {
            Message::Request(request) => Some(NotedRequest::of(request, scopes)),
            Message::Notification(_) | Message::Response(_) => None,
        };
        let requests: Vec<NotedRequest> = messages.iter().filter_map(request).collect();
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
        let stream = EventStream { open: requests.len(), requests, ..EventStream::default() };
        self.begin_stream(&mut state, id, stream, note);
        Ok(Some(id))
    }

    fn reader_of(self: &Arc<Self>, stream: StreamId) -> Reader {
        self.reader(&mut self.state.lock(), stream, Some(Position::START))
    }

    /// Checks a request against the phase and the limits, and puts it in flight.
    fn admit(
        self: &Arc<Self>,
        request: Request,
        caller: Caller,
        stream: Option<StreamId>,
    ) -> Result<Admitted, Error> {
        params::check_progress_token(request.params.as_ref())?;
        let now = self.inner.clock.now();
        let limits = &self.inner.limits;
        let on_success = on_success(&request);
        let (link, number) = {
            let mut state = self.state.lock();
            self.check_alive(&state)?;
            state.requests += 1;
            match rules::admit_request(state.phase, &request)? {
                RequestDecision::Pong => {
                    let echoes = || state.link.as_ref().is_some_and(|link| link.echoes_cookies());
                    // Answered here, unless the answer has to carry a cookie.
                    if state.phase != Phase::Initialized
                        || !params::has_meta(request.params.as_ref())
                        || !echoes()
                    {
                        return Ok(Admitted::Done);
                    }
                }
                RequestDecision::Forward => {}
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
            if let OnSuccess::Subscribe(uri) = &on_success
                && uri.len() > MAX_URI_BYTES
            {
                return Err(
                    Error::new(Reason::InvalidParams, "The uri is too long").with("limit", MAX_URI_BYTES)
                );
            }
            if let OnSuccess::Subscribe(uri) = &on_success
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
            // Read under the lock: either a stop finds this request in flight, or this sees the stage and holds it.
            let stage = match stream {
                // An array that a node of a cluster has taken in runs as a whole.
                Some(_) if self.inner.roster.is_some() => drain::DrainStage::Open,
                _ => self.inner.stage(),
            };
            if stage != drain::DrainStage::Open && self.waits_for_others(stage, &request) {
                return Err(draining());
            }
            let is_alone = stream.is_none() && caller.collect == Collect::Resumes;
            if stage >= drain::DrainStage::Holding {
                return self.hold(&mut state, request, caller.scopes, is_alone, stage).map(Admitted::Held);
            }
            // If it started now, the end of the grace period could interrupt it, although it takes less time than that.
            if stage != drain::DrainStage::Open
                && self.can_hold(&state, is_alone)
                && !self.is_known_to_be_safe(&request)
            {
                return self.hold(&mut state, request, caller.scopes, is_alone, stage).map(Admitted::Held);
            }
            // A session that lost its server gets a new one; the request waits for it, in flight like any other.
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
                scopes: caller.scopes.clone(),
                started: now,
                stream,
                waiter: None,
                cancel: None,
                progressed: None,
                quiet_since: None,
                progress_floor: None,
                is_again: false,
                is_late: self.inner.stage() != drain::DrainStage::Open,
                is_held: false,
                collect: caller.collect,
                asking: 0,
                said_bytes: 0,
            };
            state.calls.insert(request.id.clone(), call);
            (link, number)
        };
        let context = CallContext::numbered(Arc::clone(self) as _, &request, number, caller, now);
        Ok(Admitted::Runs(self.launch(Call { request, context }, number, link)))
    }

    /// Writes a note for the next process, which runs the request, and sends the client there. The caller flushes.
    fn hold(
        self: &Arc<Self>,
        state: &mut SessionState,
        request: Request,
        scopes: Granted,
        is_alone: bool,
        stage: drain::DrainStage,
    ) -> Result<Reader, Error> {
        if !self.can_hold(state, is_alone) {
            return Err(draining());
        }
        let note = backlog::held_note(&request, &scopes);
        let stream = StreamId::new(state.next_stream);
        state.next_call += 1;
        let call = InFlight {
            number: state.next_call,
            method: request.method,
            params: request.params,
            scopes,
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
        self.begin_stream(state, stream, EventStream { open: 1, ..EventStream::default() }, note);
        let reader = self.reader(state, stream, Some(Position::START));
        // In an earlier stage the connection stays open: this process can close it later.
        if stage >= drain::DrainStage::Holding
            && let Some(attached) = state.streams.get_mut(&stream).and_then(|stream| stream.reader.as_mut())
        {
            attached.closing = Some(self.stop_retry(stream));
        }
        Ok(reader)
    }

    /// Whether a request is not begun here, because the next owner of the session takes it soon.
    fn waits_for_others(&self, stage: drain::DrainStage, request: &Request) -> bool {
        let is_begun_here = stage < drain::DrainStage::Holding && self.is_known_to_be_safe(request);
        self.inner.leaves_to_others() && !is_begun_here
    }

    /// Whether a request can be left to the next process before it starts.
    fn can_hold(&self, state: &SessionState, is_alone: bool) -> bool {
        is_alone && !state.left && state.revision.primes_streams() && self.inner.outlives_us()
    }

    /// Sends a request over the given link, or makes it wait for a server.
    fn launch(self: &Arc<Self>, call: Call, number: u64, link: Option<(Arc<dyn Link>, u64)>) -> Run {
        // From here on `Run` removes the call when dropped, also if the backend panics while starting it.
        let mut run = Run::new(self, call.request.id.clone(), number);
        match link {
            Some((link, link_number)) => run.start(link.as_ref(), link_number, call),
            None => run.stage = RunStage::Waits(self.place(call, number)),
        }
        run
    }

    /// Sends a request again that was open when the last process ended; its answer goes to its stream.
    pub(super) fn run_again(self: &Arc<Self>, request: Request, number: u64) {
        let now = self.inner.clock.now();
        let (link, scopes) = {
            let mut state = self.state.lock();
            // The client may have cancelled it meanwhile.
            let call = state.calls.get(&request.id).filter(|call| call.number == number);
            let Some(scopes) = call.map(|call| call.scopes.clone()) else { return };
            state.running += 1;
            (self.link_in(&state), scopes)
        };
        tracing::info!(session = %self.label, request = ?request.id, method = %request.method, "running a request that the last process left open");
        self.note(TimelineEvent::RunAgain);
        self.tell_observer(Happened::RunAgain { method: &request.method });
        let caller = Caller { principal: self.owner.clone(), scopes, ..Caller::anonymous("wake") };
        let context = CallContext::numbered(Arc::clone(self) as _, &request, number, caller, now);
        let run = self.launch(Call { request, context }, number, link);
        self.inner.tasks.spawn(run.run_alone());
    }

    /// Takes the backend's answer. Returns it as JSON if the request has not become a stream.
    fn answered(self: &Arc<Self>, run: &Run, reply: &Reply) -> AnswerDelivery {
        let mut state = self.state.lock();
        // The next process answers the requests that were left to it.
        let is_wanted = state.calls.get(&run.id).is_some_and(|call| call.number == run.number) && !state.left;
        if !is_wanted {
            drop(state);
            tracing::debug!(session = %self.label, request = ?run.id, "dropped the answer to a request that is no longer in flight");
            return AnswerDelivery::Dropped;
        }
        let Some(call) = state.calls.remove(&run.id) else { return AnswerDelivery::Dropped };
        state.errors += u64::from(reply.is_err());
        let mut body = message::write_response(&run.id, reply);
        let limit = self.inner.limits.max_event_bytes;
        if body.len() > limit {
            body = message::write_error(Some(&run.id), &too_large(body.len(), limit).to_rpc());
        }
        match call.stream {
            None => AnswerDelivery::Json(body),
            Some(stream) => {
                self.answer_on(&mut state, stream, &run.id, body);
                drop(state);
                self.flush();
                AnswerDelivery::OnStream(stream)
            }
        }
    }

    /// Puts a response on a stream; the last one completes it.
    pub(super) fn answer_on(&self, state: &mut SessionState, id: StreamId, request: &RequestId, body: Bytes) {
        let place = if state.answered_one(id, request) { EntryPlace::End } else { EntryPlace::Middle };
        if self.inner.roster.is_some() {
            state.outbox.answers.push_back((id, body.clone()));
        }
        self.push(state, id, body, place);
    }
}

/// An admitted request.
enum Admitted {
    Runs(Run),
    /// The session answers it itself, at once.
    Done,
    /// The process stops; the next one runs the request.
    Held(Reader),
}

/// How the answer reaches the client.
enum AnswerDelivery {
    Json(Bytes),
    OnStream(StreamId),
    Dropped,
}

/// A backend's future with its deadline. Turns a panic of the backend into an error.
struct Run {
    session: Arc<Session>,
    id: RequestId,
    number: u64,
    stage: RunStage,
    timer: Option<Timer>,
    /// A server may have seen it.
    is_sent: bool,
    /// The number of the link it was sent on.
    link: u64,
    /// How many links were lost under it.
    lost: u32,
    /// When it began, if something wants to know.
    began: Option<Instant>,
}

/// Wakes a request when it may have timed out. Uses the monotonic clock: a correction of the wall clock must neither
/// end a request nor make it hang.
struct Timer {
    began: Instant,
    sleep: Pin<Box<Sleep>>,
}

enum RunStage {
    /// There is no link to send it on yet.
    Waits(BoxFuture<Result<Placed, RpcError>>),
    Sent(BoxFuture<Reply>),
    /// Not sent, or its handler panicked.
    Failed,
}

impl Run {
    fn new(session: &Arc<Session>, id: RequestId, number: u64) -> Self {
        let (session, began) = (Arc::clone(session), session.stopwatch());
        if began.is_some() {
            session.tell_observer(Happened::CallBegun);
        }
        Self {
            session,
            id,
            number,
            stage: RunStage::Failed,
            timer: None,
            is_sent: false,
            link: 0,
            lost: 0,
            began,
        }
    }

    fn start(&mut self, link: &dyn Link, link_number: u64, call: Call) {
        if !self.session.may_act() {
            self.stage = RunStage::Waits(self.session.place_once_confirmed(call, self.number));
            return;
        }
        (self.link, self.is_sent) = (link_number, true);
        let on_success = on_success(&call.request);
        let started = std::panic::catch_unwind(AssertUnwindSafe(|| link.call(call)));
        self.stage = match (started, on_success) {
            (Ok(reply), OnSuccess::Nothing) => RunStage::Sent(reply),
            (Ok(reply), on_success) => {
                let (session, id) = (Arc::clone(&self.session), self.id.clone());
                RunStage::Sent(Box::pin(async move {
                    let reply = reply.await;
                    if reply.is_ok() {
                        session.apply_on_success(&id, &on_success)?;
                        // Save before answering: a crash must not undo a change that the client was told of.
                        session.saved().await;
                    }
                    reply
                }))
            }
            (Err(_), _) => RunStage::Failed,
        };
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let reply = match &mut self.stage {
            RunStage::Sent(reply) => reply,
            RunStage::Waits(place) => match place.as_mut().poll(cx) {
                Poll::Ready(Ok(placed)) => {
                    self.start(placed.link.as_ref(), placed.link_number, placed.call);
                    return self.poll_reply(cx);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return self.poll_deadline(cx),
            },
            RunStage::Failed => return Poll::Ready(Err(self.panicked())),
        };
        match std::panic::catch_unwind(AssertUnwindSafe(|| reply.as_mut().poll(cx))) {
            Ok(Poll::Ready(reply)) if self.lost_link(&reply) => {
                self.lost += 1;
                let refused = reply.as_ref().is_err_and(RpcError::is_refused);
                self.stage = RunStage::Waits(self.session.repeat(&self.id, self.number, refused));
                self.poll_reply(cx)
            }
            Ok(Poll::Ready(reply)) => Poll::Ready(reply),
            Ok(Poll::Pending) => self.poll_deadline(cx),
            Err(_) => {
                self.stage = RunStage::Failed;
                Poll::Ready(Err(self.panicked()))
            }
        }
    }

    /// Whether the reply only reports the loss of the link, and the request may run again.
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
        // Created at the first wait, so that a request that is answered at once needs no timer.
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
                // While the request waits for an answer of the client, its timeout is paused.
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

    /// Runs to the end; no connection waits for a JSON answer.
    async fn run_alone(mut self) {
        let session = Arc::clone(&self.session);
        let reply = tokio::select! {
            reply = std::future::poll_fn(|cx| self.poll_reply(cx)) => reply,
            () = session.inner.stop.cancelled() => return,
        };
        if matches!(session.answered(&self, &reply), AnswerDelivery::Json(_)) {
            tracing::debug!(session = %session.label, request = ?self.id, "the connection closed before the answer came");
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        state.running -= 1;
        state.cancelled.retain(|(number, _)| *number != self.number);
        // Normally the answer has removed the entry; an aborted task must not leave it behind.
        if state.calls.get(&self.id).is_some_and(|call| call.number == self.number) {
            state.calls.remove(&self.id);
        }
        drop(state);
        self.session.inner.stir();
        if let Some(began) = self.began {
            self.session.tell_observer(Happened::CallEnded { took: began.elapsed() });
        }
    }
}

/// The connection that waits for the answer to its request.
struct PendingAnswer {
    run: Option<Run>,
    soon: Option<Pin<Box<Sleep>>>,
}

impl Future for PendingAnswer {
    /// An error if no server has seen the request, and another node may answer it.
    type Output = Result<Answer, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Answer, Error>> {
        let Some(mut run) = self.run.take() else { return Poll::Ready(Ok(Answer::Withdrawn)) };
        let session = Arc::clone(&run.session);
        if let Poll::Ready(reply) = run.poll_reply(cx) {
            if session.leaves_to_next(&run) {
                return Poll::Ready(Err(elsewhere()));
            }
            return Poll::Ready(Ok(match session.answered(&run, &reply) {
                AnswerDelivery::Json(body) => match reply.as_ref().err().and_then(RpcError::retry_after) {
                    Some(retry_after) => Answer::TryLater { body, retry_after },
                    None => Answer::Json(body),
                },
                // The answer came in the same poll as the first event: the stream is already complete.
                AnswerDelivery::OnStream(stream) => Answer::Stream(session.reader_of(stream)),
                AnswerDelivery::Dropped => session.lost_answer(&run),
            }));
        }
        let wait = session.inner.limits.json_wait;
        let mut late = false;
        if wait > Duration::ZERO {
            let soon = self.soon.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
            late = soon.as_mut().poll(cx).is_ready();
        }
        // While this node may not act, what no server has seen may go to the next owner, and a stream could not.
        late &= run.is_sent || session.may_act();
        match session.poll_stream(&run, cx, late) {
            AnswerPoll::Wait => {
                self.run = Some(run);
                Poll::Pending
            }
            AnswerPoll::Stream(reader) => {
                session.inner.tasks.spawn(run.run_alone());
                Poll::Ready(Ok(Answer::Stream(reader)))
            }
            AnswerPoll::Gone if session.leaves_to_next(&run) => Poll::Ready(Err(elsewhere())),
            AnswerPoll::Gone => {
                let answer = session.lost_answer(&run);
                session.inner.tasks.spawn(run.run_alone());
                Poll::Ready(Ok(answer))
            }
        }
    }
}

impl Drop for PendingAnswer {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            let tasks = run.session.inner.tasks.clone();
            tasks.spawn(run.run_alone());
        }
    }
}

enum AnswerPoll {
    Wait,
    Stream(Reader),
    Gone,
}

impl Session {
    /// Checks whether a request has become a stream, or makes it one because its answer is late.
    fn poll_stream(self: &Arc<Self>, run: &Run, cx: &Context<'_>, late: bool) -> AnswerPoll {
        let mut state = self.state.lock();
        let Some(call) = state.calls.get_mut(&run.id).filter(|call| call.number == run.number) else {
            return AnswerPoll::Gone;
        };
        let stream = match call.stream {
            Some(stream) => stream,
            None if late => match self.stream_of(&mut state, &run.id, run.number) {
                Ok(stream) => stream,
                Err(_) => return AnswerPoll::Gone,
            },
            None => {
                call.waiter = Some(cx.waker().clone());
                return AnswerPoll::Wait;
            }
        };
        let reader = self.reader(&mut state, stream, Some(Position::START));
        drop(state);
        self.flush();
        AnswerPoll::Stream(reader)
    }

    /// Whether a request is left to the next owner of its session, as one that was not begun: no server has seen it, its
    /// client has seen nothing of it, and this node may not act for the session any more.
    fn leaves_to_next(&self, run: &Run) -> bool {
        if run.is_sent || self.inner.roster.is_none() {
            return false;
        }
        let state = self.state.lock();
        match state.calls.get(&run.id).filter(|call| call.number == run.number) {
            Some(call) => call.stream.is_none() && !self.may_act(),
            // A stop may have made a stream of it, whose note the next owner finds.
            None => {
                let settled = state.settled.as_ref();
                let is_given_up = state.is_given_up && self.inner.stage() < drain::DrainStage::Holding;
                is_given_up && settled.is_some_and(|settled| settled.calls.contains(&run.number))
            }
        }
    }

    /// The answer for a request that is no longer in flight: its client or an operator cancelled it, or the session has ended.
    fn lost_answer(&self, run: &Run) -> Answer {
        let mut state = self.state.lock();
        if let Some(place) = state.cancelled.iter().position(|(number, _)| *number == run.number) {
            let (_, error) = state.cancelled.swap_remove(place);
            return Answer::Json(message::write_error(Some(&run.id), &error));
        }
        // The stop left this request to the next process, but it never became a stream, so its client cannot resume it: it
        // gets the error of the stop.
        let is_left = || state.calls.get(&run.id).is_some_and(|call| call.number == run.number);
        match &state.settled {
            Some(settled) if settled.calls.contains(&run.number) || is_left() => {
                Answer::Json(message::write_error(Some(&run.id), &settled.error))
            }
            _ => Answer::Withdrawn,
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
