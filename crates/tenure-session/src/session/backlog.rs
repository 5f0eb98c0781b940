//! The backlog of the log: what it should have and did not take when it failed.
//!
//! Four things: events that wait for a reader, gaps, ends of streams, and notes of requests. They go into the log with
//! the next append of their session that works, in front of later events of their stream, or after a while by
//! themselves. An event that a reader has taken meanwhile, without an id, does not: its client would get it again.
//! Nor does one whose append may have been done, or behind which the log has a later one: it stays for its reader.
//! In place of these stands a gap, an event without a body: clients that come back are told that something may be
//! missing there.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{RequestId, message};
use tokio::time::Instant;

use crate::id::{Position, StreamId};
use crate::port::clock::{Clock, Time};
use crate::port::store::{NewEvent, Place};
use crate::session::session::{Session, State};
use crate::session::stream::{Known, MAX_TAIL_BYTES, Stream, Tailed};

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
    pub(crate) fn of(request: &message::Request) -> Self {
        let written = message::write_request(&request.id, &request.method, request.params.as_ref());
        Self { id: request.id.clone(), request: written }
    }
}

/// The note of a request that is held: it stands in the log, and no server has seen it.
pub(super) fn held_note(request: &message::Request) -> Bytes {
    let noted = Noted::of(request).request;
    let open = noted.strip_suffix(b"}").expect("a request is an object");
    [open, br#","begun":false}"#].concat().into()
}

/// Whether a note says that no server has seen the request. Earlier versions do not know the word, and take the
/// request for one that may have been begun.
pub(super) fn is_held(note: &Bytes) -> bool {
    #[derive(serde::Deserialize)]
    struct Begun {
        begun: bool,
    }
    serde_json::from_slice(note).is_ok_and(|begun: Begun| !begun.begun)
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
            // The log must not have a complete stream without its end, or the request would be run again.
            let ends = (stream.unfinished || (stream.ended && !bodies.is_empty())) && !stream.holds_last();
            stream.unfinished &= !ends;
            if std::mem::take(&mut stream.is_missing) && (ends || !stream.ended) {
                bodies.insert(0, Bytes::new());
            }
            if let Some(note) = stream.unwritten.take().filter(|_| !stream.ended) {
                stream.known = Known::Soon;
                self.push(state, id, note, Place::Note);
            }
            // The last body is the answer, unless a reader has taken that.
            let answer =
                if ends { bodies.pop_if(|body| !body.is_empty()).or(Some(Bytes::new())) } else { None };
            for body in bodies {
                self.push(state, id, body, Place::Middle);
            }
            if let Some(body) = answer {
                self.push(state, id, body, Place::End);
            }
        }
        state.log_lags = state.streams.values().any(Stream::lags);
        state.log_again = state.log_lags.then(|| Instant::now() + LOG_AGAIN);
    }

    /// The log lacks something from now on: it is tried again after a while.
    pub(super) fn log_lags(&self, state: &mut State) {
        state.log_lags = true;
        if state.log_again.is_none() && state.end.is_none() {
            state.log_again = Some(Instant::now() + LOG_AGAIN);
            self.schedule(state, self.inner.clock.now());
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
            let lacks = self.streams.get(&id).map_or(0, |stream| stream.unlogged.len() + 2);
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
        // A reader that is there may be about to take its events. They are left to it: as long as the log fails, they
        // would otherwise be on their way there and back each time it comes for them.
        let events = if stream.reader.is_none() { stream.take_unlogged() } else { Vec::new() };
        let is_missing = std::mem::take(&mut stream.is_missing) | stream.holds_last();
        let gap = is_missing.then(|| (Bytes::new(), Place::Middle));
        let events = events.into_iter().map(|body| (body, Place::Middle));
        for (body, place) in note.map(|body| (body, Place::Note)).into_iter().chain(gap).chain(events) {
            self.add(batch, NewEvent { stream: id, body, place, at });
        }
    }

    /// Puts an event into a batch that was not queued.
    fn add(&mut self, batch: &mut Vec<NewEvent>, event: NewEvent) {
        self.outbox.add_bytes(event.body.len());
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
    /// Whether the log lacks something of it that it can be given.
    fn lags(&self) -> bool {
        let waits = self.at_hand().back().is_some_and(|event| self.can_be_logged(event));
        waits || self.is_missing || self.unfinished || self.note_is_old || self.unwritten.is_some()
    }

    /// What waits for the reader that is there, or for the next one.
    fn at_hand(&self) -> &VecDeque<Tailed> {
        self.reader.as_ref().map_or(&self.unlogged, |slot| &slot.tail)
    }

    /// Whether an event at hand can still go into the log: it is surely not there, and no later one is.
    fn can_be_logged(&self, event: &Tailed) -> bool {
        event.position.is_none() && !event.is_doubtful && event.after == self.last
    }

    /// Takes the events out that the log can still be given.
    fn take_unlogged(&mut self) -> Vec<Bytes> {
        let last = self.at_hand().iter().rposition(|event| !self.can_be_logged(event));
        let events = self.reader.as_mut().map_or(&mut self.unlogged, |slot| &mut slot.tail);
        let taken = events.split_off(last.map_or(0, |last| last + 1));
        if let Some(slot) = &mut self.reader {
            slot.recount();
        }
        taken.into_iter().map(|event| event.body).collect()
    }

    /// Whether the last event of all, which is the answer if the stream is complete, waits for a reader and is not in
    /// the log.
    fn holds_last(&self) -> bool {
        self.at_hand().back().is_some_and(|event| event.position.is_none() && event.after == self.last)
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

    /// An event that came after this position is not in the log, and was given without an id or dropped. If the log
    /// has a later one, it has the gap too.
    pub(super) fn misses(&mut self, after: Position) {
        self.is_missing |= after == self.last;
    }
}
