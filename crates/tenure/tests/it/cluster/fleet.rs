//! Nodes in processes of their own, on a real engine. Each has a runtime folder of its own, as if it were a machine of its own: a
//! command that is run at a node finds the socket of that node alone.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;
use tenure_testkit::nats_servers::NatsServers;
use tokio::process::Command;

use crate::cli::process::{Said, Server, finish, tenure};
use crate::support::client::Ask;
use crate::support::node::patient_flags;
use crate::support::wait::DEADLINE;

pub(crate) struct Fleet {
    pub(crate) engine: NatsServers,
    folder: TempDir,
    is_one_machine: bool,
    pub(crate) nodes: Vec<Server>,
}

impl Fleet {
    /// An engine, and no nodes yet.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self { engine: NatsServers::start(1), folder, is_one_machine: false, nodes: Vec::new() }
    }

    /// So many nodes that know each other.
    pub(crate) async fn start(count: usize, settings: &[&str]) -> Self {
        let mut fleet = Self::new();
        for _ in 0..count {
            fleet.add(settings).await;
        }
        fleet.know_each_other().await;
        fleet
    }

    /// From now on all nodes are on one machine.
    pub(crate) fn share_a_machine(&mut self) {
        self.is_one_machine = true;
    }

    /// One more node.
    pub(crate) async fn add(&mut self, settings: &[&str]) -> usize {
        let number = self.nodes.len();
        std::fs::create_dir_all(self.runtime(number)).expect("a folder");
        let mut command = self.at(number, &["serve", "--listen", "127.0.0.1:0"]);
        command.args(["--set", "cluster.listen=127.0.0.1:0", "--set", "streams.retry_jitter=0%"]);
        command.args(patient_flags()).args(settings).args(["--store", &self.url()]);
        self.nodes.push(Server::of(command).await);
        number
    }

    /// A file beside the nodes.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn runtime(&self, number: usize) -> PathBuf {
        let number = if self.is_one_machine { 0 } else { number };
        self.folder.path().join(format!("run-{number}"))
    }

    fn url(&self) -> String {
        format!("nats://{}", self.engine.address(0))
    }

    /// A command on the machine of a node.
    fn at(&self, number: usize, arguments: &[&str]) -> Command {
        let mut command = tenure(arguments);
        command
            .env("XDG_RUNTIME_DIR", self.runtime(number))
            .env("XDG_DATA_HOME", self.folder.path().join("data"))
            .env("TENURE_STORE", self.url());
        command
    }

    /// What a command says on the machine of a node.
    pub(crate) async fn run(&self, number: usize, arguments: &[&str]) -> Said {
        finish(self.at(number, arguments)).await
    }

    /// What a command says that names no store.
    pub(crate) async fn run_without_store(&self, number: usize, arguments: &[&str]) -> Said {
        let mut command = self.at(number, arguments);
        command.env_remove("TENURE_STORE");
        finish(command).await
    }

    /// What a command says that succeeds.
    pub(crate) async fn told(&self, number: usize, arguments: &[&str]) -> String {
        let said = self.run(number, arguments).await;
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.err);
        said.out
    }

    /// The rows of a command, by JSON.
    pub(crate) async fn rows(&self, number: usize, arguments: &[&str]) -> Vec<Value> {
        let text = self.told(number, &[arguments, &["--json"]].concat()).await;
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The nodes, as one of them lists them: itself first.
    pub(crate) async fn listed(&self, number: usize) -> Vec<Value> {
        self.rows(number, &["nodes"]).await
    }

    /// How a node lists the one with this label, once it has seen it.
    pub(crate) async fn row(&self, number: usize, label: &str) -> Value {
        let until = tokio::time::Instant::now() + DEADLINE;
        loop {
            let rows = self.listed(number).await;
            // Its first record is from before it has looked at the others.
            let is_joining =
                |row: &Value| row["why"].as_str().is_some_and(|why| why.contains("has not looked"));
            if let Some(row) = rows.iter().find(|row| row["label"] == label && !is_joining(row)) {
                return row.clone();
            }
            assert!(tokio::time::Instant::now() < until, "{label} is not among {rows:?}");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// The label of a node.
    pub(crate) async fn label(&self, number: usize) -> String {
        self.listed(number).await[0]["label"].as_str().expect("a label").to_owned()
    }

    /// What a node says at `/readyz`.
    pub(crate) async fn readiness(&self, number: usize) -> (u16, String) {
        let response = Ask::new("GET", "/readyz").send(self.nodes[number].address()).await;
        (response.status(), response.text())
    }

    /// Waits until all nodes list all nodes as serving.
    pub(crate) async fn know_each_other(&self) {
        let until = tokio::time::Instant::now() + DEADLINE;
        for number in 0..self.nodes.len() {
            loop {
                let listed = self.listed(number).await;
                if listed.len() == self.nodes.len() && listed.iter().all(|row| row["state"] == "serving") {
                    break;
                }
                assert!(tokio::time::Instant::now() < until, "{listed:?}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}
