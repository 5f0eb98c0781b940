//! Records that a newer version wrote: they are left as they are, and refused with a clear error.

use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::Reason;
use tenure_session::cluster::Place;
use tenure_session::id::NodeId;
use tenure_session::port::clock::Clock;
use tenure_session::port::store::{Expected, Record, RecordKey, Space, Store};
use tenure_session::{Limits, Principal, SessionId, SessionKey};
use tenure_testkit::runtime::session;
use tokio::time::{sleep, timeout};

use super::world::Cluster;

const SECOND: Duration = Duration::from_secs(1);

/// A session of Alice in a form of a later version.
fn newer() -> Bytes {
    Bytes::from_static(br#"{"format":2,"session":{"owner":"alice","more":{}}}"#)
}

async fn record(cluster: &Cluster, key: SessionKey) -> Record {
    cluster.memory.get(RecordKey::session(key)).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_session_that_a_newer_node_has_written_meanwhile_is_given_up_and_stays_as_it_is() {
    let by_sleep = Limits { dormant_after: Some(SECOND * 4), ..Limits::default() };
    let by_expiry = Limits { idle_ttl: Some(SECOND * 8), dormant_after: None, ..Limits::default() };
    for (seed, limits) in [(43, by_sleep), (44, by_expiry)] {
        let cluster = Cluster::new(seed, limits);
        let nodes = cluster.start_nodes(2).await;
        let first = session(&nodes[0].sessions, "2025-11-25").await;
        let key = *first.key();
        let before = record(&cluster, key).await;
        let deadline = Some(cluster.clock.now().after(SECOND));
        let put =
            cluster.memory.put(RecordKey::session(key), newer(), Expected::Version(before.version), deadline);
        let version = put.await.unwrap();
        sleep(SECOND * 60 * 10).await;
        let after = record(&cluster, key).await;
        assert_eq!(
            (&after.value, after.version, after.deadline),
            (&newer(), version, deadline),
            "seed {seed}"
        );
        assert!(first.is_over(), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_in_a_newer_form_is_refused_and_is_unknown_to_everybody_else() {
    let cluster = Cluster::new(45, Limits::default());
    let nodes = cluster.start_nodes(1).await;
    let (alice, bob) = (Principal::named("alice"), Principal::named("bob"));
    let id = SessionId::random();
    cluster.memory.put(RecordKey::session(id.key()), newer(), Expected::Absent, None).await.unwrap();
    let seen = async |who: &Principal| {
        let found = nodes[0].sessions.find(&id, who).await.map(drop).unwrap_err();
        let deleted = nodes[0].sessions.delete(&id, who).await.unwrap_err();
        assert_eq!(found.to_string(), deleted.to_string());
        (found.reason(), found.to_string())
    };
    let refused = "The session was written by a newer version of the server, which this node cannot read";
    assert_eq!(seen(&alice).await, (Reason::StoreUnavailable, refused.to_owned()));
    let unknown = nodes[0].sessions.find(&SessionId::random(), &bob).await.map(drop).unwrap_err();
    assert_eq!(seen(&bob).await, (Reason::SessionNotFound, unknown.to_string()));
    // Operators hear of it too, and do not end it.
    let revoked = nodes[0].sessions.revoke(&id.key()).await.unwrap_err();
    assert_eq!(revoked.to_string(), refused);
    assert_eq!(record(&cluster, id.key()).await.value, newer());
    // A node that can read it may live.
    let other = NodeId::from_bytes([9; 8]);
    cluster.engine.members().renew(other, Bytes::from_static(br#"{"v":2}"#), None).await.unwrap();
    cluster.memory.claim(id.key(), other, None).await.unwrap();
    sleep(SECOND * 2).await;
    assert_eq!(nodes[0].sessions.place(&id, &alice).await.unwrap(), Place::There(other));
    assert_eq!(nodes[0].sessions.place(&id, &bob).await.unwrap(), Place::Here);
}

#[tokio::test(start_paused = true)]
async fn many_records_in_a_newer_form_do_not_keep_others_from_expiring() {
    let cluster = Cluster::new(46, Limits { idle_ttl: Some(SECOND * 60), ..Limits::default() });
    let nodes = cluster.start_nodes(1).await;
    let early = cluster.clock.now();
    for number in 0..600u64 {
        let key =
            SessionKey::from_bytes([number.to_be_bytes(), number.to_be_bytes()].concat().try_into().unwrap());
        cluster.memory.put(RecordKey::session(key), newer(), Expected::Absent, Some(early)).await.unwrap();
    }
    let id = *session(&nodes[0].sessions, "2025-11-25").await.id();
    assert!(nodes[0].sessions.give_back(&id.key()).await.unwrap());
    assert_eq!(nodes[0].sessions.tallies().sessions, 1, "what cannot be read is not counted");
    sleep(SECOND * 60 * 5).await;
    assert_eq!(nodes[0].sessions.tallies().sessions, 0, "it expired behind the others");
    let error = nodes[0].find(&id).await.map(drop).unwrap_err();
    assert_eq!(error.reason(), Reason::SessionExpired);
    assert!(!cluster.memory.expired(Space::Session, early, 1000).await.unwrap().is_empty(), "they stay due");
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_record_in_a_newer_form_lives_while_it_renews_and_is_gone_when_it_is_silent() {
    let cluster = Cluster::new(47, Limits::default());
    let nodes = cluster.start_nodes(1).await;
    let (other, info) = (NodeId::from_bytes([9; 8]), Bytes::from_static(br#"{"v":2,"address":"x"}"#));
    let members = cluster.engine.members();
    let mut renewal = members.renew(other, info.clone(), None).await.unwrap();
    for _ in 0..20 {
        sleep(SECOND).await;
        assert!(!nodes[0].roster.find_gone(other).await.unwrap());
        assert!(nodes[0].roster.takers().is_empty(), "nothing is sent to a node that cannot be read");
        // No other node writes its record.
        renewal = members.renew(other, info.clone(), Some(renewal)).await.unwrap();
    }
    assert!(nodes[0].roster.is_confirmed());
    timeout(SECOND * 10, nodes[0].roster.gone(other)).await.expect("its sessions must not wait for ever");
}
