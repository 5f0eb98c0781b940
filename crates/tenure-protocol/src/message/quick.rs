//! The fast path for reading an envelope: one pass, without allocation.
//!
//! In: the text of a body. Out: the members of the envelope and the positions of the members of params that later
//! code needs; or `None`, and then serde reads the text. The reader accepts only valid JSON. It returns `None` for
//! escapes in names, repeated members, deep nesting and errors, for which serde has the error texts.

use crate::json::outline::Places;
use crate::json::swar;
use crate::keys::META_VERSION;
use crate::message::envelope::EnvelopeMembers;

/// The deepest nesting of objects and arrays.
const MAX_DEPTH: u32 = 64;

pub(super) fn read(text: &str) -> Option<EnvelopeMembers<'_>> {
    let mut reader = EnvelopeReader { text: text.as_bytes(), at: 0 };
    let mut members = EnvelopeMembers::default();
    if reader.next()? != b'{' {
        return None;
    }
    reader.members(|reader, name| {
        let start = reader.next_place()?;
        let place = match name {
            b"jsonrpc" => &mut members.jsonrpc,
            b"id" => &mut members.id,
            b"method" => &mut members.method,
            b"params" => {
                members.places = reader.params(start)?;
                &mut members.params
            }
            b"result" => &mut members.result,
            b"error" => &mut members.error,
            _ => return reader.value(1),
        };
        if reader.at == start {
            reader.value(1)?;
        }
        let value = text.get(start..reader.at)?;
        place.replace(value).is_none().then_some(())
    })?;
    reader.white();
    (reader.at == text.len()).then_some(members)
}

struct EnvelopeReader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> EnvelopeReader<'a> {
    /// Skips white space.
    fn white(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips white space and returns the position of the next byte; `None` at the end.
    fn next_place(&mut self) -> Option<usize> {
        self.white();
        (self.at < self.text.len()).then_some(self.at)
    }

    /// Skips white space, then consumes one byte and returns it.
    fn next(&mut self) -> Option<u8> {
        let at = self.next_place()?;
        self.at = at + 1;
        Some(self.text[at])
    }

    /// Reads an object after its opening brace. `take` gets each name and must consume the value.
    fn members(&mut self, mut take: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        let mut next = self.next()?;
        if next == b'}' {
            return Some(());
        }
        loop {
            if next != b'"' {
                return None;
            }
            let start = self.at;
            let is_plain = self.string()?;
            let name = self.text.get(start..self.at - 1)?;
            if !is_plain || self.next()? != b':' {
                return None;
            }
            take(self, name)?;
            match self.next()? {
                b',' => next = self.next()?,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Reads the params that begin at `start` if they are an object; otherwise consumes nothing.
    fn params(&mut self, start: usize) -> Option<Places> {
        if self.text[start] != b'{' {
            return Some(Places::UNKNOWN);
        }
        let mut places = Places::default();
        self.at = start + 1;
        self.members(|reader, name| {
            let from = reader.next_place()?;
            if name == b"_meta" && reader.text[from] == b'{' {
                reader.at = from + 1;
                reader.members(|reader, name| {
                    places.says_version |= name == META_VERSION.as_bytes();
                    reader.value(3)
                })?;
            } else {
                reader.value(2)?;
            }
            places.note(name, from - start, reader.at - start)
        })?;
        Some(places)
    }

    /// Skips a value at this nesting depth.
    fn value(&mut self, depth: u32) -> Option<()> {
        match self.next()? {
            b'"' => self.string().map(drop),
            b'{' if depth < MAX_DEPTH => self.members(|reader, _| reader.value(depth + 1)),
            b'[' if depth < MAX_DEPTH => self.elements(depth + 1),
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
            first @ (b'-' | b'0'..=b'9') => self.number(first),
            _ => None,
        }
    }

    /// Skips the elements of an array after its opening bracket.
    fn elements(&mut self, depth: u32) -> Option<()> {
        if self.text[self.next_place()?] == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.value(depth)?;
            match self.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    fn word(&mut self, rest: &[u8]) -> Option<()> {
        self.text.get(self.at..)?.starts_with(rest).then(|| self.at += rest.len())
    }

    /// Skips a number after its first character.
    fn number(&mut self, first: u8) -> Option<()> {
        let first = match first {
            b'-' => {
                self.at += 1;
                *self.text.get(self.at - 1)?
            }
            first => first,
        };
        match first {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            _ => return None,
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Some(())
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Option<()> {
        let start = self.at;
        self.digits();
        (self.at > start).then_some(())
    }

    /// Skips a string after its opening quote, and returns whether it has no escapes.
    fn string(&mut self) -> Option<bool> {
        let end = self.at + plain(self.text.get(self.at..)?);
        if self.text.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Some(true);
        }
        self.at = end;
        self.string_from_escape().map(|()| false)
    }

    /// Skips the rest of a string from its first escape on. A cold function, because few strings have escapes.
    #[cold]
    fn string_from_escape(&mut self) -> Option<()> {
        loop {
            match self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => {
                    self.at += match self.text.get(self.at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                        b'u' => {
                            let digits = self.text.get(self.at + 2..self.at + 6)?;
                            digits.iter().all(u8::is_ascii_hexdigit).then_some(6)?
                        }
                        _ => return None,
                    };
                }
                // A control character.
                _ => return None,
            }
            self.at += plain(self.text.get(self.at..)?);
        }
    }
}

/// Length of the prefix that contains no quote, backslash or control character.
fn plain(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        let special = swar::less(word, 0x20) | swar::equal(word, b'"') | swar::equal(word, b'\\');
        if let Some(found) = swar::first(special) {
            return at + found;
        }
        at += 8;
    }
    at + plain_singly(bytes.get(at..).unwrap_or_default())
}

/// `plain` byte by byte, for the last bytes of a text.
#[cold]
fn plain_singly(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count()
}
