//! One HTTP/1.1 connection: sends ready-made bytes, reads the answers.
//!
//! Understands bodies with a length, in chunks, and until the end of the connection. No trailers, no pipelining.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection that is read answer by answer. Its buffers are used again for each.
#[derive(Debug)]
pub struct HttpConnection<S> {
    io: S,
    buffer: Vec<u8>,
    /// Bytes that were received but not read yet are in `buffer[start..end]`.
    start: usize,
    end: usize,
    framing: Framing,
    head: Head,
    body: Vec<u8>,
}

/// Status and headers of an answer.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The lines after the status line.
    lines: String,
}

/// How much of the current body is still to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Framing {
    Sized { left: u64 },
    ChunkSize,
    ChunkData { left: u64 },
    ChunkEnd,
    LastChunkEnd,
    UntilClosed,
    Complete,
    Cut,
}

impl HttpConnection<TcpStream> {
    /// Connects; the buffer of `buffer_bytes` grows if a header section does not fit into it.
    ///
    /// # Errors
    /// When the server does not accept.
    pub async fn open(server: SocketAddr, buffer_bytes: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream, buffer_bytes))
    }

    /// Whether the server has closed it while no request was under way. Some do that after a few seconds.
    pub fn is_closed(&self) -> bool {
        // Nothing comes between answers but the end.
        !matches!(self.io.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> HttpConnection<S> {
    /// Uses a connection that is open.
    pub fn over(io: S, buffer_bytes: usize) -> Self {
        let (framing, head, body) = (Framing::Complete, Head::default(), Vec::new());
        Self { io, buffer: vec![0; buffer_bytes], start: 0, end: 0, framing, head, body }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.io.write_all(bytes).await?;
        self.io.flush().await
    }

    /// Sends a request and reads the whole answer.
    ///
    /// # Errors
    /// When the connection breaks before the answer is complete.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<(&Head, &[u8])> {
        self.send(request).await?;
        self.head().await?;
        self.read_body().await?;
        Ok((&self.head, &self.body))
    }

    /// Reads the status line and the headers.
    ///
    /// # Errors
    /// When the connection ends before, or when they cannot be parsed.
    pub async fn head(&mut self) -> io::Result<&Head> {
        loop {
            let received = &self.buffer[self.start..self.end];
            if let Some(end) = memmem::find(received, b"\r\n\r\n") {
                self.framing = self.head.parse(&received[..end + 2])?;
                self.start += end + 4;
                return Ok(&self.head);
            }
            if !self.fill().await? {
                let received = text(&self.buffer[self.start..self.end]);
                return Err(cut(format!("the connection closed before a response: {received:?}")));
            }
        }
    }

    /// The next part of the body that has arrived; `None` at its end.
    ///
    /// # Errors
    /// When the connection ends before the body does, or when a chunk is malformed.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn piece(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            match self.framing {
                Framing::Complete => return Ok(None),
                Framing::Sized { left: 0 } => self.framing = Framing::Complete,
                Framing::Sized { left } => {
                    let taken = self.take(left).await?;
                    self.framing = Framing::Sized { left: left - taken.len() as u64 };
                    return Ok(Some(&self.buffer[taken]));
                }
                Framing::ChunkSize => {
                    self.framing = match self.chunk_size().await? {
                        0 => Framing::LastChunkEnd,
                        left => Framing::ChunkData { left },
                    };
                }
                Framing::ChunkData { left: 0 } => self.framing = Framing::ChunkEnd,
                Framing::ChunkData { left } => {
                    let taken = self.take(left).await?;
                    self.framing = Framing::ChunkData { left: left - taken.len() as u64 };
                    return Ok(Some(&self.buffer[taken]));
                }
                Framing::ChunkEnd => {
                    self.line_end().await?;
                    self.framing = Framing::ChunkSize;
                }
                Framing::LastChunkEnd => {
                    self.line_end().await?;
                    self.framing = Framing::Complete;
                }
                Framing::UntilClosed => {
                    if self.start < self.end || self.fill().await? {
                        let taken = self.take(u64::MAX).await?;
                        return Ok(Some(&self.buffer[taken]));
                    }
                    self.framing = Framing::Complete;
                }
                Framing::Cut => return Err(cut("the body was cut off")),
            }
        }
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// As [`HttpConnection::piece`].
    pub async fn body(&mut self) -> io::Result<&[u8]> {
        self.read_body().await?;
        Ok(&self.body)
    }

    async fn read_body(&mut self) -> io::Result<()> {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let outcome = loop {
            match self.piece().await {
                Ok(Some(piece)) => body.extend_from_slice(piece),
                Ok(None) => break Ok(()),
                Err(error) => {
                    break Err(io::Error::new(error.kind(), format!("{error} after {:?}", text(&body))));
                }
            }
        };
        self.body = body;
        outcome
    }

    /// Whether the body that was read last is complete, not cut off.
    pub fn is_complete(&self) -> bool {
        self.framing == Framing::Complete
    }

    /// Whether the current body is over, in good order or not, as far as it has been received. Drops what waits.
    pub fn has_ended(&mut self) -> bool {
        loop {
            // Unconstrained, because tokio would otherwise call a stream pending to let other tasks run.
            let piece = pin!(tokio::task::unconstrained(self.piece()));
            match piece.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => return false,
                Poll::Ready(Ok(Some(_))) => {}
                Poll::Ready(Ok(None) | Err(_)) => return true,
            }
        }
    }

    /// Waits until the server closes, and returns the bytes that came before.
    ///
    /// # Errors
    /// When reading fails.
    pub async fn until_closed(&mut self) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        loop {
            whole.extend_from_slice(&self.buffer[self.start..self.end]);
            self.start = self.end;
            if !self.fill().await? {
                return Ok(whole);
            }
        }
    }

    /// The place of up to `limit` received bytes, at least one; they count as read.
    async fn take(&mut self, limit: u64) -> io::Result<Range<usize>> {
        if self.start == self.end {
            self.fill_body().await?;
        }
        let count = usize::try_from(limit).unwrap_or(usize::MAX).min(self.end - self.start);
        let taken = self.start..self.start + count;
        self.start += count;
        Ok(taken)
    }

    async fn chunk_size(&mut self) -> io::Result<u64> {
        loop {
            let received = &self.buffer[self.start..self.end];
            if let Some(end) = memmem::find(received, b"\r\n") {
                let line = text(&received[..end]);
                let digits = line.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(digits, 16);
                self.start += end + 2;
                return size.map_err(|_| malformed(format!("`{line}` is no chunk size")));
            }
            self.fill_body().await?;
        }
    }

    async fn line_end(&mut self) -> io::Result<()> {
        while self.end - self.start < 2 {
            self.fill_body().await?;
        }
        if &self.buffer[self.start..self.start + 2] != b"\r\n" {
            return Err(malformed("no line end after a chunk"));
        }
        self.start += 2;
        Ok(())
    }

    /// Receives more bytes of a body that is not complete.
    async fn fill_body(&mut self) -> io::Result<()> {
        if self.fill().await? {
            return Ok(());
        }
        self.framing = Framing::Cut;
        Err(cut("the body was cut off"))
    }

    /// Receives more bytes; `false` if the server has closed.
    async fn fill(&mut self) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.buffer.len() {
                self.buffer.resize(2 * self.end, 0);
            }
        }
        match self.io.read(&mut self.buffer[self.end..]).await {
            Ok(count) => {
                self.end += count;
                Ok(count > 0)
            }
            // `UnexpectedEof` is how TLS reports a close without a goodbye.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl Head {
    /// The value of a header, whichever way its name is written.
    ///
    /// # Panics
    /// When the header stands twice: no header of this protocol may.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values =
            self.headers().filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let first = values.next();
        assert_eq!(values.next(), None, "{name} stands twice");
        first
    }

    /// Whether the answer is a stream of events.
    pub fn is_event_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lines.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()))
    }

    /// Reads a header section, and how the body after it is framed.
    fn parse(&mut self, bytes: &[u8]) -> io::Result<Framing> {
        let section = String::from_utf8_lossy(bytes);
        let (first, lines) = section.split_once("\r\n").unwrap_or_default();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        self.status = status.ok_or_else(|| malformed(format!("`{first}` is no status line")))?;
        self.lines.clear();
        self.lines.push_str(lines);
        let mut framing = match self.status {
            204 | 304 => return Ok(Framing::Complete),
            _ => Framing::UntilClosed,
        };
        for (name, value) in self.headers() {
            if name.eq_ignore_ascii_case("transfer-encoding") {
                return Ok(Framing::ChunkSize);
            }
            if name.eq_ignore_ascii_case("content-length") {
                let left = value.parse().map_err(|_| malformed(format!("`{value}` is no length")))?;
                framing = Framing::Sized { left };
            }
        }
        Ok(framing)
    }
}

fn cut(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, what.into())
}

fn malformed(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

    use super::HttpConnection;

    /// A connection, and the server's end of it.
    fn connection() -> (HttpConnection<DuplexStream>, DuplexStream) {
        let (client, server) = duplex(1 << 16);
        (HttpConnection::over(client, 64), server)
    }

    /// Sends these bytes in pieces of `size`, and returns what a client makes of them.
    async fn read_back(answer: &[u8], size: usize) -> (u16, Option<String>, String) {
        let (mut connection, mut server) = connection();
        let serve = async {
            for piece in answer.chunks(size) {
                server.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let exchange = async {
            let (head, body) = connection.exchange(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let session = head.header("mcp-session-id").map(str::to_owned);
            (head.status, session, String::from_utf8(body.to_vec()).unwrap())
        };
        tokio::join!(serve, exchange).1
    }

    #[tokio::test]
    async fn an_answer_is_read_however_it_is_framed_and_split() {
        let sized = "HTTP/1.1 200 OK\r\nMcp-Session-Id: s-1\r\nContent-Length: 5\r\n\r\nhello";
        let chunked = "HTTP/1.1 200 OK\r\nmcp-session-id:s-1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n";
        for answer in [sized, chunked] {
            for size in [1, 2, 7, 1_000] {
                let read = read_back(answer.as_bytes(), size).await;
                assert_eq!(read, (200, Some("s-1".to_owned()), "hello".to_owned()), "pieces of {size}");
            }
        }
        assert_eq!(read_back(b"HTTP/1.1 204 No Content\r\n\r\n", 7).await, (204, None, String::new()));
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_last_chunk_even_if_the_connection_stays() {
        let (mut connection, mut server) = connection();
        server.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n:\r\n").await.unwrap();
        connection.head().await.unwrap();
        assert!(!connection.has_ended());
        server.write_all(b"0\r\n\r\n").await.unwrap();
        assert!(connection.has_ended() && connection.is_complete());
    }

    #[tokio::test]
    async fn a_body_that_is_cut_off_is_an_error_and_one_without_a_length_is_not() {
        for (answer, whole) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", None),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", None),
            ("HTTP/1.1 200 OK\r\n\r\nhello", Some(&b"hello"[..])),
        ] {
            let (mut connection, mut server) = connection();
            server.write_all(answer.as_bytes()).await.unwrap();
            drop(server);
            connection.head().await.unwrap();
            assert_eq!(connection.body().await.ok(), whole, "{answer}");
            assert_eq!(connection.is_complete(), whole.is_some(), "{answer}");
        }
    }

    #[tokio::test]
    async fn answers_that_are_no_http_are_errors() {
        for answer in
            ["HTTP/1.1 no\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 200 OK\r\n"]
        {
            let (mut connection, mut server) = connection();
            server.write_all(answer.as_bytes()).await.unwrap();
            drop(server);
            assert!(connection.head().await.is_err(), "{answer}");
        }
    }
}
