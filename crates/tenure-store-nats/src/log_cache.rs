//! A cache of the logs that this process appends to.
//!
//! The lift of a log, so that an append knows its positions without reading the head; and, once a log was trimmed, the
//! order of its entries, so that the next trim need not read them all again.
//!
//! A view of the order must have no hole, because a trim would lose the entries in it. It is updated by the appends of this
//! process, so it is forgotten when one of them has an unknown outcome, when two are under way at once, and when the
//! session is claimed anew: another process may have appended meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_session::id::{Position, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Epoch, Keep, KeptEvents, NewEvent};

use crate::head::{Entry, Head};

/// How many logs, and how many entries of all of them, to remember. Beyond that, logs that are not in use are forgotten.
const MAX_LOGS: usize = 1 << 16;
const MAX_ENTRIES: usize = 1 << 20;

/// The logs that are remembered.
#[derive(Default)]
pub(crate) struct LogCache {
    logs: Mutex<HashMap<SessionKey, Arc<KnownLog>, RandomState>>,
}

/// One log. Its users hold it, and while it is held it is not forgotten, so that all users share it.
#[derive(Default)]
pub(crate) struct KnownLog {
    state: Mutex<KnownState>,
}

#[derive(Default)]
struct KnownState {
    lift: Option<(Epoch, u64)>,
    view: Option<LogView>,
    /// Appends under way.
    under_way: usize,
    /// Grows with every append and every reason to forget.
    changes: u64,
    /// No view is kept until the session is claimed anew: an append may still arrive.
    is_doubtful: bool,
}

/// An entry in the order of a log.
struct Seen {
    sequence: u64,
    position: Position,
    stream: StreamId,
    place: EntryPlace,
    at: Time,
    bytes: usize,
}

/// The order of a log's entries.
pub(crate) struct LogView {
    pub(crate) head: Head,
    /// The sequence of the head's message; 0 without one.
    pub(crate) head_sequence: u64,
    entries: VecDeque<Seen>,
    /// Of entries that are events.
    events: usize,
    bytes: usize,
    /// The notes in force, with their positions.
    notes: HashMap<StreamId, (Position, Bytes), RandomState>,
    /// Messages that hold nothing that is kept, and were not removed yet.
    pub(crate) to_remove: usize,
}

/// The plan of a trim.
pub(crate) struct Cut {
    pub(crate) head: Head,
    /// How many entries the new head takes in.
    entries: usize,
    /// Messages before this sequence hold nothing that is kept.
    pub(crate) keep_from: u64,
    /// How many messages these are.
    pub(crate) to_remove: usize,
    pub(crate) kept: KeptEvents,
}

impl LogCache {
    /// The log of a session, remembered from now on.
    pub(crate) fn of(&self, session: SessionKey) -> Arc<KnownLog> {
        let mut logs = self.logs.lock();
        if logs.len() > MAX_LOGS && !logs.contains_key(&session) {
            // Every second one of those that are not held.
            let mut every_second = false;
            logs.retain(|_, log| {
                every_second = !every_second;
                Arc::strong_count(log) > 1 || every_second
            });
        }
        Arc::clone(logs.entry(session).or_default())
    }

    /// Forgets a log: another process may have changed it.
    pub(crate) fn forget(&self, session: SessionKey) {
        let known = self.logs.lock().get(&session).cloned();
        if let Some(known) = known {
            let mut state = known.state.lock();
            state.lift = None;
            state.view = None;
            state.changes += 1;
            state.is_doubtful = state.under_way > 0;
        }
    }

    /// Forgets views until there is room for another.
    fn make_room(&self, entries: usize) {
        let logs = self.logs.lock();
        let size = |log: &Arc<KnownLog>| log.state.lock().view.as_ref().map_or(0, |view| view.entries.len());
        if logs.values().map(size).sum::<usize>() + entries > MAX_ENTRIES {
            for log in logs.values() {
                log.state.lock().view = None;
            }
        }
    }
}

impl KnownLog {
    /// The lift of the log, if it is remembered for this epoch.
    pub(crate) fn lift(&self, epoch: Epoch) -> Option<u64> {
        self.state.lock().lift.filter(|(known, _)| *known == epoch).map(|(_, lift)| lift)
    }

    pub(crate) fn set_lift(&self, epoch: Epoch, lift: u64) {
        self.state.lock().lift = Some((epoch, lift));
    }

    /// An append begins. Without [`Appending::done`] its outcome is unknown.
    pub(crate) fn begin(self: &Arc<Self>) -> Appending {
        let mut state = self.state.lock();
        state.under_way += 1;
        if state.under_way > 1 {
            state.view = None;
            state.is_doubtful = true;
        }
        Appending { log: Arc::clone(self), outcome: Outcome::Unknown }
    }

    /// Counts changes, so that [`KnownLog::keep_view`] can tell whether there were any.
    pub(crate) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Remembers a view, if it still has everything: nothing has changed since `changes`, and nothing is under way.
    pub(crate) fn keep_view(&self, cache: &LogCache, view: LogView, changes: u64) {
        cache.make_room(view.entries.len());
        let mut state = self.state.lock();
        if state.changes == changes && state.under_way == 0 && !state.is_doubtful {
            state.view = Some(view);
        }
    }

    /// The plan of a trim, if the order is known.
    pub(crate) fn cut(&self, keep: Keep) -> Option<Result<(Cut, u64), KeptEvents>> {
        let state = self.state.lock();
        let view = state.view.as_ref()?;
        Some(view.cut(keep).map(|cut| (cut, view.head_sequence)))
    }

    /// A trim was written. `removed` says that the obsolete messages are gone.
    pub(crate) fn was_cut(&self, cut: &Cut, before: u64, after: u64, removed: bool) {
        let mut state = self.state.lock();
        match &mut state.view {
            Some(view) if view.head_sequence == before => view.apply(cut, after, removed),
            view => *view = None,
        }
    }

    pub(crate) fn forget_view(&self) {
        let mut state = self.state.lock();
        state.view = None;
        state.changes += 1;
    }
}

enum Outcome {
    Unknown,
    Nothing,
    Done,
}

/// An append under way.
pub(crate) struct Appending {
    log: Arc<KnownLog>,
    outcome: Outcome,
}

impl Appending {
    /// It was refused, or never sent.
    pub(crate) fn did_nothing(mut self) {
        self.outcome = Outcome::Nothing;
    }

    /// It is in the log.
    pub(crate) fn done(mut self, sequence: u64, positions: &[Position], batch: Vec<NewEvent>) {
        self.outcome = Outcome::Done;
        let mut state = self.log.state.lock();
        let Some(view) = &mut state.view else { return };
        if view.last() >= positions.first().copied() {
            state.view = None;
            return;
        }
        for (position, event) in positions.iter().zip(batch) {
            let NewEvent { stream, body, place, at } = event;
            view.push(sequence, *position, stream, place, at, body);
        }
    }
}

impl Drop for Appending {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        state.under_way -= 1;
        state.changes += 1;
        match self.outcome {
            Outcome::Unknown => {
                state.view = None;
                state.is_doubtful = true;
            }
            Outcome::Nothing | Outcome::Done => {}
        }
    }
}

impl LogView {
    pub(crate) fn new(head: Head, head_sequence: u64, to_remove: usize) -> Self {
        let note = |(stream, known): (&StreamId, &crate::head::HeadStream)| {
            known.note.clone().map(|note| (*stream, (Position::START, note)))
        };
        let notes = head.streams.iter().filter_map(note).collect();
        let (entries, events, bytes) = (VecDeque::new(), 0, 0);
        Self { head, head_sequence, entries, events, bytes, notes, to_remove }
    }

    fn last(&self) -> Option<Position> {
        self.entries.back().map(|entry| entry.position)
    }

    pub(crate) fn add(&mut self, entry: Entry) {
        let Entry { sequence, position, entry } = entry;
        self.push(sequence, position, entry.stream, entry.place, entry.at, entry.body);
    }

    fn push(
        &mut self,
        sequence: u64,
        position: Position,
        stream: StreamId,
        place: EntryPlace,
        at: Time,
        body: Bytes,
    ) {
        let bytes = body.len();
        match place {
            EntryPlace::Note => {
                self.notes.insert(stream, (position, body));
            }
            EntryPlace::Middle | EntryPlace::End => {
                if place == EntryPlace::End {
                    self.notes.remove(&stream);
                }
                self.events += 1;
                self.bytes += bytes;
            }
        }
        self.entries.push_back(Seen { sequence, position, stream, place, at, bytes });
    }

    pub(crate) fn kept(&self) -> KeptEvents {
        let oldest = self.entries.iter().find(|entry| entry.place != EntryPlace::Note);
        KeptEvents {
            events: self.events,
            bytes: self.bytes,
            oldest: oldest.map(|entry| entry.at),
            trimmed: self.head.trimmed,
        }
    }

    /// The plan of a trim, or the kept entries if there is nothing to trim.
    pub(crate) fn cut(&self, keep: Keep) -> Result<Cut, KeptEvents> {
        let (mut head, mut kept) = (self.head.clone(), self.kept());
        let (mut taken, mut is_trimmed) = (0, false);
        let mut entries = self.entries.iter().peekable();
        while let Some(entry) = entries.peek() {
            let is_event = entry.place != EntryPlace::Note;
            let fits = kept.events <= keep.events && kept.bytes <= keep.bytes && entry.at > keep.since;
            if is_event && fits {
                break;
            }
            if is_event {
                kept.events -= 1;
                kept.bytes -= entry.bytes;
                is_trimmed = true;
            }
            // A note that was replaced or whose stream has ended since is not in force, and the head does without it.
            let note = self.notes.get(&entry.stream).filter(|(position, _)| *position == entry.position);
            head.fold(entry.stream, entry.place, entry.position, note.map(|(_, body)| body.clone()));
            taken += 1;
            entries.next();
        }
        if !is_trimmed {
            return Err(kept);
        }
        kept.oldest = entries.clone().find(|entry| entry.place != EntryPlace::Note).map(|entry| entry.at);
        kept.trimmed = head.trimmed;
        let last = self.entries.get(taken - 1).map_or(0, |entry| entry.sequence);
        let keep_from = entries.peek().map_or(last + 1, |entry| entry.sequence);
        let mut sequences: Vec<u64> = self.entries.iter().take(taken).map(|entry| entry.sequence).collect();
        sequences.dedup();
        let gone = sequences.iter().filter(|sequence| **sequence < keep_from).count();
        Ok(Cut { head, entries: taken, keep_from, to_remove: self.to_remove + gone, kept })
    }

    fn apply(&mut self, cut: &Cut, head_sequence: u64, removed: bool) {
        for entry in self.entries.drain(..cut.entries.min(self.entries.len())) {
            if entry.place != EntryPlace::Note {
                self.events -= 1;
                self.bytes -= entry.bytes;
            }
        }
        self.head = cut.head.clone();
        self.head_sequence = head_sequence;
        self.to_remove = if removed { 0 } else { cut.to_remove };
    }
}
