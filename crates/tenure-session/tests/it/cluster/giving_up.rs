//! Requests of a session that its node gives up: every one of them gets an answer.

use std::time::Duration;

use tenure_protocol::Reason;
use tenure_session::budget::{Budget, BudgetLimits, Peer, Resource};
use tenure_session::call::Caller;
use tenure_session::cluster::Place;
use tenure_session::port::store::Store;
use tenure_session::session::Item;
use tenure_session::{Limits, Principal, SessionId};
use tenure_testkit::node_view::ViewFaults;
use tenure_testkit::runtime::{initialize, json_of, request, session};
use tokio::time::{sleep, timeout};

use super::servers::tool_call;
use super::takeover::{read, reader_of};
use super::world::{Cluster, Got, Wish};

const SECOND: Duration = Duration::from_secs(1);

fn limits() -> Limits {
    Limits { json_wait: Duration::from_millis(100), dormant_after: None, ..Limits::default() }
}

fn cut() -> ViewFaults {
    ViewFaults { is_cut: true, ..ViewFaults::default() }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_no_id_to_come_back_with_is_answered_when_its_session_is_given_up() {
    let cluster = Cluster::new(31, limits());
    let nodes = cluster.start_nodes(2).await;
    // Streams of this revision begin without an id.
    let first = session(&nodes[0].sessions, "2025-06-18").await;
    let id = *first.id();
    let call = request(1, "tools/call", &tool_call("once", "slow", 0, 60_000, id.key()));
    let mut reader = reader_of(cluster.serve(&nodes[0], &id, Wish::Request(call)).await.unwrap());
    sleep(SECOND / 2).await;
    nodes[0].view.set(cut());
    nodes[1].roster.gone(nodes[0].roster.node()).await;
    nodes[1].find(&id).await.unwrap();
    nodes[0].view.set(ViewFaults::default());
    let (seen, last) = timeout(SECOND * 20, read(&mut reader)).await.unwrap();
    assert_eq!((seen, last), (vec!["interrupted".to_owned()], None));
    assert!(first.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_under_another_name_serves_nothing_of_what_another_node_took() {
    let cluster = Cluster::new(33, limits());
    let nodes = cluster.start_nodes(2).await;
    let first = session(&nodes[0].sessions, "2025-11-25").await;
    let id = *first.id();
    nodes[0].view.set(cut());
    nodes[1].roster.gone(nodes[0].roster.node()).await;
    let call = request(1, "tools/call", &tool_call("once", "taken", 0, 1000, id.key()));
    let mut reader = reader_of(cluster.serve(&nodes[1], &id, Wish::Request(call)).await.unwrap());
    let Some(Item::Prime(prime)) = reader.next().await else { panic!("an id") };
    let prime = prime.to_string();
    // Many requests wait until the node may act again. They all go on in the same moment, some of them before the loop
    // that gives up its sessions.
    let waiting = (0..64).map(|number| {
        let (cluster, node, prime) = (cluster.clone(), nodes[0].clone(), prime.clone());
        tokio::spawn(async move {
            if number % 2 == 0 {
                return node.sessions.place(&id, &Principal::ANONYMOUS).await.unwrap() == Place::Here;
            }
            // Asked before the outage, so it looks for no place.
            let Some(session) = node.sessions.live(&id, &Principal::ANONYMOUS) else { return false };
            drop(cluster);
            session.listen(Some(prime.as_bytes())).await.is_ok()
        })
    });
    let waiting: Vec<_> = waiting.collect();
    sleep(SECOND / 10).await;
    nodes[0].view.set(ViewFaults::default());
    for served in waiting {
        assert!(!timeout(SECOND * 10, served).await.unwrap().unwrap(), "an old owner served it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_release_failed_is_given_back_later() {
    let cluster = Cluster::new(34, Limits { dormant_after: Some(SECOND * 2), ..limits() });
    let nodes = cluster.start_nodes(2).await;
    let id = *session(&nodes[0].sessions, "2025-11-25").await.id();
    nodes[0].view.set(ViewFaults { lost_releases: 1000, ..ViewFaults::default() });
    let asleep = async {
        while nodes[0].sessions.live(&id, &Principal::ANONYMOUS).is_some() {
            sleep(SECOND / 10).await;
        }
    };
    timeout(SECOND * 10, asleep).await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(cluster.owner(&id).await, Some(nodes[0].roster.node()), "its release was lost");
    nodes[0].view.set(ViewFaults::default());
    let given_back = async {
        while cluster.owner(&id).await.is_some() {
            sleep(SECOND / 10).await;
        }
    };
    timeout(SECOND * 60, given_back).await.unwrap();
    assert_eq!(nodes[1].sessions.place(&id, &Principal::ANONYMOUS).await.unwrap(), Place::Here);
}

#[tokio::test(start_paused = true)]
async fn the_log_of_an_ended_session_that_could_not_be_dropped_is_dropped_later() {
    let cluster = Cluster::new(36, limits());
    let nodes = cluster.start_nodes(2).await;
    let id = *session(&nodes[0].sessions, "2025-11-25").await.id();
    let call = request(1, "tools/call", &tool_call("careful", "said", 1, 200, id.key()));
    let mut reader = reader_of(cluster.serve(&nodes[0], &id, Wish::Request(call)).await.unwrap());
    read(&mut reader).await;
    drop(reader);
    let streams = async || cluster.memory.survey(id.key()).await.unwrap().streams.len();
    nodes[0].view.set(ViewFaults { lost_releases: 1000, ..ViewFaults::default() });
    cluster.serve(&nodes[0], &id, Wish::Delete).await.unwrap();
    sleep(SECOND * 5).await;
    assert_eq!(
        (cluster.owner(&id).await, streams().await),
        (Some(nodes[0].roster.node()), 1),
        "the drop was lost"
    );
    nodes[0].view.set(ViewFaults::default());
    let dropped = async {
        while cluster.owner(&id).await.is_some() || streams().await > 0 {
            sleep(SECOND / 10).await;
        }
    };
    timeout(SECOND * 60, dropped).await.unwrap();
    let error = cluster.serve(&nodes[1], &id, Wish::Delete).await.map(drop).unwrap_err();
    assert_eq!(error.reason(), Reason::SessionDeleted, "it stays ended");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ended_at_another_node_is_no_longer_counted_at_its_first() {
    let cluster = Cluster::new(35, Limits { dormant_after: Some(SECOND * 2), ..limits() });
    let nodes = cluster.start_nodes(2).await;
    let id = *session(&nodes[0].sessions, "2025-11-25").await.id();
    assert_eq!(nodes[0].sessions.tallies().sessions, 1);
    sleep(SECOND * 10).await;
    assert_eq!(cluster.owner(&id).await, None);
    nodes[1].find(&id).await.unwrap();
    cluster.serve(&nodes[1], &id, Wish::Delete).await.unwrap();
    let fresh =
        [session(&nodes[1].sessions, "2025-11-25").await, session(&nodes[1].sessions, "2025-11-25").await];
    sleep(SECOND * 60 * 15).await;
    let counted = nodes.iter().map(|node| node.sessions.tallies().sessions).collect::<Vec<_>>();
    assert_eq!(counted, [2, 2], "those that are left, at both");
    drop(fresh);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_answer_could_not_be_logged_is_answered_when_its_session_is_given_up() {
    let cluster = Cluster::new(32, limits());
    let nodes = cluster.start_nodes(1).await;
    let first = session(&nodes[0].sessions, "2025-11-25").await;
    let id = *first.id();
    let call = request(1, "tools/call", &tool_call("once", "soon", 0, 1000, id.key()));
    let serving = tokio::spawn({
        let (cluster, node) = (cluster.clone(), nodes[0].clone());
        async move { cluster.serve(&node, &id, Wish::Request(call)).await }
    });
    sleep(SECOND / 20).await;
    // The note of the stream is not written any more, and neither is the answer that comes a second later.
    nodes[0].view.set(cut());
    let Got::Answer(answer) = timeout(SECOND * 30, serving).await.unwrap().unwrap().unwrap() else {
        panic!("an answer")
    };
    // JSON, since no resume would show an event.
    assert_eq!(json_of(answer)["error"]["data"]["reason"], "interrupted");
    assert!(first.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_no_server_has_seen_is_placed_anew_when_its_session_is_given_up() {
    let cluster = Cluster::new(37, limits());
    let nodes = cluster.start_nodes(2).await;
    let first = session(&nodes[0].sessions, "2025-11-25").await;
    let id = *first.id();
    nodes[0].view.set(cut());
    sleep(SECOND * 7 / 2).await;
    assert!(!nodes[0].roster.is_confirmed());
    // It was found while its node could still act.
    let call = request(1, "tools/call", &tool_call("once", "unseen", 0, 10, id.key()));
    let waiting = tokio::spawn({
        let (first, call) = (first.clone(), call.clone());
        async move { first.request(call, Caller::anonymous("test")).await }
    });
    nodes[1].roster.gone(nodes[0].roster.node()).await;
    nodes[1].find(&id).await.unwrap();
    nodes[0].view.set(ViewFaults::default());
    let error = timeout(SECOND * 20, waiting)
        .await
        .unwrap()
        .unwrap()
        .map(|answer| format!("{answer:?}"))
        .unwrap_err();
    assert_eq!(error.reason(), Reason::StoreUnavailable, "it is not answered here");
    assert_eq!(cluster.servers.runs("unseen"), 0);
    let Got::Answer(answer) = cluster.serve(&nodes[0], &id, Wish::Request(call)).await.unwrap() else {
        panic!("an answer")
    };
    assert_eq!(json_of(answer)["result"]["run"], 1);
}

/// Waits until no node owns a session.
async fn ownerless(cluster: &Cluster, id: &SessionId) {
    let ownerless = async {
        while cluster.owner(id).await.is_some() {
            sleep(SECOND / 10).await;
        }
    };
    timeout(SECOND * 90, ownerless).await.expect("a living node owns what it does not have");
}

#[tokio::test(start_paused = true)]
async fn a_new_session_whose_claim_was_not_answered_has_no_owner() {
    let cluster = Cluster::new(38, limits());
    let nodes = cluster.start_nodes(1).await;
    let id = SessionId::random();
    nodes[0].view.set(ViewFaults { lost_answers: 1000, ..ViewFaults::default() });
    let initialize = request(0, "initialize", &initialize("2025-11-25"));
    let created = nodes[0].sessions.create_as(id, initialize, &Principal::ANONYMOUS, None).await;
    assert_eq!(created.map(drop).unwrap_err().reason(), Reason::StoreUnavailable);
    assert!(cluster.owner(&id).await.is_some(), "the claim was done");
    nodes[0].view.set(ViewFaults::default());
    ownerless(&cluster, &id).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_session_whose_client_hung_up_has_no_owner_also_if_that_could_not_be_written() {
    let cluster = Cluster::new(39, limits());
    let nodes = cluster.start_nodes(1).await;
    let id = SessionId::random();
    nodes[0].view.set(ViewFaults { delay: SECOND / 10, lost_releases: 1000, ..ViewFaults::default() });
    let initialize = request(0, "initialize", &initialize("2025-11-25"));
    let creating = nodes[0].sessions.create_as(id, initialize, &Principal::ANONYMOUS, None);
    drop(timeout(Duration::from_millis(1), creating).await);
    sleep(SECOND * 5).await;
    assert!(cluster.owner(&id).await.is_some(), "the claim was done, and its end was lost");
    nodes[0].view.set(ViewFaults::default());
    ownerless(&cluster, &id).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_to_give_back_is_not_forgotten_because_a_wake_that_fails_is_under_way() {
    let cluster = Cluster::new(40, Limits { dormant_after: Some(SECOND * 2), ..limits() });
    let nodes = cluster.start_nodes(1).await;
    let id = *session(&nodes[0].sessions, "2025-11-25").await.id();
    nodes[0].view.set(ViewFaults { delay: SECOND / 5, lost_releases: 1000, ..ViewFaults::default() });
    while nodes[0].sessions.live(&id, &Principal::ANONYMOUS).is_some() {
        sleep(SECOND / 10).await;
    }
    // A client that may not hold another session asks for it again and again: each wake fails before it claims anything.
    let budget = Budget::new(BudgetLimits::default().with(Resource::Sessions, 1).with_share(100));
    let share = budget.share(Peer::at([127, 0, 0, 1].into()));
    let _held = share.take(Resource::Sessions, 1);
    let asking: Vec<_> = (0..16)
        .map(|_| {
            let (node, share) = (nodes[0].clone(), share.clone());
            tokio::spawn(async move {
                loop {
                    let found = node.sessions.find_within(|| Some(share.clone()), &id, &Principal::ANONYMOUS);
                    assert_eq!(found.await.map(drop).unwrap_err().reason(), Reason::TooManySessions);
                }
            })
        })
        .collect();
    sleep(SECOND * 60).await;
    assert!(cluster.owner(&id).await.is_some());
    for asking in asking {
        assert!(!asking.is_finished(), "{:?}", asking.await);
        asking.abort();
    }
    nodes[0].view.set(ViewFaults::default());
    ownerless(&cluster, &id).await;
}
