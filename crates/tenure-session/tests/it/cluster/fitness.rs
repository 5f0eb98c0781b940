//! Nodes that do not fit together, and clocks that are wrong: who acts, and who does not.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tenure_session::cluster::{NodeInfo, Roster};
use tenure_session::id::NodeId;
use tenure_session::port::clock::{Clock, Time};
use tenure_session::port::members::{Member, Members, Renewal};
use tenure_session::port::store::Stored;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::memory_members::MemoryMembers;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
const HOURS: Duration = Duration::from_secs(2 * 3600);

/// Records of an engine that tells by its own clock when it stored them.
struct TimedMembers {
    members: MemoryMembers,
    clock: TurnableClock,
    stored: Mutex<HashMap<NodeId, Time>>,
}

impl TimedMembers {
    fn new() -> Arc<Self> {
        let (members, clock) = (MemoryMembers::new(), TurnableClock::start());
        Arc::new(Self { members, clock, stored: Mutex::default() })
    }
}

impl Members for TimedMembers {
    fn renew(&self, node: NodeId, info: Bytes, last: Option<Renewal>) -> Stored<Renewal> {
        self.stored.lock().insert(node, self.clock.now());
        self.members.renew(node, info, last)
    }

    fn remove(&self, node: NodeId, seen: Renewal) -> Stored<()> {
        self.members.remove(node, seen)
    }

    fn members(&self) -> Stored<Vec<Member>> {
        let (list, stored) = (self.members.members(), self.stored.lock().clone());
        Box::pin(async move {
            let with_time = |member: Member| Member { stored: stored.get(&member.node).copied(), ..member };
            Ok(list.await?.into_iter().map(with_time).collect())
        })
    }
}

fn start(engine: &Arc<TimedMembers>, clock: &Arc<TurnableClock>, info: NodeInfo) -> Roster {
    Roster::start(Arc::clone(engine) as _, Arc::clone(clock) as _, NodeId::random(), info)
}

fn clock() -> Arc<TurnableClock> {
    Arc::new(TurnableClock::start())
}

// B27
#[tokio::test(start_paused = true)]
async fn a_node_whose_clock_is_two_hours_off_does_not_act_until_it_is_set() {
    let engine = TimedMembers::new();
    let (right, wrong) = (clock(), clock());
    wrong.set_ahead(HOURS);
    let one = start(&engine, &right, NodeInfo::default());
    one.confirmed().await.unwrap();
    let other = start(&engine, &wrong, NodeInfo::default());
    sleep(SECOND * 2).await;
    let asked = Instant::now();
    assert!(other.confirmed().await.is_err() && !other.is_confirmed());
    assert_eq!(asked.elapsed(), Duration::ZERO, "it knows why, and does not wait");
    let why = other.unfit().unwrap();
    assert!(why.contains("7200 s ahead"), "{why}");
    sleep(SECOND * 30).await;
    assert!(one.is_confirmed() && one.unfit().is_none());
    // The others see why.
    assert_eq!(one.peer(other.node()).unwrap().unfit, Some(why));
    assert_eq!(one.share(), (0, 1), "it does no work of others");
    wrong.set_back(HOURS);
    sleep(SECOND * 3).await;
    other.confirmed().await.unwrap();
    assert_eq!(one.peer(other.node()).unwrap().unfit, None);
}

// B27
#[tokio::test(start_paused = true)]
async fn a_node_whose_clock_jumps_gives_up_what_it_owns_and_comes_back_when_it_is_set() {
    let engine = TimedMembers::new();
    let clocks = [clock(), clock(), clock()];
    let nodes: Vec<_> = clocks.iter().map(|clock| start(&engine, clock, NodeInfo::default())).collect();
    for node in &nodes {
        node.confirmed().await.unwrap();
    }
    sleep(SECOND * 3).await;
    let (name, term) = nodes[0].name();
    clocks[0].set_back(HOURS);
    timeout(SECOND * 6, nodes[0].term_over(term)).await.unwrap();
    assert!(!nodes[0].is_confirmed_in(term));
    sleep(SECOND * 2).await;
    assert!(nodes[0].unfit().unwrap().contains("behind"));
    assert!(nodes[1].find_gone(name).await.unwrap(), "the others may take what it owned");
    clocks[0].set_ahead(HOURS);
    sleep(SECOND * 3).await;
    nodes[0].confirmed().await.unwrap();
    for node in &nodes[1..] {
        assert!(node.is_confirmed() && node.unfit().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_of_the_engine_stops_no_nodes_that_agree() {
    let engine = TimedMembers::new();
    let clocks = [clock(), clock()];
    let nodes: Vec<_> = clocks.iter().map(|clock| start(&engine, clock, NodeInfo::default())).collect();
    for node in &nodes {
        node.confirmed().await.unwrap();
    }
    sleep(SECOND * 3).await;
    let names: Vec<_> = nodes.iter().map(Roster::node).collect();
    engine.clock.set_ahead(HOURS);
    sleep(SECOND * 30).await;
    assert_eq!(nodes.iter().map(Roster::node).collect::<Vec<_>>(), names);
    assert!(nodes.iter().all(Roster::is_confirmed));
}

// B40
#[tokio::test(start_paused = true)]
async fn of_two_clusters_on_one_engine_the_one_that_was_there_goes_on() {
    let engine = TimedMembers::new();
    let time = clock();
    let of = |server: &str| NodeInfo { servers: vec![server.to_owned()], ..NodeInfo::default() };
    let first = start(&engine, &time, of("a"));
    first.confirmed().await.unwrap();
    let strangers = [start(&engine, &time, of("b")), start(&engine, &time, of("b"))];
    sleep(SECOND * 20).await;
    assert!(first.is_confirmed());
    for stranger in &strangers {
        assert!(stranger.confirmed().await.is_err());
        assert!(stranger.unfit().unwrap().contains("nats.cluster"));
    }
    first.leave().await;
    sleep(SECOND * 5).await;
    for stranger in &strangers {
        stranger.confirmed().await.unwrap();
    }
}
