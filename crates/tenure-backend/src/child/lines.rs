//! Lines of bounded length from a stream of bytes.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of a line that is too long is shown.
const SHOWN: usize = 256;
/// How much of its end is kept.
const KEPT: usize = 64;

/// A line without its end.
pub(super) enum Line {
    Whole(Bytes),
    /// Longer than allowed; this is how it begins and how it ends.
    TooLong(Bytes, Bytes),
}

pub(super) struct Lines<R> {
    from: R,
    buffer: BytesMut,
    /// Up to here there is no end of a line.
    searched: usize,
    max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R, max: usize) -> Self {
        Self { from, buffer: BytesMut::with_capacity(8 << 10), searched: 0, max }
    }

    /// The next line; `None` at the end. What is left without an end of line is a line too.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            let end = memchr(b'\n', &self.buffer[self.searched..]).map(|at| self.searched + at);
            if let Some(end) = end.filter(|end| *end <= self.max) {
                let line = self.take(end);
                self.buffer.advance(1);
                return Ok(Some(Line::Whole(line)));
            }
            self.searched = self.buffer.len();
            if self.searched > self.max {
                let start = self.take(SHOWN.min(self.max));
                let end = self.skip().await?;
                return Ok(Some(Line::TooLong(start, end)));
            }
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                let left = self.take(self.buffer.len());
                return Ok((!left.is_empty()).then_some(Line::Whole(left)));
            }
        }
    }

    fn take(&mut self, length: usize) -> Bytes {
        self.searched = 0;
        let mut line = self.buffer.split_to(length);
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        line.freeze()
    }

    /// Passes over everything up to the end of the line, and returns the last of it.
    async fn skip(&mut self) -> std::io::Result<Bytes> {
        let mut end = BytesMut::new();
        loop {
            let at = memchr(b'\n', &self.buffer);
            let piece = &self.buffer[..at.unwrap_or(self.buffer.len())];
            end.extend_from_slice(&piece[piece.len().saturating_sub(KEPT)..]);
            end.advance(end.len().saturating_sub(KEPT));
            if let Some(at) = at {
                self.buffer.advance(at + 1);
                return Ok(end.freeze());
            }
            self.buffer.clear();
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(end.freeze());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &[u8], max: usize) -> Vec<String> {
        let mut lines = Lines::new(text, max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(match line {
                Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                Line::TooLong(start, end) => {
                    format!("{}…{}", String::from_utf8_lossy(&start), String::from_utf8_lossy(&end))
                }
            });
        }
        found
    }

    #[tokio::test]
    async fn lines_are_bounded_and_the_next_one_is_whole() {
        assert_eq!(all(b"one\r\ntwo\n\nlast", 10).await, ["one", "two", "", "last"]);
        let (much, end) = (b"x".repeat(100_000), "x".repeat(KEPT - 3) + "end");
        let long = [&much[..], b"end\nafter\n"].concat();
        assert_eq!(all(&long, 10).await, [format!("xxxxxxxxxx…{end}"), "after".to_owned()]);
        assert_eq!(all(&[&much[..], b"end"].concat(), 10).await, [format!("xxxxxxxxxx…{end}")]);
        assert_eq!(all(b"0123456789abc\n", 10).await, ["0123456789…abc"]);
    }
}
