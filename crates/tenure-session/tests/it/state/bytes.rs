//! The bytes of states are counted to the peer that made them, and the count is what the store holds, whatever happens.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_protocol::Reason;
use tenure_session::budget::{Budget, BudgetLimits, Peer, Resource};
use tenure_session::port::store::{Space, Store};
use tenure_session::state::{Fault, NewState, State, StateLimits, States};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;

use crate::state::support::{HOUR, ann, holding};

const TOTAL: usize = 10_000;

struct Place {
    states: States,
    store: Arc<Memory>,
    clock: Arc<HandClock>,
    budget: Budget,
}

impl Place {
    fn new() -> Self {
        Self::over(Arc::new(Memory::new()), Arc::new(HandClock::start()))
    }

    fn over(store: Arc<Memory>, clock: Arc<HandClock>) -> Self {
        let limits = BudgetLimits::default().with(Resource::Disk, TOTAL).with_share(50);
        let budget = Budget::new(limits);
        let states =
            States::start_within(store.clone(), clock.clone(), StateLimits::default(), budget.clone());
        Self { states, store, clock, budget }
    }

    /// Another process on the same store.
    async fn reopened(self) -> Self {
        self.states.stop().await;
        Self::over(self.store, self.clock)
    }

    async fn make(&self, peer: Peer, bytes: usize) -> Result<State, Fault> {
        let data = Bytes::from(vec![b'1'; bytes]);
        self.states.create(&ann(), NewState { peer, data, ..holding("") }).await
    }

    fn used(&self) -> usize {
        self.budget.usage()[Resource::Disk as usize].used
    }

    fn used_by(&self, peer: Peer) -> usize {
        let peers = &self.budget.usage()[Resource::Disk as usize].peers;
        peers.iter().find(|(one, _)| *one == peer).map_or(0, |(_, used)| *used)
    }

    /// Checks that as much is counted as the store holds.
    async fn assert_counted(&self) {
        let records = self.store.list(Space::State, None, usize::MAX).await.unwrap();
        assert_eq!(self.used(), records.iter().map(|(_, record)| record.value.len()).sum::<usize>());
    }

    /// Waits until so much is counted.
    async fn until_used(&self, bytes: usize) {
        while self.used() != bytes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn peer(last: u8) -> Peer {
    Peer::at(IpAddr::from([10, 0, 0, last]))
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, Fault>) {
    match outcome {
        Err(fault @ Fault::Full(_)) => {
            let error = fault.to_error();
            assert_eq!(error.reason(), Reason::TooMuchHeld);
            assert!(error.to_string().contains("`clients.disk`"), "{error}");
        }
        other => panic!("no room, not {other:?}"),
    }
}

#[tokio::test]
async fn what_a_peer_makes_forks_and_lets_grow_comes_out_of_its_share() {
    let place = Place::new();
    let first = place.make(peer(1), 2000).await.unwrap();
    let fork = first.fork_for(peer(2), None).await.unwrap();
    assert!(place.used_by(peer(1)) > 2000 && place.used_by(peer(2)) > 2000);
    place.assert_counted().await;
    refused(place.make(peer(1), 4000).await);
    let edition = first.data().1;
    refused(first.replace(edition, Bytes::from(vec![b'2'; 6000])).await);
    assert_eq!(first.data().0.len(), 2000, "a refusal changes nothing");
    place.assert_counted().await;
    let edition = first.replace(edition, Bytes::from(vec![b'2'; 3000])).await.unwrap();
    place.assert_counted().await;
    first.replace(edition, Bytes::from_static(b"3")).await.unwrap();
    place.assert_counted().await;
    assert!(place.used_by(peer(1)) < 500);
    // The maker is charged, also when others use it and for states that a handler forks.
    fork.fork(None).await.unwrap();
    assert!(place.used_by(peer(2)) > 4000);
    refused(first.fork_for(peer(2), None).await.and(fork.fork(None).await));
    place.assert_counted().await;
}

#[tokio::test]
async fn the_count_is_right_again_in_the_next_process() {
    let place = Place::new();
    let kept = place.make(peer(1), 2000).await.unwrap().id();
    let network = Peer::at("2001:db8:1:2::9".parse().unwrap());
    place.make(network, 700).await.unwrap();
    place.make(Peer::UNKNOWN, 600).await.unwrap();
    place.make(peer(3), 900).await.unwrap().delete().await.unwrap();
    place.assert_counted().await;
    let all = [peer(1), network, Peer::UNKNOWN, peer(3)];
    let (before, used) = (all.map(|peer| place.used_by(peer)), place.used());
    assert!(before.iter().all(|used| *used > 0), "{before:?}");
    let place = place.reopened().await;
    place.until_used(used).await;
    assert_eq!(all.map(|peer| place.used_by(peer)), before);
    refused(place.make(peer(1), 3000).await);
    place.states.find(&ann(), kept).await.unwrap().delete().await.unwrap();
    place.assert_counted().await;
}

#[tokio::test]
async fn what_has_ended_is_given_back_when_nothing_is_left_of_it() {
    let place = Place::new();
    place.make(peer(1), 1000).await.unwrap().delete().await.unwrap();
    let left = place.used();
    assert!((1..500).contains(&left), "what is left of it takes {left} bytes");
    let _forgotten = place.make(peer(1), 1000).await.unwrap();
    place.assert_counted().await;
    // Beyond the time that an end is remembered, and that what expired can be recovered.
    place.clock.turn(48 * HOUR);
    let place = place.reopened().await;
    while !place.store.list(Space::State, None, 9).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    place.until_used(0).await;
}
