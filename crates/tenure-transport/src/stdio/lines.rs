//! Cuts the input into lines, and never keeps more than the longest allowed line.
//!
//! A line that is too long is skipped. Only its id is kept, so that the request can be refused, or the server's
//! question answered with an error.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::duplex::{Input, InputMessage, OversizeScan};

/// How many bytes are read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The lines of an input, without blank ones.
pub(super) struct InputLines<R> {
    input: R,
    max_bytes: usize,
    /// Bytes that were read and not returned yet; less than a line and a chunk.
    buffer: BytesMut,
    /// Length of the buffer's prefix that contains no line break.
    searched: usize,
    /// Set while the current line is too long; the part of it in front of the buffer is already dropped.
    oversize: Option<OversizeScan>,
    ended: bool,
}

impl<R: AsyncRead + Unpin + Send> Input for InputLines<R> {
    /// The next line; `None` at the end of the input, and on every later call. The last line may lack its line break.
    ///
    /// # Cancel safety
    /// No byte is lost when the future is dropped.
    async fn next(&mut self) -> io::Result<Option<InputMessage>> {
        loop {
            while let Some(length) = self.find() {
                let line = self.cut(length);
                // Skips the line break, unless this is the end.
                self.buffer.advance(usize::from(!self.buffer.is_empty()));
                if let Some(line) = line {
                    return Ok(Some(line));
                }
            }
            if self.ended {
                return Ok(None);
            }
            self.drop_oversize();
            self.buffer.reserve(CHUNK_BYTES);
            self.ended = self.input.read_buf(&mut self.buffer).await? == 0;
        }
    }
}

impl<R: AsyncRead + Unpin> InputLines<R> {
    pub(super) fn new(input: R, max_bytes: usize) -> Self {
        Self { input, max_bytes, buffer: BytesMut::new(), searched: 0, oversize: None, ended: false }
    }

    /// Length of the next line, if all of it is in the buffer.
    fn find(&mut self) -> Option<usize> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        match found {
            Some(at) => Some(self.searched + at),
            None => {
                self.searched = self.buffer.len();
                let rest = !self.buffer.is_empty() || self.oversize.is_some();
                (self.ended && rest).then_some(self.buffer.len())
            }
        }
    }

    /// Takes a line off the buffer; `None` if it is blank.
    fn cut(&mut self, length: usize) -> Option<InputMessage> {
        let line = self.buffer.split_to(length);
        self.searched = 0;
        if self.oversize.is_some() || line.len() > self.max_bytes {
            let mut scan = self.oversize.take().unwrap_or_default();
            scan.feed(&line);
            return Some(InputMessage::TooLong(scan.end()));
        }
        // Copied, because a request in flight keeps its params, and a slice would keep the whole buffer. A carriage
        // return at the end is white space to JSON.
        let blank = line.iter().all(u8::is_ascii_whitespace);
        (!blank).then(|| InputMessage::Whole(Bytes::copy_from_slice(&line)))
    }

    /// Drops the buffer if the current line is already too long.
    fn drop_oversize(&mut self) {
        if self.oversize.is_some() || self.buffer.len() > self.max_bytes {
            self.oversize.get_or_insert_default().feed(&self.buffer);
            self.buffer.clear();
            self.searched = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duplex::OversizeMessage;
    use tenure_protocol::RequestId;

    /// Reads all lines of an input that comes in pieces of this size. A line may have 20 bytes.
    async fn lines(input: &[u8], piece: usize) -> Vec<String> {
        let (read, mut write) = tokio::io::duplex(piece);
        let input = input.to_vec();
        let writer = async move { tokio::io::AsyncWriteExt::write_all(&mut write, &input).await.unwrap() };
        let reader = async {
            let mut lines = InputLines::new(read, 20);
            let mut found = Vec::new();
            while let Some(line) = lines.next().await.unwrap() {
                found.push(match line {
                    InputMessage::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                    InputMessage::TooLong(OversizeMessage::Request(id)) => {
                        format!("too long, request {id:?}")
                    }
                    other => format!("too long, {other:?}"),
                });
            }
            assert!(lines.next().await.unwrap().is_none(), "the end stays the end");
            found
        };
        tokio::join!(writer, reader).1
    }

    #[tokio::test]
    async fn lines_are_found_however_they_arrive() {
        let table: [(&[u8], &[&str]); 7] = [
            (b"", &[]),
            (b"one\ntwo\n", &["one", "two"]),
            (b"no break at the end", &["no break at the end"]),
            (b"\n\r\n  \t\nafter blank ones\r\n\n", &["after blank ones\r"]),
            (b"12345678901234567890\n", &["12345678901234567890"]),
            (b"123456789012345678901\nnext\n", &["too long, TooLong(Other)", "next"]),
            (b"{}\n{\"method\":\"m\",\"params\":{},\"id\":7}\n{}", &["{}", "too long, request 7", "{}"]),
        ];
        for (input, expected) in table {
            for piece in 1..40 {
                assert_eq!(lines(input, piece).await, expected, "{piece} bytes at a time");
            }
        }
    }

    #[tokio::test]
    async fn a_line_without_end_takes_no_memory() {
        let endless = tokio::io::AsyncReadExt::take(tokio::io::repeat(b'x'), 64 << 20);
        let tail = &b"\n{\"id\":1}\n"[..];
        let mut lines = InputLines::new(tokio::io::AsyncReadExt::chain(endless, tail), 1000);
        assert!(matches!(lines.next().await.unwrap(), Some(InputMessage::TooLong(OversizeMessage::Other))));
        assert!(lines.buffer.capacity() < 4 * CHUNK_BYTES, "{}", lines.buffer.capacity());
        let Some(InputMessage::Whole(line)) = lines.next().await.unwrap() else { panic!("a line") };
        assert_eq!(line, &b"{\"id\":1}"[..]);
    }

    #[tokio::test]
    async fn a_last_line_that_is_too_long_is_told_too() {
        let input = br#"{"params":"123456789012345678901234567890","id":"a","method":"m"}"#;
        let mut lines = InputLines::new(&input[..], 20);
        let Some(InputMessage::TooLong(OversizeMessage::Request(id))) = lines.next().await.unwrap() else {
            panic!("a request")
        };
        assert_eq!(id, RequestId::from_text("a"));
        assert!(lines.next().await.unwrap().is_none());
    }
}
