//! The backlog: events, gaps, ends of streams and notes that the log should have, but that an append failed to write.
//!
//! The next append of the session writes them, in front of later events of the same stream; without one, a retry
//! does after a while. Two kinds of events are no longer written: an event that a reader has delivered without an id,
//! because its client would get it again; and an event whose append may have worked or that has a later event in the
//! log: it stays for its reader. A gap takes their place: an event without a body, which tells clients that come back
//! that events may be missing there.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{RequestId, message};
use tokio::time::Instant;

use crate::call::Granted;
use crate::id::{Position, StreamId};
use crate::port::clock::{Clock, Time};
use crate::port::store::{EntryPlace, NewEvent, StoreCapabilities};
use crate::session::live_session::{Session, SessionState};
use crate::session::stream::{EventStream, MAX_TAIL_BYTES, NoteStatus, TailEvent};

/// Delay of the retry after a failed append, if no other append comes first.
const LOG_AGAIN: Duration = Duration::from_secs(5);

/// Most complete streams of one session that are kept only for their unlogged events.
const MAX_UNLOGGED_STREAMS: usize = 64;

/// A request of a batch, as the note of its stream contains it.
pub(super) struct NotedRequest {
    pub(super) id: RequestId,
    pub(super) request: Bytes,
}

impl NotedRequest {
    pub(crate) fn of(request: &message::Request, scopes: &Granted) -> Self {
        let written = message::write_request(&request.id, &request.method, request.params.as_ref());
        Self { id: request.id.clone(), request: with_scopes(written, scopes) }
    }
}

/// The note of a request, with the scopes of its caller: it must not get more than that when it runs again.
pub(super) fn with_scopes(request: Bytes, scopes: &Granted) -> Bytes {
    match scopes.scopes() {
        Some(scopes) => {
            let names = serde_json::Value::from_iter(scopes.iter().map(|scope| &**scope));
            with_member(&request, &format!(r#""scopes":{names}"#))
        }
        None => request,
    }
}

/// The note of a held request: the request is in the log, but no server has seen it.
pub(super) fn held_note(request: &message::Request, scopes: &Granted) -> Bytes {
    with_member(&NotedRequest::of(request, scopes).request, r#""begun":false"#)
}

fn with_member(note: &Bytes, member: &str) -> Bytes {
    let open = note.strip_suffix(b"}").expect("a request is an object");
    [open, b",", member.as_bytes(), b"}"].concat().into()
}

/// The scopes that the requests of a note were sent with; those of a batch came together, with the same ones.
pub(super) fn noted_scopes(note: &Bytes) -> Granted {
    #[derive(serde::Deserialize)]
    struct Scoped {
        scopes: Option<Vec<Box<str>>>,
    }
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Note {
        One(Scoped),
        Batch(Vec<Scoped>),
    }
    let scopes = match serde_json::from_slice(note) {
        Ok(Note::One(one)) => one.scopes,
        Ok(Note::Batch(batch)) => batch.into_iter().find_map(|one| one.scopes),
        Err(_) => Some(Vec::new()),
    };
    Granted::of_record(scopes)
}

/// Whether a note says that no server has seen the request. Earlier versions ignore the member, and treat the request
/// as one that may have started.
pub(super) fn is_held(note: &Bytes) -> bool {
    #[derive(serde::Deserialize)]
    struct BegunMark {
        begun: bool,
    }
    serde_json::from_slice(note).is_ok_and(|begun: BegunMark| !begun.begun)
}

/// The note of a stream that answers several requests.
pub(super) fn note_of(requests: &[NotedRequest]) -> Bytes {
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
    /// Queues the backlog that can be written now. The caller flushes.
    pub(super) fn catch_log_up(&self, state: &mut SessionState) {
        // A session that has ended no longer has a log.
        if state.end.is_some() || state.is_given_up || !state.log_lags {
            return;
        }
        let mut lagging: Vec<StreamId> =
            state.streams.iter().filter(|(_, stream)| stream.lags()).map(|(id, _)| *id).collect();
        lagging.sort_unstable();
        for id in lagging {
            let Some(stream) = state.streams.get_mut(&id) else { continue };
            state.renew_notes |= stream.note_is_old;
            let mut bodies = stream.take_unlogged();
            // A complete stream needs its end in the log, or the next process would run the request again.
            let ends =
                (stream.end_not_logged || (stream.ended && !bodies.is_empty())) && !stream.holds_last();
            stream.end_not_logged &= !ends;
            if std::mem::take(&mut stream.is_missing) && (ends || !stream.ended) {
                bodies.insert(0, Bytes::new());
            }
            if let Some(note) = stream.failed_note.take().filter(|_| !stream.ended) {
                stream.note_status = NoteStatus::Pending;
                self.push(state, id, note, EntryPlace::Note);
            }
            // The last body is the answer, unless a reader has delivered the answer.
            let answer =
                if ends { bodies.pop_if(|body| !body.is_empty()).or(Some(Bytes::new())) } else { None };
            for body in bodies {
                self.push(state, id, body, EntryPlace::Middle);
            }
            if let Some(body) = answer {
                self.push(state, id, body, EntryPlace::End);
            }
        }
        state.log_lags = state.streams.values().any(EventStream::lags);
        state.log_again = state.log_lags.then(|| Instant::now() + LOG_AGAIN);
    }

    /// Marks the log as incomplete and schedules a retry.
    pub(super) fn log_lags(&self, state: &mut SessionState) {
        state.log_lags = true;
        if state.log_again.is_none() && state.end.is_none() && !state.is_given_up {
            state.log_again = Some(Instant::now() + LOG_AGAIN);
            self.schedule(state, self.inner.clock.now());
        }
    }

    /// Counts a request of the stream as done without an answer. The caller flushes.
    pub(super) fn close_share(&self, state: &mut SessionState, id: StreamId, request: &RequestId) {
        if state.answered_one(id, request) {
            // Log the end too, so that the next process does not run the request again.
            self.push(state, id, Bytes::new(), EntryPlace::End);
        }
    }
}

impl SessionState {
    /// The next events to append, about as many as the store takes at once, each behind the backlog of its stream.
    pub(super) fn next_batch(&mut self, limits: StoreCapabilities, clock: &dyn Clock) -> Vec<NewEvent> {
        let (max, max_bytes) = (limits.max_batch, limits.max_batch_bytes);
        if !self.log_lags && !self.renew_notes {
            let mut count = self.outbox.queue.len().min(max);
            if max_bytes != usize::MAX {
                count = self.outbox.count_within(count, max_bytes);
            }
            return self.outbox.queue.drain(..count).collect();
        }
        let (mut batch, now) = (Vec::new(), clock.now());
        while let Some(id) = self.outbox.queue.front().map(|event| event.stream) {
            let lacks = self.streams.get(&id).map_or(0, |stream| stream.unlogged.len() + 2);
            let is_large = max_bytes != usize::MAX && {
                let bytes: usize = batch.iter().map(|event: &NewEvent| event.body.len()).sum();
                bytes.saturating_add(self.bytes_next(id)) > max_bytes
            };
            if !batch.is_empty() && (batch.len() + lacks >= max || is_large) {
                return batch;
            }
            self.take_backlog(id, &mut batch, now);
            batch.extend(self.outbox.queue.pop_front());
        }
        // Only after the whole queue: a note that leaves out a request must not be in the log without the answer to
        // that request.
        if std::mem::take(&mut self.renew_notes) {
            let old: Vec<StreamId> =
                self.streams.iter().filter(|(_, stream)| stream.note_is_old).map(|(id, _)| *id).collect();
            for id in old {
                let Some(stream) = self.streams.get_mut(&id) else { continue };
                stream.note_is_old = false;
                if stream.open > 0 {
                    let body = note_of(&stream.requests);
                    self.add(&mut batch, NewEvent { stream: id, body, place: EntryPlace::Note, at: now });
                }
            }
        }
        batch
    }

    /// The bytes of a stream's backlog and of the next event.
    fn bytes_next(&self, id: StreamId) -> usize {
        let backlog = self.streams.get(&id).map_or(0, |stream| {
            let note = stream.failed_note.as_ref().map_or(0, Bytes::len);
            note + stream.unlogged.iter().map(|event| event.body.len()).sum::<usize>()
        });
        backlog + self.outbox.queue.front().map_or(0, |event| event.body.len())
    }

    /// Puts the backlog of a stream into a batch, in front of the stream's next event.
    fn take_backlog(&mut self, id: StreamId, batch: &mut Vec<NewEvent>, at: Time) {
        let next = self.outbox.queue.front().map(|event| event.place);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let note = stream.failed_note.take_if(|_| next != Some(EntryPlace::Note));
        if note.is_some() {
            stream.note_status = NoteStatus::Pending;
        }
        // An attached reader is about to deliver its events, so they stay in its tail: otherwise, while the log fails,
        // each attempt would move them to the log and back, and the reader would not find them.
        let events = if stream.reader.is_none() { stream.take_unlogged() } else { Vec::new() };
        let is_missing = std::mem::take(&mut stream.is_missing) | stream.holds_last();
        let gap = is_missing.then(|| (Bytes::new(), EntryPlace::Middle));
        let events = events.into_iter().map(|body| (body, EntryPlace::Middle));
        for (body, place) in note.map(|body| (body, EntryPlace::Note)).into_iter().chain(gap).chain(events) {
            self.add(batch, NewEvent { stream: id, body, place, at });
        }
    }

    /// Puts an event that was not queued into a batch.
    fn add(&mut self, batch: &mut Vec<NewEvent>, event: NewEvent) {
        self.outbox.add_bytes(event.body.len());
        if let Some(stream) = self.streams.get_mut(&event.stream) {
            stream.queued += 1;
        }
        batch.push(event);
    }

    /// Bounds the number of complete streams that are kept for their unlogged events; the oldest goes first.
    pub(super) fn bound_unlogged(&mut self) {
        let kept =
            |stream: &EventStream| stream.ended && stream.reader.is_none() && !stream.unlogged.is_empty();
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

    /// Forgets a complete stream without events: a client cannot resume it, and no trim would remove it.
    pub(super) fn forget_if_empty(&mut self, id: StreamId) {
        let empty = |stream: &EventStream| {
            let unused = stream.last == Position::START && stream.queued == 0 && stream.unlogged.is_empty();
            // If its end is not in the log, the note still is: the next process would run its request again.
            stream.ended && stream.reader.is_none() && unused && !stream.end_not_logged
        };
        if self.streams.get(&id).is_some_and(empty) {
            self.streams.remove(&id);
        }
    }

    /// Counts one request of a stream as done. Returns true if it was the last one.
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

impl EventStream {
    /// Whether the stream has a backlog that can be written.
    fn lags(&self) -> bool {
        let waits = self.at_hand().back().is_some_and(|event| self.can_be_logged(event));
        waits || self.is_missing || self.end_not_logged || self.note_is_old || self.failed_note.is_some()
    }

    /// The events in memory for the attached reader, or for the next one.
    fn at_hand(&self) -> &VecDeque<TailEvent> {
        self.reader.as_ref().map_or(&self.unlogged, |attached| &attached.tail)
    }

    /// Whether an event can still be logged: the log certainly has neither it nor a later one.
    fn can_be_logged(&self, event: &TailEvent) -> bool {
        event.position.is_none() && !event.is_unknown && event.after == self.last
    }

    /// Takes out the events that can still be logged.
    fn take_unlogged(&mut self) -> Vec<Bytes> {
        let last = self.at_hand().iter().rposition(|event| !self.can_be_logged(event));
        let events = self.reader.as_mut().map_or(&mut self.unlogged, |attached| &mut attached.tail);
        let taken = events.split_off(last.map_or(0, |last| last + 1));
        if let Some(attached) = &mut self.reader {
            attached.recount();
        }
        taken.into_iter().map(|event| event.body).collect()
    }

    /// Whether the stream's last event (the answer, if it is complete) waits for a reader and is not in the log.
    fn holds_last(&self) -> bool {
        self.at_hand().back().is_some_and(|event| event.position.is_none() && event.after == self.last)
    }

    /// Keeps an unlogged event for the next reader; bounded like a tail.
    pub(super) fn keep_unlogged(&mut self, event: TailEvent, max_events: usize) {
        self.unlogged.push_back(event);
        let mut bytes: usize = self.unlogged.iter().map(|event| event.body.len()).sum();
        while self.unlogged.len() > max_events || (bytes > MAX_TAIL_BYTES && self.unlogged.len() > 1) {
            let Some(dropped) = self.unlogged.pop_front() else { break };
            bytes -= dropped.body.len();
            self.misses(dropped.after);
        }
    }

    /// Records that an event after this position was dropped or delivered without an id, and is not in the log. If the
    /// log has a later event, it already has the gap.
    pub(super) fn misses(&mut self, after: Position) {
        self.is_missing |= after == self.last;
    }
}
