//! Reads an envelope in one pass, if it is written as nearly all are.
//!
//! Every message comes by here, so this does just what is needed: it checks that the text is JSON, and finds the members
//! of the envelope and those of params that matter on the way. It takes nothing that is not JSON. What it does not
//! take (a name with escapes, a member that stands twice, many levels, what is wrong) a full parser looks at,
//! which has the words for it.

use crate::json::outline::Places;
use crate::json::swar;
use crate::keys::META_VERSION;
use crate::message::envelope::Members;

/// So many objects and arrays may lie in each other.
const MAX_DEPTH: u32 = 64;

pub(super) fn read(text: &str) -> Option<Members<'_>> {
    let mut reader = Reader { text: text.as_bytes(), at: 0 };
    let mut members = Members::default();
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

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Goes past white space.
    fn white(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    /// Goes past white space, and says where that leads if there is something.
    fn next_place(&mut self) -> Option<usize> {
        self.white();
        (self.at < self.text.len()).then_some(self.at)
    }

    /// Goes past white space and what comes then, and says what that is.
    fn next(&mut self) -> Option<u8> {
        let at = self.next_place()?;
        self.at = at + 1;
        Some(self.text[at])
    }

    /// Goes through an object whose brace is behind us. `take` is given every name, and goes past the value.
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

    /// Goes through the params that begin here, if they are an object; otherwise nothing happens.
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

    /// Goes past a value that lies in so many others.
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

    /// Goes past the elements of an array whose bracket is behind us.
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

    /// Goes past a number whose first character is behind us.
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

    /// Goes past a string whose first quotation mark is behind us, and says whether it has no escapes.
    fn string(&mut self) -> Option<bool> {
        let end = self.at + plain(self.text.get(self.at..)?);
        if self.text.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Some(true);
        }
        self.at = end;
        self.string_from_escape().map(|()| false)
    }

    /// The same from its first escape on. Apart, because few have one.
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

/// How many bytes are in front of the first that is more in a string than itself.
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

/// The same at the end of a text.
#[cold]
fn plain_singly(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count()
}
