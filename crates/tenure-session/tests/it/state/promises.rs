//! Whatever a client does and however the store fails: no state is over before the time that was promised, and
//! none lives much longer than it may.

use std::time::Duration;

use proptest::prelude::*;
use tenure_session::port::clock::Time;
use tenure_session::state::{Fault, Lost, State, StateId, StateLimits};

use crate::state::support::{Engine, HOUR, World, ann, increment};

#[derive(Clone, Debug)]
enum Step {
    /// In hundredths of the idle time.
    Wait(u64),
    Find,
    Change,
    Recover,
    /// Looks at the expiry of a state that was found before.
    Ask,
    List,
    /// Writes fail from now on, or work again.
    Break(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..20u64).prop_map(Step::Wait),
        3 => (85..110u64).prop_map(Step::Wait),
        6 => Just(Step::Find),
        2 => Just(Step::Change),
        1 => Just(Step::Recover),
        2 => Just(Step::Ask),
        1 => Just(Step::List),
        2 => any::<bool>().prop_map(Step::Break),
    ]
}

/// What the client may count on, and what it may not.
struct Client {
    world: World,
    id: StateId,
    held: State,
    idle: Duration,
    ends: Option<Time>,
    /// The latest time it was promised.
    promised: Time,
    /// When the state was last used with success.
    used: Time,
    broken: bool,
}

impl Client {
    async fn new(idle: Duration, life: Option<Duration>) -> Self {
        // Nothing is removed meanwhile, so that whatever is over can be told from what never was.
        let limits = StateLimits {
            idle_ttl: Some(idle),
            max_lifetime: life,
            retention: 100_000 * HOUR,
            tombstone_ttl: 100_000 * HOUR,
            ..StateLimits::default()
        };
        let world = World::with(Engine::memory(), limits);
        let held = world.make(&ann(), "0").await;
        let (used, promised) = (world.now(), held.expiry().unwrap());
        let ends = life.map(|life| used.after(life));
        Self { id: held.id(), world, held, idle, ends, promised, used, broken: false }
    }

    fn was_promised(&mut self, until: Option<Time>) {
        self.promised = self.promised.max(until.expect("it does expire"));
    }

    fn used(&mut self) {
        self.used = self.world.now();
    }

    /// The state was there.
    fn alive(&mut self, state: State) {
        let (now, expiry) = (self.world.now(), state.expiry().unwrap());
        assert!(now <= self.used.after(self.idle + self.idle / 16), "it lives too long");
        assert!(self.ends.is_none_or(|ends| now < ends), "it grows too old");
        if !self.broken {
            let due = now.after(self.idle);
            assert_eq!(expiry, self.ends.map_or(due, |ends| due.min(ends)), "less than was agreed");
        }
        self.was_promised(Some(expiry));
        self.held = state;
        self.used();
    }

    /// The state was over, or could not be used.
    fn gone(&self, fault: &Fault) {
        match fault {
            Fault::Lost(Lost::Expired) => assert!(self.world.now() >= self.promised, "a broken promise"),
            Fault::Store(_) => assert!(self.broken),
            other => panic!("{other:?}"),
        }
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Wait(hundredths) => {
                self.world.clock.turn(self.idle * u32::try_from(*hundredths).unwrap() / 100);
            }
            Step::Find => match self.world.states.find(&ann(), self.id).await {
                Ok(state) => self.alive(state),
                Err(fault) => self.gone(&fault),
            },
            Step::Change => match increment(&self.held.clone()).await {
                Ok(_) => self.alive(self.held.clone()),
                Err(fault) => self.gone(&fault),
            },
            Step::Recover => match self.world.states.recover(&ann(), self.id).await {
                Ok((state, recovered)) => {
                    if recovered {
                        assert!(self.world.now() >= self.promised, "a broken promise");
                        self.used();
                    }
                    self.alive(state);
                }
                Err(fault) => self.gone(&fault),
            },
            Step::Ask => self.was_promised(self.held.expiry()),
            Step::List => {
                for listed in self.world.states.list(&ann(), None, 10).await.unwrap().states {
                    self.was_promised(listed.expiry);
                }
            }
            Step::Break(broken) => {
                self.broken = *broken;
                self.world.store.fail_puts(*broken);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_promise_is_broken_and_nothing_outlives_its_time(
        idle in prop_oneof![1..200u64, 1_000..1_000_000u64, 10_000_000..1_000_000_000u64],
        life in prop::option::of(50..500u32),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let idle = Duration::from_millis(idle);
            let mut client = Client::new(idle, life.map(|life| idle * life / 100)).await;
            for step in &steps {
                client.take(step).await;
            }
        });
    }
}
