//! Splits a stream of bytes into lines of bounded length.

use std::os::fd::AsFd;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use memchr::memchr;
use rustix::io::ioctl_fionread;
use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of the start of a too long line is kept.
const SHOWN: usize = 256;
/// How much of its end is kept.
const KEPT: usize = 64;

/// A line without its line break.
pub(super) enum BoundedLine {
    Whole(Bytes),
    /// Longer than allowed; the start and the end of the line.
    TooLong(Bytes, Bytes),
}

pub(super) struct BoundedLines<R> {
    from: R,
    buffer: BytesMut,
    /// The buffer has no line break before this offset.
    searched: usize,
    max: usize,
    /// Bytes that may still be read; `usize::MAX` means no limit.
    left: usize,
    /// The start and the last bytes so far of a too long line that has not ended.
    long: Option<(Bytes, BytesMut)>,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    pub(super) fn new(from: R, max: usize) -> Self {
        let buffer = BytesMut::with_capacity(8 << 10);
        Self { from, buffer, searched: 0, max, left: usize::MAX, long: None }
    }

    /// The next line; `None` at the end. A rest without a line break is a line too.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<BoundedLine>> {
        loop {
            if let Some(line) = self.buffered() {
                return Ok(Some(line));
            }
            let read = self.from.read_buf(&mut (&mut self.buffer).limit(self.left)).await?;
            if self.left != usize::MAX {
                self.left -= read;
            }
            if read == 0 {
                return Ok(self.rest());
            }
        }
    }

    /// A complete line from the buffer.
    fn buffered(&mut self) -> Option<BoundedLine> {
        if self.long.is_some() {
            return self.skip();
        }
        let end = memchr(b'\n', &self.buffer[self.searched..]).map(|at| self.searched + at);
        if let Some(end) = end.filter(|end| *end <= self.max) {
            let line = self.take(end);
            self.buffer.advance(1);
            return Some(BoundedLine::Whole(line));
        }
        self.searched = self.buffer.len();
        if self.searched <= self.max {
            return None;
        }
        self.long = Some((self.take(SHOWN.min(self.max)), BytesMut::new()));
        self.skip()
    }

    fn take(&mut self, length: usize) -> Bytes {
        self.searched = 0;
        let mut line = self.buffer.split_to(length);
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        line.freeze()
    }

    /// Drops the buffered part of a too long line, except for its last bytes.
    fn skip(&mut self) -> Option<BoundedLine> {
        let (start, mut end) = self.long.take()?;
        let at = memchr(b'\n', &self.buffer);
        let piece = &self.buffer[..at.unwrap_or(self.buffer.len())];
        end.extend_from_slice(&piece[piece.len().saturating_sub(KEPT)..]);
        end.advance(end.len().saturating_sub(KEPT));
        if let Some(at) = at {
            self.buffer.advance(at + 1);
            return Some(BoundedLine::TooLong(start, end.freeze()));
        }
        self.buffer.clear();
        self.long = Some((start, end));
        None
    }

    /// The last line, after the end of the stream.
    fn rest(&mut self) -> Option<BoundedLine> {
        if let Some((start, end)) = self.long.take() {
            return Some(BoundedLine::TooLong(start, end.freeze()));
        }
        let left = self.take(self.buffer.len());
        (!left.is_empty()).then_some(BoundedLine::Whole(left))
    }
}

impl<R: AsyncRead + AsFd + Unpin> BoundedLines<R> {
    /// Reads only the bytes that are in the pipe now, whether or not the other end is closed.
    pub(super) fn end_with_pipe_content(&mut self) {
        let there = ioctl_fionread(&self.from).ok().and_then(|there| usize::try_from(there).ok());
        // For a pipe this does not fail. If it does, the reader's own deadline is the bound.
        self.left = there.unwrap_or(usize::MAX);
    }

    /// Whether the other end is closed, checked without waiting.
    pub(super) fn is_at_end(&mut self) -> bool {
        matches!(self.from.read(&mut [0]).now_or_never(), Some(Ok(0)))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    async fn all(text: &[u8], max: usize) -> Vec<String> {
        let mut lines = BoundedLines::new(text, max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(shown(&line));
        }
        found
    }

    fn shown(line: &BoundedLine) -> String {
        match line {
            BoundedLine::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
            BoundedLine::TooLong(start, end) => {
                format!("{}…{}", String::from_utf8_lossy(start), String::from_utf8_lossy(end))
            }
        }
    }

    /// Yields one byte at a time, and returns `Pending` once before each byte.
    struct Slow<'a>(&'a [u8], bool);

    impl AsyncRead for Slow<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            self.1 = !self.1;
            if self.1 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some((first, rest)) = self.0.split_first() {
                buf.put_slice(&[*first]);
                self.0 = rest;
            }
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn nothing_is_lost_when_a_line_is_given_up_and_asked_for_again() {
        let text = [&b"one\n"[..], &b"x".repeat(100), b"end\ntwo\n", &b"y".repeat(20)].concat();
        let mut lines = BoundedLines::new(Slow(&text, false), 10);
        let mut found = Vec::new();
        loop {
            // Each future is dropped at its first `Pending`.
            let Some(line) = lines.next().now_or_never() else { continue };
            let Some(line) = line.unwrap() else { break };
            found.push(shown(&line));
        }
        let end = "x".repeat(KEPT - 3) + "end";
        assert_eq!(
            found,
            ["one", &format!("xxxxxxxxxx…{end}"), "two", &format!("yyyyyyyyyy…{}", "y".repeat(10))]
        );
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
