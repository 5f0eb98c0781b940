//! The HTTP side of a client: one connection per request, no retries, no redirects.
//!
//! In: a message for a session, or an event id to resume after. Out: status and body, or a stream of
//! events, or [`Broken`] when the connection failed before the answer was complete.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tenure_testkit::sse::{Odd, Parser, SseItem};

/// Connecting over loopback is fast, so a connect that takes longer means that the server does not accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests to the server.
#[derive(Debug)]
pub(crate) struct ServerHttp {
    client: reqwest::Client,
    url: String,
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

impl ServerHttp {
    /// A client for the server at an address. Requests do not share connections, so a kill breaks exactly the requests
    /// under way, and no request is retried without the checker's knowledge.
    pub(crate) fn new(server: SocketAddr) -> Result<ServerHttp> {
        // In a build with the server, reqwest has TLS enabled and needs a default crypto provider.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder()
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .build()
            .context("set up the HTTP client")?;
        Ok(ServerHttp { client, url: format!("http://{server}/mcp") })
    }

    /// Sends a message.
    pub(crate) async fn post(
        &self,
        session: Option<&SessionName>,
        message: &Value,
    ) -> Result<HttpReply, Broken> {
        let request = self
            .request(Method::POST, session)
            .header(ACCEPT, "application/json, text/event-stream")
            .header(CONTENT_TYPE, "application/json")
            .body(message.to_string());
        reply(request).await
    }

    /// Opens the standalone stream, or resumes a stream.
    pub(crate) async fn get(
        &self,
        session: &SessionName,
        last_event_id: Option<&str>,
    ) -> Result<HttpReply, Broken> {
        let mut request = self.request(Method::GET, Some(session)).header(ACCEPT, "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        reply(request).await
    }

    /// Ends a session.
    pub(crate) async fn delete(&self, session: &SessionName) -> Result<HttpReply, Broken> {
        reply(self.request(Method::DELETE, Some(session))).await
    }

    fn request(&self, method: Method, session: Option<&SessionName>) -> RequestBuilder {
        let request = self.client.request(method, &self.url);
        match session {
            None => request,
            Some(name) => {
                request.header("Mcp-Session-Id", &name.id).header("MCP-Protocol-Version", name.revision)
            }
        }
    }
}

async fn reply(request: RequestBuilder) -> Result<HttpReply, Broken> {
    let response = request.send().await.map_err(broken)?;
    let header = |headers: &HeaderMap, name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let status = response.status().as_u16();
    let is_stream = header(response.headers(), "content-type")
        .is_some_and(|media_type| media_type.starts_with("text/event-stream"));
    if status == 200 && is_stream {
        return Ok(HttpReply::Stream(Box::new(ReplyEvents { response, parser: Parser::default() })));
    }
    let session = header(response.headers(), "mcp-session-id");
    let bytes = response.bytes().await.map_err(broken)?;
    let body = match serde_json::from_slice(&bytes) {
        Ok(body) => body,
        Err(_) if bytes.is_empty() => Value::Null,
        Err(_) => Value::String(String::from_utf8_lossy(&bytes).into_owned()),
    };
    Ok(HttpReply::Whole { status, session, body })
}

/// The error with its causes, because the error itself says only that sending failed.
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
pub(crate) struct ReplyEvents {
    response: Response,
    parser: Parser,
}

impl ReplyEvents {
    /// The next item; `None` when the response ended in good order.
    pub(crate) async fn next(&mut self) -> Result<Option<SseItem>, Broken> {
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

/// The word in `error.data.reason` of a body, or an empty string.
pub(crate) fn reason(body: &Value) -> &str {
    body["error"]["data"]["reason"].as_str().unwrap_or_default()
}
