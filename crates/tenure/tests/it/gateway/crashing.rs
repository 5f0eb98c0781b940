//! The child is killed, or the gateway is: sessions go on, and every request is answered.

use std::path::Path;

use serde_json::{Value, json};

use crate::gateway::family::signal;
use crate::gateway::running::{Gateway, heard};
use crate::support::events::Events;
use crate::support::session::Session;

/// A call that has begun and goes on when the gate is there.
pub(crate) async fn begin(session: &Session, id: u64, tool: &str, gate: &Path) -> Events {
    let arguments = json!({ "steps": 3, "gate": gate });
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
    let mut stream = session.request(id, "tools/call", &params).open(session.server).await;
    assert_eq!(stream.message().await.unwrap().1["params"]["progress"], 1);
    stream
}

/// What comes until the stream ends: progress as numbers, then the answer in short.
pub(crate) async fn rest(stream: &mut Events) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((_, message)) = stream.message().await {
        all.push(match &message["params"]["progress"] {
            Value::Null => crate::support::events::gist(&message),
            progress => progress.to_string(),
        });
    }
    all
}

async fn kill_child(gateway: &Gateway, session: &Session, id: u64) -> u32 {
    let (pid, _) = heard(session, id).await;
    signal(pid, "KILL").await;
    gateway.logged("the loss", |line| line["message"] == "the server behind the session is gone").await;
    pid
}

#[tokio::test]
async fn a_killed_child_interrupts_what_is_unsafe_and_repeats_what_is_safe() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let (mut is_safe, mut is_not) =
        (begin(&session, 1, "slow_safe", &gate).await, begin(&session, 2, "slow", &gate).await);
    kill_child(&gateway, &session, 3).await;
    // Not before the other one has ended, which it does at once: the gate is still closed.
    assert_eq!(rest(&mut is_not).await, ["error 2 interrupted"]);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(rest(&mut is_safe).await, ["2", "3", "result 1"], "each step once, on its stream");
    let (_, all) = heard(&session, 4).await;
    assert_eq!(all.iter().filter(|line| line.starts_with("initialize ")).count(), 1, "{all:?}");
}

#[tokio::test]
async fn a_new_child_is_told_what_the_client_said_before() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    for (id, method, params) in [
        (1, "logging/setLevel", json!({ "level": "error" })),
        (2, "resources/subscribe", json!({ "uri": "file:///kept" })),
        (3, "resources/subscribe", json!({ "uri": "file:///dropped" })),
        (4, "resources/unsubscribe", json!({ "uri": "file:///dropped" })),
    ] {
        assert_eq!(session.request(id, method, &params).send(gateway.address).await.status(), 200);
    }
    let mut listening = session.listen().await;
    let (_, before) = heard(&session, 5).await;
    let killed = kill_child(&gateway, &session, 6).await;
    // The next request works, without a new `initialize` of the client's.
    let (pid, after) = heard(&session, 7).await;
    assert_ne!(pid, killed);
    assert_eq!(after[0], before[0], "the client's own initialize");
    let told: Vec<_> = after[1..].iter().map(String::as_str).collect();
    let wanted = [
        "notifications/initialized",
        r#"logging/setLevel {"level":"error"}"#,
        r#"resources/subscribe {"uri":"file:///kept"}"#,
    ];
    assert_eq!(told, wanted);
    // And the stream that was open before goes on with what the new child says.
    session.tool(8, "update", &json!({ "uri": "file:///kept" })).await;
    assert_eq!(listening.message().await.unwrap().1["params"]["uri"], "file:///kept");
}

#[tokio::test]
async fn a_stream_is_resumed_across_the_death_of_its_child() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let stream = begin(&session, 1, "slow_safe", &gate).await;
    let last = stream.last_id();
    drop(stream);
    kill_child(&gateway, &session, 2).await;
    std::fs::write(&gate, "").unwrap();
    let mut resumed = session.resume(&last).await;
    assert_eq!(rest(&mut resumed).await, ["2", "3", "result 1"]);
}

#[tokio::test]
async fn a_question_of_a_killed_child_is_withdrawn() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let call = json!({ "name": "ask", "arguments": { "method": "roots/list", "params": {} } });
    let mut stream = session.request(1, "tools/call", &call).open(gateway.address).await;
    let (_, question) = stream.message().await.unwrap();
    kill_child(&gateway, &session, 2).await;
    let (_, withdrawn) = stream.message().await.unwrap();
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(rest(&mut stream).await, ["error 1 interrupted"]);
    // An answer that comes too late is dropped.
    let late = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } });
    assert_eq!(session.post(&late).send(gateway.address).await.status(), 202);
    assert_eq!(session.tool(3, "public_echo", &json!({ "text": "on" })).await.status(), 200);
}

#[tokio::test]
async fn a_child_that_exits_in_its_call_is_replaced() {
    let gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    for id in 0..3 {
        let said = session.tool(id * 10 + 1, "exit", &json!({ "code": 7 })).await;
        assert_eq!(said.json()["error"]["data"]["reason"], "interrupted", "{said:?}");
        assert_eq!(session.tool(id * 10 + 2, "public_echo", &json!({ "text": "on" })).await.status(), 200);
    }
    gateway.logged("how it ended", |line| line["status"] == "exit status: 7").await;
    gateway.until_children(2).await;
}

/// Processes out of the gateway's reach, and so the test's to end, also if it fails.
struct Left(Vec<u32>);

impl Drop for Left {
    fn drop(&mut self) {
        for id in &self.0 {
            // It may have ended.
            let _ = std::process::Command::new("kill").args(["-s", "KILL", &id.to_string()]).status();
        }
    }
}

/// A process that a child has left behind, out of its group, may keep the child's output open for ever.
#[tokio::test]
async fn a_child_is_gone_when_it_has_ended_even_if_its_output_is_still_open() {
    let gateway = Gateway::start(&["child.warm=0"]).await;
    let session = gateway.session().await;
    session.tool(1, "leave_child", &json!({ "holds": "output" })).await;
    let gate = gateway.folder.path().join("never");
    let mut stream = begin(&session, 2, "slow", &gate).await;
    let (pid, _) = heard(&session, 3).await;
    let others = gateway.children().into_iter().map(|process| process.id).filter(|id| *id != pid);
    let _left = Left(others.collect());
    signal(pid, "KILL").await;
    assert_eq!(rest(&mut stream).await, ["error 2 interrupted"]);
    assert_ne!(heard(&session, 4).await.0, pid);
}

#[tokio::test]
async fn a_killed_gateway_goes_on_with_its_sessions_on_the_same_store() {
    let mut gateway = Gateway::start(&[]).await;
    let (one, two) = (gateway.session().await, gateway.session().await);
    let subscribe = one.request(1, "resources/subscribe", &json!({ "uri": "file:///kept" }));
    assert_eq!(subscribe.send(gateway.address).await.status(), 200);
    let gate = gateway.folder.path().join("gate");
    let is_safe = begin(&one, 2, "slow_safe", &gate).await;
    let is_not = begin(&one, 3, "slow", &gate).await;
    let other = begin(&two, 2, "slow_safe", &gate).await;
    let lasts = [is_safe.last_id(), is_not.last_id(), other.last_id()];
    gateway.kill_and_start_again().await;
    std::fs::write(&gate, "").unwrap();
    let mut streams = [one.resume(&lasts[0]).await, one.resume(&lasts[1]).await, two.resume(&lasts[2]).await];
    assert_eq!(rest(&mut streams[0]).await, ["2", "3", "result 2"]);
    assert_eq!(rest(&mut streams[1]).await, ["error 3 interrupted"]);
    assert_eq!(rest(&mut streams[2]).await, ["2", "3", "result 2"]);
    let (_, all) = heard(&one, 9).await;
    assert!(all.contains(&r#"resources/subscribe {"uri":"file:///kept"}"#.to_owned()), "{all:?}");
    // The children of the gateway that was killed are gone: two sessions, and one that waits.
    gateway.until_children(3).await;
}

#[tokio::test]
async fn child_and_gateway_may_die_together() {
    let mut gateway = Gateway::start(&[]).await;
    let session = gateway.session().await;
    let gate = gateway.folder.path().join("gate");
    let stream = begin(&session, 1, "slow_safe", &gate).await;
    let last = stream.last_id();
    signal(heard(&session, 2).await.0, "KILL").await;
    gateway.kill_and_start_again().await;
    std::fs::write(&gate, "").unwrap();
    assert_eq!(rest(&mut session.resume(&last).await).await, ["2", "3", "result 1"]);
}
