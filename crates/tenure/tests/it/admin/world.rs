//! A node with a scripted server behind it, the API on a port and on the control socket, and an audit log.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::config::Config;
use tenure_testkit::wire::{Connection, Events};
use tokio::net::UnixStream;

use crate::support::client::{Ask, Response};
use crate::support::node::{Steered, config};
use crate::support::wait::within;

/// A node and its folder.
pub(super) struct World {
    pub(super) steered: Steered,
    folder: TempDir,
    /// Where the port is.
    pub(super) admin: SocketAddr,
}

/// Answers of the API, which are JSON and no messages.
pub(super) trait AsValue {
    fn value(&self) -> Value;
}

impl AsValue for Response {
    fn value(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }
}

/// A browser that is logged in.
pub(super) struct Browser {
    pub(super) admin: SocketAddr,
    pub(super) cookie: String,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A node with more settings. Its sessions are on disk, so that it has a control socket.
    pub(super) async fn with(settings: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = format!("disk:{}", folder.path().join("store").display());
        let log = folder.path().join("audit.jsonl").display().to_string();
        let own = [
            ("store", store.as_str()),
            ("admin.listen", "127.0.0.1:0"),
            ("audit.file", &log),
            ("shutdown.grace", "1s"),
        ];
        let steered = Steered::with(&[&own[..], settings].concat()).await;
        let admin = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut world = Self { steered, folder, admin };
        let url = world.code("viewer").await["url"].as_str().unwrap().to_owned();
        let place = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
        world.admin = place.parse().unwrap();
        world
    }

    /// A request at the control socket.
    pub(super) async fn at_socket(&self, ask: Ask) -> Response {
        let socket = self.folder.path().join("store/control.sock");
        let stream = within("connect", UnixStream::connect(socket)).await.unwrap();
        let mut connection = Connection::over(stream);
        connection.write(&ask.bytes()).await;
        connection.response().await
    }

    /// Reads at the control socket.
    pub(super) async fn read(&self, path: &str) -> Value {
        let response = self.at_socket(Ask::new("GET", &format!("/api/v1/{path}"))).await;
        assert_eq!(response.status(), 200, "{path}: {}", response.text());
        response.value()
    }

    /// Changes at the control socket.
    pub(super) async fn change(&self, path: &str, body: &Value) -> Response {
        self.at_socket(order("POST", path, body)).await
    }

    /// A one-time code.
    pub(super) async fn code(&self, role: &str) -> Value {
        let response = self.change("codes", &json!({ "role": role })).await;
        assert_eq!(response.status(), 200, "{}", response.text());
        response.value()
    }

    /// A browser with this role.
    pub(super) async fn browser(&self, role: &str) -> Browser {
        let code = self.code(role).await["code"].as_str().unwrap().to_owned();
        let response = self.log_in(&code).send(self.admin).await;
        assert_eq!(response.status(), 204, "{}", response.text());
        let cookie = response.header("set-cookie").unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        Browser { admin: self.admin, cookie }
    }

    /// The request of the page with which it logs in.
    pub(super) fn log_in(&self, code: &str) -> Ask {
        from_page(self.admin, Ask::post(json!({ "code": code }).to_string()).at("/login"))
    }

    /// The records of what operators did.
    pub(super) async fn recorded(self) -> Vec<Value> {
        self.records("admin_action").await
    }

    /// The records of one kind, once the node has stopped.
    pub(super) async fn records(self, event: &str) -> Vec<Value> {
        let Self { steered, folder, .. } = self;
        steered.node.stop().await;
        let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
        let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["event"] == event).collect()
    }
}

impl Browser {
    pub(super) fn get(&self, path: &str) -> Ask {
        Ask::new("GET", &format!("/api/v1/{path}"))
            .header("Host", &self.admin.to_string())
            .header("Cookie", &self.cookie)
            .header("Sec-Fetch-Site", "same-origin")
    }

    pub(super) fn order(&self, method: &str, path: &str, body: &Value) -> Ask {
        from_page(self.admin, order(method, path, body)).header("Cookie", &self.cookie)
    }

    pub(super) async fn read(&self, path: &str) -> Value {
        let response = self.get(path).send(self.admin).await;
        assert_eq!(response.status(), 200, "{path}: {}", response.text());
        response.value()
    }

    pub(super) async fn change(&self, path: &str, body: &Value) -> Response {
        self.order("POST", path, body).send(self.admin).await
    }

    pub(super) async fn live(&self) -> Events {
        self.get("live").open(self.admin).await
    }
}

/// A change, as scripts send it.
pub(super) fn order(method: &str, path: &str, body: &Value) -> Ask {
    Ask::post(body.to_string()).at(&format!("/api/v1/{path}")).with_method(method).without("Accept")
}

/// The same with the headers that our page sends.
pub(super) fn from_page(admin: SocketAddr, ask: Ask) -> Ask {
    ask.header("Host", &admin.to_string())
        .header("Origin", &format!("http://{admin}"))
        .header("Sec-Fetch-Site", "same-origin")
        .header("X-Tenure", "1")
}

/// The reason of a refusal, with its status.
pub(super) fn refusal(response: &Response) -> (u16, String) {
    let body = response.value();
    assert!(body["message"].is_string(), "{body}");
    (response.status(), body["reason"].as_str().unwrap().to_owned())
}

/// A configuration with these settings, in memory.
pub(super) fn in_memory(settings: &[(&str, &str)]) -> Config {
    config(settings)
}
