//! All processes of a server die at once: out of memory, an upgrade, `pkill`. Those that were started ahead die too.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::gateway::crashing::{begin, rest};
use crate::gateway::running::{Gateway, echo};
use crate::support::session::Session;

/// Kills every process of the server, also those that wait for a session, by one command.
async fn kill_all(gateway: &Gateway) {
    let ids: Vec<_> = gateway.children().iter().map(|process| process.id.to_string()).collect();
    // Some may have ended by themselves since they were looked for.
    Command::new("kill").args(["-s", "KILL"]).args(&ids).status().await.expect("kill");
}

/// Sessions that each have a safe call under way.
async fn under_way(
    gateway: &Gateway,
    tool: &str,
    count: usize,
) -> Vec<(Session, crate::support::events::Events)> {
    let gate = gateway.folder.path().join("gate");
    let mut calls = Vec::new();
    for _ in 0..count {
        let session = gateway.session().await;
        let call = begin(&session, 1, tool, &gate).await;
        calls.push((session, call));
    }
    calls
}

/// What becomes of the calls when all processes die and the gate opens then.
async fn outcomes(gateway: &Gateway, tool: &str) -> Vec<Vec<String>> {
    let mut calls = under_way(gateway, tool, 8).await;
    kill_all(gateway).await;
    std::fs::write(gateway.folder.path().join("gate"), "").unwrap();
    let mut outcomes = Vec::new();
    for (_, call) in &mut calls {
        outcomes.push(rest(call).await);
    }
    outcomes
}

#[tokio::test]
async fn safe_calls_survive_the_death_of_all_processes_with_those_that_were_started_ahead() {
    for settings in [&["child.warm=1"][..], &["child.warm=4"], &["child.share=true"]] {
        let gateway = Gateway::start(settings).await;
        let outcomes = outcomes(&gateway, "slow_safe").await;
        let whole = outcomes.iter().filter(|one| one.last().is_some_and(|last| last == "result 1")).count();
        assert_eq!(whole, 8, "{settings:?}: {outcomes:?} {:#?}", gateway.log_so_far());
    }
}

#[tokio::test]
async fn unsafe_calls_say_that_they_were_interrupted_when_all_processes_die() {
    let gateway = Gateway::start(&["child.warm=4"]).await;
    for outcome in outcomes(&gateway, "slow").await {
        assert_eq!(outcome, ["error 1 interrupted"]);
    }
}

fn two() -> String {
    let echo = echo();
    format!(
        "[[backend]]\nname = \"one\"\ncommand = [\"{echo}\"]\n[[backend]]\nname = \"two\"\ncommand = [\"{echo}\"]\n"
    )
}

async fn tools(session: &Session, id: u64) -> (Vec<String>, Value) {
    let list = session.request(id, "tools/list", &json!({})).send(session.server).await.json();
    let items = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}")).iter();
    let names = items.map(|item| item["name"].as_str().unwrap().to_owned()).collect();
    (names, list["result"]["_meta"].clone())
}

#[tokio::test]
async fn calls_and_lists_of_several_servers_as_one_survive_the_death_of_all_processes() {
    let gateway = Gateway::configured(&two()).await;
    let mut calls = under_way(&gateway, "one__slow_safe", 8).await;
    let before = tools(&calls[0].0, 2).await;
    kill_all(&gateway).await;
    let lists = calls.iter().map(|(session, _)| tools(session, 3));
    for list in futures_util::future::join_all(lists).await {
        assert_eq!(list, before, "no tool is missing meanwhile: {:#?}", gateway.log_so_far());
    }
    std::fs::write(gateway.folder.path().join("gate"), "").unwrap();
    for (_, call) in &mut calls {
        assert_eq!(rest(call).await, ["2", "3", "result 1"], "{:#?}", gateway.log_so_far());
    }
}
