//! The backlog of the log: what it should have and did not take when it failed.
//!
//! Three things: events that wait for a reader, ends of streams, and notes of requests. They go into the log with the
//! next append of their session that works, in front of later events of their stream, or after a while by
//! themselves. An event that a reader has taken meanwhile, without an id, does not: its client would get it again.
//! An event whose append may have been done does not either, and stays for its reader alone.

use std::time::Duration;

use bytes::Bytes;

use super::session::{Session, State};
use super::stream::{Known, MAX_TAIL_BYTES, Stream, Tailed};
use crate::id::{Position, RequestId, StreamId};
use crate::message;
use crate::port::clock::{Clock, Time};
use crate::port::store::{NewEvent, Place};

/// How long after a failure the log is tried again, if nothing else is said meanwhile.
const LOG_AGAIN: Duration = Duration::from_secs(5);

/// Complete streams of one session that are kept only for what could not be logged.
const MAX_UNLOGGED_STREAMS: usize = 64;

/// A request of a batch, as it stands in the note of its stream.
pub(super) struct Noted {
    pub(super) id: RequestId,
    pub(super) request: Bytes,
}

impl Noted {
    pub(super) fn of(request: &message::Request) -> Self {
        let written = message::write_request(&request.id, &request.method, request.params.as_ref());
        Self { id: request.id.clone(), request: written }
    }
}

/// The note of a stream that answers several requests.
pub(super) fn note_of(requests: &[Noted]) -> Bytes {
    let mut note = vec![b'['];
    for noted in requests {
        if note.len() > 1 {
            note.push(b',');
        }
        note.extend_from_slice(&noted.request);
    }
    note.push(b']');
    note.into()
}

impl Session {
    /// Queues what the log lacks and can be told now. The caller flushes.
    pub(super) fn catch_log_up(&self, state: &mut State) {
        // A session that is over has no log any more.
        if state.end.is_some() || !state.log_lags {
            return;
        }
        let mut lagging: Vec<StreamId> =
            state.streams.iter().filter(|(_, stream)| stream.lags()).map(|(id, _)| *id).collect();
        lagging.sort_unstable();
        for id in lagging {
            let Some(stream) = state.streams.get_mut(&id) else { continue };
            state.renew_notes |= stream.note_is_old;
            let mut bodies = stream.take_unlogged();
            let ends = stream.unfinished && !stream.holds_answer();
            stream.unfinished &= !ends;
            // A complete stream without events needs none.
            let note = stream.unwritten.take().filter(|_| !stream.ended || !bodies.is_empty());
            if let Some(note) = note {
                stream.known = Known::Soon;
                self.push(state, id, note, Place::Note);
            }
            let last = bodies.pop().or(ends.then(Bytes::new));
            for body in bodies {
                self.push(state, id, body, Place::Middle);
            }
            if let Some(body) = last {
                self.push(state, id, body, if ends { Place::End } else { Place::Middle });
            }
        }
        state.log_lags = state.streams.values().any(Stream::lags);
        state.log_again = state.log_lags.then(|| self.inner.clock.now().after(LOG_AGAIN));
    }

    /// The log lacks something from now on: it is tried again after a while.
    pub(super) fn log_lags(&self, state: &mut State) {
        state.log_lags = true;
        if state.log_again.is_none() && state.end.is_none() {
            let now = self.inner.clock.now();
            state.log_again = Some(now.after(LOG_AGAIN));
            self.schedule(state, now);
        }
    }

    /// A request of the stream ended without an answer on it. The caller flushes.
    pub(super) fn close_share(&self, state: &mut State, id: StreamId, request: &RequestId) {
        if state.answered_one(id, request) {
            // The log has to know too: after a restart this request shall not be answered.
            self.push(state, id, Bytes::new(), Place::End);
        }
    }
}

impl State {
    /// The next events to append, at most `max`, each behind what the log lacks of its stream.
    pub(super) fn next_batch(&mut self, max: usize, clock: &dyn Clock) -> Vec<NewEvent> {
        if !self.log_lags && !self.renew_notes {
            let count = self.outbox.queue.len().min(max);
            return self.outbox.queue.drain(..count).collect();
        }
        let (mut batch, now) = (Vec::new(), clock.now());
        while let Some(id) = self.outbox.queue.front().map(|event| event.stream) {
            let lacks = self.streams.get(&id).map_or(0, |stream| stream.unlogged.len() + 1);
            if !batch.is_empty() && batch.len() + lacks >= max {
                return batch;
            }
            self.take_backlog(id, &mut batch, now);
            batch.extend(self.outbox.queue.pop_front());
        }
        // Only with everything that was queued: a note that leaves a request out must not stand in the log without
        // the answer to it.
        if std::mem::take(&mut self.renew_notes) {
            let old: Vec<StreamId> =
                self.streams.iter().filter(|(_, stream)| stream.note_is_old).map(|(id, _)| *id).collect();
            for id in old {
                let Some(stream) = self.streams.get_mut(&id) else { continue };
                stream.note_is_old = false;
                if stream.open > 0 {
                    let body = note_of(&stream.requests);
                    self.add(&mut batch, NewEvent { stream: id, body, place: Place::Note, at: now });
                }
            }
        }
        batch
    }

    /// Puts what the log lacks of a stream into a batch, in front of the stream's next event.
    fn take_backlog(&mut self, id: StreamId, batch: &mut Vec<NewEvent>, at: Time) {
        let next = self.outbox.queue.front().map(|event| event.place);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let note = stream.unwritten.take_if(|_| next != Some(Place::Note));
        if note.is_some() {
            stream.known = Known::Soon;
        }
        let events = if stream.reader.is_none() { stream.take_unlogged() } else { Vec::new() };
        let note = note.map(|body| (body, Place::Note));
        for (body, place) in note.into_iter().chain(events.into_iter().map(|body| (body, Place::Middle))) {
            self.add(batch, NewEvent { stream: id, body, place, at });
        }
    }

    /// Puts an event into a batch that was not queued.
    fn add(&mut self, batch: &mut Vec<NewEvent>, event: NewEvent) {
        self.outbox.bytes += event.body.len();
        if let Some(stream) = self.streams.get_mut(&event.stream) {
            stream.queued += 1;
        }
        batch.push(event);
    }

    /// Only so many complete streams are kept for what the log does not have; the oldest go first.
    pub(super) fn bound_unlogged(&mut self) {
        let kept = |stream: &Stream| stream.ended && stream.reader.is_none() && !stream.unlogged.is_empty();
        let kept: Vec<StreamId> =
            self.streams.iter().filter(|(_, stream)| kept(stream)).map(|(id, _)| *id).collect();
        if kept.len() > MAX_UNLOGGED_STREAMS
            && let Some(oldest) = kept.into_iter().min()
            && let Some(stream) = self.streams.get_mut(&oldest)
        {
            while let Some(dropped) = stream.unlogged.pop_front() {
                stream.misses(dropped.after);
            }
            self.forget_if_empty(oldest);
        }
    }

    /// Forgets a complete stream that never had an event: there is nothing to resume, and no trim would find it.
    pub(super) fn forget_if_empty(&mut self, id: StreamId) {
        let empty = |stream: &Stream| {
            let unused = stream.last == Position::START && stream.queued == 0 && stream.unlogged.is_empty();
            // The log still has the note of a stream whose end it was not told: its request would be run again.
            stream.ended && stream.reader.is_none() && unused && !stream.unfinished
        };
        if self.streams.get(&id).is_some_and(empty) {
            self.streams.remove(&id);
        }
    }

    /// Counts one request of a stream as done; true if it was the last.
    pub(super) fn answered_one(&mut self, id: StreamId, request: &RequestId) -> bool {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.open > 0) else { return false };
        stream.open -= 1;
        let last = stream.open == 0;
        if let Some(done) = stream.requests.iter().position(|noted| noted.id == *request) {
            stream.requests.remove(done);
            stream.note_is_old = !last;
            self.renew_notes |= !last;
        }
        self.open_streams -= usize::from(last);
        last
    }
}

impl Stream {
    /// Whether the log lacks something of it.
    fn lags(&self) -> bool {
        let waits = self.reader.is_none() && self.unlogged.iter().any(|event| !event.is_doubtful);
        waits || self.unfinished || self.note_is_old || self.unwritten.is_some()
    }

    /// Takes the events out that the log can still be given. A reader that is there takes its events itself, in
    /// their order; only the last ones of a complete stream are taken from it, because the answer is among them.
    fn take_unlogged(&mut self) -> Vec<Bytes> {
        let can_be_logged = |event: &Tailed| event.position.is_none() && !event.is_doubtful;
        let events = match &mut self.reader {
            None => std::mem::take(&mut self.unlogged),
            Some(slot) if self.unfinished => {
                let first = slot.tail.iter().rposition(|event| !can_be_logged(event)).map_or(0, |at| at + 1);
                slot.tail.split_off(first)
            }
            Some(_) => return Vec::new(),
        };
        let (logged, doubtful) = events.into_iter().partition::<Vec<_>, _>(can_be_logged);
        self.unlogged.extend(doubtful);
        logged.into_iter().map(|event| event.body).collect()
    }

    /// Whether the last event of a complete stream, which is its answer, waits for a reader and is not in the log.
    fn holds_answer(&self) -> bool {
        let events = self.reader.as_ref().map_or(&self.unlogged, |slot| &slot.tail);
        events.back().is_some_and(|event| event.position.is_none())
    }

    /// Keeps an event for the next reader that the log does not have; bounded like a tail.
    pub(super) fn keep_unlogged(&mut self, event: Tailed, max_events: usize) {
        self.unlogged.push_back(event);
        let mut bytes: usize = self.unlogged.iter().map(|event| event.body.len()).sum();
        while self.unlogged.len() > max_events || (bytes > MAX_TAIL_BYTES && self.unlogged.len() > 1) {
            let Some(dropped) = self.unlogged.pop_front() else { break };
            bytes -= dropped.body.len();
            self.misses(dropped.after);
        }
    }

    /// An event that came after this position is not in the log, and cannot be given any more.
    pub(super) fn misses(&mut self, after: Position) {
        self.missing = self.missing.max(Some(after));
    }
}
