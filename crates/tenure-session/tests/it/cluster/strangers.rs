//! A session of somebody else looks like one that never was, wherever it is and whatever its node does.

use std::time::Duration;

use tenure_protocol::{Error, Reason};
use tenure_session::cluster::Place;
use tenure_session::{Limits, Principal, Route, SessionId, Sessions};
use tenure_testkit::runtime::{initialize, request};
use tokio::time::{Instant, sleep};

use super::world::{Cluster, Node};

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits { dormant_after: Some(SECOND * 20), ..Limits::default() }
}

async fn session_of(sessions: &Sessions, owner: &Principal) -> SessionId {
    let created = sessions.create(request(0, "initialize", &initialize("2025-11-25")), owner).await.unwrap();
    *created.session.unwrap().id()
}

/// What a stranger gets who asks for a session, and how long that takes.
async fn seen_by(stranger: &Principal, node: &Node, id: &SessionId) -> (Place, Reason, String, Duration) {
    let began = Instant::now();
    let place = node.sessions.place(id, stranger).await.unwrap();
    let error: Error = node.sessions.find(id, stranger).await.unwrap_err();
    (place, error.reason(), error.to_string(), began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_session_of_somebody_else_is_nowhere_whatever_becomes_of_its_node() {
    let (alice, bob) = (Principal::named("alice"), Principal::named("bob"));
    let cluster = Cluster::new(41, limits());
    let nodes = cluster.start_nodes(3).await;
    let owner = nodes[0].roster.node();
    let id = session_of(&nodes[0].sessions, &alice).await;
    let never = SessionId::random();
    let check = async |what: &str, at: &Node| {
        let unknown = seen_by(&bob, at, &never).await;
        assert_eq!((unknown.0, unknown.1), (Place::Here, Reason::SessionNotFound), "{what}");
        assert_eq!(seen_by(&bob, at, &id).await, unknown, "{what}");
    };
    check("its node lives", &nodes[1]).await;
    check("it is in memory here", &nodes[0]).await;
    assert_eq!(nodes[1].sessions.place(&id, &alice).await.unwrap(), Place::There(owner));
    check("its place is remembered", &nodes[1]).await;
    assert_eq!(
        nodes[1].sessions.on(Route::from(Some("other"))).place(&id, &alice).await.unwrap(),
        Place::Here,
        "at another endpoint it is unknown to its owner too"
    );
    nodes[0].kill();
    check("its node was killed just now", &nodes[1]).await;
    sleep(SECOND * 2).await;
    assert_eq!(
        nodes[1].sessions.place(&id, &alice).await.unwrap(),
        Place::There(owner),
        "as far as is known"
    );
    check("its node is silent", &nodes[1]).await;
    nodes[1].sees_gone(owner).await;
    check("its node is gone", &nodes[1]).await;
    nodes[1].sessions.find(&id, &alice).await.unwrap();
    while cluster.owner(&id).await.is_some() {
        sleep(SECOND).await;
    }
    check("it sleeps", &nodes[2]).await;
    nodes[2].sessions.drain();
    assert!(matches!(nodes[2].sessions.place(&id, &alice).await.unwrap(), Place::There(_)));
    check("this node stops", &nodes[2]).await;
    let other = Principal::named("carol");
    assert_eq!(nodes[1].sessions.delete(&id, &other).await.unwrap_err().reason(), Reason::SessionNotFound);
    nodes[1].sessions.delete(&id, &alice).await.unwrap();
    check("it has ended", &nodes[1]).await;
}
