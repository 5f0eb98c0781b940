//! What a server in one process says to all clients reaches the clients of every node.

use serde_json::json;
use tenure_session::call::News;

use super::world::{Lone, Shared};
use crate::support::session::Session;

/// Waits until a node knows the node that has this session: it lists the others once a second.
async fn knows(node: &Lone, session: &Session) {
    let pong = session.request(9, "ping", &json!({})).send(node.address).await;
    assert_eq!(pong.status(), 200, "{pong:?}");
}

// B34
#[tokio::test]
async fn a_change_of_a_list_reaches_the_clients_of_all_nodes() {
    let (mut one, mut other) = Shared::new(&[]).pair().await;
    let (here, there) = (Session::start(one.address).await, Session::start(other.address).await);
    let (link, _) = (one.script.opened().await, other.script.opened().await);
    knows(&one, &there).await;
    knows(&other, &here).await;
    let (mut here, mut there) = (here.listen().await, there.listen().await);
    link.fanout.list_changed(News::Tools);
    for events in [&mut here, &mut there] {
        let (_, heard) = events.message().await.expect("news");
        assert_eq!(heard["method"], "notifications/tools/list_changed");
    }
    link.fanout.list_changed(News::Prompts);
    for events in [&mut here, &mut there] {
        // Once each, and nothing comes back from the other node.
        let (_, heard) = events.message().await.expect("news");
        assert_eq!(heard["method"], "notifications/prompts/list_changed");
    }
}

// B34
#[tokio::test]
async fn an_update_of_a_resource_reaches_those_who_watch_it_at_all_nodes() {
    let (mut one, mut other) = Shared::new(&[]).pair().await;
    let (here, there) = (Session::start(one.address).await, Session::start(other.address).await);
    let (link, _) = (one.script.opened().await, other.script.opened().await);
    let watched = there.request(1, "resources/subscribe", &json!({ "uri": "demo://größe" }));
    let (watched, ()) = tokio::join!(watched.send(other.address), async {
        other.script.call().await.answer(&json!({}));
    });
    assert_eq!(watched.status(), 200, "{watched:?}");
    knows(&one, &there).await;
    let mut there = there.listen().await;
    drop(here);
    link.fanout.resource_updated("demo://other");
    link.fanout.resource_updated("demo://größe");
    let (_, heard) = there.message().await.expect("news");
    assert_eq!(heard["params"]["uri"], "demo://größe", "{heard}");
}
