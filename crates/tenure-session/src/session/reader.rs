//! The reading end of a stream: replays the log, then goes live, without a gap between.
//!
//! A reader pulls. It holds a cursor and asks for the events after it: from the tail in memory if that reaches back far
//! enough, otherwise from the store. A slow reader therefore costs one stretch of events in memory and delays no other
//! task. A stream has at most one reader; a new reader replaces the old one.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::{Error, Method, RawJson, Reason, message};

use crate::figures::TimelineEvent;
use crate::id::{Position, StreamId};
use crate::limits::{OnGap, UnknownEventId};
use crate::port::observer::{Happened, Resumption};
use crate::port::store::{EntryPlace, Event, ReadLimit, StoreError, Stored, StreamEvents};
use crate::session::claim::elsewhere;
use crate::session::event_id::EventId;
use crate::session::live_session::{Session, SessionState};
use crate::session::sessions::store_failed;
use crate::session::stream::{AttachedReader, EventStream, NoteStatus};

/// Limit of one read from the store.
const STRETCH: ReadLimit = ReadLimit { events: 128, bytes: 1 << 20 };

/// The longest `retry` once the next process has the socket, or another node takes the session: a client may come back
/// soon.
const MAX_RETRY_AFTER_HAND_OVER: Duration = Duration::from_secs(1);

/// One thing to write to the client.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// An id without data: the client may resume from here.
    Prime(EventId),
    /// A message. A client cannot resume after a message without an id.
    Event {
        /// Its id.
        id: Option<EventId>,
        /// The message.
        body: Bytes,
    },
    /// Events are missing here: the log no longer has them.
    Gap,
    /// The connection closes while the stream goes on; the client should wait this long and come back.
    Close(Duration),
}

/// The reading end of a stream.
pub struct Reader {
    session: Arc<Session>,
    stream: StreamId,
    number: u64,
    /// Position of the last event handed out, or where the client stopped on its last connection. Only events move it,
    /// not a trimmed range: a client that reconnects before it was told of that gap must still be told.
    cursor: Position,
    /// The store has nothing to read up to this position, so the next read starts here. The cursor stays where it is: a
    /// gap before this position still has to be reported.
    searched_to: Position,
    prime: bool,
    gap: bool,
    warn: bool,
    done: bool,
    /// The client has resumed, and this connection has sent no event id yet. Some clients forget the ids of earlier
    /// connections: without an id they could not resume again.
    needs_id: bool,
    /// A close that follows the id that had to be sent first.
    close: Option<Duration>,
    /// The process stops: the client is sent to the next process at once, and no events are read.
    sent_away: Option<Duration>,
    /// The client came with an id that is not of this session.
    is_foreign: bool,
    /// The client came with an id of this session.
    is_resumed: bool,
    /// It took the place of another reader.
    replaces: bool,
    /// The observer was told that it reads.
    is_told: bool,
    buffer: VecDeque<Event>,
    reading: Option<(Stored<StreamEvents>, Position)>,
}

impl Session {
    /// Opens the standalone stream, or resumes any stream after an event.
    ///
    /// # Errors
    /// When the id is not of this session (depending on the limits), when its stream is forgotten, or when the session
    /// has ended.
    ///
    /// # Cancel safety
    /// The reader detaches when dropped.
    pub async fn listen(self: &Arc<Self>, last_event_id: Option<&[u8]>) -> Result<Reader, Error> {
        let listening = self.listen_untold(last_event_id).await;
        if last_event_id.is_some() {
            let how = match &listening {
                Ok(reader) if reader.is_foreign => Some(Resumption::Fresh),
                Ok(reader) if reader.gap => Some(Resumption::Gap),
                Ok(_) => Some(Resumption::Replayed),
                Err(error) => match error.reason() {
                    Reason::UnknownEventId => Some(Resumption::Foreign),
                    Reason::StreamForgotten => Some(Resumption::Gap),
                    _ => None,
                },
            };
            if let Some(how) = how {
                self.tell_resumed(how);
            }
        }
        listening
    }

    async fn listen_untold(self: &Arc<Self>, last_event_id: Option<&[u8]>) -> Result<Reader, Error> {
        self.inner.confirmed().await?;
        // Only the owner knows which streams there are, and how far they have come.
        if !self.may_act() {
            return Err(elsewhere());
        }
        self.touch();
        let mut reader = self.attach(last_event_id)?;
        if self.state.lock().left {
            // The next process may already own the log.
            reader.sent_away = Some(self.stop_retry(reader.stream));
            return Ok(reader);
        }
        if reader.gap {
            reader.allow_gap()?;
        }
        // Take the floor before the store is read. During the read the tail may drop events and raise the floor; those
        // events would be in neither.
        let floor = reader.floor();
        if reader.cursor >= floor {
            return Ok(reader);
        }
        if self.state.lock().kept.oldest.is_some_and(|oldest| oldest <= self.keep().since) {
            self.trim();
        }
        match self.inner.store.read(self.key, reader.stream, reader.cursor, STRETCH).await {
            Ok(stretch) => reader.start(stretch, floor)?,
            // At another node, or in a moment, the replay may work.
            Err(error) if self.inner.roster.is_some() => return Err(store_failed(error)),
            // Replay fails, but the live stream works: the client gets later events, is told that some are missing,
            // and its next resume reads the store again.
            Err(error) => {
                tracing::error!(session = %self.label, %error, "could not replay events");
                reader.gap = true;
            }
        }
        Ok(reader)
    }

    fn attach(self: &Arc<Self>, last_event_id: Option<&[u8]>) -> Result<Reader, Error> {
        let mut state = self.state.lock();
        self.check_alive(&state)?;
        let mut is_foreign = false;
        let from = match last_event_id {
            None => None,
            Some(text) => match EventId::parse(text, &self.names) {
                Some(id) if self.was_issued(&state, &id) => Some(id),
                Some(id)
                    if id.stream != StreamId::STANDALONE
                        && id.stream.number() < state.next_stream
                        && !state.streams.contains_key(&id.stream) =>
                {
                    return Err(forgotten());
                }
                _ => {
                    is_foreign = true;
                    self.unknown_event_id()?
                }
            },
        };
        if from.is_none() {
            let listening =
                state.streams.get(&StreamId::STANDALONE).is_some_and(|stream| stream.reader.is_some());
            if !listening && state.count_streams() >= self.inner.limits.max_streams {
                return Err(too_many_streams(self.inner.limits.max_streams));
            }
        }
        let id = from.map_or(StreamId::STANDALONE, |id| id.stream);
        let cursor = from.map(|id| id.position);
        let mut reader = self.reader(&mut state, id, cursor);
        (reader.is_foreign, reader.is_resumed) = (is_foreign, from.is_some());
        if from.is_some() {
            reader.needs_id = true;
            // The client has this id, so it can come back for the rest, also to the next process.
            if let Some(stream) = state.streams.get_mut(&id) {
                stream.delivered = stream.delivered.max(reader.cursor);
            }
        }
        Ok(reader)
    }

    fn was_issued(&self, state: &SessionState, id: &EventId) -> bool {
        // Later positions are accepted too: their events were lost in a power failure, or are newer than a backup.
        let standalone = id.stream == StreamId::STANDALONE && id.position == Position::START;
        state.streams.contains_key(&id.stream) || standalone
    }

    fn unknown_event_id(&self) -> Result<Option<EventId>, Error> {
        match self.inner.limits.unknown_event_id {
            UnknownEventId::Error => {
                Err(Error::new(Reason::UnknownEventId, "Last-Event-ID is not an id of this session"))
            }
            UnknownEventId::Fresh => {
                tracing::debug!(session = %self.label, "unknown Last-Event-ID; opening a fresh stream");
                Ok(None)
            }
            UnknownEventId::ReplayAll => Ok(Some(self.event_id(StreamId::STANDALONE, Position::START))),
        }
    }

    /// Makes a reader the only reader of its stream. Without a cursor it starts after the last delivered event, so that
    /// notifications from before the first GET are not lost.
    pub(super) fn reader(
        self: &Arc<Self>,
        state: &mut SessionState,
        id: StreamId,
        at: Option<Position>,
    ) -> Reader {
        state.next_reader += 1;
        let number = state.next_reader;
        let prime = state.revision.primes_streams();
        let (left, waiting) = (state.left, state.waiting_bytes());
        if id == StreamId::STANDALONE {
            state.streams.entry(id).or_default();
        }
        let Some(stream) = state.streams.get_mut(&id) else {
            // The stream is complete and forgotten.
            return self.new_reader(id, number, Position::START, prime, true);
        };
        // A client may have an id beyond `last`: a reader may find an event in the log while its append is still under
        // way. An id beyond both names an event that was lost in a power failure: start at `last`, so that no new event
        // is skipped.
        let cursor = at.unwrap_or(stream.delivered).min(stream.last.max(stream.delivered));
        let closing = if left {
            Some(self.stop_retry(id))
        } else {
            std::mem::take(&mut stream.close_first).then(|| self.retry(id))
        };
        let mut attached = Box::new(AttachedReader {
            number,
            waker: None,
            tail: std::mem::take(&mut stream.unlogged),
            floor: stream.last,
            closing,
            lost: false,
            waiting,
        });
        // A client that names its position is told that later events cannot be replayed.
        let gap = at.is_some() && stream.is_missing && cursor <= stream.last;
        let mut replaces = false;
        if let Some(mut replaced) = stream.reader.take() {
            replaces = true;
            attached.tail.extend(replaced.unlogged());
            if let Some(waker) = replaced.waker.take() {
                waker.wake();
            }
        }
        stream.reader = Some(attached);
        let mut reader = self.new_reader(id, number, cursor, prime, false);
        (reader.gap, reader.replaces) = (gap, replaces);
        reader
    }

    fn new_reader(
        self: &Arc<Self>,
        stream: StreamId,
        number: u64,
        cursor: Position,
        prime: bool,
        done: bool,
    ) -> Reader {
        Reader {
            session: Arc::clone(self),
            stream,
            number,
            cursor,
            searched_to: Position::START,
            prime,
            gap: false,
            warn: false,
            done,
            needs_id: false,
            close: None,
            sent_away: None,
            is_foreign: false,
            is_resumed: false,
            replaces: false,
            is_told: false,
            buffer: VecDeque::new(),
            reading: None,
        }
    }

    /// Request streams without a reader, for a client that reconnects and carries all streams on one connection. With
    /// `highest`, the client knows the streams up to that number; later streams are returned from their start. Without
    /// it, each stream with undelivered events is returned after its last delivered event.
    pub fn unread_streams(&self, highest: Option<u32>) -> Vec<EventId> {
        let state = self.state.lock();
        let unread = |(id, stream): (&StreamId, &EventStream)| {
            let after = match highest {
                Some(highest) => (id.number() > highest).then_some(Position::START),
                None => {
                    let all = stream.ended && stream.delivered >= stream.last && stream.unlogged.is_empty();
                    (!all).then_some(stream.delivered)
                }
            };
            let after = after.filter(|_| *id != StreamId::STANDALONE && stream.reader.is_none());
            after.map(|after| self.event_id(*id, after))
        };
        let mut streams: Vec<EventId> = state.streams.iter().filter_map(unread).collect();
        streams.sort_by_key(|id| id.stream);
        streams
    }

    /// Closes the connection of the standalone stream after all events so far; the client comes back later.
    pub fn close_news(&self) {
        self.close_connection_of(&mut self.state.lock(), StreamId::STANDALONE);
    }

    /// How long a client waits before it comes back to a stream whose connection was closed.
    pub(super) fn retry(&self, stream: StreamId) -> Duration {
        let limits = &self.inner.limits;
        limits.retry_jitter.of(limits.retry, self.key, stream)
    }

    /// The same if the connection closes because the process stops.
    pub(super) fn stop_retry(&self, stream: StreamId) -> Duration {
        let limits = &self.inner.limits;
        let is_handed_over = self.inner.is_handed_over.load(Ordering::Relaxed);
        let goes_on_now = is_handed_over || self.inner.leaves_to_others();
        let retry =
            if goes_on_now { limits.stop_retry.min(MAX_RETRY_AFTER_HAND_OVER) } else { limits.stop_retry };
        limits.retry_jitter.of(retry, self.key, stream)
    }

    /// Closes the connection of a stream, but not the stream; the client comes back for the rest.
    pub(super) fn close_connection_of(&self, state: &mut SessionState, id: StreamId) {
        let Some(stream) = state.streams.get_mut(&id) else { return };
        match &mut stream.reader {
            Some(attached) => {
                attached.closing = Some(self.retry(id));
                if let Some(waker) = attached.waker.take() {
                    waker.wake();
                }
            }
            None => stream.close_first = true,
        }
    }
}

impl Reader {
    /// The session this reader belongs to.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The id of the last event that was read on its stream.
    pub fn after(&self) -> EventId {
        self.event_id(self.cursor)
    }

    /// How long the client waits before it comes back to this stream.
    pub fn retry(&self) -> Duration {
        self.session.retry(self.stream)
    }

    /// The next item to write, or `None` when the response is complete.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if let Some(retry) = self.close.take() {
            return Poll::Ready(Some(Item::Close(retry)));
        }
        let item = std::task::ready!(self.poll_item(cx));
        match item {
            Some(Item::Prime(_) | Item::Event { id: Some(_), .. }) => self.needs_id = false,
            Some(Item::Close(retry)) if self.needs_id => {
                (self.needs_id, self.close) = (false, Some(retry));
                return Poll::Ready(Some(Item::Prime(self.after())));
            }
            _ => {}
        }
        Poll::Ready(item)
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if !self.is_told {
            self.tell_attached();
        }
        if self.prime && std::task::ready!(self.poll_can_resume(cx)) {
            self.prime = false;
            return Poll::Ready(Some(Item::Prime(self.event_id(self.cursor))));
        }
        self.prime = false;
        if let Some(retry) = self.sent_away.take() {
            self.stop_reading();
            return Poll::Ready(Some(Item::Close(retry)));
        }
        loop {
            if !self.done && !self.is_current() {
                self.stop_reading();
            }
            if std::mem::take(&mut self.gap) {
                self.warn = self.session.inner.limits.on_gap == OnGap::Warn;
                return Poll::Ready(Some(Item::Gap));
            }
            if std::mem::take(&mut self.warn) {
                return Poll::Ready(Some(Item::Event { id: None, body: gap_warning() }));
            }
            if let Some(event) = self.buffer.pop_front() {
                if let Some(item) = self.give(event) {
                    return Poll::Ready(Some(item));
                }
                continue;
            }
            if let Some((reading, _)) = &mut self.reading {
                let outcome = std::task::ready!(Pin::new(reading).poll(cx));
                if let Some(item) = self.take_stretch(outcome) {
                    return Poll::Ready(Some(item));
                }
                continue;
            }
            if self.done {
                return Poll::Ready(None);
            }
            match self.poll_live(cx) {
                LivePoll::Item(item) => return Poll::Ready(Some(item)),
                LivePoll::End => return Poll::Ready(None),
                LivePoll::Wait => return Poll::Pending,
                LivePoll::Behind => {}
            }
        }
    }

    /// The next item to write.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Item> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_live(&mut self, cx: &mut Context<'_>) -> LivePoll {
        let session = Arc::clone(&self.session);
        let mut state = session.state.lock();
        let Some(stream) = state.streams.get_mut(&self.stream) else { return self.finish() };
        let (complete, queued) = (stream.ended && stream.queued == 0, stream.queued);
        let Some(attached) = stream.reader.as_mut().filter(|attached| attached.number == self.number) else {
            return self.finish();
        };
        if std::mem::take(&mut attached.lost) {
            self.gap = true;
            return LivePoll::Behind;
        }
        let after = self.cursor.max(self.searched_to);
        if after < attached.floor {
            let read = session.inner.store.read(session.key, self.stream, after, STRETCH);
            self.reading = Some((read, attached.floor));
            return LivePoll::Behind;
        }
        while let Some(event) = attached.tail.pop_front() {
            attached.recount();
            match event.position {
                Some(position) if position <= self.cursor => {}
                // An entry without a message: the end of the stream, or a gap. This reader has delivered the missing
                // event without an id, so it reports no gap.
                Some(position) if event.body.is_empty() => {
                    self.cursor = position;
                    attached.floor = position;
                }
                Some(position) => {
                    self.cursor = position;
                    attached.floor = position;
                    stream.delivered = stream.delivered.max(position);
                    let id = Some(session.event_id(self.stream, position));
                    return LivePoll::Item(Item::Event { id, body: event.body });
                }
                None => {
                    stream.misses(event.after);
                    return LivePoll::Item(Item::Event { id: None, body: event.body });
                }
            }
        }
        if complete {
            return self.finish();
        }
        let can_resume = self.stream == StreamId::STANDALONE || stream.note_status == NoteStatus::Written;
        // Wait for queued events, because one of them may be the answer.
        if let Some(retry) = attached.closing.filter(|_| can_resume && queued == 0) {
            self.done = true;
            return LivePoll::Item(Item::Close(retry));
        }
        match &mut attached.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        LivePoll::Wait
    }

    fn finish(&mut self) -> LivePoll {
        self.done = true;
        LivePoll::End
    }

    /// Takes the first stretch of a replay. All events after `floor` were in the tail when it was read.
    fn start(&mut self, stretch: StreamEvents, floor: Position) -> Result<(), Error> {
        if stretch.trimmed > self.cursor || stretch.events.iter().any(is_gap) {
            self.allow_gap()?;
        }
        if stretch.trimmed > self.cursor && stretch.events.is_empty() && self.is_ended() {
            return Err(forgotten());
        }
        self.absorb(stretch, floor);
        Ok(())
    }

    /// Logs the gap. Fails if clients are to be refused that miss events.
    fn allow_gap(&self) -> Result<(), Error> {
        tracing::warn!(session = %self.session.label, stream = self.stream.number(), "events were no longer kept");
        match self.session.inner.limits.on_gap {
            OnGap::Error => Err(missed()),
            OnGap::Report | OnGap::Warn => Ok(()),
        }
    }

    /// Takes a stretch. All events after `floor` were in the tail when it was read.
    fn absorb(&mut self, stretch: StreamEvents, floor: Position) {
        self.gap |= stretch.trimmed > self.cursor.max(self.searched_to);
        if stretch.events.is_empty() {
            // All events in front of the tail have been read or trimmed.
            self.searched_to = self.searched_to.max(floor);
        }
        if self.is_resumed && !stretch.events.is_empty() {
            self.session.tell_observer(Happened::Replayed { events: stretch.events.len() });
        }
        // Including events that have been trimmed since: they cannot be read again.
        self.buffer.extend(stretch.events);
    }

    /// Where the tail of this reader's stream begins.
    fn floor(&self) -> Position {
        let state = self.session.state.lock();
        let attached = state.streams.get(&self.stream).and_then(|stream| stream.reader.as_ref());
        attached.map_or(self.cursor, |attached| attached.floor)
    }

    /// Whether this is still the reader of the stream.
    fn is_current(&self) -> bool {
        let state = self.session.state.lock();
        state.streams.get(&self.stream).is_some_and(|stream| stream.is_read_by(self.number))
    }

    fn is_ended(&self) -> bool {
        self.session.state.lock().streams.get(&self.stream).is_none_or(|stream| stream.ended)
    }

    fn take_stretch(&mut self, outcome: Result<StreamEvents, StoreError>) -> Option<Item> {
        let (_, floor) = self.reading.take()?;
        match outcome {
            Ok(stretch) => {
                self.absorb(stretch, floor);
                None
            }
            Err(error) => {
                tracing::error!(session = %self.session.label, %error, "could not read events; closing the connection");
                self.done = true;
                Some(Item::Close(self.retry()))
            }
        }
    }

    /// Hands out an event from the store; skips an end or a gap without a message. A replaced reader hands out nothing.
    /// That is checked under the lock that records the delivery: a new reader without a cursor starts after the last
    /// delivery, and would repeat the event.
    fn give(&mut self, event: Event) -> Option<Item> {
        let session = Arc::clone(&self.session);
        let mut state = session.state.lock();
        let stream = state.streams.get_mut(&self.stream);
        let Some(stream) = stream.filter(|stream| stream.is_read_by(self.number)) else {
            self.stop_reading();
            return None;
        };
        if is_gap(&event) {
            // Report the gap first: the tail may have the last of the missing events.
            self.cursor = event.position;
            self.gap = true;
            return None;
        }
        if let Some(unlogged) = stream.unlogged_before(event.position, self.cursor) {
            self.buffer.push_front(event);
            return Some(Item::Event { id: None, body: unlogged });
        }
        self.cursor = event.position;
        if event.body.is_empty() {
            return None;
        }
        stream.delivered = stream.delivered.max(event.position);
        Some(Item::Event { id: Some(self.event_id(event.position)), body: event.body })
    }

    /// Drops the buffered events and delivers nothing more: another reader has taken over the stream, or the process
    /// stops.
    fn stop_reading(&mut self) {
        self.buffer.clear();
        self.reading = None;
        self.done = true;
    }

    /// Waits until the stream's note is in the log, or could not be written. True if the client can resume the stream.
    fn poll_can_resume(&self, cx: &Context<'_>) -> Poll<bool> {
        let mut state = self.session.state.lock();
        let Some(stream) = state.streams.get_mut(&self.stream) else { return Poll::Ready(false) };
        if self.stream == StreamId::STANDALONE {
            return Poll::Ready(true);
        }
        match (stream.note_status, &mut stream.reader) {
            (NoteStatus::Pending, Some(attached)) if attached.number == self.number => {
                attached.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            (known, _) => Poll::Ready(known == NoteStatus::Written),
        }
    }

    /// Tells that the stream is read now. Not where the reader is made, because a lock is held there.
    fn tell_attached(&mut self) {
        self.is_told = true;
        if self.replaces {
            self.session.note(TimelineEvent::Replaced);
        }
        let what = Happened::ReaderAttached { stream: self.stream, replaces: self.replaces };
        self.session.tell_observer(what);
    }

    fn tell_detached(&self, is_broken: bool) {
        if is_broken {
            self.session.note(TimelineEvent::Dropped);
        }
        self.session.tell_observer(Happened::ReaderDetached { stream: self.stream, is_broken });
    }

    /// Waits until it is known whether the client can resume the stream.
    pub(super) async fn can_resume(&mut self) -> bool {
        // Moved: a reader is not shared between threads.
        let reader = self;
        std::future::poll_fn(move |cx| reader.poll_can_resume(cx)).await
    }

    fn event_id(&self, position: Position) -> EventId {
        self.session.event_id(self.stream, position)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.session.touch();
        let mut state = self.session.state.lock();
        let mut is_broken = false;
        if let Some(stream) = state.streams.get_mut(&self.stream)
            && let Some(mut attached) = stream.reader.take_if(|attached| attached.number == self.number)
        {
            // A reader that was asked to close, or has read all, is done.
            is_broken = !self.done;
            stream.unlogged.extend(attached.unlogged());
            let lags = !stream.unlogged.is_empty();
            state.forget_if_empty(self.stream);
            if lags {
                self.session.log_lags(&mut state);
            }
        }
        is_broken &= state.end.is_none() && !state.is_given_up;
        drop(state);
        if self.is_told {
            self.tell_detached(is_broken);
        }
    }
}

/// The result of polling the tail; `Behind` means that the reader has to look again or read the store first.
enum LivePoll {
    Item(Item),
    Behind,
    Wait,
    End,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("stream", &self.stream)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

/// Whether an event carries no message and marks missing events.
fn is_gap(event: &Event) -> bool {
    event.body.is_empty() && event.place == EntryPlace::Middle
}

fn gap_warning() -> Bytes {
    let params = RawJson::trusted(
        r#"{"level":"warning","logger":"tenure","data":"events were missed: they were no longer kept"}"#,
    );
    message::write_notification(&Method::LogMessage, Some(&params))
}

fn missed() -> Error {
    Error::new(Reason::StreamForgotten, "Events after Last-Event-ID are no longer kept: open the stream anew")
}

fn forgotten() -> Error {
    Error::new(Reason::StreamForgotten, "The stream is complete and its events are no longer kept")
}

pub(super) fn too_many_streams(limit: usize) -> Error {
    Error::new(Reason::TooManyStreams, "The session has as many streams open as it may").with("limit", limit)
}
