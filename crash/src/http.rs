//! The HTTP side of a client: one connection per request, no retries, no redirects.
//!
//! In: a message for a session, or an event id to resume after. Out: status and body, or a stream of
//! events, or [`Broken`] when the connection failed before the answer was complete.

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

/// Sends requests to the server. Requests do not share connections, so a kill breaks exactly the requests under way, and
/// no request is retried without the checker's knowledge.
#[derive(Debug)]
pub(crate) struct ServerHttp {
    pub(crate) server: SocketAddr,
}

/// The headers that name a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionName {
    pub(crate) id: String,
    pub(crate) revision: &'static str,
}

/// What the server answered.
#[derive(Debug)]
pub(crate) enum HttpReply {
    /// A complete body; `Null` if it was empty, a string if it was not JSON.
    Whole { status: u16, session: Option<String>, body: Value },
    /// A stream of events, status 200.
    Stream(Box<ReplyEvents>),
}

/// Why the connection failed before the answer was complete.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        Broken(error.to_string())
    }
}

impl ServerHttp {
    /// Sends a message.
    pub(crate) async fn post(
        &self,
        session: Option<&SessionName>,
        message: &Value,
    ) -> Result<HttpReply, Broken> {
        self.reply(session, Ask::post(message.to_string())).await
    }

    /// Opens the standalone stream, or resumes a stream.
    pub(crate) async fn get(
        &self,
        session: &SessionName,
        last_event_id: Option<&str>,
    ) -> Result<HttpReply, Broken> {
        self.reply(Some(session), Ask::get().header_if("Last-Event-ID", last_event_id)).await
    }

    /// Ends a session.
    pub(crate) async fn delete(&self, session: &SessionName) -> Result<HttpReply, Broken> {
        self.reply(Some(session), Ask::new("DELETE", "/mcp")).await
    }

    async fn reply(&self, session: Option<&SessionName>, ask: Ask) -> Result<HttpReply, Broken> {
        let ask = ask
            .header_if("Mcp-Session-Id", session.map(|name| name.id.as_str()))
            .header_if("MCP-Protocol-Version", session.map(|name| name.revision));
        let opening = HttpConnection::open(self.server, BUFFER_BYTES);
        let opened = timeout(CONNECT_TIMEOUT, opening).await;
        let mut connection = opened.map_err(|_| Broken("the server does not accept".to_owned()))??;
        connection.send(&ask.bytes()).await?;
        let head = connection.head().await?;
        let (status, session) = (head.status, head.header("mcp-session-id").map(str::to_owned));
        if status == 200 && head.is_event_stream() {
            return Ok(HttpReply::Stream(Box::new(ReplyEvents { connection, parser: Parser::default() })));
        }
        let bytes = connection.body().await?;
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
}

impl ReplyEvents {
    /// The next item; `None` when the response ended in good order.
    pub(crate) async fn next(&mut self) -> Result<Option<SseItem>, Broken> {
        loop {
            if let Some(item) = self.parser.next() {
                return item.map(Some).map_err(|Odd(line)| Broken(format!("no line of an event: {line}")));
            }
            match self.connection.piece().await? {
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
