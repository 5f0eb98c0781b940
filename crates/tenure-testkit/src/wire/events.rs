//! Reads Server-Sent Events off a response, comments included.

use serde_json::Value;

use super::connection::Connection;
use super::http::Head;
use crate::sse::{Parser, SseEvent, SseItem};

/// A stream that is being read.
#[derive(Debug)]
pub struct Events {
    connection: Connection,
    head: Head,
    /// Everything so far, decoded.
    raw: Vec<u8>,
    parser: Parser,
    /// The id of the last event that had one, as a client would send it to resume.
    last_id: Option<String>,
}

impl Events {
    /// A connection on which this head was read, and nothing of the body yet.
    pub fn new(connection: Connection, head: Head) -> Self {
        Self { connection, head, raw: Vec::new(), parser: Parser::default(), last_id: None }
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The id to resume after.
    pub fn last_id(&self) -> String {
        self.last_id.clone().expect("an event with an id")
    }

    /// Every byte of the body that was read.
    pub fn raw(&self) -> String {
        String::from_utf8(self.raw.clone()).expect("UTF-8")
    }

    /// Whether the response ended as HTTP asks, not by a cut.
    pub fn is_complete(&self) -> bool {
        self.connection.is_complete()
    }

    /// The next comment or event; `None` at the end.
    pub async fn next(&mut self) -> Option<SseItem> {
        loop {
            if let Some(item) = self.parser.next() {
                let item = item.expect("a comment or a field");
                if let SseItem::Event(SseEvent { id: Some(id), .. }) = &item {
                    self.last_id = Some(id.clone());
                }
                return Some(item);
            }
            let piece = self.connection.piece().await?;
            self.parser.feed(&piece);
            self.raw.extend(piece);
        }
    }

    /// The next event.
    pub async fn event(&mut self) -> Option<SseEvent> {
        loop {
            if let SseItem::Event(event) = self.next().await? {
                return Some(event);
            }
        }
    }

    /// The next message with its id, passing over comments and events without data.
    pub async fn message(&mut self) -> Option<(String, Value)> {
        loop {
            let event = self.event().await?;
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                let message = serde_json::from_str(&data).expect("a message is JSON");
                return Some((event.id.unwrap_or_default(), message));
            }
        }
    }

    /// The next message, in short.
    pub async fn heard(&mut self) -> String {
        gist(&self.message().await.expect("a message").1)
    }

    /// Every message until the stream ends, in short.
    pub async fn rest(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some((_, message)) = self.message().await {
            all.push(gist(&message));
        }
        all
    }

    /// Everything until the stream ends, in short.
    pub async fn items(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(item) = self.next().await {
            all.push(match item {
                SseItem::Comment(comment) => format!(": {comment}"),
                SseItem::Event(SseEvent { data: Some(data), .. }) if data.is_empty() => "prime".to_owned(),
                SseItem::Event(SseEvent { data: Some(data), .. }) => {
                    gist(&serde_json::from_str(&data).expect("JSON"))
                }
                SseItem::Event(SseEvent { retry, .. }) => format!("retry {}", retry.expect("a field")),
            });
        }
        all
    }
}

/// A message in short: the text of a log message, the id of an answer, the reason of an error.
pub fn gist(message: &Value) -> String {
    if let Some(data) = message["params"]["data"].as_str() {
        return data.to_owned();
    }
    if message.get("result").is_some() {
        return format!("result {}", message["id"]);
    }
    if let Some(reason) = message["error"]["data"]["reason"].as_str() {
        return format!("error {} {reason}", message["id"]);
    }
    message.to_string()
}
