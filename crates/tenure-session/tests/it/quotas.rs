//! Calls of a day and of a month: what is counted, what the store keeps of it, and what a clock that is set does to it.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::sync::Arc;
use std::time::Duration;

use tenure_session::Principal;
use tenure_session::port::clock::Clock;
use tenure_session::port::store::Space;
use tenure_session::rate::{Period, QuotaLimits, Quotas};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::faulty::Faulty;

const DAY: Duration = Duration::from_secs(24 * 3600);

struct World {
    store: Arc<Faulty>,
    clock: Arc<TurnableClock>,
}

impl World {
    fn new() -> Self {
        Self {
            store: Arc::new(Faulty::new(Arc::new(Memory::new()))),
            clock: Arc::new(TurnableClock::start()),
        }
    }

    /// The quotas of a process, with so many calls a day.
    fn process(&self, limit: u64) -> Quotas {
        self.process_with(QuotaLimits { day: Some(limit), month: None })
    }

    fn process_with(&self, limits: QuotaLimits) -> Quotas {
        Quotas::new(limits, Arc::clone(&self.store) as _, Arc::clone(&self.clock) as _)
    }

    async fn records(&self) -> usize {
        self.store.inner().list(Space::Quota, None, 100).await.unwrap().len()
    }
}

/// What a principal has used of its quotas, those of a day first.
async fn used(quotas: &Quotas, principal: &Principal) -> Vec<u64> {
    quotas.usage(principal).await.iter().map(|quota| quota.used).collect()
}

/// How many of so many calls are allowed.
async fn calls(quotas: &Quotas, principal: &Principal, count: usize) -> usize {
    let mut allowed = 0;
    for _ in 0..count {
        allowed += usize::from(quotas.count(principal).await.is_ok());
    }
    allowed
}

#[tokio::test(start_paused = true)]
async fn each_principal_has_its_calls_of_the_day_and_is_told_when_the_next_day_begins() {
    let world = World::new();
    let (quotas, ann, bob) = (world.process(10), Principal::named("ann"), Principal::named("bob"));
    assert_eq!(calls(&quotas, &ann, 20).await, 10);
    assert_eq!(calls(&quotas, &Principal::ANONYMOUS, 20).await, 10);
    assert_eq!(calls(&quotas, &bob, 3).await, 3);
    let refused = quotas.count(&ann).await.unwrap_err();
    let now = world.clock.now();
    let wait = refused.retry_after().unwrap();
    assert_eq!(now.after(wait).0 % (24 * 3600 * 1000), 0, "midnight");
    assert_eq!((used(&quotas, &ann).await, used(&quotas, &bob).await), (vec![10], vec![3]));
    tokio::time::advance(wait).await;
    assert_eq!(calls(&quotas, &ann, 20).await, 10, "a new day");
}

#[tokio::test(start_paused = true)]
async fn a_process_goes_on_with_what_the_last_one_has_flushed() {
    let world = World::new();
    let ann = Principal::named("ann");
    let first = world.process(10);
    assert_eq!(calls(&first, &ann, 6).await, 6);
    first.flush().await.unwrap();
    assert_eq!(calls(&first, &ann, 2).await, 2);
    // It is killed: what was counted since the last flush is lost, and no more.
    drop(first);
    let next = world.process(10);
    assert_eq!(used(&next, &ann).await, [6]);
    assert_eq!(calls(&next, &ann, 20).await, 4);
}

#[tokio::test(start_paused = true)]
async fn two_processes_with_one_store_add_up() {
    let world = World::new();
    let ann = Principal::named("ann");
    let (one, other) = (world.process(100), world.process(100));
    assert_eq!((calls(&one, &ann, 10).await, calls(&other, &ann, 20).await), (10, 20));
    one.flush().await.unwrap();
    other.flush().await.unwrap();
    assert_eq!(calls(&one, &ann, 5).await, 5);
    one.flush().await.unwrap();
    assert_eq!(used(&world.process(100), &ann).await, [35]);
}

#[tokio::test(start_paused = true)]
async fn calls_go_on_and_are_counted_while_the_store_is_broken() {
    let world = World::new();
    let ann = Principal::named("ann");
    let quotas = world.process(10);
    world.store.set_broken(true);
    assert_eq!(calls(&quotas, &ann, 4).await, 4);
    quotas.flush().await.unwrap_err();
    assert_eq!(calls(&quotas, &ann, 2).await, 2);
    world.store.set_broken(false);
    quotas.flush().await.unwrap();
    assert_eq!(used(&world.process(10), &ann).await, [6]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_gives_no_second_quota_and_locks_no_caller_out() {
    let world = World::new();
    let ann = Principal::named("ann");
    let quotas = world.process(10);
    assert_eq!(calls(&quotas, &ann, 20).await, 10);
    quotas.flush().await.unwrap();
    world.clock.set_back(DAY);
    assert_eq!(calls(&quotas, &ann, 5).await, 0);
    assert_eq!(calls(&world.process(10), &ann, 5).await, 0, "nor after a restart");
    world.clock.set_ahead(2 * DAY);
    assert_eq!(calls(&quotas, &ann, 20).await, 10);
}

#[tokio::test(start_paused = true)]
async fn records_of_past_days_are_removed() {
    let world = World::new();
    let quotas = world.process(10);
    for number in 0..50 {
        quotas.count(&Principal::named(&number.to_string())).await.unwrap();
    }
    quotas.flush().await.unwrap();
    assert_eq!(world.records().await, 50);
    world.clock.set_ahead(3 * DAY);
    quotas.flush().await.unwrap();
    assert_eq!(world.records().await, 0);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_month_are_counted_beside_those_of_a_day_and_the_longer_wait_is_told() {
    let world = World::new();
    let ann = Principal::named("ann");
    let limits = QuotaLimits { day: Some(10), month: Some(25) };
    let quotas = world.process_with(limits);
    let begin_of_a_month = wait_for_a_month(&world, &quotas, &ann).await;
    assert_eq!(calls(&quotas, &ann, 20).await, 10);
    // A call that the quota of the day refuses does not count for the month.
    assert_eq!(used(&quotas, &ann).await, [10, 10]);
    quotas.flush().await.unwrap();
    for (day, allowed, month) in [(1, 10, 20), (2, 5, 25), (3, 0, 25)] {
        world.clock.set_ahead(DAY);
        // Each day another process: both counts are in the store.
        let quotas = world.process_with(limits);
        assert_eq!(calls(&quotas, &ann, 20).await, allowed, "day {day}");
        assert_eq!(used(&quotas, &ann).await[1], month, "day {day}");
        quotas.flush().await.unwrap();
    }
    let quotas = world.process_with(limits);
    let refused = quotas.count(&ann).await.unwrap_err();
    let end = world.clock.now().after(refused.retry_after().unwrap());
    let days = (end.0 - begin_of_a_month) / (24 * 3600 * 1000);
    assert!((28..=31).contains(&days), "until the month ends: {days}");
    let kept = quotas.usage(&ann).await[1];
    assert_eq!((kept.period, kept.limit, kept.reset), (Period::Month, 25, end));
    world.clock.set_ahead(refused.retry_after().unwrap());
    assert_eq!(calls(&quotas, &ann, 20).await, 10, "a new month");
    assert_eq!(used(&quotas, &ann).await, [10, 10]);
}

/// Turns the clock to the begin of the next month, and returns it.
async fn wait_for_a_month(world: &World, quotas: &Quotas, principal: &Principal) -> u64 {
    let end = quotas.usage(principal).await[1].reset;
    world.clock.set_ahead(end.since(world.clock.now()));
    end.0
}

#[tokio::test(start_paused = true)]
async fn two_processes_add_up_the_calls_of_a_month_and_its_records_go_when_it_is_over() {
    let world = World::new();
    let ann = Principal::named("ann");
    let limits = QuotaLimits { day: None, month: Some(100) };
    let (one, other) = (world.process_with(limits), world.process_with(limits));
    assert_eq!((calls(&one, &ann, 10).await, calls(&other, &ann, 20).await), (10, 20));
    one.flush().await.unwrap();
    other.flush().await.unwrap();
    assert_eq!(used(&world.process_with(limits), &ann).await, [30]);
    world.clock.set_back(DAY);
    assert_eq!(used(&world.process_with(limits), &ann).await, [30], "a clock that is set back");
    world.clock.set_ahead(33 * DAY);
    assert_eq!(used(&world.process_with(limits), &ann).await, [0]);
    one.flush().await.unwrap();
    assert_eq!(world.records().await, 0);
}
