//! A store that fails under a running server: it comes back, or the process ends with a word and a code.
//!
//! It fails because the process may open no file for a while, which is so for all of the process at once.

use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use tempfile::TempDir;

use super::process::Server;
use crate::support::client::{Ask, Connection};
use crate::support::session::{Session, initialize_params, request};
use crate::support::wait::within;

/// Sessions, and what each of them puts into the store: together more than the engine keeps in memory.
const SESSIONS: usize = 450;
const BYTES: usize = 200 << 10;

/// A server whose store failed, and the connection over which that was found out: it gets no other.
struct Failed {
    server: Server,
    connection: Connection,
    session: Session,
    folder: TempDir,
}

impl Failed {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let store = format!("disk:{}", folder.path().display());
        let settings = ["--set", "shutdown.grace=1s", "--set", "session.max_initialize=1MiB"];
        let server = Server::start(&[&["--store", &store], &settings[..]].concat()).await;
        let session = Session::start(server.address()).await;
        let connection = Connection::open(server.address()).await;
        let mut failed = Self { server, connection, session, folder };
        // It is accepted by then.
        assert_eq!(failed.health("/healthz").await.0, 200);
        allow(&failed.server, Some(1));
        let mut params = initialize_params("2025-11-25");
        params["clientInfo"]["version"] = json!("x".repeat(BYTES));
        let large = Ask::post(request(0, "initialize", &params).to_string());
        for _ in 0..SESSIONS {
            failed.ask(&large).await;
        }
        let fails = async {
            while !failed.health("/healthz").await.1.contains("failed to write") {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        within("the store fails", fails).await;
        failed
    }

    async fn ask(&mut self, ask: &Ask) -> crate::support::client::Response {
        self.connection.write(&ask.bytes()).await;
        self.connection.response().await
    }

    async fn health(&mut self, path: &str) -> (u16, String) {
        let response = self.ask(&Ask::new("GET", path)).await;
        (response.status(), response.text())
    }

    /// Files can be opened again.
    fn relieve(&self) {
        allow(&self.server, getrlimit(Resource::Nofile).maximum);
    }
}

/// Sets how many files a server may have open, with a limit above it that is ours too.
fn allow(server: &Server, current: Option<u64>) {
    let id = Pid::from_raw(i32::try_from(server.id()).unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    prlimit(id, Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

#[tokio::test]
async fn a_store_that_failed_is_opened_anew_by_the_same_process() {
    let mut failed = Failed::start().await;
    let (status, text) = failed.health("/healthz").await;
    assert_eq!(status, 200, "a restart would not help: {text}");
    assert!(text.starts_with("degraded: the engine failed to write"), "{text}");
    assert_eq!(failed.health("/readyz").await.0, 503);
    failed.relieve();
    let works = async {
        while failed.health("/readyz").await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    within("the store works again", works).await;
    let response = failed.session.tool(1, "public_echo", &json!({ "text": "still here" })).await;
    assert_eq!(response.json()["result"]["content"][0]["text"], "still here");
    assert_eq!(failed.session.delete().send(failed.server.address()).await.status(), 204);
    Session::start(failed.server.address()).await;
}

/// Takes away what the engine needs to know its tables.
fn damage(store: &Path) {
    std::fs::remove_file(store.join("data/keyspaces/1/current")).unwrap();
}

#[tokio::test]
async fn a_process_whose_store_does_not_come_back_ends_with_a_word_and_a_code() {
    let failed = Failed::start().await;
    damage(failed.folder.path());
    failed.relieve();
    let Failed { server, connection, .. } = failed;
    drop(connection);
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(1), "{logs}");
    assert!(logs.contains("the store cannot be opened anew by this process"), "{logs}");
    assert!(logs.contains("error: the store is lost to this process: the engine failed to write"), "{logs}");
    assert!(logs.contains("hint: start it again"), "{logs}");
}
