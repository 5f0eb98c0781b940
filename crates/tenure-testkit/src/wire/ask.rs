//! The bytes of a request.

use std::net::SocketAddr;

use super::connection::{Connection, WholeResponse};
use super::events::Events;

/// A request in the making.
#[derive(Clone, Debug)]
pub struct Ask {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Ask {
    /// A request with nothing but a host.
    pub fn new(method: &str, path: &str) -> Self {
        let headers = vec![("Host".to_owned(), "localhost".to_owned())];
        Self { method: method.to_owned(), path: path.to_owned(), headers, body: Vec::new() }
    }

    /// A message to the endpoint, as a well-behaved client sends it.
    pub fn post(body: impl AsRef<[u8]>) -> Self {
        let ask = Self::new("POST", "/mcp")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        Self { body: body.as_ref().to_vec(), ..ask }
    }

    /// A message to another path.
    pub fn post_to(path: &str, body: &str) -> Self {
        Self::post(body).at(path)
    }

    /// A GET for the endpoint's stream.
    pub fn get() -> Self {
        Self::new("GET", "/mcp").header("Accept", "text/event-stream")
    }

    /// The same for another path.
    pub fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The same with another method.
    pub fn with_method(self, method: &str) -> Self {
        Self { method: method.to_owned(), ..self }
    }

    /// Sets a header. One of that name is replaced in its place.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        match self.headers.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some(header) => *header = (name.to_owned(), value.to_owned()),
            None => return self.another(name, value),
        }
        self
    }

    /// The same if there is a value.
    pub fn header_if(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    /// Adds a header even if there is one of that name.
    pub fn another(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Leaves a header out.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// The request's bytes. A body has its length declared.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method == "POST" || !self.body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Sends it on a connection of its own and reads the whole response.
    pub async fn send(self, to: SocketAddr) -> WholeResponse {
        self.begin(to).await.response().await
    }

    /// Sends it on a connection of its own; the response is read later.
    pub async fn begin(self, to: SocketAddr) -> Connection {
        let mut connection = Connection::open(to).await;
        connection.write(&self.bytes()).await;
        connection
    }

    /// Sends it on a connection of its own and expects a stream.
    pub async fn open(self, to: SocketAddr) -> Events {
        self.begin(to).await.events().await
    }
}
