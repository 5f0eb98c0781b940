//! The bytes of an append: one message with all its entries.
//!
//! The position of an entry comes from the sequence of its message and its place in it. Only entries that were restored
//! from another store have positions of their own, and the id of the restore that they belong to.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tenure_session::id::{Position, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, NewEvent};

const PLAIN: u8 = 1;
const RESTORED: u8 = 2;
/// Place, stream, time and length.
const ENTRY: usize = 1 + 4 + 8 + 4;
pub(crate) const RESTORE_ID: usize = 16;

/// An entry, without its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FrameEntry {
    pub(crate) stream: StreamId,
    pub(crate) place: EntryPlace,
    pub(crate) at: Time,
    pub(crate) body: Bytes,
}

/// The entries of one message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    Plain(Vec<FrameEntry>),
    Restored([u8; RESTORE_ID], Vec<(Position, FrameEntry)>),
}

/// How many bytes an append has as a message.
pub(crate) fn size_of(batch: &[NewEvent]) -> usize {
    1 + batch.iter().map(|event| ENTRY + event.body.len()).sum::<usize>()
}

pub(crate) fn encode(batch: &[NewEvent]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(size_of(batch));
    bytes.put_u8(PLAIN);
    for event in batch {
        put_entry(&mut bytes, event.stream, event.place, event.at, &event.body);
    }
    bytes.freeze()
}

pub(crate) fn encode_restored(id: &[u8; RESTORE_ID], entries: &[(Position, FrameEntry)]) -> Bytes {
    let body: usize = entries.iter().map(|(_, entry)| 8 + ENTRY + entry.body.len()).sum();
    let mut bytes = BytesMut::with_capacity(1 + RESTORE_ID + body);
    bytes.put_u8(RESTORED);
    bytes.put_slice(id);
    for (position, entry) in entries {
        bytes.put_u64(position.0);
        put_entry(&mut bytes, entry.stream, entry.place, entry.at, &entry.body);
    }
    bytes.freeze()
}

fn put_entry(bytes: &mut BytesMut, stream: StreamId, place: EntryPlace, at: Time, body: &[u8]) {
    bytes.put_u8(match place {
        EntryPlace::Note => 0,
        EntryPlace::Middle => 1,
        EntryPlace::End => 2,
    });
    bytes.put_u32(stream.number());
    bytes.put_u64(at.0);
    // A body is far smaller than a message of the engine, which has at most 64 MiB.
    bytes.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    bytes.put_slice(body);
}

/// Reads a message; `None` if it is damaged or of a later version.
pub(crate) fn decode(payload: &Bytes) -> Option<Frame> {
    let mut bytes = payload.clone();
    match take(&mut bytes, 1)?.get_u8() {
        PLAIN => {
            let mut entries = Vec::new();
            while bytes.has_remaining() {
                entries.push(take_entry(&mut bytes)?);
            }
            Some(Frame::Plain(entries))
        }
        RESTORED => {
            let id = take(&mut bytes, RESTORE_ID)?.as_ref().try_into().ok()?;
            let mut entries = Vec::new();
            while bytes.has_remaining() {
                let position = Position(take(&mut bytes, 8)?.get_u64());
                entries.push((position, take_entry(&mut bytes)?));
            }
            Some(Frame::Restored(id, entries))
        }
        _ => None,
    }
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (bytes.len() >= length).then(|| bytes.split_to(length))
}

fn take_entry(bytes: &mut Bytes) -> Option<FrameEntry> {
    let mut head = take(bytes, ENTRY)?;
    let place = match head.get_u8() {
        0 => EntryPlace::Note,
        1 => EntryPlace::Middle,
        2 => EntryPlace::End,
        _ => return None,
    };
    let (stream, at) = (StreamId::new(head.get_u32()), Time(head.get_u64()));
    let body = take(bytes, usize::try_from(head.get_u32()).ok()?)?;
    Some(FrameEntry { stream, place, at, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(stream: u32, place: EntryPlace, body: &'static str) -> NewEvent {
        NewEvent {
            stream: StreamId::new(stream),
            place,
            at: Time(7),
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    fn entry(event: &NewEvent) -> FrameEntry {
        let NewEvent { stream, place, at, body } = event.clone();
        FrameEntry { stream, place, at, body }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let batch = [
            event(0, EntryPlace::Middle, "a"),
            event(9, EntryPlace::Note, ""),
            event(9, EntryPlace::End, "bc"),
        ];
        let bytes = encode(&batch);
        assert_eq!(bytes.len(), size_of(&batch));
        assert_eq!(decode(&bytes), Some(Frame::Plain(batch.iter().map(entry).collect())));
        let restored: Vec<_> = batch.iter().map(|event| (Position(5), entry(event))).collect();
        let bytes = encode_restored(&[3; 16], &restored);
        assert_eq!(decode(&bytes), Some(Frame::Restored([3; 16], restored)));
    }

    #[test]
    fn a_message_that_was_cut_off_is_not_read() {
        let bytes = encode(&[event(0, EntryPlace::Middle, "abc")]);
        for length in (0..bytes.len()).filter(|length| *length != 1) {
            assert_eq!(decode(&bytes.slice(..length)), None, "{length}");
        }
        assert_eq!(decode(&Bytes::from_static(&[9])), None, "of a later version");
    }
}
