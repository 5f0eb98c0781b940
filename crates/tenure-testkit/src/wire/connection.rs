//! A connection as a test uses it: each step has a deadline, and a step that fails ends the test.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::events::Events;
use super::http::{Head, HttpConnection};
use super::wait::within;

const BUFFER_BYTES: usize = 16 << 10;

/// A transport that HTTP can run over.
pub trait WireIo: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> WireIo for T {}

/// Connects, and sends small writes at once.
///
/// # Panics
/// When the server does not accept.
pub async fn connect(to: SocketAddr) -> TcpStream {
    let stream = within("connect", TcpStream::connect(to)).await.expect("a connection");
    stream.set_nodelay(true).expect("a socket option");
    stream
}

/// One connection to the server.
pub struct Connection(HttpConnection<Box<dyn WireIo>>);

impl Connection {
    /// Connects.
    pub async fn open(to: SocketAddr) -> Self {
        Self::over(connect(to).await)
    }

    /// Uses a transport that is connected.
    pub fn over(io: impl WireIo + 'static) -> Self {
        Self(HttpConnection::over(Box::new(io), BUFFER_BYTES))
    }

    /// Sends bytes.
    pub async fn write(&mut self, bytes: &[u8]) {
        within("write", self.0.send(bytes)).await.expect("written");
    }

    /// Reads the status line and the headers.
    pub async fn head(&mut self) -> Head {
        within("the head of a response", self.0.head()).await.expect("a response").clone()
    }

    /// The next bytes of the body; `None` when it is complete or cut off.
    pub async fn piece(&mut self) -> Option<Vec<u8>> {
        match within("the body of a response", self.0.piece()).await {
            Ok(piece) => piece.map(<[u8]>::to_vec),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => None,
            Err(error) => panic!("read a body: {error}"),
        }
    }

    /// Whether the last body ended as HTTP asks, not by a cut.
    pub fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// Reads the rest of the body, which must not be cut off.
    pub async fn body(&mut self) -> Vec<u8> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await {
            whole.extend(piece);
        }
        assert!(self.is_complete(), "the body was cut off after {:?}", String::from_utf8_lossy(&whole));
        whole
    }

    /// Reads a whole response.
    pub async fn response(&mut self) -> WholeResponse {
        let head = self.head().await;
        WholeResponse { head, body: self.body().await }
    }

    /// Reads the head of a response that must be a stream.
    pub async fn events(mut self) -> Events {
        let head = self.head().await;
        if (head.status, head.header("content-type")) != (200, Some("text/event-stream")) {
            let rest = self.piece().await.unwrap_or_default();
            panic!("not a stream: {head:?} {:?}", String::from_utf8_lossy(&rest));
        }
        Events::new(self, head)
    }

    /// Waits until the server closes, and returns what came before.
    pub async fn until_closed(&mut self) -> Vec<u8> {
        within("the end of the connection", self.0.until_closed()).await.expect("bytes")
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

/// A whole response.
#[derive(Debug)]
pub struct WholeResponse {
    head: Head,
    /// Its body.
    pub body: Vec<u8>,
}

impl WholeResponse {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as a JSON-RPC message. `"id":null` is legal nowhere in MCP.
    pub fn json(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let message: Value = serde_json::from_slice(&self.body).expect("JSON");
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        assert_ne!(message.get("id"), Some(&Value::Null), "{message}");
        message
    }

    /// An error in short: the status, the code and its reason.
    pub fn fault(&self) -> (u16, i64, String) {
        let message = self.json();
        let error = &message["error"];
        let reason = error["data"]["reason"].as_str().unwrap_or_default();
        (self.status(), error["code"].as_i64().unwrap_or_default(), reason.to_owned())
    }
}
