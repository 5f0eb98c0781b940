//! Events out: from an emitter, through the log, to the one reader a stream may have.
//!
//! Order matters: an event is appended to the store first and shown to the reader after, so a client that comes back
//! between the two finds it in the log. One append is in flight per session; later events are batched behind it.
//! Nothing here waits for a client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Error, Reason, RequestId, message};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::call::Origin;
use crate::id::{Position, StreamId};
use crate::port::observer::Happened;
use crate::port::store::{EntryPlace, KeptEvents, NewEvent, StoreError, Stored};
use crate::session::backlog::{self, NotedRequest};
use crate::session::drain::draining;
use crate::session::live_session::{Session, SessionState};
use crate::session::share::WaitingBytes;

/// Most bytes that a stream keeps in memory for its reader; one event always fits.
pub(super) const MAX_TAIL_BYTES: usize = 256 << 10;

/// Delay after a failed trim.
const TRIM_AGAIN: Duration = Duration::from_secs(5);

/// One stream of a session.
#[derive(Default)]
pub(super) struct EventStream {
    /// Number of requests whose response is still to come on it.
    pub(super) open: usize,
    /// Number of events in the outbox or in the running append.
    pub(super) queued: usize,
    /// No more events will come.
    pub(super) ended: bool,
    /// The position of its last event in the log.
    pub(super) last: Position,
    /// The position of the last event that a reader has delivered.
    pub(super) delivered: Position,
    /// Whether the stream's note is in the log, so that a client may come back to it.
    pub(super) note_status: NoteStatus,
    /// The note, if it could not be written.
    pub(super) failed_note: Option<Bytes>,
    /// The open requests of a batch, as the note names them. Empty for a single request, whose note never changes.
    pub(super) requests: Vec<NotedRequest>,
    /// The note in the log names requests that are no longer open.
    pub(super) note_is_old: bool,
    /// It is complete, but its end is not in the log.
    pub(super) end_not_logged: bool,
    /// The connection of the next reader is closed at once; the client comes back later.
    pub(super) close_first: bool,
    /// Events that could not be logged while there was no reader. They go to the log when it works again, or to the
    /// next reader. Bounded like a tail.
    pub(super) unlogged: VecDeque<TailEvent>,
    /// After `last`, events were dropped or delivered without an id, and are not in the log. A client that resumes
    /// before them is told that events may be missing, and a gap is logged as soon as the log works.
    pub(super) is_missing: bool,
    /// Boxed, because most streams that are kept have no reader.
    pub(super) reader: Option<Box<AttachedReader>>,
}

/// Whether the note of a stream is in the log. The note names the requests that the stream answers.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum NoteStatus {
    /// Not yet: it is queued or being written.
    #[default]
    Pending,
    /// It is in the log.
    Written,
    /// It could not be written; the next append includes it.
    Unwritten,
    /// The append had an unknown result. Clients get no event id. The end is logged all the same, so that no wake finds
    /// the request open.
    Unknown,
}

/// The reader of a stream, and the events that wait for it.
pub(super) struct AttachedReader {
    /// Distinguishes a replaced reader from its successor.
    pub(super) number: u64,
    pub(super) waker: Option<Waker>,
    /// Unread events after `floor`. Bounded; the reader finds dropped events in the store.
    pub(super) tail: VecDeque<TailEvent>,
    /// Every event after this position is in `tail`.
    pub(super) floor: Position,
    /// Close the connection with this `retry`; the stream goes on.
    pub(super) closing: Option<Duration>,
    /// Dropped events are not in the log either; the reader has to report a gap.
    pub(super) lost: bool,
    /// The tail's bytes, charged to the client's share.
    pub(super) waiting: WaitingBytes,
}

impl AttachedReader {
    /// Takes out the events that are not in the log, for the next reader.
    pub(super) fn unlogged(&mut self) -> impl Iterator<Item = TailEvent> + use<> {
        std::mem::take(&mut self.tail).into_iter().filter(|event| event.position.is_none())
    }

    /// Adds an event to the tail, and drops the oldest events if the tail is full. If a dropped event is not in the
    /// log, returns the position after which it is missing.
    fn take(&mut self, event: TailEvent, max_events: usize) -> Option<Position> {
        let mut missing = None;
        self.tail.push_back(event);
        let mut bytes: usize = self.tail.iter().map(|event| event.body.len()).sum();
        self.waiting.count(bytes);
        let is_too_much = self.waiting.is_too_much();
        while let Some(first) = self.tail.front() {
            // An event that is not in the log stays as long as it fits into the tail.
            let is_large = bytes > MAX_TAIL_BYTES || (is_too_much && first.position.is_some());
            if self.tail.len() <= max_events && (self.tail.len() == 1 || !is_large) {
                break;
            }
            let Some(dropped) = self.tail.pop_front() else { break };
            bytes -= dropped.body.len();
            match dropped.position {
                // The reader is slow; it finds this event in the store.
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

    /// Updates the charged bytes, if any were charged.
    pub(super) fn recount(&mut self) {
        if self.waiting.is_counted() {
            self.waiting.count(self.tail.iter().map(|event| event.body.len()).sum());
        }
    }
}

/// An event in memory. If it is not in the log it has no position, so that no client resumes after it.
pub(super) struct TailEvent {
    pub(super) position: Option<Position>,
    /// The position of the stream's last event in the log when this one came.
    pub(super) after: Position,
    /// The append failed with an unknown result: the log may have it.
    pub(super) is_unknown: bool,
    pub(super) body: Bytes,
}

/// Queue of events that are to be appended to the log. Full by bytes: then [`Session::emit`] waits.
#[derive(Default)]
pub(super) struct Outbox {
    pub(super) queue: VecDeque<NewEvent>,
    bytes: usize,
    /// The queue's bytes, charged to the client's share.
    pub(super) waiting: WaitingBytes,
    appending: bool,
    /// In a cluster: the answers that are queued or being written, in their order. A session that is given up has to
    /// answer their requests in another way.
    pub(super) answers: VecDeque<(StreamId, Bytes)>,
    /// Created by the first emitter that has to wait, and then kept: a replaced `Notify` would never wake its waiters.
    room: Option<Arc<Notify>>,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && !self.appending
    }

    /// Whether emitters have to wait.
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

    /// How many of the first `most` events have at most this many bytes; at least one.
    pub(super) fn count_within(&self, most: usize, max_bytes: usize) -> usize {
        let mut bytes = 0usize;
        let fits = |event: &&NewEvent| {
            bytes = bytes.saturating_add(event.body.len());
            bytes <= max_bytes
        };
        self.queue.iter().take(most).take_while(fits).count().max(1).min(most)
    }

    /// Drops the queued events, and forgets the answers that are being written.
    pub(super) fn clear(&mut self) {
        let bytes = self.queue.drain(..).map(|event| event.body.len()).sum();
        self.remove_bytes(bytes);
        self.answers.clear();
        self.make_room();
    }

    /// Wakes the emitters that wait for room.
    pub(super) fn make_room(&self) {
        if let Some(room) = &self.room {
            room.notify_waiters();
        }
    }
}

impl Session {
    /// Puts a message on the stream of its origin; waits while the outbox is full.
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
                    // The queue may have emptied since the lock was released; then no notification would come.
                    if self.state.lock().outbox.is_full(self.inner.limits.max_unstored_bytes) {
                        notified.await;
                    }
                }
            }
        }
    }

    /// As [`Session::emit`], but fails instead of waiting: for notifications whose sender must not be delayed.
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

    fn enqueue(&self, state: &mut SessionState, origin: &Origin, body: Bytes) -> Result<(), Error> {
        self.check_alive(state)?;
        if state.left {
            return Err(draining());
        }
        if body.len() > self.inner.limits.max_event_bytes {
            return Err(too_large(body.len(), self.inner.limits.max_event_bytes));
        }
        let stream = match origin {
            Origin::Unasked => StreamId::STANDALONE,
            Origin::Call { id, number } => {
                let stream = self.stream_of(state, id, *number)?;
                self.charge_message(state, id, body.len())?;
                stream
            }
        };
        self.push(state, stream, body, EntryPlace::Middle);
        Ok(())
    }

    /// Adds to the bytes that the server has sent for this request. Over the limit the message is refused; the response
    /// is not counted and is always delivered.
    fn charge_message(&self, state: &mut SessionState, id: &RequestId, bytes: usize) -> Result<(), Error> {
        let limit = self.inner.limits.max_call_event_bytes;
        let Some(call) = state.calls.get_mut(id) else { return Ok(()) };
        let before = call.said_bytes;
        call.said_bytes = before.saturating_add(bytes);
        if call.said_bytes <= limit {
            return Ok(());
        }
        if before <= limit {
            tracing::warn!(session = %self.label, request = ?id, method = %call.method, limit, "the server has sent too many bytes about a request; further messages about it are dropped");
        }
        let message = "The server sends more about this request than it may";
        Err(Error::new(Reason::TooMuchHeld, message).with("limit", limit))
    }

    /// The stream of a request in flight, which the first message creates. The caller flushes.
    pub(super) fn stream_of(
        &self,
        state: &mut SessionState,
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
        let note = backlog::with_scopes(note, &call.scopes);
        self.begin_stream(state, fresh, EventStream { open: 1, ..EventStream::default() }, note);
        Ok(fresh)
    }

    /// Creates a stream and queues its note. The caller flushes.
    pub(super) fn begin_stream(
        &self,
        state: &mut SessionState,
        id: StreamId,
        stream: EventStream,
        note: Bytes,
    ) {
        state.next_stream = id.number() + 1;
        state.open_streams += 1;
        state.streams.insert(id, stream);
        self.push(state, id, note, EntryPlace::Note);
    }

    pub(super) fn push(&self, state: &mut SessionState, stream: StreamId, body: Bytes, place: EntryPlace) {
        state.outbox.add_bytes(body.len());
        state.streams.entry(stream).or_default().queued += 1;
        state.outbox.queue.push_back(NewEvent { stream, body, place, at: self.inner.clock.now() });
    }

    /// Appends the queued events, unless an append is already running.
    pub(super) fn flush(self: &Arc<Self>) {
        loop {
            let batch: Vec<NewEvent> = {
                let mut state = self.state.lock();
                if state.outbox.appending || (state.outbox.queue.is_empty() && !state.renew_notes) {
                    return;
                }
                if state.is_given_up {
                    state.outbox.clear();
                    return;
                }
                let limits = self.inner.store.capabilities();
                let batch = state.next_batch(limits, self.inner.clock.as_ref());
                if batch.is_empty() {
                    return;
                }
                state.outbox.appending = true;
                batch
            };
            let began = self.stopwatch();
            let append = self.inner.store.append(self.key, self.fence(), batch.clone());
            let session = Arc::clone(self);
            let finished = self.drive(append, move |outcome| {
                if let Some(began) = began {
                    let (events, is_logged) = (batch.len(), outcome.is_ok());
                    session.tell_observer(Happened::Appended { events, took: began.elapsed(), is_logged });
                }
                session.appended(batch, outcome);
            });
            if !finished {
                return;
            }
        }
    }

    /// Runs a store operation: in place if it is ready at once, otherwise in a tracked task that afterwards flushes the
    /// events queued meanwhile. Returns whether it is already done.
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

    /// Waits until no event is queued or being written.
    pub(super) async fn log_is_written(self: &Arc<Self>) {
        self.flush();
        loop {
            let room = {
                let mut state = self.state.lock();
                if state.outbox.is_empty() || state.is_given_up || state.end.is_some() {
                    return;
                }
                Arc::clone(state.outbox.room.get_or_insert_default())
            };
            let written = room.notified();
            tokio::pin!(written);
            // Registered before the check, so that no notification is missed.
            written.as_mut().enable();
            if self.state.lock().outbox.is_empty() {
                return;
            }
            written.await;
        }
    }

    pub(super) fn committed(
        self: &Arc<Self>,
        batch: Vec<NewEvent>,
        outcome: Result<Vec<Position>, StoreError>,
    ) {
        let mut state = self.state.lock();
        state.outbox.appending = false;
        state.outbox.remove_bytes(batch.iter().map(|event| event.body.len()).sum());
        state.outbox.make_room();
        if state.is_given_up {
            // Its streams end here as `give_up` left them; the log has what was appended.
            return;
        }
        let logged = outcome.is_ok();
        let is_unknown = outcome == Err(StoreError::Unknown);
        let positions = match outcome {
            Ok(positions) => {
                state.unlogging = false;
                let events = || batch.iter().filter(|event| event.place != EntryPlace::Note);
                state.kept.events += events().count();
                state.kept.bytes += events().map(|event| event.body.len()).sum::<usize>();
                if state.kept.oldest.is_none() {
                    state.kept.oldest = events().next().map(|event| event.at);
                    self.schedule(&mut state, self.inner.clock.now());
                }
                positions.into_iter().map(Some).collect()
            }
            Err(error) => {
                // The reader still gets the events, but without ids: a client must not resume after an event that is
                // not in the log. A session that has just ended no longer has a log.
                if state.end.is_none() && !state.unlogging {
                    state.unlogging = true;
                    tracing::error!(session = %self.label, %error, "could not log events; clients cannot resume after them");
                }
                vec![None; batch.len()]
            }
        };
        for (event, position) in batch.into_iter().zip(positions) {
            self.deliver(&mut state, event, position, is_unknown);
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

    /// Shows an event to the reader of its stream. Without a reader, keeps an event that is not in the log.
    fn deliver(
        &self,
        state: &mut SessionState,
        event: NewEvent,
        position: Option<Position>,
        is_unknown: bool,
    ) {
        // The answers are in the order of their events, so the first of them is the one that comes first.
        if state.outbox.answers.front().is_some_and(|(_, body)| body.as_ptr() == event.body.as_ptr()) {
            state.outbox.answers.pop_front();
        }
        let Some(stream) = state.streams.get_mut(&event.stream) else { return };
        stream.queued -= 1;
        if event.place == EntryPlace::Note {
            match position {
                Some(_) => {
                    (stream.note_status, stream.failed_note) = (NoteStatus::Written, None);
                    self.inner.stir();
                }
                // The previous note is still in the log.
                None if stream.note_status == NoteStatus::Written => stream.note_is_old = true,
                None => {
                    stream.note_status = if is_unknown { NoteStatus::Unknown } else { NoteStatus::Unwritten };
                    stream.failed_note = Some(event.body);
                }
            }
            stream.wake_reader();
        } else {
            self.deliver_event(stream, event, position, is_unknown);
        }
        if position.is_none() {
            state.bound_unlogged();
            self.log_lags(state);
        }
    }

    fn deliver_event(
        &self,
        stream: &mut EventStream,
        event: NewEvent,
        position: Option<Position>,
        is_unknown: bool,
    ) {
        let after = stream.last;
        if let Some(position) = position {
            stream.last = position;
        }
        if event.place == EntryPlace::End {
            stream.ended = true;
            stream.end_not_logged =
                position.is_none() && matches!(stream.note_status, NoteStatus::Written | NoteStatus::Unknown);
        }
        if event.body.is_empty() && position.is_none() {
            // A mark for a gap or for the end of the stream; both are recorded now.
            stream.is_missing |= event.place == EntryPlace::Middle;
            return stream.wake_reader();
        }
        let tailed = TailEvent { position, after, is_unknown, body: event.body };
        let max_events = self.inner.limits.max_tail_events;
        let missing = match &mut stream.reader {
            Some(attached) => attached.take(tailed, max_events),
            // The next reader finds it in the log.
            None if position.is_some() => None,
            None => return stream.keep_unlogged(tailed, max_events),
        };
        if let Some(after) = missing {
            stream.misses(after);
        }
        stream.wake_reader();
    }

    /// Trims the session's log to its limits, unless a trim is running or has just failed.
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

    fn trimmed(&self, kept: KeptEvents) {
        let mut state = self.state.lock();
        state.trimming = false;
        state.kept = kept;
        // A complete stream whose events are all trimmed cannot be resumed; an open one stays.
        state.streams.retain(|_, stream| {
            !stream.ended
                || stream.last > kept.trimmed
                || stream.queued > 0
                || !stream.unlogged.is_empty()
                || stream.end_not_logged
                || stream.reader.is_some()
        });
        if state.end.is_none() {
            self.schedule(&mut state, self.inner.clock.now());
        }
    }
}

impl EventStream {
    /// A stream as the log knows it.
    pub(super) fn of_log(last: Position, ended: bool) -> Self {
        // The log does not say how much was delivered. A complete stream counts as delivered, so that a client that
        // names no position does not get all of it again.
        let delivered = if ended { last } else { Position::START };
        Self { last, delivered, ended, note_status: NoteStatus::Written, ..Self::default() }
    }

    /// Takes the next unlogged event out of the tail, if it came before the event at `position`. The reader has
    /// delivered everything up to `cursor`.
    pub(super) fn unlogged_before(&mut self, position: Position, cursor: Position) -> Option<Bytes> {
        let attached = self.reader.as_mut()?;
        let tail = &mut attached.tail;
        while tail.front().is_some_and(|event| event.position.is_some_and(|given| given <= cursor)) {
            tail.pop_front();
        }
        let event = tail.pop_front_if(|event| event.position.is_none() && event.after < position)?;
        attached.recount();
        self.misses(event.after);
        Some(event.body)
    }

    /// Whether the reader with this number is the stream's reader.
    pub(super) fn is_read_by(&self, number: u64) -> bool {
        self.reader.as_ref().is_some_and(|attached| attached.number == number)
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.as_mut().and_then(|attached| attached.waker.take()) {
            waker.wake();
        }
    }
}

impl SessionState {
    /// Number of streams that wait for a response, plus the standalone stream if it has a reader.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::clock::Time;

    #[test]
    fn a_batch_has_as_many_events_as_fit_and_at_least_one() {
        let mut outbox = Outbox::default();
        for bytes in [5usize, 5, 1] {
            let (stream, body) = (StreamId::STANDALONE, Bytes::from(vec![b'x'; bytes]));
            outbox.queue.push_back(NewEvent { stream, body, place: EntryPlace::Middle, at: Time(0) });
        }
        let counts = [(3, 11), (3, 10), (3, 9), (3, 1), (2, 11), (1, 0)];
        let counts = counts.map(|(most, max_bytes)| outbox.count_within(most, max_bytes));
        assert_eq!(counts, [3, 2, 1, 1, 2, 1]);
    }
}
