//! Finds the id of a message that is too long to be kept, while its bytes are skipped.
//!
//! Reads one byte at a time and keeps only the current member of the outermost object. It does not check the message:
//! in bytes that are not JSON it may find a wrong id, or none.

use bytes::Bytes;
use tenure_protocol::RequestId;

/// The longest id that is kept; longer than any member name that matters.
const MAX_BYTES: usize = 256;

/// The known parts of a message that was too long to be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OversizeMessage {
    /// A request with this id.
    Request(RequestId),
    /// The response to the server's request with this id.
    Answer(RequestId),
    /// A notification, or a message whose id was not found.
    Other,
}

/// A scan through the bytes of one message.
#[derive(Default)]
pub(crate) struct OversizeScan {
    depth: usize,
    string: Inside,
    part: Part,
    /// The name of the current member, with its quotes.
    name: Vec<u8>,
    /// Its value, if that is neither an object nor an array.
    value: Vec<u8>,
    id: Option<RequestId>,
    has_method: bool,
    has_outcome: bool,
}

/// Whether the next byte is inside a string.
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

impl OversizeScan {
    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    /// Ends the message, and tells what it was.
    pub(crate) fn end(self) -> OversizeMessage {
        match self.id {
            Some(id) if self.has_method => OversizeMessage::Request(id),
            Some(id) if self.has_outcome => OversizeMessage::Answer(id),
            _ => OversizeMessage::Other,
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

    /// Takes a byte that is outside of strings.
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

    /// Keeps a byte of the outermost object. A name or value that is too long is cut off, and then matches nothing.
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

    fn scan(message: &str) -> String {
        let whole = {
            let mut scan = OversizeScan::default();
            scan.feed(message.as_bytes());
            scan.end()
        };
        // The result is the same wherever the message is cut.
        for cut in 0..message.len() {
            let mut scan = OversizeScan::default();
            scan.feed(&message.as_bytes()[..cut]);
            scan.feed(&message.as_bytes()[cut..]);
            assert_eq!(scan.end(), whole, "{message} cut at {cut}");
        }
        match whole {
            OversizeMessage::Request(id) => format!("request {}", String::from_utf8_lossy(id.raw())),
            OversizeMessage::Answer(id) => format!("answer {}", String::from_utf8_lossy(id.raw())),
            OversizeMessage::Other => "other".to_owned(),
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
            assert_eq!(scan(message), expected, "{message}");
        }
    }
}
