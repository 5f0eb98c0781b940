//! An HTTP/2 client over any connection, with prior knowledge.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::support::client::Io;
use crate::support::session::{initialize_params, notification, request};
use crate::support::wait::within;

/// One HTTP/2 connection, and the session on it.
pub(crate) struct Http2 {
    sender: http2::SendRequest<Full<Bytes>>,
    origin: String,
    pub(crate) session: Option<String>,
    driver: AbortOnDropHandle<Result<(), hyper::Error>>,
}

impl Http2 {
    /// Takes up HTTP/2 on a connection; `origin` is the scheme and authority of every request.
    pub(crate) async fn over(io: impl Io + 'static, origin: &str) -> Self {
        Self::with_room(io, origin, 1 << 20).await
    }

    /// The same for a client that takes this many bytes of each answer before it has read any.
    pub(crate) async fn with_room(io: impl Io + 'static, origin: &str, bytes: u32) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        let handshake = builder.initial_stream_window_size(bytes).handshake(TokioIo::new(io));
        let (sender, connection) = within("the preface", handshake).await.expect("HTTP/2");
        let driver = AbortOnDropHandle::new(tokio::spawn(connection));
        Self { sender, origin: origin.to_owned(), session: None, driver }
    }

    /// Waits until the server ends the connection.
    pub(crate) async fn ended(self) {
        let Self { sender, driver, .. } = self;
        // The connection is over either way, with an error or without.
        drop(within("the end of the connection", driver).await.expect("no panic"));
        drop(sender);
    }

    /// Opens a session and says `notifications/initialized`.
    pub(crate) async fn start(&mut self) {
        let response = self.post(&request(0, "initialize", &initialize_params("2025-11-25"))).await;
        assert_eq!(response.status(), 200);
        let id = response.headers()["mcp-session-id"].to_str().expect("ASCII").to_owned();
        self.session = Some(id);
        assert_eq!(self.post(&notification("notifications/initialized")).await.status(), 202);
    }

    /// Sends a message.
    pub(crate) async fn post(&mut self, message: &Value) -> Response<Incoming> {
        self.send("POST", "application/json, text/event-stream", &[], message.to_string()).await
    }

    /// Opens a stream, with or without an event to resume after.
    pub(crate) async fn get(&mut self, headers: &[(&str, &str)]) -> Response<Incoming> {
        self.send("GET", "text/event-stream", headers, String::new()).await
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        accept: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Response<Incoming> {
        let mut request =
            Request::builder().method(method).uri(format!("{}/mcp", self.origin)).header("accept", accept);
        if method == "POST" {
            request = request.header("content-type", "application/json");
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body)).expect("a request");
        within("a response", self.sender.send_request(request)).await.expect("a response")
    }
}

/// The whole body as JSON.
pub(crate) async fn json(response: Response<Incoming>) -> Value {
    let body = within("a body", response.into_body().collect()).await.expect("a body");
    serde_json::from_slice(&body.to_bytes()).expect("JSON")
}

/// Reads a body until it contains this text, and returns everything so far.
pub(crate) async fn read_until(body: &mut Incoming, text: &str) -> String {
    let mut read = String::new();
    while !read.contains(text) {
        let frame =
            within(text, body.frame()).await.unwrap_or_else(|| panic!("it ended: {read}")).expect("a frame");
        read.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("UTF-8"));
    }
    read
}
