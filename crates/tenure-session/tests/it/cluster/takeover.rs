//! A session goes from node to node: when its node dies, is cut off, falls asleep, or stops.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_protocol::Reason;
use tenure_session::cluster::Place;
use tenure_session::port::store::{RecordKey, Store};
use tenure_session::session::{Answer, Item, Reader};
use tenure_session::{Limits, Principal};
use tenure_testkit::node_view::ViewFaults;
use tenure_testkit::runtime::{json_of, parse, request, session};
use tokio::time::{Instant, sleep, timeout};

use super::servers::tool_call;
use super::world::{Cluster, Got, Wish};

const SECOND: Duration = Duration::from_secs(1);
const REVISION: &str = "2025-11-25";

fn cut() -> ViewFaults {
    ViewFaults { is_cut: true, ..ViewFaults::default() }
}

fn limits() -> Limits {
    Limits { json_wait: SECOND * 30, dormant_after: None, ..Limits::default() }
}

fn streaming() -> Limits {
    Limits { json_wait: Duration::from_millis(100), ..limits() }
}

/// Reads until the connection ends, and returns the messages in short and the last id.
pub(super) async fn read(reader: &mut Reader) -> (Vec<String>, Option<String>) {
    let (mut seen, mut last) = (Vec::new(), None);
    while let Some(item) = reader.next().await {
        match item {
            Item::Prime(id) => last = Some(id.to_string()),
            Item::Event { id, body } => {
                last = id.map(|id| id.to_string()).or(last);
                seen.push(gist(&parse(&body)));
            }
            Item::Gap => seen.push("gap".to_owned()),
            Item::Close(_) => {}
        }
    }
    (seen, last)
}

fn gist(message: &Value) -> String {
    if let Some(data) = message["params"]["data"].as_str() {
        return data.to_owned();
    }
    match message["error"]["data"]["reason"].as_str() {
        Some(reason) => reason.to_owned(),
        None => format!("run {}", message["result"]["run"]),
    }
}

pub(super) fn reader_of(got: Got) -> Reader {
    match got {
        Got::Answer(Answer::Stream(reader)) | Got::Reader(reader) => reader,
        Got::Answer(other) => panic!("a stream, not {other:?}"),
        Got::Taken | Got::Deleted => panic!("a stream"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_at_another_node_goes_to_the_owner() {
    let cluster = Cluster::new(11, limits());
    let nodes = cluster.start_nodes(2).await;
    let session = session(&nodes[0].sessions, REVISION).await;
    let (id, owner) = (*session.id(), nodes[0].roster.node());
    assert_eq!(nodes[0].sessions.place(&id, &Principal::ANONYMOUS).await.unwrap(), Place::Here);
    assert_eq!(nodes[1].sessions.place(&id, &Principal::ANONYMOUS).await.unwrap(), Place::There(owner));
    assert_eq!(nodes[1].find(&id).await.unwrap_err().reason(), Reason::StoreUnavailable, "it is not taken");
    let call = request(1, "tools/call", &tool_call("once", "a", 0, 0, id.key()));
    let Got::Answer(answer) = cluster.serve(&nodes[1], &id, Wish::Request(call)).await.unwrap() else {
        panic!("an answer")
    };
    assert_eq!(json_of(answer)["result"]["node"], json!(owner.hex()));
    // An unknown id is here: the ordinary code says that there is no such session.
    let unknown = tenure_session::SessionId::random();
    assert_eq!(nodes[1].sessions.place(&unknown, &Principal::ANONYMOUS).await.unwrap(), Place::Here);
    assert_eq!(nodes[1].find(&unknown).await.unwrap_err().reason(), Reason::SessionNotFound);
}

#[tokio::test(start_paused = true)]
async fn a_dormant_session_has_no_owner_and_wakes_where_it_is_wanted() {
    let cluster = Cluster::new(12, Limits { dormant_after: Some(SECOND * 2), ..limits() });
    let nodes = cluster.start_nodes(2).await;
    let id = *session(&nodes[0].sessions, REVISION).await.id();
    let asleep = async {
        while cluster.owner(&id).await.is_some() {
            sleep(SECOND / 10).await;
        }
    };
    timeout(SECOND * 10, asleep).await.unwrap();
    // Both at once: one of them wins, and the other sends its request there.
    let call = |number: u64| {
        let name = format!("n{number}");
        Wish::Request(request(number, "tools/call", &tool_call("once", &name, 0, 10, id.key())))
    };
    let (one, two) =
        tokio::join!(cluster.serve(&nodes[0], &id, call(1)), cluster.serve(&nodes[1], &id, call(2)));
    let node = |got: Got| match got {
        Got::Answer(answer) => json_of(answer)["result"]["node"].clone(),
        _ => panic!("an answer"),
    };
    assert_eq!(node(one.unwrap()), node(two.unwrap()), "there is one owner");
    assert_eq!(*cluster.servers.wrongs.lock(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_a_dead_node_goes_on_at_another() {
    let cluster = Cluster::new(13, streaming());
    let nodes = cluster.start_nodes(2).await;
    let id = *session(&nodes[0].sessions, REVISION).await.id();
    for (number, tool, after_takeover) in [(1, "careful", "run 2"), (2, "once", "interrupted")] {
        let call = request(number, "tools/call", &tool_call(tool, tool, 3, 1000, id.key()));
        let name = cluster.owner(&id).await.unwrap();
        let owner = cluster.nodes.lock().iter().find(|node| node.roster.node() == name).cloned().unwrap();
        let mut reader = reader_of(cluster.serve(&owner, &id, Wish::Request(call)).await.unwrap());
        let mut last = None;
        while let Some(item) = reader.next().await {
            match item {
                Item::Prime(id) => last = Some(id.to_string()),
                Item::Event { id, body } => {
                    assert_eq!(gist(&parse(&body)), format!("{tool} 1 0"));
                    last = id.map(|id| id.to_string());
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        owner.kill();
        let died = Instant::now();
        let next = cluster.start_node();
        next.roster.confirmed().await.unwrap();
        let resumed = cluster.serve(&next, &id, Wish::Listen(last.unwrap())).await.unwrap();
        assert!(died.elapsed() <= SECOND * 7, "{:?}", died.elapsed());
        let (seen, _) = read(&mut reader_of(resumed)).await;
        assert_eq!(seen.last().unwrap(), after_takeover, "{seen:?}");
        assert!(!seen.contains(&"gap".to_owned()), "{seen:?}");
    }
    assert_eq!(*cluster.servers.wrongs.lock(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cut_off_gives_up_what_another_one_took() {
    let cluster = Cluster::new(14, limits());
    let nodes = cluster.start_nodes(2).await;
    let first = session(&nodes[0].sessions, REVISION).await;
    let id = *first.id();
    // A call that is answered while no other node has the session, but this node may not act.
    let call = request(1, "tools/call", &tool_call("once", "held", 0, 5000, id.key()));
    let waiting = tokio::spawn({
        let (cluster, node) = (cluster.clone(), nodes[0].clone());
        async move { cluster.serve(&node, &id, Wish::Request(call)).await }
    });
    sleep(SECOND).await;
    nodes[0].view.set(cut());
    let mut reader = first.listen(None).await.unwrap();
    // Until then it serves the session all the same.
    sleep(SECOND * 3).await;
    let taken = request(2, "tools/call", &tool_call("once", "taken", 0, 0, id.key()));
    let Got::Answer(answer) = cluster.serve(&nodes[1], &id, Wish::Request(taken)).await.unwrap() else {
        panic!("an answer")
    };
    assert_eq!(json_of(answer)["result"]["node"], json!(nodes[1].roster.node().hex()));
    assert!(!waiting.is_finished(), "the answer is held");
    nodes[0].view.set(ViewFaults::default());
    let Got::Answer(answer) = timeout(SECOND * 10, waiting).await.unwrap().unwrap().unwrap() else {
        panic!("an answer")
    };
    assert_eq!(json_of(answer)["error"]["data"]["reason"], "interrupted");
    let closed = async {
        while let Some(item) = reader.next().await {
            assert!(!matches!(item, Item::Event { .. }), "{item:?}");
        }
    };
    timeout(SECOND * 5, closed).await.unwrap();
    assert!(first.is_over());
    assert_eq!(
        nodes[0].sessions.place(&id, &Principal::ANONYMOUS).await.unwrap(),
        Place::There(nodes[1].roster.node())
    );
    assert_eq!(*cluster.servers.wrongs.lock(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_not_sent_while_the_node_may_not_act() {
    let cluster = Cluster::new(15, limits());
    let nodes = cluster.start_nodes(1).await;
    let first = session(&nodes[0].sessions, REVISION).await;
    let id = *first.id();
    nodes[0].view.set(cut());
    sleep(SECOND * 4).await;
    let call = request(1, "tools/call", &tool_call("once", "a", 0, 0, id.key()));
    let waiting = tokio::spawn({
        let (cluster, node) = (cluster.clone(), nodes[0].clone());
        async move { node.find(&id).await.unwrap().request(call, caller(&cluster)).await }
    });
    sleep(SECOND * 2).await;
    assert_eq!(cluster.servers.runs("a"), 0);
    nodes[0].view.set(ViewFaults::default());
    assert_eq!(json_of(waiting.await.unwrap().unwrap())["result"]["run"], 1);
}

fn caller(_: &Cluster) -> tenure_session::call::Caller {
    tenure_session::call::Caller::anonymous("test")
}

#[tokio::test(start_paused = true)]
async fn an_append_without_an_answer_is_claimed_again_and_shown_once() {
    for (seed, faults) in [
        (16, ViewFaults { lost_answers: 400, ..ViewFaults::default() }),
        (17, ViewFaults { lost_writes: 400, ..ViewFaults::default() }),
        (18, ViewFaults { late_writes: 400, ..ViewFaults::default() }),
    ] {
        let cluster = Cluster::new(seed, streaming());
        let nodes = cluster.start_nodes(1).await;
        let id = *session(&nodes[0].sessions, REVISION).await.id();
        let epoch = nodes[0].view.owner(id.key()).await.unwrap().unwrap().1;
        let call = request(1, "tools/call", &tool_call("once", "a", 4, 200, id.key()));
        let got = cluster.serve(&nodes[0], &id, Wish::Request(call)).await.unwrap();
        nodes[0].view.set(faults);
        let mut reader = reader_of(got);
        let (mut seen, last) = read(&mut reader).await;
        nodes[0].view.set(ViewFaults::default());
        if let (true, Some(last)) = (seen.last().is_none_or(|last| last.starts_with('a')), last) {
            let resumed = cluster.serve(&nodes[0], &id, Wish::Listen(last)).await.unwrap();
            seen.extend(read(&mut reader_of(resumed)).await.0);
        }
        let answer = seen.pop().unwrap();
        assert!(["run 1", "interrupted"].contains(&answer.as_str()), "seed {seed}: {answer}");
        let expected: Vec<_> = (0..seen.len()).map(|said| format!("a 1 {said}")).collect();
        assert_eq!(seen, expected, "seed {seed}");
        let now = nodes[0].view.owner(id.key()).await.unwrap().unwrap().1;
        assert!(now > epoch, "seed {seed}: it was claimed again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_is_dead_at_every_node() {
    let cluster = Cluster::new(19, limits());
    let nodes = cluster.start_nodes(3).await;
    let id = *session(&nodes[0].sessions, REVISION).await.id();
    let deleted = cluster.serve(&nodes[2], &id, Wish::Delete).await.unwrap();
    assert!(matches!(deleted, Got::Deleted));
    for node in &nodes {
        let call = request(1, "tools/call", &tool_call("once", "late", 0, 0, id.key()));
        let error = cluster.serve(node, &id, Wish::Request(call)).await.map(drop).unwrap_err();
        assert_eq!(error.reason(), Reason::SessionDeleted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_is_given_back_when_it_is_quiet_and_not_before() {
    let cluster = Cluster::new(20, limits());
    let nodes = cluster.start_nodes(2).await;
    let id = *session(&nodes[0].sessions, REVISION).await.id();
    let call = request(1, "tools/call", &tool_call("once", "a", 0, 1000, id.key()));
    let waiting = tokio::spawn({
        let (cluster, node) = (cluster.clone(), nodes[0].clone());
        async move { cluster.serve(&node, &id, Wish::Request(call)).await.map(drop) }
    });
    sleep(SECOND / 2).await;
    assert!(!nodes[0].sessions.give_back(&id.key()).await.unwrap(), "a call runs");
    waiting.await.unwrap().unwrap();
    sleep(SECOND / 10).await;
    assert!(nodes[0].sessions.give_back(&id.key()).await.unwrap());
    assert_eq!(cluster.owner(&id).await, None);
    assert_eq!(nodes[1].sessions.place(&id, &Principal::ANONYMOUS).await.unwrap(), Place::Here);
    nodes[1].find(&id).await.unwrap();
    assert_eq!(
        nodes[0].sessions.place(&id, &Principal::ANONYMOUS).await.unwrap(),
        Place::There(nodes[1].roster.node())
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_leaves_its_sessions_to_the_others() {
    let cluster = Cluster::new(21, limits());
    let nodes = cluster.start_nodes(2).await;
    let id = *session(&nodes[0].sessions, REVISION).await.id();
    nodes[0].stop().await;
    let began = Instant::now();
    let call = request(1, "tools/call", &tool_call("once", "a", 0, 0, id.key()));
    let Got::Answer(answer) = cluster.serve(&nodes[1], &id, Wish::Request(call)).await.unwrap() else {
        panic!("an answer")
    };
    assert_eq!(json_of(answer)["result"]["node"], json!(nodes[1].roster.node().hex()));
    assert!(began.elapsed() < SECOND * 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_a_living_node_uses_does_not_expire_at_another() {
    let limits = Limits { idle_ttl: Some(SECOND * 8), ..limits() };
    let cluster = Cluster::new(22, limits);
    let nodes = cluster.start_nodes(3).await;
    let first = session(&nodes[0].sessions, REVISION).await;
    let reader = first.listen(None).await.unwrap();
    // No use is saved any more, so the record is due long before the session is.
    sleep(SECOND * 60).await;
    assert!(!first.is_over());
    drop(reader);
    sleep(SECOND * 60).await;
    assert!(nodes[1].find(first.id()).await.is_err(), "no client used it any more");
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_later_owner_is_not_written_over() {
    let cluster = Cluster::new(23, Limits { idle_ttl: Some(SECOND * 80), ..limits() });
    let nodes = cluster.start_nodes(2).await;
    let first = session(&nodes[0].sessions, REVISION).await;
    let key = RecordKey::session(first.id().key());
    nodes[0].view.set(cut());
    nodes[1].roster.gone(nodes[0].roster.node()).await;
    let taken = nodes[1].find(first.id()).await.unwrap();
    taken.saved().await;
    let before = cluster.memory.get(key).await.unwrap().unwrap();
    // The old owner writes before it learns that its name is lost.
    sleep(SECOND * 20).await;
    nodes[0].view.set(ViewFaults::default());
    first.touch();
    first.saved().await;
    assert!(first.is_over());
    assert_eq!(cluster.memory.get(key).await.unwrap().unwrap(), before);
    assert!(!taken.is_over());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_another_node_has_just_woken_is_ended_there_and_not_behind_its_back() {
    let cluster = Cluster::new(24, limits());
    let nodes = cluster.start_nodes(2).await;
    let first = session(&nodes[0].sessions, REVISION).await;
    // The node was told that the session is here, before the other one woke it.
    let principal = tenure_session::Principal::ANONYMOUS;
    let error = nodes[1].sessions.delete(first.id(), &principal).await.unwrap_err();
    assert_eq!(error.reason(), Reason::StoreUnavailable);
    assert!(!nodes[1].sessions.revoke(&first.id().key()).await.is_ok_and(|is_ended| is_ended));
    let call = request(1, "tools/call", &tool_call("once", "a", 0, 0, first.id().key()));
    let got = cluster.serve(&nodes[1], first.id(), Wish::Request(call)).await.unwrap();
    assert!(matches!(got, Got::Answer(Answer::Json(_))));
    cluster.serve(&nodes[1], first.id(), Wish::Delete).await.unwrap();
    assert!(first.is_over());
}
