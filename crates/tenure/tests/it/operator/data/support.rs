//! A client that keeps a data session, and what commands say of it.

use serde_json::{Value, json};

use crate::operator::place::Place;
use crate::support::session::Session;

/// A client with a session, and the id of a data session.
pub(super) struct Client {
    pub(super) session: Session,
    pub(super) id: String,
}

impl Client {
    /// Makes a data session.
    pub(super) async fn begin(server: std::net::SocketAddr, label: &str) -> Self {
        let session = Session::start(server).await;
        let params = json!({ "hints": { "label": label, "data": { "title": "a title" } } });
        let made = session.request(1, "session/create", &params).send(server).await.json();
        let id = made["result"]["id"].as_str().unwrap_or_else(|| panic!("no id: {made}")).to_owned();
        Self { session, id }
    }

    /// Somebody who was given an id.
    pub(super) async fn given(server: std::net::SocketAddr, id: &str) -> Self {
        Self { session: Session::start(server).await, id: id.trim().to_owned() }
    }

    /// Calls a tool in the data session.
    pub(super) async fn tool(&self, name: &str, arguments: &Value) -> Value {
        let params =
            json!({ "name": name, "arguments": arguments, "_meta": { "mcp/session": { "id": self.id } } });
        self.session.request(2, "tools/call", &params).send(self.session.server).await.json()
    }

    pub(super) async fn note(&self, text: &str) {
        let noted = self.tool("notebook_append", &json!({ "text": text })).await;
        assert!(noted["result"]["isError"] != true && noted.get("error").is_none(), "{noted}");
    }

    /// The notes in the data session.
    pub(super) async fn notes(&self) -> Value {
        let read = self.tool("notebook_read", &json!({})).await;
        read["result"]["structuredContent"]["notes"].clone()
    }

    /// Why the data session cannot be used.
    pub(super) async fn refusal(&self) -> String {
        let answer = self.tool("notebook_read", &json!({})).await;
        let reason = answer["error"]["data"]["reason"].as_str();
        reason.unwrap_or_else(|| panic!("a refusal: {answer}")).to_owned()
    }
}

impl Place {
    /// The rows of `sessions data list` with these arguments.
    pub(super) async fn data_rows(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.told(&[&["sessions", "data", "list", "--json"], arguments].concat()).await;
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// A command about data sessions that succeeds.
    pub(super) async fn data(&self, arguments: &[&str]) -> String {
        self.told(&[&["sessions", "data"], arguments].concat()).await
    }

    /// A command about data sessions that fails, without the names of folders and of data sessions.
    pub(super) async fn data_refused(&self, arguments: &[&str]) -> String {
        let said = self.refused(&[&["sessions", "data"], arguments].concat()).await;
        let mut text = said.clone();
        for (at, _) in said.match_indices("d-") {
            if let Some(name) = said.get(at..at + 10)
                && name[2..].bytes().all(|digit| digit.is_ascii_hexdigit())
            {
                text = text.replace(name, "d-NAME");
            }
        }
        text
    }

    /// The name of the only data session.
    pub(super) async fn data_name(&self) -> String {
        let rows = self.data_rows(&[]).await;
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows[0]["name"].as_str().unwrap().to_owned()
    }
}
