//! Ends a connection whose client does not say which protocol it speaks.
//!
//! hyper bounds the headers of a request, but not the time until it knows whether they are of HTTP/1.1 or of HTTP/2.
//! Stands above TLS, because it reads what the client says.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection with a limit on how long the client may take to show its protocol.
#[derive(Debug)]
pub(crate) struct Opening<T> {
    inner: T,
    /// Runs until the protocol is known.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    /// Bytes of the preface of HTTP/2 that came.
    read: usize,
    timer: Pin<Box<Sleep>>,
}

impl<T> Opening<T> {
    pub(crate) fn new(inner: T, limit: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(limit));
        Self { inner, waiting: Some(Waiting { read: 0, timer }) }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Opening<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let this = &mut *self;
        let outcome = Pin::new(&mut this.inner).poll_read(cx, buf);
        let Some(waiting) = &mut this.waiting else { return outcome };
        if outcome.is_pending() {
            std::task::ready!(waiting.timer.as_mut().poll(cx));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request came")));
        }
        let (read, rest) = (&buf.filled()[before..], &PREFACE[waiting.read..]);
        if read.len() < rest.len() && rest.starts_with(read) {
            waiting.read += read.len();
        } else {
            this.waiting = None;
        }
        outcome
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Opening<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// How reading ends for a client that writes this and then waits.
    async fn read(said: &[u8]) -> io::Result<Vec<u8>> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let mut opening = Opening::new(ours, LIMIT);
        let mut all = Vec::new();
        for piece in said.chunks(5) {
            theirs.write_all(piece).await.unwrap();
            opening.read_buf(&mut all).await?;
        }
        let next = tokio::time::timeout(2 * LIMIT, opening.read_buf(&mut all)).await;
        next.map_or(Ok(all), |read| Err(read.unwrap_err()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_so_long_to_show_its_protocol_and_then_is_left_alone() {
        for said in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
            assert_eq!(read(said).await.unwrap_err().kind(), io::ErrorKind::TimedOut, "{said:?}");
        }
        for said in [PREFACE, b"GET / HTTP/1.1\r\n", b"PRIVATE"] {
            assert_eq!(read(said).await.unwrap(), said);
        }
    }
}
