//! Events out: from an emitter, through the log, to the one reader a stream may have.
//!
//! Order matters: an event is appended to the store first and shown to the reader after, so a client
//! that comes back between the two finds it in the log. One append is in flight per session; what
//! comes meanwhile is batched behind it. Nothing here waits for a client.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Error, Reason, RequestId, message};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::id::{Position, StreamId};
use crate::port::store::{Kept, NewEvent, Place, ReadLimit, StoreError, Stored};
use crate::session::backlog::Noted;
use crate::session::drain::draining;
use crate::session::session::{Session, State};
use crate::session::share::Waiting;

/// Bytes that a stream keeps at hand for its reader, at most; one event always fits.
pub(super) const MAX_TAIL_BYTES: usize = 256 << 10;

/// How long after a failed trim the next one is tried.
const TRIM_AGAIN: Duration = Duration::from_secs(5);

/// What belongs to what: the origin of a message decides its stream.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// No request; the standalone stream.
    Session,
    /// A request in flight; its own stream.
    Call {
        /// The client's id for it.
        id: RequestId,
        /// Ours.
        number: u64,
    },
}

/// One stream of a session.
#[derive(Default)]
pub(super) struct Stream {
    /// Requests whose response is still to come on it.
    pub(super) open: usize,
    /// Events on their way into the log.
    pub(super) queued: usize,
    /// Nothing more will come.
    pub(super) ended: bool,
    /// The position of its last event in the log.
    pub(super) last: Position,
    /// The position of the last event that some reader was given.
    pub(super) delivered: Position,
    /// Whether the log knows of the stream, so that a client may come back to it.
    pub(super) known: Known,
    /// The note, if it could not be written.
    pub(super) unwritten: Option<Bytes>,
    /// The requests of a batch that are still open, as the note names them. Of a single request the note never
    /// changes.
    pub(super) requests: Vec<Noted>,
    /// The note in the log names requests that are no longer open.
    pub(super) note_is_old: bool,
    /// It is complete, and the log does not know.
    pub(super) unfinished: bool,
    /// The next reader is to be sent away at once, to come back later.
    pub(super) close_first: bool,
    /// Events that could not be logged while there was no reader: for the log when it works again, or for the next
    /// reader. Bounded like a tail.
    pub(super) unlogged: VecDeque<Tailed>,
    /// After `last` came events that are not in the log and were dropped, or given to a reader without an id. A client
    /// that comes back from before them is told that something may be missing, and the log is told when it can be.
    pub(super) is_missing: bool,
    /// Boxed, because most streams that are kept have no reader.
    pub(super) reader: Option<Box<Slot>>,
}

/// Whether the log knows of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Known {
    /// Not yet: the note of what it is for is on its way.
    #[default]
    Soon,
    /// It does.
    Yes,
    /// The note could not be written; it goes with the next event.
    No,
    /// The note may have been written. A client may not come back, but the end has to be logged.
    Perhaps,
}

/// What a stream keeps for its reader.
pub(super) struct Slot {
    /// Tells a reader that was replaced from its successor.
    pub(super) reader: u64,
    pub(super) waker: Option<Waker>,
    /// Events since `floor`, not yet read. Bounded; what does not fit is read from the store.
    pub(super) tail: VecDeque<Tailed>,
    /// Every event after this position is in `tail`.
    pub(super) floor: Position,
    /// The connection is to be closed with this `retry`, while the stream goes on.
    pub(super) closing: Option<Duration>,
    /// Events were dropped that are not in the log either; the reader is to be told.
    pub(super) lost: bool,
    /// The memory that the tail takes from the share of the client.
    pub(super) waiting: Waiting,
}

impl Slot {
    /// Takes the events out that are not in the log, for whoever reads next.
    pub(super) fn unlogged(&mut self) -> impl Iterator<Item = Tailed> + use<> {
        std::mem::take(&mut self.tail).into_iter().filter(|event| event.position.is_none())
    }

    /// Keeps an event for the reader. What does not fit is left to the store. Returns after which position an event
    /// was dropped that the store does not have.
    fn take(&mut self, event: Tailed, max_events: usize) -> Option<Position> {
        let mut missing = None;
        self.tail.push_back(event);
        let mut bytes: usize = self.tail.iter().map(|event| event.body.len()).sum();
        self.waiting.count(bytes);
        let is_too_much = self.waiting.is_too_much();
        while let Some(first) = self.tail.front() {
            // What the log does not have is kept as long as it fits into the tail.
            let is_large = bytes > MAX_TAIL_BYTES || (is_too_much && first.position.is_some());
            if self.tail.len() <= max_events && (self.tail.len() == 1 || !is_large) {
                break;
            }
            let Some(dropped) = self.tail.pop_front() else { break };
            bytes -= dropped.body.len();
            match dropped.position {
                // The reader is slow; it will find this one in the store.
                Some(position) => self.floor = position,
                None => {
                    self.lost = true;
                    missing = Some(dropped.after);
                }
            }
        }
        self.waiting.count(bytes);
        missing
    }

    /// Counts anew what is left, if any of it was counted.
    pub(super) fn recount(&mut self) {
        if self.waiting.is_counted() {
            self.waiting.count(self.tail.iter().map(|event| event.body.len()).sum());
        }
    }
}

/// An event at hand. One that could not be logged has no position, so that no client resumes after it.
pub(super) struct Tailed {
    pub(super) position: Option<Position>,
    /// The position of the stream's last event in the log when this one came.
    pub(super) after: Position,
    /// It is not known whether the log has it.
    pub(super) is_doubtful: bool,
    pub(super) body: Bytes,
}

/// Events on their way into the log.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) queue: VecDeque<NewEvent>,
    bytes: usize,
    /// The memory that they take from the share of the client.
    pub(super) waiting: Waiting,
    appending: bool,
    /// Made by the first emitter that has to wait, and kept: one that waits on a discarded one waits forever.
    room: Option<Arc<Notify>>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.appending
    }

    /// Whether more has to wait.
    fn is_full(&self, max_bytes: usize) -> bool {
        self.bytes >= max_bytes || self.waiting.is_too_much()
    }

    pub(super) fn add_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.waiting.count(self.bytes);
    }

    fn remove_bytes(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.waiting.count(self.bytes);
    }

    /// Lets those look again who wait for room.
    pub(super) fn make_room(&self) {
        if let Some(room) = &self.room {
            room.notify_waiters();
        }
    }
}

impl Session {
    /// Puts a message on the stream of its origin and waits while too much waits for the store.
    ///
    /// # Cancel safety
    /// Either the message was queued or nothing happened.
    pub(super) async fn emit(self: &Arc<Self>, origin: &Origin, body: Bytes) -> Result<(), Error> {
        loop {
            let room = {
                let mut state = self.state.lock();
                if state.outbox.is_full(self.inner.limits.max_unstored_bytes) {
                    Some(Arc::clone(state.outbox.room.get_or_insert_default()))
                } else {
                    self.enqueue(&mut state, origin, body.clone())?;
                    None
                }
            };
            match room {
                None => {
                    self.flush();
                    return Ok(());
                }
                Some(room) => {
                    let notified = room.notified();
                    // The queue may have emptied between the lock and here; then nobody would wake us.
                    if self.state.lock().outbox.is_full(self.inner.limits.max_unstored_bytes) {
                        notified.await;
                    }
                }
            }
        }
    }

    /// As [`Session::emit`], but never waits: for news that a session cannot hold up.
    pub(super) fn emit_now(self: &Arc<Self>, origin: &Origin, body: Bytes) -> Result<(), Error> {
        {
            let mut state = self.state.lock();
            if state.outbox.is_full(self.inner.limits.max_unstored_bytes) {
                return Err(Error::new(Reason::StoreUnavailable, "too much waits for the store already"));
            }
            self.enqueue(&mut state, origin, body)?;
        }
        self.flush();
        Ok(())
    }

    fn enqueue(&self, state: &mut State, origin: &Origin, body: Bytes) -> Result<(), Error> {
        self.check_alive(state)?;
        if state.left {
            return Err(draining());
        }
        if body.len() > self.inner.limits.max_event_bytes {
            return Err(too_large(body.len(), self.inner.limits.max_event_bytes));
        }
        let stream = match origin {
            Origin::Session => StreamId::STANDALONE,
            Origin::Call { id, number } => {
                let stream = self.stream_of(state, id, *number)?;
                self.check_said(state, id, body.len())?;
                stream
            }
        };
        self.push(state, stream, body, Place::Middle);
        Ok(())
    }

    /// Counts what is sent about a request. A server that floods it is not stopped, but what comes beyond the budget is
    /// dropped; the response is not counted and always comes.
    fn check_said(&self, state: &mut State, id: &RequestId, bytes: usize) -> Result<(), Error> {
        let limit = self.inner.limits.max_call_event_bytes;
        let Some(call) = state.calls.get_mut(id) else { return Ok(()) };
        let before = call.said_bytes;
        call.said_bytes = before.saturating_add(bytes);
        if call.said_bytes <= limit {
            return Ok(());
        }
        if before <= limit {
            tracing::warn!(session = %self.label, request = ?id, method = %call.method, limit, "the server sends more about a request than it may; what follows is dropped");
        }
        let message = "The server sends more about this request than it may";
        Err(Error::new(Reason::TooMuchHeld, message).with("limit", limit))
    }

    /// The stream of a request in flight; the first message makes it one. The caller flushes.
    pub(super) fn stream_of(
        &self,
        state: &mut State,
        id: &RequestId,
        number: u64,
    ) -> Result<StreamId, Error> {
        let fresh = StreamId::new(state.next_stream);
        let call = state.calls.get_mut(id).filter(|call| call.number == number);
        let Some(call) = call else {
            return Err(Error::new(Reason::Cancelled, "the request is no longer in flight"));
        };
        if let Some(stream) = call.stream {
            return Ok(stream);
        }
        call.stream = Some(fresh);
        if let Some(waiter) = call.waiter.take() {
            waiter.wake();
        }
        self.inner.stir();
        let note = message::write_request(id, &call.method, call.params.as_ref());
        self.begin_stream(state, fresh, Stream { open: 1, ..Stream::default() }, note);
        Ok(fresh)
    }

    /// Makes a stream, and notes in the log what it is for. The caller flushes.
    pub(super) fn begin_stream(&self, state: &mut State, id: StreamId, stream: Stream, note: Bytes) {
        state.next_stream = id.number() + 1;
        state.open_streams += 1;
        state.streams.insert(id, stream);
        self.push(state, id, note, Place::Note);
    }

    pub(super) fn push(&self, state: &mut State, stream: StreamId, body: Bytes, place: Place) {
        state.outbox.add_bytes(body.len());
        state.streams.entry(stream).or_default().queued += 1;
        state.outbox.queue.push_back(NewEvent { stream, body, place, at: self.inner.clock.now() });
    }

    /// Starts appending what is queued, unless somebody already does.
    pub(super) fn flush(self: &Arc<Self>) {
        loop {
            let batch: Vec<NewEvent> = {
                let mut state = self.state.lock();
                if state.outbox.appending || (state.outbox.queue.is_empty() && !state.renew_notes) {
                    return;
                }
                let max_batch = self.inner.store.capabilities().max_batch;
                let batch = state.next_batch(max_batch, self.inner.clock.as_ref());
                if batch.is_empty() {
                    return;
                }
                state.outbox.appending = true;
                batch
            };
            let append = self.inner.store.append(self.key, self.epoch, batch.clone());
            let session = Arc::clone(self);
            let finished = self.drive(append, move |outcome| match outcome {
                Err(StoreError::Unknown) => session.find_out(batch),
                outcome => session.committed(batch, outcome),
            });
            if !finished {
                return;
            }
        }
    }

    /// Runs a store operation: at once if it is ready at once, otherwise in a tracked task that also
    /// flushes what was queued meanwhile. Returns whether it is already done.
    fn drive<T: Send + 'static>(
        self: &Arc<Self>,
        mut operation: Stored<T>,
        done: impl FnOnce(Result<T, StoreError>) + Send + 'static,
    ) -> bool {
        match operation.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => {
                done(outcome);
                true
            }
            Poll::Pending => {
                let session = Arc::clone(self);
                self.inner.tasks.spawn(async move {
                    done(operation.await);
                    session.flush();
                });
                false
            }
        }
    }

    /// Nobody knows whether a batch was written: looks for it in the log. Until that is known nothing else is
    /// appended.
    fn find_out(self: &Arc<Self>, batch: Vec<NewEvent>) {
        let session = Arc::clone(self);
        self.inner.tasks.spawn(async move {
            let found = session.read_back(&batch).await;
            session.committed(batch, found);
            session.flush();
        });
    }

    async fn read_back(&self, batch: &[NewEvent]) -> Result<Vec<Position>, StoreError> {
        const ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };
        let mut positions = vec![Position::START; batch.len()];
        let ids: BTreeSet<StreamId> = batch.iter().map(|event| event.stream).collect();
        for id in ids {
            let last = self.state.lock().streams.get(&id).map_or(Position::START, |stream| stream.last);
            let mut found = self.inner.store.read(self.key, id, last, ALL).await?.events.into_iter();
            let own = batch.iter().enumerate().filter(|(_, event)| event.stream == id);
            for (index, event) in own.filter(|(_, event)| event.place != Place::Note) {
                match found.next() {
                    Some(kept) if kept.body == event.body => positions[index] = kept.position,
                    _ => return Err(StoreError::Unknown),
                }
            }
        }
        // A batch is written whole or not at all, but one of notes alone has left nothing that is read.
        let notes = batch.iter().filter(|event| event.place == Place::Note);
        let known = self.inner.store.survey(self.key).await?.streams;
        let seen = |id: StreamId| known.iter().any(|stream| stream.stream == id);
        if notes.map(|event| event.stream).any(|id| !seen(id)) {
            return Err(StoreError::Unknown);
        }
        Ok(positions)
    }

    fn committed(self: &Arc<Self>, batch: Vec<NewEvent>, outcome: Result<Vec<Position>, StoreError>) {
        let mut state = self.state.lock();
        state.outbox.appending = false;
        state.outbox.remove_bytes(batch.iter().map(|event| event.body.len()).sum());
        state.outbox.make_room();
        let logged = outcome.is_ok();
        let is_doubtful = outcome == Err(StoreError::Unknown);
        let positions = match outcome {
            Ok(positions) => {
                state.unlogging = false;
                let events = || batch.iter().filter(|event| event.place != Place::Note);
                state.kept.events += events().count();
                state.kept.bytes += events().map(|event| event.body.len()).sum::<usize>();
                if state.kept.oldest.is_none() {
                    state.kept.oldest = events().next().map(|event| event.at);
                    self.schedule(&mut state, self.inner.clock.now());
                }
                positions.into_iter().map(Some).collect()
            }
            Err(error) => {
                // The reader still gets the events, but without ids: nobody may resume after an event
                // that is not in the log. A session that has just ended has no log any more.
                if state.end.is_none() && !state.unlogging {
                    state.unlogging = true;
                    tracing::error!(session = %self.label, %error, "could not log events; they cannot be resumed after");
                }
                vec![None; batch.len()]
            }
        };
        for (event, position) in batch.into_iter().zip(positions) {
            self.deliver(&mut state, event, position, is_doubtful);
        }
        if logged {
            self.catch_log_up(&mut state);
        }
        let limits = &self.inner.limits;
        let full = state.kept.events > limits.max_session_events
            || state.kept.bytes > limits.max_session_event_bytes;
        drop(state);
        if full {
            self.trim();
        }
    }

    /// Shows an event to the reader of its stream, or keeps what the log did not take.
    fn deliver(&self, state: &mut State, event: NewEvent, position: Option<Position>, is_doubtful: bool) {
        let Some(stream) = state.streams.get_mut(&event.stream) else { return };
        stream.queued -= 1;
        if event.place == Place::Note {
            match position {
                Some(_) => {
                    (stream.known, stream.unwritten) = (Known::Yes, None);
                    self.inner.stir();
                }
                // The one before is there still.
                None if stream.known == Known::Yes => stream.note_is_old = true,
                None => {
                    stream.known = if is_doubtful { Known::Perhaps } else { Known::No };
                    stream.unwritten = Some(event.body);
                }
            }
            stream.wake_reader();
        } else {
            self.deliver_event(stream, event, position, is_doubtful);
        }
        if position.is_none() {
            state.bound_unlogged();
            self.log_lags(state);
        }
    }

    fn deliver_event(
        &self,
        stream: &mut Stream,
        event: NewEvent,
        position: Option<Position>,
        is_doubtful: bool,
    ) {
        let after = stream.last;
        if let Some(position) = position {
            stream.last = position;
        }
        if event.place == Place::End {
            stream.ended = true;
            stream.unfinished = position.is_none() && matches!(stream.known, Known::Yes | Known::Perhaps);
        }
        if event.body.is_empty() && position.is_none() {
            // It only says that events are missing, or that the stream is complete, which is known now.
            stream.is_missing |= event.place == Place::Middle;
            return stream.wake_reader();
        }
        let tailed = Tailed { position, after, is_doubtful, body: event.body };
        let max_events = self.inner.limits.max_tail_events;
        let missing = match &mut stream.reader {
            Some(slot) => slot.take(tailed, max_events),
            // What is in the log will be found there.
            None if position.is_some() => None,
            None => return stream.keep_unlogged(tailed, max_events),
        };
        if let Some(after) = missing {
            stream.misses(after);
        }
        stream.wake_reader();
    }

    /// Brings the session's log within its bounds, unless that is under way or has just failed.
    pub(super) fn trim(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            if state.trimming || state.trim_again.is_some_and(|again| Instant::now() < again) {
                return;
            }
            state.trimming = true;
        }
        let session = Arc::clone(self);
        let trim = self.inner.store.trim(self.key, self.keep());
        self.drive(trim, move |outcome| match outcome {
            Ok(kept) => session.trimmed(kept),
            Err(error) => {
                tracing::warn!(session = %session.label, %error, "could not trim the event log");
                let mut state = session.state.lock();
                state.trimming = false;
                state.trim_again = Some(Instant::now() + TRIM_AGAIN);
            }
        });
    }

    fn trimmed(&self, kept: Kept) {
        let mut state = self.state.lock();
        state.trimming = false;
        state.kept = kept;
        // A complete stream without events has nothing to resume; an open one stays.
        state.streams.retain(|_, stream| {
            !stream.ended
                || stream.last > kept.trimmed
                || stream.queued > 0
                || !stream.unlogged.is_empty()
                || stream.unfinished
                || stream.reader.is_some()
        });
        if state.end.is_none() {
            self.schedule(&mut state, self.inner.clock.now());
        }
    }
}

impl Stream {
    /// A stream as the log knows it.
    pub(super) fn of_log(last: Position, ended: bool) -> Self {
        // Nobody knows what of it was read. Whoever does not say from where to go on is not told the whole of a
        // stream that was complete.
        let delivered = if ended { last } else { Position::START };
        Self { last, delivered, ended, known: Known::Yes, ..Self::default() }
    }

    /// Takes the next event out of the tail that is not in the log, if it came before the one at this position.
    /// Everything up to `cursor` was given.
    pub(super) fn unlogged_before(&mut self, position: Position, cursor: Position) -> Option<Bytes> {
        let slot = self.reader.as_mut()?;
        let tail = &mut slot.tail;
        while tail.front().is_some_and(|event| event.position.is_some_and(|given| given <= cursor)) {
            tail.pop_front();
        }
        let event = tail.pop_front_if(|event| event.position.is_none() && event.after < position)?;
        slot.recount();
        self.misses(event.after);
        Some(event.body)
    }

    /// Whether the reader of that number is the stream's one reader.
    pub(super) fn is_read_by(&self, number: u64) -> bool {
        self.reader.as_ref().is_some_and(|slot| slot.reader == number)
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.as_mut().and_then(|slot| slot.waker.take()) {
            waker.wake();
        }
    }
}

impl State {
    /// Streams that wait for a response, and the standalone one if somebody listens to it.
    pub(super) fn count_streams(&self) -> usize {
        let standalone = self.streams.get(&StreamId::STANDALONE);
        self.open_streams + usize::from(standalone.is_some_and(|stream| stream.reader.is_some()))
    }
}

pub(super) fn too_large(bytes: usize, limit: usize) -> Error {
    Error::new(
        Reason::EventTooLarge,
        format!("The server's message has {bytes} bytes; at most {limit} are allowed"),
    )
    .with("limit", limit)
}
