//! File descriptors: the process asks for all it may have, keeps some for itself, and gives none of its own limits away.

use serde_json::json;
use tokio::process::Command;

use super::process::{Server, finish, tenure};
use crate::support::client::{Ask, Connection};
use crate::support::session::Session;
use crate::support::wait::until;

/// A command that is run with these soft and hard limits of open files.
fn limited(soft: u32, hard: u32, arguments: &[&str]) -> Command {
    let plain = tenure(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"")]);
    command.arg(plain.as_std().get_program()).args(arguments);
    for (name, value) in plain.as_std().get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(std::process::Stdio::null()).kill_on_drop(true);
    command
}

/// The soft and the hard limit of open files of a process.
fn limit(id: u32) -> Option<(String, String)> {
    let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut words = line.split_whitespace().map(str::to_owned);
    Some((words.next()?, words.next()?))
}

/// The processes that this one has started with this command.
fn children(of: u32, command: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap();
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        parent == Some(of) && line.starts_with(command)
    };
    all.filter(is_one).collect()
}

#[tokio::test]
async fn a_server_has_all_descriptors_it_may_and_its_children_start_with_as_many_as_it_did() {
    let listen = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--", "cat"];
    let server = Server::of(limited(256, 1000, &listen)).await;
    assert_eq!(limit(server.id()), Some(("1000".to_owned(), "1000".to_owned())));
    until("a child is started ahead", || !children(server.id(), "cat").is_empty()).await;
    let child = children(server.id(), "cat")[0];
    let wanted = Some(("256".to_owned(), "1000".to_owned()));
    until("it has the limit that we began with", || limit(child) == wanted).await;
}

#[tokio::test]
async fn clients_leave_the_store_the_descriptors_that_it_needs() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = format!("disk:{}", folder.path().display());
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", &store, "--log", "json"];
    let server = Server::of(limited(256, 512, &arguments)).await;
    let session = Session::start(server.address()).await;
    // More than the process may have open. They send nothing.
    let mut held = Vec::new();
    for _ in 0..600 {
        held.push(Connection::open(server.address()).await);
    }
    assert_eq!(Ask::new("GET", "/healthz").send(server.address()).await.text(), "ok\n");
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count();
    assert!(open < 450, "{open} are open, and the store may need a few at any time");
    drop(held);
    let response = session.tool(1, "public_echo", &json!({ "text": "still here" })).await;
    assert_eq!(response.json()["result"]["content"][0]["text"], "still here");
    server.signal("TERM").await;
    let (status, _, logs) = server.ended().await;
    assert_eq!(status.code(), Some(0), "{logs}");
    let told = "fewer are admitted than configured: this process may have no more files open";
    assert_eq!(logs.matches(told).count(), 1, "{logs}");
    assert!(!logs.contains("could not accept"), "{logs}");
}

#[tokio::test]
async fn a_check_of_the_configuration_says_what_does_not_fit() {
    let said = finish(limited(256, 512, &["config", "check", "--store", "memory:"])).await;
    assert_eq!((said.code, said.out.as_str()), (Some(0), "the configuration can be used\n"));
    let note = "note: this process may have 512 files open, which is enough for 384 connections; fewer are admitted \
                than configured\n";
    assert_eq!(said.err, note);
    let settings = ["config", "check", "--store", "memory:", "--set", "http.max_connections=100"];
    assert_eq!(finish(limited(256, 512, &settings)).await.err, "");
}
