//! Shares of one peer and of many, what is given back, and what operators see.

use super::*;

fn peer(last: u8) -> Peer {
    Peer::at(IpAddr::from([127, 0, 0, last]))
}

fn budget(total: usize, share: u32) -> Budget {
    Budget::new(BudgetLimits::default().with(Resource::Memory, total).with_share(share))
}

fn used(budget: &Budget) -> usize {
    budget.usage()[Resource::Memory as usize].used
}

/// Takes one by one until no more is given.
fn take_all(share: &Share) -> Vec<Taken> {
    std::iter::from_fn(|| share.take(Resource::Memory, 1).ok()).collect()
}

#[test]
fn a_peer_that_is_alone_gets_its_share_of_the_total_and_no_more() {
    for (percent, most) in [(50, 500), (25, 250), (75, 750), (100, 1000), (1, 10)] {
        let budget = budget(1000, percent);
        assert_eq!(take_all(&budget.share(peer(1))).len(), most, "{percent} percent");
    }
}

#[test]
fn however_many_peers_take_all_they_can_another_one_still_finds_room() {
    let budget = budget(10_000, 50);
    let mut held = Vec::new();
    let mut before = usize::MAX;
    for number in 1..=50 {
        let taken = take_all(&budget.share(peer(number)));
        assert!(!taken.is_empty(), "peer {number}");
        assert!(taken.len() <= before, "each finds less than the one that came first");
        before = taken.len();
        held.push(taken);
        if number == 10 {
            assert!(before > 4, "with ten of them there is still something: {before}");
        }
        if before == 1 {
            break;
        }
    }
    assert!(used(&budget) < 10_000);
}

#[test]
fn all_of_it_is_given_back() {
    let budget = budget(1000, 50);
    let share = budget.share(peer(1));
    let taken = take_all(&share);
    assert_eq!(used(&budget), 500);
    assert_eq!(share.take(Resource::Memory, 1).unwrap_err(), Full::OfPeer);
    drop(taken);
    assert_eq!(used(&budget), 0);
    assert_eq!(take_all(&share).len(), 500);
}

#[test]
fn a_refusal_changes_nothing() {
    let budget = budget(1000, 100);
    let share = budget.share(peer(1));
    let mut taken = share.take(Resource::Memory, 600).unwrap();
    assert_eq!(share.take(Resource::Memory, 401).unwrap_err(), Full::InAll);
    assert_eq!(taken.resize(1001).unwrap_err(), Full::InAll);
    assert_eq!((taken.amount(), used(&budget)), (600, 600));
    taken.resize(1000).unwrap();
    taken.resize(1).unwrap();
    assert_eq!(used(&budget), 1);
    drop(taken);
    assert_eq!(used(&budget), 0);
}

#[test]
fn one_that_holds_too_much_anyway_is_known_and_others_are_not_refused_for_it() {
    let budget = budget(1000, 50);
    let (greedy, modest) = (budget.share(peer(1)), budget.share(peer(2)));
    let held = greedy.take_anyway(Resource::Memory, 600);
    assert!(greedy.is_over(Resource::Memory));
    assert!(!modest.is_over(Resource::Memory));
    let _small = modest.take(Resource::Memory, 100).unwrap();
    assert!(greedy.take(Resource::Memory, 1).is_err());
    drop(held);
    assert!(!greedy.is_over(Resource::Memory));
}

#[test]
fn resources_are_counted_apart_and_without_a_limit_there_is_none() {
    let budget = budget(10, 50);
    let share = budget.share(peer(1));
    let _memory = share.take(Resource::Memory, 5).unwrap();
    let _calls = share.take(Resource::Calls, 1_000_000).unwrap();
    assert!(share.take(Resource::Memory, 1).is_err());
}

#[test]
fn a_network_of_ipv6_is_one_peer_and_a_mapped_address_is_the_one_that_it_maps() {
    let at = |text: &str| Peer::at(text.parse().unwrap());
    assert_eq!(at("2001:db8:1:2::1"), at("2001:db8:1:2:ffff::9"));
    assert_ne!(at("2001:db8:1:2::1"), at("2001:db8:1:3::1"));
    assert_eq!(at("::ffff:10.0.0.7"), at("10.0.0.7"));
    assert_ne!(at("10.0.0.7"), at("10.0.0.8"));
    assert_eq!(at("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
    assert_eq!(at("10.0.0.7").to_string(), "10.0.0.7");
}

#[test]
fn the_table_of_peers_does_not_grow_with_those_that_are_gone() {
    let budget = budget(1000, 50);
    let kept = budget.share(Peer::UNKNOWN);
    for number in 0..100_000_u32 {
        drop(budget.share(Peer::at(IpAddr::from(number.to_be_bytes()))));
    }
    assert!(budget.0.peers.lock().len() < 100);
    assert_eq!(budget.share(Peer::UNKNOWN).peer(), kept.peer());
}

#[test]
fn operators_see_who_holds_most() {
    let budget = budget(1000, 50);
    let _first = budget.share(peer(1)).take(Resource::Memory, 10).unwrap();
    let _second = budget.share(peer(2)).take(Resource::Memory, 30).unwrap();
    let usage = &budget.usage()[Resource::Memory as usize];
    assert_eq!(usage.peers, [(peer(2), 30), (peer(1), 10)]);
    assert_eq!((usage.used, usage.total), (40, 1000));
}

#[test]
fn many_threads_together_never_hold_more_than_the_total() {
    let budget = budget(1000, 90);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let budget = &budget;
            scope.spawn(move || {
                let share = budget.share(peer(number));
                for round in 0..2000 {
                    let taken = share.take(Resource::Memory, round % 300);
                    let held: usize =
                        budget.usage()[Resource::Memory as usize].peers.iter().map(|(_, used)| used).sum();
                    // An attempt that is refused is counted for a moment; each thread makes one at a time.
                    assert!(held <= 1000 + 4 * 300, "{held}");
                    drop(taken);
                }
            });
        }
    });
    assert_eq!(used(&budget), 0);
}
