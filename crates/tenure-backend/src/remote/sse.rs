//! Parses Server-Sent Events as the HTML standard describes ("Interpreting an event stream"), with a size limit.
//!
//! In: the chunks of a body, split anywhere. Out: one block per empty line. Pure: no I/O. We ignore all that the
//! standard tells a parser to ignore; in particular, no line is an error. An event whose fields exceed the limit is
//! dropped while it is read, and its block says so. Comments and unknown fields take no memory.

use bytes::{Buf, Bytes, BytesMut};

/// How many bytes of the start and of the end of a too long event's data are kept.
const SHOWN: usize = 256;
/// Length of the longest known field name, plus the byte order mark that may stand in front of the first.
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
    /// The event has no `data` field, so the standard would not dispatch it.
    #[default]
    None,
    /// UTF-8; invalid bytes were replaced by U+FFFD.
    Whole(Bytes),
    /// The event was too long; the start and the end of its data.
    TooLong { start: Bytes, end: Bytes },
}

/// A stream that is being read.
pub(super) struct Parser {
    max: usize,
    line: LinePosition,
    /// The start of a line, until its field name is complete.
    name: BytesMut,
    /// The value so far of a field other than `data`.
    value: BytesMut,
    /// The complete fields of the event, without its data.
    block: Block,
    /// The data of the event so far.
    data: PartialData,
    /// The last chunk ended with a carriage return, so a line feed that comes now belongs to it.
    is_after_return: bool,
    /// A byte order mark may stand here.
    is_first_line: bool,
    retry_ms: Option<u64>,
}

/// Where in a line the next byte belongs.
#[derive(Clone, Copy)]
enum LinePosition {
    Name,
    /// In front of a value, where one space is skipped.
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
enum PartialData {
    #[default]
    None,
    Whole(BytesMut),
    TooLong {
        start: BytesMut,
        end: BytesMut,
    },
}

impl Parser {
    /// A parser for events whose fields have at most `max` bytes in all.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            line: LinePosition::Name,
            name: BytesMut::with_capacity(NAME_BYTES),
            value: BytesMut::new(),
            block: Block::default(),
            data: PartialData::None,
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

    /// The last `retry` of the server: how long to wait before reconnecting.
    pub(super) fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Takes a piece of a line.
    fn take(&mut self, mut piece: &[u8]) {
        if let LinePosition::Name = self.line {
            let end = memchr::memchr(b':', piece).unwrap_or(piece.len());
            self.name.extend_from_slice(&piece[..end.min(NAME_BYTES + 1)]);
            if end == piece.len() {
                if self.name.len() > NAME_BYTES {
                    self.line = LinePosition::Ignored;
                }
                return;
            }
            self.line = self.begin_field();
            piece = &piece[end + 1..];
        }
        if let (LinePosition::Gap(field), Some(first)) = (self.line, piece.first()) {
            self.line = LinePosition::Value(field);
            piece = &piece[usize::from(*first == b' ')..];
        }
        if let LinePosition::Value(field) = self.line {
            self.append(field, piece);
        }
    }

    /// The name of a field has ended.
    fn begin_field(&mut self) -> LinePosition {
        let field = match self.name() {
            b"data" => Field::Data,
            b"event" => Field::Event,
            b"id" => Field::Id,
            b"retry" => Field::Retry,
            // A comment, if there is no name at all.
            _ => return LinePosition::Ignored,
        };
        if field == Field::Data {
            match &self.data {
                PartialData::None => self.data = PartialData::Whole(BytesMut::new()),
                PartialData::TooLong { start, .. } if start.is_empty() => {}
                PartialData::Whole(_) | PartialData::TooLong { .. } => self.append(Field::Data, b"\n"),
            }
        }
        LinePosition::Gap(field)
    }

    fn name(&self) -> &[u8] {
        match self.is_first_line {
            true => self.name.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.name),
            false => &self.name,
        }
    }

    fn append(&mut self, field: Field, piece: &[u8]) {
        if self.held_bytes() + piece.len() > self.max && !matches!(self.data, PartialData::TooLong { .. }) {
            self.cut_off();
        }
        match (&mut self.data, field) {
            (PartialData::Whole(data), Field::Data) => data.extend_from_slice(piece),
            (PartialData::TooLong { start, end }, Field::Data) => {
                start.extend_from_slice(&piece[..piece.len().min(SHOWN - start.len())]);
                end.extend_from_slice(&piece[piece.len().saturating_sub(SHOWN)..]);
                end.advance(end.len().saturating_sub(SHOWN));
            }
            (PartialData::TooLong { .. }, _) => self.line = LinePosition::Ignored,
            (_, _) => self.value.extend_from_slice(piece),
        }
    }

    /// The bytes that count towards the event's limit.
    fn held_bytes(&self) -> usize {
        let data = match &self.data {
            PartialData::None => 0,
            PartialData::Whole(data) => data.len(),
            PartialData::TooLong { start, end } => start.len() + end.len(),
        };
        data + self.value.len() + self.block.name.len() + self.block.id.as_ref().map_or(0, String::len)
    }

    /// The event is too long: from here on, keeps only the start and the end of its data.
    fn cut_off(&mut self) {
        tracing::error!(max = self.max, "an event from upstream is too long; dropped");
        let too_long = PartialData::TooLong { start: BytesMut::new(), end: BytesMut::new() };
        if let PartialData::Whole(data) = std::mem::replace(&mut self.data, too_long) {
            self.append(Field::Data, &data);
        }
        self.value = BytesMut::new();
    }

    /// A line has ended; an empty one ends the event.
    fn end_line(&mut self) -> Option<Block> {
        let is_empty = matches!(self.line, LinePosition::Name) && self.name().is_empty();
        if let LinePosition::Name = self.line {
            // Without a colon the line is the name of a field whose value is empty.
            self.line = self.begin_field();
        }
        if let LinePosition::Gap(field) | LinePosition::Value(field) = self.line {
            self.end_field(field);
        }
        self.line = LinePosition::Name;
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
                    // Only digits, so parsing fails only if the number is too large.
                    self.retry_ms = Some(text().parse().unwrap_or(u64::MAX));
                }
            }
        }
    }

    /// `None` if the event has neither data nor an id: the standard discards such an event.
    fn end_event(&mut self) -> Option<Block> {
        let mut block = std::mem::take(&mut self.block);
        block.data = match std::mem::take(&mut self.data) {
            PartialData::None => Data::None,
            PartialData::Whole(data) if std::str::from_utf8(&data).is_ok() => Data::Whole(data.freeze()),
            PartialData::Whole(data) => Data::Whole(String::from_utf8_lossy(&data).into_owned().into()),
            PartialData::TooLong { start, end } => Data::TooLong { start: start.freeze(), end: end.freeze() },
        };
        (block.id.is_some() || block.data != Data::None).then_some(block)
    }
}

#[cfg(test)]
mod tests;
