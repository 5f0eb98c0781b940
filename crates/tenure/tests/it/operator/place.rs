//! A folder for a store, servers on it and commands about it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_session::{SessionId, SessionKey};

use crate::cli::process::{Said, Server, finish, tenure};
use crate::support::events::Events;
use crate::support::session::Session;

/// A folder for a store.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// The folder of the store, which is not there until somebody makes it.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A file or folder beside the store.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        url(&self.store())
    }

    /// A server on the store.
    pub(crate) async fn serve(&self) -> Server {
        self.serve_with(&[]).await
    }

    pub(crate) async fn serve_with(&self, arguments: &[&str]) -> Server {
        Server::start(&[&["--store", &self.url()][..], arguments].concat()).await
    }

    /// A command about the store, in the folder beside it.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Said {
        let mut command = tenure(arguments);
        command.env("TENURE_STORE", self.url()).current_dir(self.path());
        finish(command).await
    }

    /// What a command says that succeeds.
    pub(crate) async fn told(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments).await;
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
        said.out
    }

    /// What a command says that fails, without the names of folders.
    pub(crate) async fn refused(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments).await;
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{arguments:?}: {}", said.err);
        said.err.replace(&self.path().display().to_string(), "DIR")
    }

    /// The rows of `sessions list` with these arguments.
    pub(crate) async fn rows(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.told(&[&["sessions", "list", "--json"], arguments].concat()).await;
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What `sessions show` knows of a session.
    pub(crate) async fn shown(&self, session: &Session) -> Value {
        let text = self.told(&["sessions", "show", &label(session), "--json"]).await;
        serde_json::from_str(&text).unwrap()
    }
}

pub(crate) fn url(folder: &Path) -> String {
    format!("disk:{}", folder.display())
}

/// The hashed name of a session.
pub(crate) fn key(session: &Session) -> SessionKey {
    SessionId::parse(session.id.as_bytes()).expect("an id").key()
}

/// The name of a session in logs.
pub(crate) fn label(session: &Session) -> String {
    key(session).label()
}

/// All digits of a session's key.
pub(crate) fn digits(session: &Session) -> String {
    key(session).as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same session on another server.
pub(crate) fn at(session: &Session, server: &Server) -> Session {
    session.moved_to(server.address())
}

/// Kills a server without a warning, and waits until it is gone.
pub(crate) async fn kill(server: Server) {
    server.signal("KILL").await;
    server.ended().await;
}

/// Stops a server, which has to end well.
pub(crate) async fn stop(server: Server) {
    server.signal("TERM").await;
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
}

/// A call that takes an hour and has said something, so that it is a stream.
pub(crate) async fn long_call(session: &Session, id: u64) -> Events {
    let params =
        json!({ "name": "long_task", "arguments": { "seconds": 3600 }, "_meta": { "progressToken": id } });
    let mut stream = session.request(id, "tools/call", &params).open(session.server).await;
    stream.message().await.expect("progress");
    stream
}

/// A call that has reported something five times and is over; its events, with their ids.
pub(crate) async fn finished_call(session: &Session, id: u64) -> Vec<(String, Value)> {
    let arguments = json!({ "seconds": 4, "interval_ms": 10 });
    let params = json!({ "name": "long_task", "arguments": arguments, "_meta": { "progressToken": id } });
    let mut stream = session.request(id, "tools/call", &params).open(session.server).await;
    rest(&mut stream).await
}

/// Every message until the stream ends, with its id.
pub(crate) async fn rest(stream: &mut Events) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    while let Some(event) = stream.message().await {
        all.push(event);
    }
    all
}

/// Asserts that a session answers.
pub(crate) async fn assert_lives(session: &Session) {
    let response = session.tool(99, "public_echo", &json!({ "text": "still here" })).await;
    assert_eq!(response.json()["result"]["content"][0]["text"], "still here");
}

/// Asserts that a session is over, and why.
pub(crate) async fn assert_over(session: &Session, reason: &str) {
    let (status, _, found) = session.tool(99, "public_echo", &json!({ "text": "anybody?" })).await.fault();
    assert_eq!((status, found.as_str()), (404, reason));
}
