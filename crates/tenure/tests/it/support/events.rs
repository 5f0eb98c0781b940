//! Reads Server-Sent Events off a response, comments included.

use serde_json::Value;

use super::client::{Body, Connection, Head};

/// One thing on a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Item {
    /// A line that starts with a colon, without the colon.
    Comment(String),
    /// Lines up to an empty one.
    Event(Event),
}

/// An event, each field as it was sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Event {
    pub(crate) id: Option<String>,
    pub(crate) event: Option<String>,
    pub(crate) retry: Option<u64>,
    pub(crate) data: Option<String>,
}

/// A stream that is being read.
pub(crate) struct Events {
    connection: Connection,
    head: Head,
    body: Body,
    /// Everything so far, decoded.
    raw: Vec<u8>,
    /// Where the next line begins.
    at: usize,
    /// The id of the last event that had one, as a client would send it to resume.
    last_id: Option<String>,
}

impl Events {
    pub(crate) fn new(connection: Connection, head: Head, body: Body) -> Self {
        Self { connection, head, body, raw: Vec::new(), at: 0, last_id: None }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The id to resume after.
    pub(crate) fn last_id(&self) -> String {
        self.last_id.clone().expect("an event with an id")
    }

    /// Every byte of the body that was read.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8(self.raw.clone()).expect("UTF-8")
    }

    /// Whether the response ended as HTTP asks, not by a cut.
    pub(crate) fn is_complete(&self) -> bool {
        self.body.is_complete()
    }

    /// The next comment or event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Item> {
        let mut event = Event::default();
        loop {
            let line = self.line().await?;
            if let Some(comment) = line.strip_prefix(':') {
                return Some(Item::Comment(comment.trim().to_owned()));
            }
            if !line.is_empty() {
                event.field(&line);
            } else if event != Event::default() {
                self.last_id = event.id.clone().or(self.last_id.take());
                return Some(Item::Event(event));
            }
        }
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> Option<Event> {
        loop {
            if let Item::Event(event) = self.next().await? {
                return Some(event);
            }
        }
    }

    /// The next message with its id, passing over comments and events without data.
    pub(crate) async fn message(&mut self) -> Option<(String, Value)> {
        loop {
            let event = self.event().await?;
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                let message = serde_json::from_str(&data).expect("a message is JSON");
                return Some((event.id.unwrap_or_default(), message));
            }
        }
    }

    /// The next message, in short.
    pub(crate) async fn heard(&mut self) -> String {
        gist(&self.message().await.expect("a message").1)
    }

    /// Every message until the stream ends, in short.
    pub(crate) async fn rest(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some((_, message)) = self.message().await {
            all.push(gist(&message));
        }
        all
    }

    /// Everything until the stream ends, in short.
    pub(crate) async fn items(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(item) = self.next().await {
            all.push(match item {
                Item::Comment(comment) => format!(": {comment}"),
                Item::Event(Event { data: Some(data), .. }) if data.is_empty() => "prime".to_owned(),
                Item::Event(Event { data: Some(data), .. }) => {
                    gist(&serde_json::from_str(&data).expect("JSON"))
                }
                Item::Event(Event { retry, .. }) => format!("retry {}", retry.expect("a field")),
            });
        }
        all
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(length) = self.raw[self.at..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8(self.raw[self.at..self.at + length].to_vec()).expect("UTF-8");
                self.at += length + 1;
                return Some(line);
            }
            self.raw.extend(self.body.next(&mut self.connection).await?);
        }
    }
}

impl Event {
    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.id = Some(value.to_owned()),
            "event" => self.event = Some(value.to_owned()),
            "retry" => self.retry = Some(value.parse().expect("retry is a number")),
            "data" => match &mut self.data {
                Some(data) => *data = format!("{data}\n{value}"),
                none => *none = Some(value.to_owned()),
            },
            other => panic!("an unknown field: {other}"),
        }
    }
}

/// A message in short: the text of a log message, the id of an answer, the reason of an error.
pub(crate) fn gist(message: &Value) -> String {
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
