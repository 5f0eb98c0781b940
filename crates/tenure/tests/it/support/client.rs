//! A raw HTTP/1.1 client: exact bytes out; status, headers and body back.
//!
//! It follows no redirects, pools nothing and corrects nothing, so that a test sees what is on the wire.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::events::Events;
use super::wait::within;

/// A request in the making.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Ask {
    /// A request with nothing but a host.
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let headers = vec![("Host".to_owned(), "localhost".to_owned())];
        Self { method: method.to_owned(), path: path.to_owned(), headers, body: Vec::new() }
    }

    /// A message to the endpoint, as a well-behaved client sends it.
    pub(crate) fn post(body: impl AsRef<[u8]>) -> Self {
        let ask = Self::new("POST", "/mcp")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        Self { body: body.as_ref().to_vec(), ..ask }
    }

    /// A message to another path.
    pub(crate) fn post_to(path: &str, body: &str) -> Self {
        Self { path: path.to_owned(), ..Self::post(body) }
    }

    /// A GET for the endpoint's stream.
    pub(crate) fn get() -> Self {
        Self::new("GET", "/mcp").header("Accept", "text/event-stream")
    }

    /// The same for another path.
    pub(crate) fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Sets a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.another(name, value)
    }

    /// Adds a header even if there is one of that name.
    pub(crate) fn another(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a header out.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// The request's bytes. A body has its length declared.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method == "POST" {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends it on a connection of its own and reads the whole response.
    pub(crate) async fn send(self, to: SocketAddr) -> Response {
        self.begin(to).await.response().await
    }

    /// Sends it on a connection of its own; the response is read later.
    pub(crate) async fn begin(self, to: SocketAddr) -> Connection {
        let mut connection = Connection::open(to).await;
        connection.write(&self.bytes()).await;
        connection
    }

    /// Sends it on a connection of its own and expects a stream.
    pub(crate) async fn open(self, to: SocketAddr) -> Events {
        self.begin(to).await.events().await
    }
}

/// What a connection runs over.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Connects, and sends small writes at once.
pub(crate) async fn connect(to: SocketAddr) -> TcpStream {
    let stream = within("connect", TcpStream::connect(to)).await.expect("a connection");
    stream.set_nodelay(true).expect("a socket option");
    stream
}

/// The same from another address of this machine, with so much room for what was not read yet.
pub(crate) async fn connect_from(from: [u8; 4], to: SocketAddr, room_bytes: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(room_bytes).expect("a socket option");
    socket.bind(SocketAddr::from((from, 0))).expect("an address of this machine");
    within("connect", socket.connect(to)).await.expect("a connection")
}

/// One connection to the server.
pub(crate) struct Connection {
    io: Box<dyn Io>,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(to: SocketAddr) -> Self {
        Self::over(connect(to).await)
    }

    pub(crate) fn over(io: impl Io + 'static) -> Self {
        Self { io: Box::new(io), read: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        within("write", self.io.write_all(bytes)).await.expect("written");
        within("flush", self.io.flush()).await.expect("flushed");
    }

    /// Reads the status line and the headers.
    pub(crate) async fn head(&mut self) -> Head {
        let end = loop {
            if let Some(end) = find(&self.read, b"\r\n\r\n") {
                break end;
            }
            assert!(self.fill().await, "the connection closed before a response: {:?}", text(&self.read));
        };
        let head: Vec<u8> = self.read.drain(..end + 4).collect();
        Head::parse(&text(&head))
    }

    /// Reads a whole response.
    pub(crate) async fn response(&mut self) -> Response {
        let head = self.head().await;
        let mut body = Body::of(&head);
        let mut whole = Vec::new();
        while let Some(piece) = body.next(self).await {
            whole.extend(piece);
        }
        assert!(body.is_complete(), "the body was cut off after {:?}", text(&whole));
        Response { head, body: whole }
    }

    /// Reads the head of a response that must be a stream.
    pub(crate) async fn events(mut self) -> Events {
        let head = self.head().await;
        if (head.status, head.header("content-type")) != (200, Some("text/event-stream")) {
            let rest = Body::of(&head).next(&mut self).await.unwrap_or_default();
            panic!("not a stream: {head:?} {:?}", text(&rest));
        }
        let body = Body::of(&head);
        Events::new(self, head, body)
    }

    /// Waits until the server closes, and returns what came before.
    pub(crate) async fn until_closed(&mut self) -> Vec<u8> {
        while self.fill().await {}
        std::mem::take(&mut self.read)
    }

    /// Reads what is there; `false` if the server has closed.
    async fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        match within("read", self.io.read(&mut buffer)).await {
            Ok(count) => {
                self.read.extend_from_slice(&buffer[..count]);
                count > 0
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => false,
            // What TLS calls a close without a goodbye.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(error) => panic!("read: {error}"),
        }
    }
}

/// Status and headers.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    fn parse(text: &str) -> Self {
        let mut lines = text.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let header = |line: &str| {
            let (name, value) = line.split_once(':').expect("a header has a colon");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Self { status: status.expect("a status line"), headers: lines.map(header).collect() }
    }

    /// The value of a header; there must not be two.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values =
            self.headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let first = values.next();
        assert_eq!(values.next(), None, "{name} stands twice");
        first
    }
}

/// How a body is framed, and how much of it is still to come.
pub(crate) enum Body {
    Length(usize),
    Chunked,
    UntilClosed,
    Complete,
    Cut,
}

impl Body {
    pub(crate) fn of(head: &Head) -> Self {
        match (head.header("transfer-encoding"), head.header("content-length")) {
            _ if head.status == 204 => Self::Complete,
            (Some("chunked"), _) => Self::Chunked,
            (_, Some(length)) => Self::Length(length.parse().expect("a length")),
            _ => Self::UntilClosed,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        matches!(self, Self::Complete)
    }

    /// The next bytes of the body; `None` when it is complete or cut off.
    pub(crate) async fn next(&mut self, connection: &mut Connection) -> Option<Vec<u8>> {
        loop {
            match self {
                Self::Complete | Self::Cut => return None,
                Self::Length(0) => *self = Self::Complete,
                Self::Length(left) if !connection.read.is_empty() => {
                    let count = (*left).min(connection.read.len());
                    *left -= count;
                    return Some(connection.read.drain(..count).collect());
                }
                Self::UntilClosed if !connection.read.is_empty() => {
                    return Some(std::mem::take(&mut connection.read));
                }
                Self::Chunked => match take_chunk(&mut connection.read) {
                    Some(chunk) if chunk.is_empty() => *self = Self::Complete,
                    Some(chunk) => return Some(chunk),
                    None if connection.fill().await => {}
                    None => *self = Self::Cut,
                },
                Self::Length(_) if connection.fill().await => {}
                Self::Length(_) => *self = Self::Cut,
                Self::UntilClosed if connection.fill().await => {}
                Self::UntilClosed => *self = Self::Complete,
            }
        }
    }
}

/// Takes one whole chunk; an empty one is the last.
fn take_chunk(read: &mut Vec<u8>) -> Option<Vec<u8>> {
    let line = find(read, b"\r\n")?;
    let size = usize::from_str_radix(&text(&read[..line]), 16).expect("a chunk size");
    let end = line + 2 + size;
    if read.len() < end + 2 {
        return None;
    }
    assert_eq!(&read[end..end + 2], b"\r\n", "a chunk ends with a line break");
    let chunk = read[line + 2..end].to_vec();
    read.drain(..end + 2);
    Some(chunk)
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Response {
    head: Head,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub(crate) fn text(&self) -> String {
        text(&self.body)
    }

    /// The body as a JSON-RPC message. `"id":null` is legal nowhere in MCP.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let message: Value = serde_json::from_slice(&self.body).expect("JSON");
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        assert_ne!(message.get("id"), Some(&Value::Null), "{message}");
        message
    }

    /// What went wrong: the status, the code and the word for it.
    pub(crate) fn fault(&self) -> (u16, i64, String) {
        let message = self.json();
        let error = &message["error"];
        let reason = error["data"]["reason"].as_str().unwrap_or_default();
        (self.status(), error["code"].as_i64().unwrap_or_default(), reason.to_owned())
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
