//! Reads Server-Sent Events the way the HTML standard describes ("Interpreting an event stream"), each within bounds.
//!
//! In: the chunks of a body, cut anywhere. Out: one block per empty line. Pure: it waits for nothing. Everything that the
//! standard tells a reader to ignore is ignored; in particular, no line is an error. An event whose fields are longer than
//! the limit is dropped while it is read, and a block says so in its place. Comments and unknown fields take no memory.

use bytes::{Buf, Bytes, BytesMut};

/// How much of the start of a too long event's data is kept, and of its end.
const SHOWN: usize = 256;
/// The longest name of a field that is known, and the byte order mark that may stand in front of the first.
const NAME_BYTES: usize = 5 + BYTE_ORDER_MARK.len();
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The fields of one event.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Block {
    /// Its type; empty if it has none, which is the type `message`.
    pub(super) name: String,
    /// The id to resume after, if the event has one. Empty: from here on nothing can be resumed.
    pub(super) id: Option<String>,
    pub(super) data: Data,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Data {
    /// There was no such field, so the standard would not dispatch the event.
    #[default]
    None,
    /// UTF-8; invalid bytes were replaced by U+FFFD.
    Whole(Bytes),
    /// The event was too long; this is how its data begins and ends.
    TooLong { start: Bytes, end: Bytes },
}

/// A stream that is being read.
pub(super) struct Parser {
    max: usize,
    line: Line,
    /// The start of a line, until its field is known.
    name: BytesMut,
    /// The value of a field other than `data`, as far as it is there.
    value: BytesMut,
    /// The fields of the event that have ended, without its data.
    block: Block,
    /// The data of the event as far as it is there.
    data: Held,
    /// The last chunk ended with a carriage return, so a line feed that comes now belongs to it.
    is_after_return: bool,
    /// A byte order mark may come.
    is_first_line: bool,
    retry_ms: Option<u64>,
}

/// Where in a line the next byte belongs.
#[derive(Clone, Copy)]
enum Line {
    Name,
    /// In front of a value, where a space does not count.
    Gap(Field),
    Value(Field),
    Ignored,
}

#[derive(Clone, Copy, PartialEq)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
}

#[derive(Default)]
enum Held {
    #[default]
    None,
    Whole(BytesMut),
    TooLong {
        start: BytesMut,
        end: BytesMut,
    },
}

impl Parser {
    /// Fields of an event may have this many bytes in all.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            line: Line::Name,
            name: BytesMut::with_capacity(NAME_BYTES),
            value: BytesMut::new(),
            block: Block::default(),
            data: Held::None,
            is_after_return: false,
            is_first_line: true,
            retry_ms: None,
        }
    }

    /// Reads on until an event is complete; `None` when the chunk is used up.
    pub(super) fn next(&mut self, chunk: &mut Bytes) -> Option<Block> {
        if self.is_after_return && !chunk.is_empty() {
            self.is_after_return = false;
            if chunk[0] == b'\n' {
                chunk.advance(1);
            }
        }
        while let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) {
            self.take(&chunk[..end]);
            let length = match (chunk[end], chunk.get(end + 1)) {
                (b'\r', Some(b'\n')) => 2,
                (b'\r', None) => {
                    self.is_after_return = true;
                    1
                }
                _ => 1,
            };
            chunk.advance(end + length);
            if let Some(block) = self.end_line() {
                return Some(block);
            }
        }
        self.take(chunk);
        chunk.clear();
        None
    }

    /// How long the server wants clients to wait before they come back; the last that it said, as the standard has it.
    pub(super) fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Takes a piece of a line.
    fn take(&mut self, mut piece: &[u8]) {
        if let Line::Name = self.line {
            let end = memchr::memchr(b':', piece).unwrap_or(piece.len());
            self.name.extend_from_slice(&piece[..end.min(NAME_BYTES + 1)]);
            if end == piece.len() {
                if self.name.len() > NAME_BYTES {
                    self.line = Line::Ignored;
                }
                return;
            }
            self.line = self.begin_field();
            piece = &piece[end + 1..];
        }
        if let (Line::Gap(field), Some(first)) = (self.line, piece.first()) {
            self.line = Line::Value(field);
            piece = &piece[usize::from(*first == b' ')..];
        }
        if let Line::Value(field) = self.line {
            self.append(field, piece);
        }
    }

    /// The name of a field has ended.
    fn begin_field(&mut self) -> Line {
        let field = match self.name() {
            b"data" => Field::Data,
            b"event" => Field::Event,
            b"id" => Field::Id,
            b"retry" => Field::Retry,
            // A comment, if there is no name at all.
            _ => return Line::Ignored,
        };
        if field == Field::Data {
            match &self.data {
                Held::None => self.data = Held::Whole(BytesMut::new()),
                Held::TooLong { start, .. } if start.is_empty() => {}
                Held::Whole(_) | Held::TooLong { .. } => self.append(Field::Data, b"\n"),
            }
        }
        Line::Gap(field)
    }

    fn name(&self) -> &[u8] {
        match self.is_first_line {
            true => self.name.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.name),
            false => &self.name,
        }
    }

    fn append(&mut self, field: Field, piece: &[u8]) {
        if self.held_bytes() + piece.len() > self.max && !matches!(self.data, Held::TooLong { .. }) {
            self.cut_off();
        }
        match (&mut self.data, field) {
            (Held::Whole(data), Field::Data) => data.extend_from_slice(piece),
            (Held::TooLong { start, end }, Field::Data) => {
                start.extend_from_slice(&piece[..piece.len().min(SHOWN - start.len())]);
                end.extend_from_slice(&piece[piece.len().saturating_sub(SHOWN)..]);
                end.advance(end.len().saturating_sub(SHOWN));
            }
            (Held::TooLong { .. }, _) => self.line = Line::Ignored,
            (_, _) => self.value.extend_from_slice(piece),
        }
    }

    /// The bytes that count as the event's.
    fn held_bytes(&self) -> usize {
        let data = match &self.data {
            Held::None => 0,
            Held::Whole(data) => data.len(),
            Held::TooLong { start, end } => start.len() + end.len(),
        };
        data + self.value.len() + self.block.name.len() + self.block.id.as_ref().map_or(0, String::len)
    }

    /// The event gets too long: from here on only the ends of its data are kept.
    fn cut_off(&mut self) {
        tracing::error!(max = self.max, "an event from upstream is too long; dropped");
        let too_long = Held::TooLong { start: BytesMut::new(), end: BytesMut::new() };
        if let Held::Whole(data) = std::mem::replace(&mut self.data, too_long) {
            self.append(Field::Data, &data);
        }
        self.value = BytesMut::new();
    }

    /// A line has ended; an empty one ends the event.
    fn end_line(&mut self) -> Option<Block> {
        let is_empty = matches!(self.line, Line::Name) && self.name().is_empty();
        if let Line::Name = self.line {
            // Without a colon the line is the name of a field whose value is empty.
            self.line = self.begin_field();
        }
        if let Line::Gap(field) | Line::Value(field) = self.line {
            self.end_field(field);
        }
        self.line = Line::Name;
        self.is_first_line = false;
        self.name.clear();
        self.value.clear();
        if is_empty { self.end_event() } else { None }
    }

    fn end_field(&mut self, field: Field) {
        let text = || String::from_utf8_lossy(&self.value).into_owned();
        match field {
            Field::Data => {}
            Field::Event => self.block.name = text(),
            Field::Id if self.value.contains(&0) => {}
            Field::Id => self.block.id = Some(text()),
            Field::Retry => {
                if !self.value.is_empty() && self.value.iter().all(u8::is_ascii_digit) {
                    // It has only digits, so if it is no number it is too large for one.
                    self.retry_ms = Some(text().parse().unwrap_or(u64::MAX));
                }
            }
        }
    }

    /// `None` if nothing happens: the standard forgets the type of an event that has no data.
    fn end_event(&mut self) -> Option<Block> {
        let mut block = std::mem::take(&mut self.block);
        block.data = match std::mem::take(&mut self.data) {
            Held::None => Data::None,
            Held::Whole(data) if std::str::from_utf8(&data).is_ok() => Data::Whole(data.freeze()),
            Held::Whole(data) => Data::Whole(String::from_utf8_lossy(&data).into_owned().into()),
            Held::TooLong { start, end } => Data::TooLong { start: start.freeze(), end: end.freeze() },
        };
        (block.id.is_some() || block.data != Data::None).then_some(block)
    }
}

#[cfg(test)]
mod tests;
