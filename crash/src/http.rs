//! The raw HTTP side of a client: one connection per request, no retries, no redirects.
//!
//! In: a message for a session, or an event id to resume after. Out: status and body, or a stream of
//! events, or [`Broken`] when the connection failed before the answer was whole.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tenure_testkit::sse::{Item, Odd, Parser};

/// Connecting over loopback takes no time; what takes longer is a server that does not accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The way to the server.
#[derive(Debug)]
pub(crate) struct Http {
    client: reqwest::Client,
    url: String,
}

/// How a session is named in headers.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) id: String,
    pub(crate) revision: &'static str,
}

/// What the server answered.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A whole body; `Null` if it was empty, a string if it was no JSON.
    Whole { status: u16, session: Option<String>, body: Value },
    /// A stream of events, status 200.
    Stream(Box<Events>),
}

/// The connection failed before the answer was whole, and why.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) String);

impl Http {
    /// The way to the server at an address. Connections are not shared between requests, so that a
    /// kill breaks exactly what was under way, and nothing is repeated behind the checker's back.
    pub(crate) fn new(server: SocketAddr) -> Result<Http> {
        // Built together with the server, reqwest can speak TLS, and wants to know whose cryptography to use.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .build()
            .context("set up the HTTP client")?;
        Ok(Http { client, url: format!("http://{server}/mcp") })
    }

    /// Sends a message.
    pub(crate) async fn post(&self, session: Option<&Name>, message: &Value) -> Result<Reply, Broken> {
        let request = self
            .request(Method::POST, session)
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(message.to_string());
        reply(request).await
    }

    /// Opens the standalone stream, or resumes a stream.
    pub(crate) async fn get(&self, session: &Name, last_event_id: Option<&str>) -> Result<Reply, Broken> {
        let mut request = self.request(Method::GET, Some(session)).header(ACCEPT, "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        reply(request).await
    }

    /// Ends a session.
    pub(crate) async fn delete(&self, session: &Name) -> Result<Reply, Broken> {
        reply(self.request(Method::DELETE, Some(session))).await
    }

    fn request(&self, method: Method, session: Option<&Name>) -> RequestBuilder {
        let request = self.client.request(method, &self.url);
        match session {
            None => request,
            Some(name) => {
                request.header("Mcp-Session-Id", &name.id).header("MCP-Protocol-Version", name.revision)
            }
        }
    }
}

async fn reply(request: RequestBuilder) -> Result<Reply, Broken> {
    let response = request.send().await.map_err(broken)?;
    let header = |headers: &HeaderMap, name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let status = response.status().as_u16();
    let is_stream = header(response.headers(), "content-type")
        .is_some_and(|media_type| media_type.starts_with("text/event-stream"));
    if status == 200 && is_stream {
        return Ok(Reply::Stream(Box::new(Events { response, parser: Parser::default() })));
    }
    let session = header(response.headers(), "mcp-session-id");
    let bytes = response.bytes().await.map_err(broken)?;
    let body = match serde_json::from_slice(&bytes) {
        Ok(body) => body,
        Err(_) if bytes.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
    };
    Ok(Reply::Whole { status, session, body })
}

/// The error with its causes, since the first alone says only that sending failed.
fn broken(error: reqwest::Error) -> Broken {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    Broken(text)
}

/// A stream that is being read. Dropping it hangs up.
#[derive(Debug)]
pub(crate) struct Events {
    response: Response,
    parser: Parser,
}

impl Events {
    /// The next item; `None` when the response ended as HTTP asks.
    pub(crate) async fn next(&mut self) -> Result<Option<Item>, Broken> {
        loop {
            if let Some(item) = self.parser.next() {
                return item.map(Some).map_err(|Odd(line)| Broken(format!("no line of an event: {line}")));
            }
            match self.response.chunk().await.map_err(broken)? {
                Some(piece) => self.parser.feed(&piece),
                None => return Ok(None),
            }
        }
    }
}

/// The word in `error.data.reason` of a body, or nothing.
pub(crate) fn reason(body: &Value) -> &str {
    body["error"]["data"]["reason"].as_str().unwrap_or_default()
}
