//! Tasks of a server in a process of its own, which is killed in the middle of them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::cli::process;
use crate::support::client::Ask;
use crate::support::wait::within;

const VERSION: &str = "2026-07-28";

/// The example `conformance` in a process of its own.
struct Server {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Server {
    async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let (child, address) = run("127.0.0.1:0", folder.path()).await;
        Self { child, address, folder }
    }

    /// Kills the process and starts another one on the same port and store.
    async fn kill_and_start_again(&mut self) {
        // SIGKILL: nothing is said or written on the way out.
        within("it dies", self.child.kill()).await.expect("it was alive");
        let (child, address) = run(&self.address.to_string(), self.folder.path()).await;
        assert_eq!(address, self.address);
        self.child = child;
    }

    /// Sends a request of the modern era, and returns the response.
    async fn ask(&self, method: &str, mut params: Value) -> Value {
        let name = params["name"].as_str().or(params["taskId"].as_str()).unwrap_or_default().to_owned();
        let tasks = json!({ "io.modelcontextprotocol/tasks": {} });
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {}, "extensions": tasks },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let ask = Ask::post(body)
            .header("Mcp-Protocol-Version", VERSION)
            .header("Mcp-Method", method)
            .header("Mcp-Name", &name)
            .header("Accept", "application/json");
        let answer = ask.send(self.address).await;
        assert_eq!(answer.status(), 200);
        answer.json()
    }

    /// Calls a tool that becomes a task.
    async fn task(&self, tool: &str, arguments: Value) -> String {
        let created = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        assert_eq!(created["result"]["resultType"], "task", "{created}");
        created["result"]["taskId"].as_str().expect("an id").to_owned()
    }

    async fn get(&self, id: &str) -> Value {
        self.ask("tasks/get", json!({ "taskId": id })).await["result"].take()
    }

    async fn until(&self, id: &str, status: &str) -> Value {
        let there = async {
            loop {
                let task = self.get(id).await;
                if task["status"] == status {
                    return task;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(status, there).await
    }
}

async fn run(listen: &str, store: &Path) -> (Child, SocketAddr) {
    let mut command = Command::new(example());
    command.arg("--listen").arg(listen).arg("--store").arg(format!("disk:{}", store.display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
    let url = within("the address", out.next_line()).await.expect("a line").expect("an address");
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
    (child, address.expect("an endpoint").parse().expect("an address"))
}

/// Cargo builds examples with a package's tests, unless it is told to build one of the tests alone.
fn example() -> PathBuf {
    let binary = Path::new(env!("CARGO_BIN_EXE_tenure"));
    let example = binary.parent().expect("a folder").join("examples").join("conformance");
    assert!(example.exists(), "run `cargo build -p tenure --example conformance` first");
    example
}

#[tokio::test]
async fn a_kill_interrupts_tasks_and_loses_none() {
    let mut server = Server::start().await;
    let done = server.task("slow_compute", json!({ "seconds": 0.05, "label": "short" })).await;
    let failed = server.task("protocol_error_job", json!({})).await;
    let cancelled = server.task("slow_compute", json!({ "seconds": 600, "label": "unwanted" })).await;
    assert_eq!(
        server.ask("tasks/cancel", json!({ "taskId": cancelled })).await["result"]["resultType"],
        "complete"
    );
    let asking = server.task("confirm_delete", json!({ "filename": "x" })).await;
    let before = [
        server.until(&done, "completed").await,
        server.until(&failed, "failed").await,
        server.until(&cancelled, "cancelled").await,
    ];
    assert_eq!(before[0]["result"]["content"][0]["text"], "short took 0.05 s");
    server.until(&asking, "input_required").await;
    let working = server.task("slow_compute", json!({ "seconds": 600, "label": "long" })).await;
    server.kill_and_start_again().await;
    for task in &before {
        assert_eq!(server.get(task["taskId"].as_str().unwrap()).await, *task, "as it was");
    }
    for interrupted in [&working, &asking] {
        let task = server.get(interrupted).await;
        assert_eq!(task["status"], "failed");
        assert_eq!(
            (&task["error"]["code"], &task["error"]["data"]["reason"]),
            (&json!(-31010), &json!("interrupted"))
        );
    }
    // Answers to questions that died with their process are no error, and change nothing.
    let late = json!({ "taskId": asking, "inputResponses": { "confirm": { "action": "accept" } } });
    assert_eq!(server.ask("tasks/update", late).await["result"]["resultType"], "complete");
    assert_eq!(server.get(&asking).await["status"], "failed");
    within("it dies", server.child.kill()).await.expect("it was alive");
    let store = format!("disk:{}", server.folder.path().display());
    let checked = process::run(&["store", "check", "--store", &store]).await;
    assert!(checked.out.contains("0 data sessions, 5 tasks, "), "{}{}", checked.out, checked.err);
}

/// Whatever a client was told before a kill is still so after it.
#[tokio::test]
async fn a_kill_at_any_moment_takes_nothing_back() {
    let mut server = Server::start().await;
    for round in 0..6_u32 {
        let mut tasks = Vec::new();
        for number in 0..8_u32 {
            let seconds = 0.01 * f64::from(number * (round + 1));
            let label = format!("{round}-{number}");
            if number > 0 {
                tasks.push(server.task("slow_compute", json!({ "seconds": seconds, "label": label })).await);
            }
        }
        let mut seen = Vec::new();
        for id in &tasks {
            seen.push(server.get(id).await);
        }
        server.kill_and_start_again().await;
        for (id, before) in tasks.iter().zip(seen) {
            let after = server.get(id).await;
            match before["status"].as_str() {
                Some("completed") => assert_eq!(after, before),
                // It may have ended between the look and the kill.
                Some("working") => {
                    assert!(after["status"] == "failed" || after["status"] == "completed", "{after}")
                }
                _ => panic!("{before}"),
            }
        }
    }
}
