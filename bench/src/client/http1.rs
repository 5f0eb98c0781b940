//! One HTTP/1.1 keep-alive connection: sends ready-made bytes, reads the answer.
//!
//! Understands `Content-Length` and chunked answers, since servers answer a POST with either.
//! No retries, no redirects, no trailers, no pipelining: anything unexpected is an error, because
//! a benchmark must not measure errors.

use std::io::ErrorKind;

use anyhow::{Context, Result, bail, ensure};
use futures_util::FutureExt;
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Endpoint;

/// The longest header section we accept is bounded by the buffer, its number of lines by this.
const MAX_HEADERS: usize = 32;

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// What was received but not read yet lies in `buffer[start..end]`.
    start: usize,
    end: usize,
    framing: Framing,
    /// The body of the last `exchange`.
    body: Vec<u8>,
}

/// The first lines of an answer, as far as we need them.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) is_event_stream: bool,
}

/// How much of the current body is still to come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Sized { left: u64 },
    ChunkSize,
    ChunkData { left: u64 },
    ChunkEnd,
    LastChunkEnd,
    UntilClose,
    Done,
}

impl Connection {
    /// Connects; `buffer_bytes` must hold the longest header section.
    pub(crate) async fn open(endpoint: &Endpoint, buffer_bytes: usize) -> Result<Connection> {
        let stream = TcpStream::connect(endpoint.address)
            .await
            .with_context(|| format!("connect to {}", endpoint.address))?;
        stream.set_nodelay(true).context("switch off Nagle's algorithm")?;
        Ok(Connection {
            stream,
            buffer: vec![0; buffer_bytes].into_boxed_slice(),
            start: 0,
            end: 0,
            framing: Framing::Done,
            body: Vec::new(),
        })
    }

    /// Sends a request and reads the whole answer; the body is then in `body()`.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Head> {
        self.send(request).await?;
        let head = self.head().await?;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(piece);
        }
        self.body = body;
        Ok(head)
    }

    /// The body that the last `exchange` read.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Sends a request; `head` and `piece` read the answer.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await.context("send a request")
    }

    /// Reads the status line and the headers.
    pub(crate) async fn head(&mut self) -> Result<Head> {
        loop {
            let received = &self.buffer[self.start..self.end];
            if let Some(end) = memmem::find(received, b"\r\n\r\n") {
                let (head, framing) = parse_head(&received[..end + 4])?;
                self.framing = framing;
                self.start += end + 4;
                return Ok(head);
            }
            self.fill().await.context("read the header section")?;
        }
    }

    /// The next part of the body that has arrived; `None` at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<&[u8]>> {
        loop {
            match self.framing {
                Framing::Done => return Ok(None),
                Framing::Sized { left } => {
                    let taken = self.take(left).await?;
                    let left = left - taken.len() as u64;
                    self.framing = if left == 0 { Framing::Done } else { Framing::Sized { left } };
                    return Ok(Some(&self.buffer[taken]));
                }
                Framing::ChunkData { left } => {
                    let taken = self.take(left).await?;
                    let left = left - taken.len() as u64;
                    self.framing = if left == 0 { Framing::ChunkEnd } else { Framing::ChunkData { left } };
                    return Ok(Some(&self.buffer[taken]));
                }
                Framing::ChunkSize => {
                    self.framing = match self.chunk_size().await? {
                        0 => Framing::LastChunkEnd,
                        left => Framing::ChunkData { left },
                    };
                }
                Framing::ChunkEnd => {
                    self.line_end().await?;
                    self.framing = Framing::ChunkSize;
                }
                Framing::LastChunkEnd => {
                    self.line_end().await?;
                    self.framing = Framing::Done;
                }
                Framing::UntilClose => bail!("the answer has neither a length nor chunks"),
            }
        }
    }

    /// Whether the server has closed it while nothing was under way. Some do that after a few seconds.
    pub(crate) fn is_closed(&self) -> bool {
        // Nothing is to be read between answers but the end.
        !matches!(self.stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Whether the current body is over, well or not, as far as has been received. Reads what waits.
    pub(crate) fn has_ended(&mut self) -> bool {
        loop {
            // Unconstrained, since tokio would otherwise call a stream pending to let others run.
            match tokio::task::unconstrained(self.piece()).now_or_never() {
                None => return false,
                Some(Ok(Some(_))) => {}
                Some(Ok(None) | Err(_)) => return true,
            }
        }
    }

    /// The place of up to `limit` received bytes, at least one; they count as read.
    async fn take(&mut self, limit: u64) -> Result<std::ops::Range<usize>> {
        if self.start == self.end {
            self.fill().await.context("read the body")?;
        }
        let count = usize::try_from(limit).unwrap_or(usize::MAX).min(self.end - self.start);
        let taken = self.start..self.start + count;
        self.start += count;
        Ok(taken)
    }

    async fn chunk_size(&mut self) -> Result<u64> {
        loop {
            let received = &self.buffer[self.start..self.end];
            match httparse::parse_chunk_size(received) {
                Ok(httparse::Status::Complete((length, size))) => {
                    self.start += length;
                    return Ok(size);
                }
                Ok(httparse::Status::Partial) => self.fill().await.context("read a chunk size")?,
                Err(_) => bail!("bad chunk size"),
            }
        }
    }

    async fn line_end(&mut self) -> Result<()> {
        while self.end - self.start < 2 {
            self.fill().await.context("read the end of a chunk")?;
        }
        ensure!(&self.buffer[self.start..self.start + 2] == b"\r\n", "no line end after a chunk");
        self.start += 2;
        Ok(())
    }

    /// Receives more bytes, at least one.
    async fn fill(&mut self) -> Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        ensure!(self.end < self.buffer.len(), "the buffer of {} bytes is too small", self.buffer.len());
        let count = self.stream.read(&mut self.buffer[self.end..]).await?;
        ensure!(count > 0, "the server closed the connection");
        self.end += count;
        Ok(())
    }
}

fn parse_head(bytes: &[u8]) -> Result<(Head, Framing)> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    response.parse(bytes).context("parse the header section")?;
    let status = response.code.context("read the status")?;
    let mut head = Head { status, session: None, is_event_stream: false };
    let mut framing = if status == 204 || status == 304 { Framing::Done } else { Framing::UntilClose };
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(header.value).context("read Content-Length")?;
            framing = match text.parse().context("read Content-Length")? {
                0 => Framing::Done,
                left => Framing::Sized { left },
            };
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            framing = Framing::ChunkSize;
        } else if header.name.eq_ignore_ascii_case("mcp-session-id") {
            head.session = Some(String::from_utf8_lossy(header.value).into_owned());
        } else if header.name.eq_ignore_ascii_case("content-type") {
            head.is_event_stream = header.value.starts_with(b"text/event-stream");
        }
    }
    Ok((head, framing))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::Connection;
    use crate::client::Endpoint;

    /// Serves these bytes in pieces of `size`, and returns what a client makes of them.
    async fn read_back(answer: &'static [u8], size: usize) -> (u16, Option<String>, String) {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            for piece in answer.chunks(size) {
                stream.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            stream
        };
        let client = async {
            let mut connection = Connection::open(&endpoint, 128).await.unwrap();
            let head = connection.exchange(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            (head.status, head.session, String::from_utf8(connection.body().to_vec()).unwrap())
        };
        let (_open, answer) = tokio::join!(server, client);
        answer
    }

    #[tokio::test]
    async fn an_answer_with_a_length_is_read_however_it_is_split() {
        let answer = b"HTTP/1.1 200 OK\r\nMcp-Session-Id: s-1\r\nContent-Length: 5\r\n\r\nhello";
        for size in [1, 2, 7, 1_000] {
            assert_eq!(read_back(answer, size).await, (200, Some("s-1".to_owned()), "hello".to_owned()));
        }
    }

    #[tokio::test]
    async fn a_chunked_answer_is_read_however_it_is_split() {
        let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n";
        for size in [1, 2, 7, 1_000] {
            assert_eq!(read_back(answer, size).await, (200, None, "hello".to_owned()));
        }
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_last_chunk_even_if_the_connection_stays() {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
        let mut connection = Connection::open(&endpoint, 128).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        server.set_nodelay(true).unwrap();
        server.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n:\r\n").await.unwrap();
        connection.head().await.unwrap();
        assert!(!connection.has_ended());
        server.write_all(b"0\r\n\r\n").await.unwrap();
        while !connection.has_ended() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_empty_answer_has_no_body() {
        assert_eq!(read_back(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", 9).await.2, "");
    }
}
