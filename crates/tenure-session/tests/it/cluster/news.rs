//! A client whose session goes to another node may have missed that a list changed: no node told the next one.

use std::time::Duration;

use tenure_session::cluster::Place;
use tenure_session::session::Item;
use tenure_session::{Limits, Principal, Session, SessionId};
use tenure_testkit::runtime::{parse, session};
use tokio::time::{sleep, timeout};

use super::world::{Cluster, Node};

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits { dormant_after: Some(SECOND * 2), ..Limits::default() }
}

/// What the client of a session hears on its standalone stream within a second.
async fn heard(session: &std::sync::Arc<Session>) -> Vec<String> {
    let (mut reader, mut heard) = (session.listen(None).await.unwrap(), Vec::new());
    while let Ok(Some(item)) = timeout(SECOND, reader.next()).await {
        if let Item::Event { body, .. } = item {
            heard.push(parse(&body)["method"].as_str().unwrap().to_owned());
        }
    }
    heard
}

async fn asleep(cluster: &Cluster, id: &SessionId) {
    let ownerless = async {
        while cluster.owner(id).await.is_some() {
            sleep(SECOND / 10).await;
        }
    };
    timeout(SECOND * 60, ownerless).await.expect("it sleeps");
}

async fn woken(node: &Node, id: &SessionId) -> std::sync::Arc<Session> {
    assert_eq!(node.sessions.place(id, &Principal::ANONYMOUS).await.unwrap(), Place::Here);
    node.find(id).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_session_that_wakes_at_another_node_announces_each_list_that_may_have_changed_once() {
    const CHANGED: [&str; 2] = ["notifications/tools/list_changed", "notifications/resources/list_changed"];
    let cluster = Cluster::new(42, limits());
    let nodes = cluster.start_nodes(3).await;
    let first = session(&nodes[0].sessions, "2025-11-25").await;
    let id = *first.id();
    assert_eq!(heard(&first).await, [""; 0]);
    drop(first);
    asleep(&cluster, &id).await;
    assert_eq!(heard(&woken(&nodes[0], &id).await).await, [""; 0], "the same node would have told it");
    asleep(&cluster, &id).await;
    // A server behind the first node changes its tools now, and the other node does not hear of it.
    assert_eq!(heard(&woken(&nodes[1], &id).await).await, CHANGED);
    asleep(&cluster, &id).await;
    assert_eq!(heard(&woken(&nodes[1], &id).await).await, [""; 0], "it was told");
    nodes[1].kill();
    nodes[0].sees_gone(nodes[1].roster.node()).await;
    assert_eq!(heard(&woken(&nodes[0], &id).await).await, CHANGED, "the node was lost");
    asleep(&cluster, &id).await;
    // What the client hears here is in no record.
    assert_eq!(heard(&woken(&nodes[2], &id).await).await, CHANGED);
    nodes[2].kill();
    nodes[0].sees_gone(nodes[2].roster.node()).await;
    // What was delivered there is in no record either, so it comes once more, before what this node announces.
    assert_eq!(heard(&woken(&nodes[0], &id).await).await, [CHANGED, CHANGED].concat());
}
