//! Lines of bounded length from a stream of bytes.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of a line that is too long is shown.
const SHOWN: usize = 256;

/// A line without its end.
pub(super) enum Line {
    Whole(Bytes),
    /// Longer than allowed; this is how it begins.
    TooLong(Bytes),
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
            if let Some(at) = memchr(b'\n', &self.buffer[self.searched..]) {
                let line = self.take(self.searched + at);
                self.buffer.advance(1);
                return Ok(Some(Line::Whole(line)));
            }
            self.searched = self.buffer.len();
            if self.searched > self.max {
                let start = self.take(SHOWN.min(self.max));
                self.skip().await?;
                return Ok(Some(Line::TooLong(start)));
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

    /// Passes over everything up to the end of the line.
    async fn skip(&mut self) -> std::io::Result<()> {
        loop {
            if let Some(at) = memchr(b'\n', &self.buffer) {
                self.buffer.advance(at + 1);
                return Ok(());
            }
            self.buffer.clear();
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(());
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
                Line::TooLong(start) => format!("{}…", String::from_utf8_lossy(&start)),
            });
        }
        found
    }

    #[tokio::test]
    async fn lines_are_bounded_and_the_next_one_is_whole() {
        assert_eq!(all(b"one\r\ntwo\n\nlast", 10).await, ["one", "two", "", "last"]);
        let long = [b"x".repeat(100_000), b"\nafter\n".to_vec()].concat();
        assert_eq!(all(&long, 10).await, ["xxxxxxxxxx…", "after"]);
        assert_eq!(all(&b"x".repeat(100_000), 10).await, ["xxxxxxxxxx…"]);
    }
}
