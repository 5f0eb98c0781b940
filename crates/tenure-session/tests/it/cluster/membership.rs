//! Who is there, who may act, and who is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tenure_session::Limits;
use tenure_session::cluster::{NodeInfo, Roster};
use tenure_session::id::NodeId;
use tenure_session::port::members::{Member, Members, Renewal};
use tenure_session::port::store::Stored;
use tenure_testkit::memory_members::MemoryMembers;
use tenure_testkit::node_view::ViewFaults;
use tokio::time::{Instant, sleep};

use super::world::Cluster;

const SECOND: Duration = Duration::from_secs(1);
const CUT: ViewFaults = ViewFaults {
    is_cut: true,
    delay: Duration::ZERO,
    lost_answers: 0,
    lost_writes: 0,
    late_writes: 0,
    lost_releases: 0,
    late_lists: 0,
};

#[tokio::test(start_paused = true)]
async fn nodes_find_each_other_and_say_what_they_are() {
    let cluster = Cluster::new(1, Limits::default());
    let nodes = cluster.start_nodes(3).await;
    let peers = nodes[0].roster.peers();
    assert_eq!(peers.len(), 2);
    assert_eq!(nodes[0].roster.peer(nodes[1].roster.node()).unwrap().peer_address, "node-1:1");
    let mut shares: Vec<_> = nodes.iter().map(|node| node.roster.share()).collect();
    shares.sort_unstable();
    assert_eq!(shares, [(0, 3), (1, 3), (2, 3)]);
    nodes[1].roster.set_draining();
    sleep(SECOND * 2).await;
    assert!(nodes[0].roster.peer(nodes[1].roster.node()).unwrap().is_draining);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_may_not_act_before_another_one_may_hold_it_gone() {
    let cluster = Cluster::new(2, Limits::default());
    let nodes = cluster.start_nodes(2).await;
    let (lost, other) = (&nodes[0], &nodes[1]);
    let name = lost.roster.node();
    lost.view.set(CUT);
    let began = Instant::now();
    while lost.roster.is_confirmed() {
        assert!(!other.roster.is_gone(name));
        sleep(SECOND / 20).await;
    }
    assert!(began.elapsed() <= SECOND * 3);
    assert!(!other.roster.is_gone(name));
    tokio::time::timeout(SECOND * 4, other.roster.gone(name)).await.unwrap();
    assert!(began.elapsed() >= SECOND * 3, "{:?}", began.elapsed());
    assert!(began.elapsed() <= SECOND * 6, "{:?}", began.elapsed());
    // It learns of it when it can, and comes back under another name.
    lost.view.set(ViewFaults::default());
    lost.roster.confirmed().await.unwrap();
    assert_ne!(lost.roster.node(), name);
    assert!(lost.roster.is_gone(name));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_takes_no_renewals_makes_no_node_gone() {
    let cluster = Cluster::new(3, Limits::default());
    let nodes = cluster.start_nodes(2).await;
    let names: Vec<_> = nodes.iter().map(|node| node.roster.node()).collect();
    for node in &nodes {
        node.view.set(CUT);
    }
    sleep(SECOND * 60).await;
    let asked = Instant::now();
    assert!(nodes[0].roster.confirmed().await.is_err());
    assert_eq!(asked.elapsed(), SECOND * 10, "it waits, but not for ever");
    for node in &nodes {
        node.view.set(ViewFaults::default());
    }
    for node in &nodes {
        node.roster.confirmed().await.unwrap();
    }
    sleep(SECOND * 10).await;
    assert_eq!(nodes.iter().map(|node| node.roster.node()).collect::<Vec<_>>(), names);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_costs_no_name() {
    let cluster = Cluster::new(4, Limits::default());
    let nodes = cluster.start_nodes(2).await;
    let name = nodes[0].roster.node();
    nodes[0].view.set(ViewFaults { lost_answers: 500, ..ViewFaults::default() });
    sleep(SECOND * 30).await;
    nodes[0].view.set(ViewFaults::default());
    nodes[0].roster.confirmed().await.unwrap();
    assert_eq!(nodes[0].roster.node(), name);
}

#[tokio::test(start_paused = true)]
async fn a_name_whose_first_record_was_in_doubt_does_not_come_back_after_it_was_held_gone() {
    let cluster = Cluster::new(9, Limits::default());
    let nodes = cluster.start_nodes(1).await;
    let late = cluster.start_node();
    let name = late.roster.node();
    // The record is written. The node does not hear of it, and does not see it in a list either.
    late.view.set(ViewFaults { lost_answers: 1000, late_lists: 1000, ..ViewFaults::default() });
    sleep(SECOND / 2).await;
    late.view.set(CUT);
    tokio::time::timeout(SECOND * 10, nodes[0].roster.gone(name)).await.unwrap();
    late.view.set(ViewFaults::default());
    late.roster.confirmed().await.unwrap();
    assert!(!nodes[0].roster.is_gone(late.roster.node()), "it acts, and another node holds it gone");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_suspended_for_longer_than_its_lease_may_not_act() {
    let cluster = Cluster::new(10, Limits::default());
    let nodes = cluster.start_nodes(1).await;
    assert!(nodes[0].roster.is_confirmed());
    cluster.clock.suspend(SECOND);
    assert!(nodes[0].roster.is_confirmed());
    cluster.clock.suspend(SECOND * 3);
    assert!(!nodes[0].roster.is_confirmed(), "tokio's clock stood still meanwhile");
    nodes[0].roster.confirmed().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_left_is_gone_at_once_also_for_one_that_never_saw_it() {
    let cluster = Cluster::new(5, Limits::default());
    let nodes = cluster.start_nodes(2).await;
    let name = nodes[0].roster.node();
    assert!(!nodes[1].roster.find_gone(name).await.unwrap());
    nodes[0].roster.leave().await;
    assert!(!nodes[0].roster.is_confirmed());
    let late = cluster.start_node();
    late.roster.confirmed().await.unwrap();
    assert!(late.roster.find_gone(name).await.unwrap());
    sleep(SECOND * 2).await;
    assert!(nodes[1].roster.find_gone(name).await.unwrap());
    assert_eq!(nodes[1].roster.peers().len(), 1, "only the new node is there");
}

#[tokio::test(start_paused = true)]
async fn a_late_list_makes_no_node_gone() {
    let cluster = Cluster::new(6, Limits::default());
    let nodes = cluster.start_nodes(2).await;
    // Its lists stay as they are, from before the third node.
    nodes[0].view.set(ViewFaults { late_lists: 1000, ..ViewFaults::default() });
    let third = cluster.start_node();
    third.roster.confirmed().await.unwrap();
    let name = third.roster.node();
    assert_eq!(nodes[0].roster.peer(name), None);
    assert!(!nodes[0].roster.find_gone(name).await.unwrap());
    // Neither is a node whose renewals it does not see.
    sleep(SECOND * 30).await;
    assert!(!nodes[0].roster.is_gone(nodes[1].roster.node()));
    nodes[1].roster.confirmed().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_roster_that_is_dropped_renews_no_more() {
    let cluster = Cluster::new(7, Limits::default());
    let nodes = cluster.start_nodes(1).await;
    let members: Arc<dyn Members> = nodes[0].view.clone();
    let name = NodeId::random();
    let roster = Roster::start(Arc::clone(&members), cluster.clock.clone(), name, NodeInfo::default());
    roster.confirmed().await.unwrap();
    drop(roster);
    tokio::time::timeout(SECOND * 10, nodes[0].roster.gone(name)).await.unwrap();
}

/// Records whose writes take a moment, and are counted.
#[derive(Default)]
struct SlowMembers {
    members: Arc<MemoryMembers>,
    writes: AtomicU32,
}

impl Members for SlowMembers {
    fn renew(&self, node: NodeId, info: Bytes, last: Option<Renewal>) -> Stored<Renewal> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let members = Arc::clone(&self.members);
        Box::pin(async move {
            sleep(SECOND / 10).await;
            members.renew(node, info, last).await
        })
    }

    fn remove(&self, node: NodeId, seen: Renewal) -> Stored<()> {
        self.members.remove(node, seen)
    }

    fn members(&self) -> Stored<Vec<Member>> {
        self.members.members()
    }
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_for_a_lost_node_write_one_mark() {
    let cluster = Cluster::new(8, Limits::default());
    let members = Arc::new(SlowMembers::default());
    let (own, lost) = (NodeId::random(), NodeId::random());
    let roster = Roster::start(members.clone(), cluster.clock.clone(), own, NodeInfo::default());
    roster.confirmed().await.unwrap();
    let before = members.writes.load(Ordering::SeqCst);
    // One that stops asking before it knows does not leave the others without an answer.
    assert!(tokio::time::timeout(SECOND / 100, roster.find_gone(lost)).await.is_err());
    let asked = (0..1000).map(|_| roster.find_gone(lost));
    for is_gone in futures_util::future::join_all(asked).await {
        assert!(is_gone.unwrap());
    }
    let writes = members.writes.load(Ordering::SeqCst) - before;
    assert!((2..=4).contains(&writes), "{writes} writes, with a renewal or two of its own");
    roster.leave().await;
}
