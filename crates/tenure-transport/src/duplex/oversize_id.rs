//! Picks the id out of a message that passes by and is not kept.
//!
//! Reads a byte at a time and holds nothing but the member at hand of the outermost object. It does not check the
//! message: of something that is not JSON it may find anything, or nothing.

use bytes::Bytes;
use tenure_protocol::RequestId;

/// The longest id that is picked out, and more than any name that is looked for.
const MAX_BYTES: usize = 256;

/// What is known of a message that was not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Skimmed {
    /// Somebody waits for an answer to this.
    Request(RequestId),
    /// It is the answer to this.
    Answer(RequestId),
    /// Neither, or nobody can tell.
    Other,
}

/// A message that passes by.
#[derive(Default)]
pub(crate) struct Skim {
    depth: usize,
    string: Inside,
    part: Part,
    /// The name of the member at hand, with its quotes.
    name: Vec<u8>,
    /// Its value, if that is neither an object nor an array.
    value: Vec<u8>,
    id: Option<RequestId>,
    has_method: bool,
    has_outcome: bool,
}

/// Where in a string the next byte is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Inside {
    #[default]
    No,
    Yes,
    Escape,
}

/// Which part of a member comes next.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    #[default]
    Name,
    Value,
}

impl Skim {
    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    /// What the message was.
    pub(crate) fn end(self) -> Skimmed {
        match self.id {
            Some(id) if self.has_method => Skimmed::Request(id),
            Some(id) if self.has_outcome => Skimmed::Answer(id),
            _ => Skimmed::Other,
        }
    }

    fn step(&mut self, byte: u8) {
        match (self.string, byte) {
            (Inside::Escape, _) => self.string = Inside::Yes,
            (Inside::Yes, b'\\') => self.string = Inside::Escape,
            (Inside::Yes, b'"') => self.string = Inside::No,
            (Inside::No, b'"') => self.string = Inside::Yes,
            (Inside::Yes, _) => {}
            (Inside::No, _) => return self.step_outside(byte),
        }
        self.keep(byte);
    }

    /// A byte that is in no string.
    fn step_outside(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' => {
                self.keep(byte);
                self.depth += 1;
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if self.depth == 1 => self.end_member(),
            b':' if self.depth == 1 => self.part = Part::Value,
            byte if byte.is_ascii_whitespace() => {}
            byte => self.keep(byte),
        }
    }

    /// Keeps a byte of the outermost object; what is too long to matter is cut off, and then fits nothing.
    fn keep(&mut self, byte: u8) {
        if self.depth != 1 {
            return;
        }
        let kept = match self.part {
            Part::Name => &mut self.name,
            Part::Value => &mut self.value,
        };
        if kept.len() <= MAX_BYTES {
            kept.push(byte);
        }
    }

    fn end_member(&mut self) {
        match &self.name[..] {
            br#""id""# if self.value.len() <= MAX_BYTES => {
                self.id = RequestId::from_raw(Bytes::copy_from_slice(&self.value));
            }
            br#""method""# => self.has_method = true,
            br#""result""# | br#""error""# => self.has_outcome = true,
            _ => {}
        }
        self.name.clear();
        self.value.clear();
        self.part = Part::Name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skim(message: &str) -> String {
        let whole = {
            let mut skim = Skim::default();
            skim.feed(message.as_bytes());
            skim.end()
        };
        // However it is cut, the same is found.
        for cut in 0..message.len() {
            let mut skim = Skim::default();
            skim.feed(&message.as_bytes()[..cut]);
            skim.feed(&message.as_bytes()[cut..]);
            assert_eq!(skim.end(), whole, "{message} cut at {cut}");
        }
        match whole {
            Skimmed::Request(id) => format!("request {}", String::from_utf8_lossy(id.raw())),
            Skimmed::Answer(id) => format!("answer {}", String::from_utf8_lossy(id.raw())),
            Skimmed::Other => "other".to_owned(),
        }
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        let long_id = format!(r#"{{"id":"{}","method":"m"}}"#, "x".repeat(MAX_BYTES));
        let table = [
            (r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"id":2}}"#, "request 1"),
            (r#"{"method":"m","params":{"a":[{"id":2},3]},"jsonrpc":"2.0","id":-17}"#, "request -17"),
            (r#" { "id" : "a b" , "method" : "m" } "#, r#"request "a b""#),
            (r#"{"id":"q\"},\\","method":"m"}"#, r#"request "q\"},\\""#),
            (r#"{"params":{"text":"\"id\":5,{[\\\""},"id":6,"method":"m"}"#, "request 6"),
            (r#"{"id":"7","result":{"id":8,"method":"m"}}"#, r#"answer "7""#),
            (r#"{"error":{"code":1},"id":9}"#, "answer 9"),
            (r#"{"method":"m","params":{"id":1}}"#, "other"),
            (r#"{"id":null,"method":"m"}"#, "other"),
            (r#"{"id":{"a":1},"method":"m"}"#, "other"),
            (r#"{"id":1.5,"method":"m"}"#, "other"),
            (r#"{"id":1}"#, "other"),
            (r#"[{"id":1,"method":"m"}]"#, "other"),
            (&long_id, "other"),
            ("}}}}]]", "other"),
            ("", "other"),
            (r#"{"id":1,"method":"cut"#, "other"),
        ];
        for (message, expected) in table {
            assert_eq!(skim(message), expected, "{message}");
        }
    }
}
