//! A server that answers with the bytes that a test chooses, and records its requests.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// One recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Request line and headers; names are in lower case.
    pub(crate) head: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// How the server answers a request.
pub(crate) enum Answer {
    /// Writes this and closes.
    Bytes(String),
    /// Writes this and waits until the client closes the connection.
    Held(String),
}

pub(crate) struct Raw {
    pub(crate) url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
    gone: mpsc::UnboundedReceiver<()>,
    serving: JoinHandle<()>,
}

impl Raw {
    /// A server whose answer depends on the number of the request and on the request.
    pub(crate) async fn start(answer: impl Fn(usize, &Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer)
    }

    /// The same on an existing listener.
    pub(crate) fn on(
        listener: TcpListener,
        answer: impl Fn(usize, &Asked) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        #[expect(clippy::disallowed_methods, reason = "a test reads it all")]
        let ((tell_asked, asked), (tell_gone, gone)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (answer, number) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        #[expect(clippy::disallowed_methods, reason = "ends with the test")]
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answer, number) = (Arc::clone(&answer), Arc::clone(&number));
                let (tell_asked, tell_gone) = (tell_asked.clone(), tell_gone.clone());
                connections.spawn(async move {
                    let Some(asked) = read(&mut stream).await else { return };
                    let answer = answer(number.fetch_add(1, Ordering::SeqCst), &asked);
                    let _ = tell_asked.send(asked);
                    match answer {
                        Answer::Bytes(bytes) => {
                            let _ = stream.write_all(bytes.as_bytes()).await;
                            let _ = stream.shutdown().await;
                        }
                        Answer::Held(bytes) => {
                            let _ = stream.write_all(bytes.as_bytes()).await;
                            while matches!(stream.read(&mut [0; 64]).await, Ok(read) if read > 0) {}
                            let _ = tell_gone.send(());
                        }
                    }
                });
            }
        });
        Self { url, asked, gone, serving }
    }

    /// Ends the server as a kill does: closes the listener and breaks every connection. Returns its address.
    pub(crate) async fn stop(self) -> String {
        self.serving.abort();
        drop(self.serving.await);
        self.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned()
    }

    /// The next request that came.
    pub(crate) async fn asked(&mut self) -> Asked {
        crate::soon(self.asked.recv()).await.unwrap()
    }

    /// How many recorded requests were not read by the test.
    pub(crate) fn left(&mut self) -> usize {
        std::iter::from_fn(|| self.asked.try_recv().ok()).count()
    }

    /// Resolves when a client has closed the connection of an `Answer::Held`.
    pub(crate) async fn gone(&mut self) {
        crate::soon(self.gone.recv()).await.unwrap();
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let head: Vec<_> = head
        .lines()
        .map(|line| line.split_once(": ").unwrap_or((line, "")))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = head.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, length)| length.parse::<usize>().ok()).unwrap_or(0);
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked { head, body: serde_json::from_slice(&bytes[end + 4..]).unwrap_or_default() })
}

/// A whole answer.
pub(crate) fn whole(status: &str, kind: &str, body: &str) -> Answer {
    let length = body.len();
    Answer::Bytes(format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    ))
}

/// A whole answer that is JSON.
pub(crate) fn json(status: &str, body: &Value) -> Answer {
    whole(status, "application/json", &body.to_string())
}

/// A result for a request.
pub(crate) fn result(asked: &Asked, result: &Value) -> Answer {
    json("200 OK", &serde_json::json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result}))
}

/// An error for a request.
pub(crate) fn error(status: &str, asked: &Asked, error: &Value) -> Answer {
    json(status, &serde_json::json!({"jsonrpc": "2.0", "id": asked.body["id"], "error": error}))
}

/// The start of a stream with these messages.
pub(crate) fn stream(messages: &[Value]) -> String {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n: hello\n\n";
    let events: Vec<_> = messages.iter().map(|message| format!("data: {message}\n\n")).collect();
    format!("{head}{}", events.concat())
}
