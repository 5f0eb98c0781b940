//! Reads the engine's journals batch by batch, and continues after a damaged batch.
//!
//! A batch is a head (number of items, sequence number), items with key and value, a checksum over the items, and a
//! trailer of four fixed bytes. The engine cuts the file at the first bad batch without an error, though any number of
//! good ones may follow. No checksum covers the head, so a batch with good items may have a wrong head: its sequence
//! number is then corrected from its neighbours.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";

/// A write or removal of one key.
pub(in crate::disk) struct JournalItem<'a> {
    pub(in crate::disk) keyspace: u64,
    pub(in crate::disk) key: &'a [u8],
    value: Option<Packed<'a>>,
}

struct Packed<'a> {
    bytes: &'a [u8],
    length: usize,
    is_compressed: bool,
}

impl JournalItem<'_> {
    /// The written value; `None` if the key was removed. Fails if it cannot be decompressed.
    pub(in crate::disk) fn value(&self) -> Result<Option<Cow<'_, [u8]>>, lz4_flex::block::DecompressError> {
        match &self.value {
            None => Ok(None),
            Some(packed) if packed.is_compressed => {
                lz4_flex::block::decompress(packed.bytes, packed.length).map(|value| Some(Cow::Owned(value)))
            }
            Some(packed) => Ok(Some(Cow::Borrowed(packed.bytes))),
        }
    }
}

/// The items of one commit.
pub(in crate::disk) struct JournalBatch<'a> {
    /// Its offset in the file.
    pub(in crate::disk) at: usize,
    pub(in crate::disk) seqno: u64,
    pub(in crate::disk) items: Vec<JournalItem<'a>>,
    /// Its items are good, but its head or trailer is not.
    pub(in crate::disk) is_flawed: bool,
}

/// A stretch of a journal.
pub(in crate::disk) enum Part<'a> {
    Good(JournalBatch<'a>),
    /// Bytes that are not a good batch.
    Bad {
        /// Their offset in the file.
        at: usize,
        /// The items that can still be read.
        items: Vec<JournalItem<'a>>,
        /// They are one batch, and `items` are all its items.
        is_whole: bool,
    },
}

/// The content of a journal, without the reserved space at its end.
pub(in crate::disk) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let end = data_end(&file)?;
    let mut bytes = Vec::new();
    file.take(end).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The end of the written bytes, as the filesystem knows it.
fn data_end(file: &File) -> io::Result<u64> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;

    let length = file.metadata()?.len();
    let mut end = 0;
    loop {
        let data = match seek(file, SeekFrom::Data(end)) {
            Ok(data) => data,
            // No more data after this offset.
            Err(Errno::NXIO) => break,
            // The filesystem does not know its holes.
            Err(_) => {
                end = length;
                break;
            }
        };
        match seek(file, SeekFrom::Hole(data)) {
            Ok(hole) if hole > end => end = hole,
            _ => end = length,
        }
        if end >= length {
            break;
        }
    }
    seek(file, SeekFrom::Start(0))?;
    Ok(end.min(length))
}

/// Splits a journal into parts, and corrects the sequence numbers of flawed heads.
pub(in crate::disk) fn parts(bytes: &[u8]) -> Vec<Part<'_>> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while bytes[at..].iter().any(|byte| *byte != 0) {
        match batch(bytes, at) {
            Ok((batch, end)) => {
                parts.push(Part::Good(batch));
                at = end;
            }
            Err(BrokenBatch { items, end, has_all }) => {
                let next = resume(bytes, at, end);
                parts.push(Part::Bad { at, items, is_whole: has_all && end == Some(next) });
                at = next;
            }
        }
    }
    mend(&mut parts);
    parts
}

/// Sequence numbers grow in a journal. A number that is out of order was damaged and is replaced by one between its
/// neighbours.
fn mend(parts: &mut [Part<'_>]) {
    let mut batches: Vec<&mut JournalBatch<'_>> = parts
        .iter_mut()
        .filter_map(|part| match part {
            Part::Good(batch) => Some(batch),
            Part::Bad { .. } => None,
        })
        .collect();
    let mut last = None;
    for n in 0..batches.len() {
        let next = batches.get(n + 1).map(|batch| batch.seqno);
        let seqno = batches[n].seqno;
        let is_low = last.is_some_and(|last| seqno <= last);
        // This number is wrong only if the next one is in order with the last one.
        let is_high = next.is_some_and(|next| seqno >= next && last.is_none_or(|last| next > last));
        if is_low || is_high {
            let floor = last.map_or(0, |last| last + 1);
            batches[n].seqno = next.map_or(floor, |next| floor.max(next.saturating_sub(1)));
            batches[n].is_flawed = true;
        }
        last = Some(batches[n].seqno);
    }
}

/// The offset of the next good batch, or the end.
fn resume(bytes: &[u8], from: usize, end: Option<usize>) -> usize {
    let fits = |at: &usize| batch(bytes, *at).is_ok() || bytes[*at..].iter().all(|byte| *byte == 0);
    if let Some(end) = end.filter(fits) {
        return end;
    }
    memchr::memmem::find_iter(&bytes[from + 1..], TRAILER)
        .map(|at| from + 1 + at + TRAILER.len())
        .find(|at| batch(bytes, *at).is_ok())
        .unwrap_or(bytes.len())
}

/// The readable items of a damaged batch.
struct BrokenBatch<'a> {
    items: Vec<JournalItem<'a>>,
    /// The offset at which it seems to end.
    end: Option<usize>,
    /// It has as many items as its head says.
    has_all: bool,
}

/// Reads the batch at an offset. The error holds what can be read of a damaged one.
fn batch(bytes: &[u8], at: usize) -> Result<(JournalBatch<'_>, usize), BrokenBatch<'_>> {
    let mut reader = JournalReader { bytes, at };
    let mut items = Vec::new();
    let cut = |items| BrokenBatch { items, end: None, has_all: false };
    let Some((count, seqno)) = head(&mut reader) else { return Err(cut(items)) };
    let (mut entries, begin) = (0u32, reader.at);
    loop {
        let end = reader.at;
        match reader.byte() {
            Some(ITEM) => match item(&mut reader) {
                Some(item) => items.push(item),
                None => return Err(cut(items)),
            },
            Some(CLEAR) if reader.take(8).is_some() => {}
            Some(END) => {
                let (Some(sum), Some(trailer)) = (reader.u64(), reader.take(TRAILER.len())) else {
                    return Err(cut(items));
                };
                let mut hasher = Xxh3::new();
                hasher.update(&bytes[begin..end]);
                if hasher.digest() != sum {
                    return Err(BrokenBatch { items, end: Some(reader.at), has_all: entries == count });
                }
                let is_flawed = trailer != TRAILER || entries != count;
                return Ok((JournalBatch { at, seqno, items, is_flawed }, reader.at));
            }
            _ => return Err(cut(items)),
        }
        entries += 1;
    }
}

fn head(reader: &mut JournalReader<'_>) -> Option<(u32, u64)> {
    if reader.byte()? != START {
        return None;
    }
    Some((reader.u32()?, reader.u64()?))
}

fn item<'a>(reader: &mut JournalReader<'a>) -> Option<JournalItem<'a>> {
    let kind = reader.byte()?;
    let is_compressed = match reader.byte()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let keyspace = reader.u64()?;
    let key_length = usize::from(reader.u16()?);
    let length = reader.u32()? as usize;
    let packed = reader.u32()? as usize;
    let key = reader.take(key_length)?;
    let bytes = reader.take(packed)?;
    let value = match kind {
        0 => Some(Packed { bytes, length, is_compressed }),
        1 | 2 => None,
        _ => return None,
    };
    Some(JournalItem { keyspace, key, value })
}

/// Reads bytes from the front; `None` at the end.
struct JournalReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> JournalReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken[0])
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}
