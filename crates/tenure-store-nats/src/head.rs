//! The head of a log: all that is still to be known of entries that were trimmed.
//!
//! A log is its head and the entries after it. The head is what results from all entries up to a position, so
//! every process that writes it for that position writes the same. A trim writes a new head, by compare-and-swap, and only
//! then removes the messages that it stands for. A reader reads messages first and the head last: what it misses
//! because it was removed in between is in that head.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tenure_session::id::{Position, StreamId};
use tenure_session::port::store::EntryPlace;

use crate::frame::{Frame, FrameEntry, RESTORE_ID};

const FORM: u8 = 1;
/// The entries of a message have numbers of so many bits.
const PLACE_BITS: u32 = 10;
/// The most entries in a message.
pub(crate) const MAX_ENTRIES: usize = 1 << PLACE_BITS;

/// An open stream, as far as the head knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HeadStream {
    /// Its last event that was trimmed.
    pub(crate) trimmed: Position,
    pub(crate) note: Option<Bytes>,
}

/// The head of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Head {
    /// The last event that was trimmed.
    pub(crate) trimmed: Position,
    /// The last entry that the head stands for: that event, or a note after it.
    pub(crate) folded: Position,
    /// Added to the positions that come from sequences, so that they are higher than those of the store that this log
    /// was restored from.
    pub(crate) lift: u64,
    /// Messages before this sequence are not part of the log.
    pub(crate) base: u64,
    /// The restore whose entries are part of the log.
    pub(crate) restored: Option<[u8; RESTORE_ID]>,
    /// No stream of this number or a higher one has an entry that the head stands for.
    pub(crate) next_stream: u32,
    /// The streams with entries that the head stands for, without those that were trimmed away as a whole.
    pub(crate) streams: BTreeMap<StreamId, HeadStream>,
}

/// An entry with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// The sequence of its message.
    pub(crate) sequence: u64,
    pub(crate) position: Position,
    pub(crate) entry: FrameEntry,
}

impl Head {
    /// The position of an entry of a message.
    pub(crate) fn position(&self, sequence: u64, place: usize) -> Position {
        position(self.lift, sequence, place)
    }

    /// The first message that can have an entry after a position.
    pub(crate) fn sequence_after(&self, position: Position) -> u64 {
        (position.0.saturating_sub(self.lift) >> PLACE_BITS).max(self.base)
    }

    /// Whether positions mean the same as with another head of the same log.
    pub(crate) fn is_same_log(&self, other: &Self) -> bool {
        (self.lift, self.base, self.restored) == (other.lift, other.base, other.restored)
    }

    /// The entries of a message that are part of the log, trimmed ones too.
    pub(crate) fn entries(&self, sequence: u64, frame: Frame) -> Vec<Entry> {
        if sequence < self.base {
            return Vec::new();
        }
        match frame {
            Frame::Plain(entries) => {
                let position = |place| self.position(sequence, place);
                let entries = entries.into_iter().enumerate();
                entries.map(|(place, entry)| Entry { sequence, position: position(place), entry }).collect()
            }
            Frame::Restored(id, entries) if self.restored == Some(id) => {
                let entries = entries.into_iter();
                entries.map(|(position, entry)| Entry { sequence, position, entry }).collect()
            }
            // Of a restore that was cut off or replaced.
            Frame::Restored(..) => Vec::new(),
        }
    }

    /// Takes in the next entry of the log. `note` is the body of a note that is still in force.
    pub(crate) fn fold(&mut self, stream: StreamId, place: EntryPlace, at: Position, note: Option<Bytes>) {
        self.folded = at;
        self.next_stream = self.next_stream.max(stream.number().saturating_add(1));
        match place {
            EntryPlace::Note => self.streams.entry(stream).or_default().note = note,
            EntryPlace::Middle => {
                self.streams.entry(stream).or_default().trimmed = at;
                self.trimmed = at;
            }
            EntryPlace::End => {
                self.streams.remove(&stream);
                self.trimmed = at;
            }
        }
    }

    pub(crate) fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u8(FORM);
        for number in [self.trimmed.0, self.folded.0, self.lift, self.base] {
            bytes.put_u64(number);
        }
        bytes.put_u8(u8::from(self.restored.is_some()));
        bytes.put_slice(&self.restored.unwrap_or_default());
        bytes.put_u32(self.next_stream);
        for (stream, known) in &self.streams {
            bytes.put_u32(stream.number());
            bytes.put_u64(known.trimmed.0);
            bytes.put_u8(u8::from(known.note.is_some()));
            let note = known.note.as_deref().unwrap_or_default();
            bytes.put_u32(u32::try_from(note.len()).unwrap_or(u32::MAX));
            bytes.put_slice(note);
        }
        bytes.freeze()
    }

    /// Reads a head; `None` if it is damaged or of a later version.
    pub(crate) fn decode(payload: &Bytes) -> Option<Self> {
        let mut bytes = payload.clone();
        let mut start = take(&mut bytes, 1 + 4 * 8 + 1 + RESTORE_ID + 4)?;
        if start.get_u8() != FORM {
            return None;
        }
        let (trimmed, folded) = (Position(start.get_u64()), Position(start.get_u64()));
        let (lift, base, is_restored) = (start.get_u64(), start.get_u64(), start.get_u8() != 0);
        let id = start.split_to(RESTORE_ID).as_ref().try_into().ok()?;
        let restored = is_restored.then_some(id);
        let next_stream = start.get_u32();
        let mut streams = BTreeMap::new();
        while bytes.has_remaining() {
            let mut known = take(&mut bytes, 4 + 8 + 1 + 4)?;
            let (stream, trimmed) = (StreamId::new(known.get_u32()), Position(known.get_u64()));
            let has_note = known.get_u8() != 0;
            let note = take(&mut bytes, usize::try_from(known.get_u32()).ok()?)?;
            streams.insert(stream, HeadStream { trimmed, note: has_note.then_some(note) });
        }
        Some(Self { trimmed, folded, lift, base, restored, next_stream, streams })
    }
}

/// The position of an entry of a message, in a log with this lift.
pub(crate) fn position(lift: u64, sequence: u64, place: usize) -> Position {
    Position((sequence << PLACE_BITS | place as u64) + lift)
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_back_as_it_was_written() {
        let mut head = Head { lift: 1 << 40, base: 3, restored: Some([7; 16]), ..Head::default() };
        head.fold(StreamId::new(4), EntryPlace::Note, Position(1), Some(Bytes::from_static(b"note")));
        head.fold(StreamId::new(4), EntryPlace::Middle, Position(2), None);
        head.fold(StreamId::new(6), EntryPlace::Middle, Position(3), None);
        head.fold(StreamId::new(6), EntryPlace::End, Position(4), None);
        assert_eq!((head.next_stream, head.streams.len(), head.trimmed), (7, 1, Position(4)));
        let bytes = head.encode();
        assert_eq!(Head::decode(&bytes), Some(head));
        for length in 0..bytes.len() - 25 {
            assert_eq!(Head::decode(&bytes.slice(..length)), None, "{length}");
        }
    }

    #[test]
    fn the_message_of_a_position_is_found() {
        let head = Head { lift: 1_000_003, ..Head::default() };
        for (sequence, place) in [(1, 0), (1, 1023), (77, 5)] {
            assert_eq!(head.sequence_after(head.position(sequence, place)), sequence);
        }
        assert_eq!(head.sequence_after(Position(5)), 0, "a position of the store that it was restored from");
        assert!(head.position(2, 0) > head.position(1, 1023));
    }
}
