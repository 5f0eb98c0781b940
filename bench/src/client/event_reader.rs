//! Reads server-sent events from a body that arrives in pieces.
//!
//! Fields other than `id` and `data` are skipped: the harness only counts events and resumes them.

use memchr::memchr;

/// One event, lent until the next one is read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    pub(crate) id: Option<&'a str>,
    pub(crate) data: &'a [u8],
}

#[derive(Debug, Default)]
pub(crate) struct EventReader {
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    id: Option<String>,
    data: Vec<u8>,
    has_fields: bool,
}

impl EventReader {
    pub(crate) fn new() -> EventReader {
        EventReader::default()
    }

    /// Takes the next piece and hands over each event that it completes.
    pub(crate) fn feed(&mut self, mut piece: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        while let Some(end) = memchr(b'\n', piece) {
            let (line, rest) = (&piece[..end], &piece[end + 1..]);
            if self.partial.is_empty() {
                self.line(line, &mut on_event);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, &mut on_event);
                whole.clear();
                self.partial = whole;
            }
            piece = rest;
        }
        self.partial.extend_from_slice(piece);
    }

    fn line(&mut self, line: &[u8], on_event: &mut impl FnMut(Event<'_>)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            if self.has_fields {
                on_event(Event { id: self.id.as_deref(), data: &self.data });
            }
            self.id = None;
            self.data.clear();
            self.has_fields = false;
        } else if let Some(value) = value(line, b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value);
            self.has_fields = true;
        } else if let Some(value) = value(line, b"id:") {
            self.id = Some(String::from_utf8_lossy(value).into_owned());
            self.has_fields = true;
        }
    }
}

fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::EventReader;

    fn read_in_pieces(text: &str, size: usize) -> Vec<(Option<String>, String)> {
        let mut reader = EventReader::new();
        let mut events = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            reader.feed(piece, |event| {
                let data = String::from_utf8(event.data.to_vec()).unwrap();
                events.push((event.id.map(str::to_owned), data));
            });
        }
        events
    }

    #[test]
    fn events_are_found_however_the_body_is_split() {
        let text =
            ":\n\nid: 7\nretry: 3000\ndata:\n\nid:8\r\ndata: {\"a\":1}\r\n\r\ndata: x\ndata: y\n\ndata: cut";
        let expected = vec![
            (Some("7".to_owned()), String::new()),
            (Some("8".to_owned()), "{\"a\":1}".to_owned()),
            (None, "x\ny".to_owned()),
        ];
        for size in [1, 2, 3, 11, 1_000] {
            assert_eq!(read_in_pieces(text, size), expected, "pieces of {size}");
        }
    }
}
