//! No orphan and no zombie, however it ends and however stubborn the children are.

use serde_json::json;

use crate::gateway::running::{Gateway, heard};
use crate::support::session::Session;
use crate::support::wait::until;

/// A session whose child ignores the end of its input and SIGTERM, and has started one that does so too.
async fn stubborn(gateway: &Gateway) -> Session {
    let session = gateway.session().await;
    for (id, tool) in (1..).zip(["ignore_end", "ignore_sigterm", "leave_child"]) {
        assert_eq!(session.tool(id, tool, &json!({})).await.status(), 200, "{tool}");
    }
    session
}

#[tokio::test]
async fn a_deleted_session_takes_its_child_with_it() {
    let gateway = Gateway::start(&["child.warm=0"]).await;
    let session = gateway.session().await;
    gateway.until_children(1).await;
    assert_eq!(session.delete().send(gateway.address).await.status(), 204);
    gateway.until_children(0).await;
    assert!(!said_in(&gateway, "it is killed"), "it left when its input ended");
}

#[tokio::test]
async fn a_deleted_session_takes_a_stubborn_child_and_grandchild_with_it() {
    let gateway = Gateway::start(&["child.warm=0"]).await;
    let session = stubborn(&gateway).await;
    assert!(gateway.children().len() >= 2, "{:?}", gateway.children());
    assert_eq!(session.delete().send(gateway.address).await.status(), 204);
    gateway.until_children(0).await;
    let said = "the server did not leave when it was told to; it is killed";
    gateway.logged("the kill", |line| line["message"] == said).await;
}

#[tokio::test]
async fn a_child_that_leaves_in_order_does_not_leave_its_own_behind() {
    let gateway = Gateway::start(&["child.warm=0"]).await;
    let session = gateway.session().await;
    session.tool(1, "leave_child", &json!({})).await;
    assert!(gateway.children().len() >= 2, "{:?}", gateway.children());
    session.delete().send(gateway.address).await;
    gateway.until_children(0).await;
}

#[tokio::test]
async fn a_crashed_child_does_not_leave_its_own_behind() {
    let gateway = Gateway::start(&["child.warm=0"]).await;
    let session = gateway.session().await;
    session.tool(1, "leave_child", &json!({})).await;
    assert!(gateway.children().len() >= 2, "{:?}", gateway.children());
    session.tool(2, "exit", &json!({ "code": 1 })).await;
    // The next server has been asked already whether the tool may be called again.
    gateway.until_children(1).await;
}

#[tokio::test]
async fn a_dormant_session_has_no_child_and_gets_one_when_it_wakes() {
    let gateway = Gateway::start(&["child.warm=0", "session.dormant_after=300ms"]).await;
    let session = stubborn(&gateway).await;
    let (before, _) = heard(&session, 10).await;
    gateway.until_children(0).await;
    let (after, said) = heard(&session, 11).await;
    assert_ne!(before, after);
    assert_eq!(said.len(), 2, "the handshake and nothing else: {said:?}");
}

#[tokio::test]
async fn an_expired_session_has_no_child() {
    let gateway = Gateway::start(&["child.warm=0", "session.idle_ttl=300ms"]).await;
    let session = stubborn(&gateway).await;
    gateway.until_children(0).await;
    assert_eq!(session.tool(1, "heard", &json!({})).await.status(), 404);
}

#[tokio::test]
async fn a_stopped_gateway_leaves_no_process_behind() {
    let mut gateway = Gateway::start(&["child.warm=3", "shutdown.grace=200ms"]).await;
    let _sessions = [stubborn(&gateway).await, stubborn(&gateway).await, gateway.session().await];
    assert!(gateway.children().len() >= 8, "{:?}", gateway.children());
    assert!(gateway.stop().await.success());
    gateway.until_no_process().await;
}

#[tokio::test]
async fn a_gateway_told_twice_to_stop_leaves_no_process_behind() {
    let mut gateway = Gateway::start(&["shutdown.grace=1h"]).await;
    let session = stubborn(&gateway).await;
    let call = json!({ "name": "hold", "arguments": {} });
    let _held = session.request(9, "tools/call", &call).begin(gateway.address).await;
    crate::gateway::family::signal(gateway.id, "TERM").await;
    gateway.logged("the first", |line| line["message"] == "stopping").await;
    assert!(gateway.stop().await.success());
    gateway.until_no_process().await;
}

#[tokio::test]
async fn a_killed_gateway_leaves_no_process_behind() {
    let mut gateway = Gateway::start(&["child.warm=2"]).await;
    let _sessions = [stubborn(&gateway).await, gateway.session().await];
    assert!(gateway.children().len() >= 5, "{:?}", gateway.children());
    gateway.kill().await;
    gateway.until_no_process().await;
}

/// The process that ends the children of a gateway that was killed.
fn warden(gateway: &Gateway) -> Option<u32> {
    let is_one =
        |one: &crate::gateway::family::Process| one.parent == gateway.id && one.command.ends_with(" warden");
    gateway.family().into_iter().find(is_one).map(|one| one.id)
}

#[tokio::test]
async fn a_gateway_killed_after_its_warden_leaves_no_process_behind() {
    let mut gateway = Gateway::start(&["child.warm=2"]).await;
    let _sessions = [stubborn(&gateway).await, gateway.session().await];
    let first = warden(&gateway).expect("there is one");
    crate::gateway::family::signal(first, "KILL").await;
    let another = || warden(&gateway).is_some_and(|warden| warden != first);
    until("another one is there", another).await;
    // It is told of those that are there, and of those that come.
    let _another = stubborn(&gateway).await;
    assert!(gateway.children().len() >= 7, "{:?}", gateway.children());
    let said = gateway.log_so_far();
    assert_eq!(said.iter().filter(|line| line.contains("another one is started")).count(), 1, "{said:#?}");
    gateway.kill().await;
    gateway.until_no_process().await;
}

/// Ctrl-C on a terminal sends the signal to the whole foreground group.
#[tokio::test]
async fn children_and_warden_are_in_groups_of_their_own() {
    let gateway = Gateway::start(&[]).await;
    let _session = gateway.session().await;
    let group = |id: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(2).unwrap().parse::<u32>().unwrap()
    };
    let others: Vec<_> = gateway.family().into_iter().filter(|one| one.id != gateway.id).collect();
    assert_eq!(others.len(), 3, "a session's, one that waits, and the warden: {others:?}");
    for other in others {
        assert_eq!(group(other.id), other.id, "{other:?}");
        assert_eq!(other.parent, gateway.id, "{other:?}");
    }
}

fn said_in(gateway: &Gateway, what: &str) -> bool {
    gateway.log_so_far().iter().any(|line| line.contains(what))
}
