//! Finds out which protocol a client speaks, and ends a connection whose client does not say.
//!
//! hyper limits the time for the headers of a request, but not the time until it knows whether the client speaks
//! HTTP/1.1 or HTTP/2. Works above TLS, because it reads plain bytes. hyper reads the same bytes again.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// A connection whose protocol is not known yet, and a limit on the time that the client may take to show it.
#[derive(Debug)]
pub(crate) struct ProtocolProbe<T> {
    pub(crate) inner: T,
    /// The bytes that were read so far.
    pub(crate) read: BytesMut,
    timer: Pin<Box<Sleep>>,
}

impl<T: AsyncRead + Unpin> ProtocolProbe<T> {
    /// A connection from which these bytes were already read.
    pub(crate) fn new(inner: T, read: &Bytes, limit: Duration) -> Self {
        Self { inner, read: BytesMut::from(&read[..]), timer: Box::pin(tokio::time::sleep(limit)) }
    }

    /// Ready when the protocol is known, or the client has closed its side.
    pub(crate) fn poll_protocol(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Protocol>> {
        loop {
            if self.read.starts_with(PREFACE) {
                return Poll::Ready(Ok(Protocol::Http2));
            }
            if !PREFACE.starts_with(&self.read) {
                return Poll::Ready(Ok(Protocol::Http1));
            }
            let mut piece = [0; PREFACE.len()];
            let mut piece = ReadBuf::new(&mut piece[self.read.len()..]);
            let Poll::Ready(read) = Pin::new(&mut self.inner).poll_read(cx, &mut piece) else {
                ready!(self.timer.as_mut().poll(cx));
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "no request came")));
            };
            read?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(Protocol::Http1));
            }
            self.read.extend_from_slice(piece.filled());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// The protocol found for a client that writes `sent` and then waits; the first `before` bytes were already read.
    async fn opened(sent: &[u8], before: usize) -> io::Result<(Protocol, BytesMut)> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        let (before, sent) = sent.split_at(before);
        let mut probe = ProtocolProbe::new(ours, &Bytes::copy_from_slice(before), LIMIT);
        let writes = async {
            for piece in sent.chunks(5) {
                theirs.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let read = std::future::poll_fn(|cx| probe.poll_protocol(cx));
        let (protocol, ()) = tokio::join!(tokio::time::timeout(2 * LIMIT, read), writes);
        Ok((protocol.expect("it is bounded")?, probe.read))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_gets_so_long_to_show_its_protocol() {
        for sent in [&b""[..], b"PRI * HTTP/2.0\r\n"] {
            assert_eq!(opened(sent, 0).await.unwrap_err().kind(), io::ErrorKind::TimedOut, "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_protocol_is_found_out_and_no_byte_of_it_lost() {
        let cases = [
            (PREFACE, Protocol::Http2),
            (b"GET / HTTP/1.1\r\n", Protocol::Http1),
            (b"PRIVATE", Protocol::Http1),
        ];
        for (sent, protocol) in cases {
            for before in [0, 2, sent.len()] {
                let (found, read) = opened(sent, before).await.unwrap();
                assert_eq!(found, protocol, "{sent:?}");
                assert!(!read.is_empty() && sent.starts_with(&read), "{read:?}");
            }
        }
    }
}
