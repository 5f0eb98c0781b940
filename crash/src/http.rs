//! The HTTP side of a client: one connection per request, no retries, no redirects.
//!
//! In: a request for a node. Out: status and body, or a stream of events, or [`Broken`] when the connection failed before
//! the answer was complete.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::sse::{Odd, Parser, SseItem};
use tenure_testkit::wire::{Ask, HttpConnection};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Connecting over loopback is fast, so a connect that takes longer means that the server does not accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const BUFFER_BYTES: usize = 8 << 10;

/// The headers that name a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionName {
    pub(crate) id: String,
    pub(crate) revision: &'static str,
}

/// What a node answered.
#[derive(Debug)]
pub(crate) enum HttpReply {
    /// A complete body; `Null` if it was empty, a string if it was not JSON.
    Whole { status: u16, session: Option<String>, body: Value },
    /// A stream of events, status 200.
    Stream(Box<ReplyEvents>),
}

/// Why there is no complete answer.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) why: String,
    pub(crate) node: usize,
    /// A node said that it cannot serve now, and there is a good reason.
    pub(crate) excused: bool,
}

impl Broken {
    pub(crate) fn new(node: usize, why: impl Into<String>) -> Broken {
        Broken { why: why.into(), node, excused: false }
    }
}

/// A connection to a node. Requests do not share connections, so a kill breaks exactly the requests under way, and no
/// request is retried without the checker's knowledge.
#[derive(Debug)]
pub(crate) struct NodeConnection {
    connection: HttpConnection<TcpStream>,
    node: usize,
}

impl NodeConnection {
    pub(crate) async fn open(node: usize, address: SocketAddr) -> Result<NodeConnection, Broken> {
        let opening = timeout(CONNECT_TIMEOUT, HttpConnection::open(address, BUFFER_BYTES));
        let opened = opening.await.map_err(|_| Broken::new(node, "the server does not accept"))?;
        Ok(NodeConnection { connection: opened.map_err(|error| Broken::new(node, error.to_string()))?, node })
    }

    /// Sends a request and waits for the answer, or the beginning of a stream.
    pub(crate) async fn ask(self, ask: &Ask) -> Result<HttpReply, Broken> {
        let node = self.node;
        self.exchange(ask).await.map_err(|error| Broken::new(node, error.to_string()))
    }

    async fn exchange(mut self, ask: &Ask) -> std::io::Result<HttpReply> {
        self.connection.send(&ask.bytes()).await?;
        let head = self.connection.head().await?;
        let (status, session) = (head.status, head.header("mcp-session-id").map(str::to_owned));
        if status == 200 && head.is_event_stream() {
            let NodeConnection { connection, node } = self;
            let events = ReplyEvents { connection, parser: Parser::default(), node };
            return Ok(HttpReply::Stream(Box::new(events)));
        }
        let bytes = self.connection.body().await?;
        let body = match serde_json::from_slice(bytes) {
            Ok(body) => body,
            Err(_) if bytes.is_empty() => Value::Null,
            Err(_) => Value::String(String::from_utf8_lossy(bytes).into_owned()),
        };
        Ok(HttpReply::Whole { status, session, body })
    }
}

/// A stream that is being read. Dropping it hangs up.
#[derive(Debug)]
pub(crate) struct ReplyEvents {
    connection: HttpConnection<TcpStream>,
    parser: Parser,
    pub(crate) node: usize,
}

impl ReplyEvents {
    /// The next item; `None` when the response ended in good order.
    pub(crate) async fn next(&mut self) -> Result<Option<SseItem>, Broken> {
        let node = self.node;
        loop {
            if let Some(item) = self.parser.next() {
                return item
                    .map(Some)
                    .map_err(|Odd(line)| Broken::new(node, format!("no line of an event: {line}")));
            }
            match self.connection.piece().await.map_err(|error| Broken::new(node, error.to_string()))? {
                Some(piece) => self.parser.feed(piece),
                None => return Ok(None),
            }
        }
    }
}

/// The word in `error.data.reason` of a body, or an empty string.
pub(crate) fn reason(body: &Value) -> &str {
    body["error"]["data"]["reason"].as_str().unwrap_or_default()
}
