//! A server upstream whose every byte the test gives, so that it can do what no sound server does.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::support::wait::within;

/// The id of every session there.
pub(super) const SESSION: &str = "upstream-session";

pub(super) struct Server {
    address: SocketAddr,
    url: String,
    asked: mpsc::Receiver<Asked>,
    /// Requests that came before the one that was waited for.
    early: Vec<Asked>,
    _running: AbortOnDropHandle<()>,
}

/// A request, whose answer is not given yet. Each has a connection of its own.
pub(super) struct Asked {
    /// The method and the headers, in small letters.
    pub(super) head: String,
    pub(super) body: Value,
    connection: TcpStream,
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = mpsc::channel(64);
        let running = tokio::spawn(async move {
            let mut reading = tokio::task::JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let sender = sender.clone();
                reading.spawn(async move {
                    if let Some(asked) = Asked::read(connection).await {
                        drop(sender.send(asked).await);
                    }
                });
            }
        });
        Self {
            address,
            url: format!("http://{address}/mcp"),
            asked,
            early: Vec::new(),
            _running: AbortOnDropHandle::new(running),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn get(&mut self) -> Asked {
        self.next("a GET", |asked| asked.head.starts_with("get ")).await
    }

    pub(super) async fn delete(&mut self) -> Asked {
        self.next("a DELETE", |asked| asked.head.starts_with("delete ")).await
    }

    /// The next message that is posted with this JSON-RPC method.
    pub(super) async fn post(&mut self, method: &str) -> Asked {
        self.next(method, |asked| asked.body["method"] == method).await
    }

    /// Whether something was posted there that the test did not wait for.
    pub(super) fn has_post_to(&self, path: &str) -> bool {
        self.early.iter().any(|asked| asked.head.starts_with(&format!("post {path} ")))
    }

    /// Whether a message with this JSON-RPC method was posted that the test did not wait for.
    pub(super) fn has_posted(&mut self, method: &str) -> bool {
        self.early.extend(std::iter::from_fn(|| self.asked.try_recv().ok()));
        self.early.iter().any(|asked| asked.body["method"] == method)
    }

    async fn next(&mut self, what: &str, is_it: impl Fn(&Asked) -> bool) -> Asked {
        if let Some(at) = self.early.iter().position(&is_it) {
            return self.early.remove(at);
        }
        within(what, async {
            loop {
                let asked = self.asked.recv().await.expect("the server runs");
                if is_it(&asked) {
                    return asked;
                }
                self.early.push(asked);
            }
        })
        .await
    }

    /// The next response that is posted.
    pub(super) async fn posted_answer(&mut self) -> Asked {
        self.next("an answer", |asked| asked.body.get("result").is_some()).await
    }

    /// The next response that is posted and says what is wrong.
    pub(super) async fn posted_error(&mut self) -> Asked {
        self.next("an error", |asked| asked.body.get("error").is_some()).await
    }

    /// How many responses were posted that the test did not wait for.
    pub(super) fn count_of_answers(&self) -> usize {
        self.early.iter().filter(|asked| asked.body.get("result").is_some()).count()
    }

    /// Does its part of the handshake.
    pub(super) async fn shake_hands(&mut self) {
        self.post("initialize").await.begin_session().await;
        self.post("notifications/initialized").await.accept().await;
    }
}

impl Asked {
    async fn read(mut connection: TcpStream) -> Option<Self> {
        let mut read = Vec::new();
        loop {
            if connection.read_buf(&mut read).await.ok()? == 0 {
                return None;
            }
            let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.map_or(0, |length| length.parse().expect("a length"));
            let body = &read[end + 4..];
            if body.len() >= length {
                return Some(Self {
                    head,
                    body: serde_json::from_slice(body).unwrap_or_default(),
                    connection,
                });
            }
        }
    }

    /// Sends bytes.
    pub(super) async fn write(&mut self, text: &str) {
        within("write", self.connection.write_all(text.as_bytes())).await.expect("written");
    }

    /// Answers with a status line and headers, and nothing else.
    pub(super) async fn refuse(self, status: &str) {
        self.refuse_with(status, "").await;
    }

    /// The same, with a body.
    pub(super) async fn refuse_with(mut self, status: &str, body: &str) {
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}", body.len());
        self.write(&format!("{head}\r\n\r\n{body}")).await;
    }

    pub(super) async fn accept(self) {
        self.refuse("202 Accepted").await;
    }

    /// Answers `initialize` with a session.
    pub(super) async fn begin_session(self) {
        self.answer(&begun()).await;
    }

    /// Answers a request with a `result` or an `error`.
    pub(super) async fn answer(self, outcome: &Value) {
        let body = self.response(outcome);
        self.answer_with(&body).await;
    }

    /// Answers with this as it is.
    pub(super) async fn answer_json(self, body: &Value) {
        self.answer_with(&body.to_string()).await;
    }

    async fn answer_with(mut self, body: &str) {
        let session = format!("mcp-session-id: {SESSION}\r\ncontent-length: {}", body.len());
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
        self.write(&format!("{head}\r\n{session}\r\n\r\n{body}")).await;
    }

    /// The text of a response to this request.
    pub(super) fn response(&self, outcome: &Value) -> String {
        let mut message = outcome.clone();
        message["jsonrpc"] = json!("2.0");
        message["id"] = self.body["id"].clone();
        message.to_string()
    }

    /// Answers with a stream, which ends when this is dropped.
    pub(super) async fn stream(mut self) -> Self {
        let session = format!("mcp-session-id: {SESSION}");
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream";
        self.write(&format!("{head}\r\n{session}\r\n\r\n")).await;
        self
    }

    /// Waits until the other side closes the connection.
    pub(super) async fn closed(mut self) {
        within("the end of the connection", async {
            while self.connection.read_buf(&mut Vec::new()).await.is_ok_and(|length| length > 0) {}
        })
        .await;
    }

    /// Sends an event on a stream.
    pub(super) async fn event(&mut self, message: &Value) {
        self.write(&format!("data: {message}\n\n")).await;
    }
}

/// What it says to `initialize`.
pub(super) fn begun() -> Value {
    json!({ "result": {
        "protocolVersion": "2025-11-25",
        "capabilities": { "tools": {}, "logging": {} },
        "serverInfo": { "name": "odd", "version": "1" },
    } })
}
