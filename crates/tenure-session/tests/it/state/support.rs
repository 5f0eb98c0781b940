//! What these tests share: states on an engine, behind a store that can fail, with a clock that stands still.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tenure_session::Principal;
use tenure_session::port::clock::{Clock, Time};
use tenure_session::port::store::Store;
use tenure_session::state::{Fault, Lost, NewState, State, StateKind, StateLimits, States};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::clock::HandClock;
use tenure_testkit::faulty::Faulty;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

/// Where states are kept.
pub(crate) enum Engine {
    Memory(Arc<dyn Store>),
    Disk(TempDir),
}

impl Engine {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::new(Memory::new()))
    }

    pub(crate) fn disk() -> Self {
        Self::Disk(TempDir::new().unwrap())
    }

    /// What is there. A folder can be opened by one at a time.
    pub(crate) fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store),
            Self::Disk(folder) => Arc::new(Disk::open(folder.path(), Sync::Os).unwrap()),
        }
    }
}

/// Makes each of these functions a test on every engine.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test(crate::state::support::Engine::memory()).await;
            })+
        }
        mod disk {
            $(#[tokio::test(start_paused = true)]
            async fn $test() {
                super::$test(crate::state::support::Engine::disk()).await;
            })+
        }
    };
}
pub(crate) use on_every_engine;

pub(crate) struct World {
    pub(crate) states: States,
    pub(crate) store: Arc<Faulty>,
    pub(crate) clock: Arc<HandClock>,
    engine: Engine,
}

impl World {
    pub(crate) fn new(engine: Engine) -> Self {
        Self::with(engine, StateLimits::default())
    }

    pub(crate) fn with(engine: Engine, limits: StateLimits) -> Self {
        Self::at(engine, Arc::new(HandClock::start()), limits)
    }

    fn at(engine: Engine, clock: Arc<HandClock>, limits: StateLimits) -> Self {
        let store = Arc::new(Faulty::new(engine.open()));
        let states = States::start(store.clone(), clock.clone(), limits);
        Self { states, store, clock, engine }
    }

    /// Another process on the same engine. A state of the old one that is still held keeps the folder locked.
    pub(crate) async fn reopened(self) -> Self {
        let Self { states, store, clock, engine } = self;
        states.stop().await;
        let limits = states.limits().clone();
        drop((states, store));
        // A process does not start in the moment in which the one before it wrote last.
        clock.turn(SECOND);
        Self::at(engine, clock, limits)
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) async fn make(&self, owner: &Principal, data: &'static str) -> State {
        self.states.create(owner, holding(data)).await.unwrap()
    }
}

pub(crate) fn ann() -> Principal {
    Principal::named("ann")
}

pub(crate) fn bob() -> Principal {
    Principal::named("bob")
}

pub(crate) fn kind() -> StateKind {
    StateKind::new("basket").unwrap()
}

pub(crate) fn holding(data: &'static str) -> NewState {
    NewState { data: Bytes::from_static(data.as_bytes()), ..NewState::of(kind()) }
}

/// The number that a state holds.
pub(crate) fn number(state: &State) -> u64 {
    state.get::<u64>().unwrap().0
}

/// Adds one to the number that a state holds.
pub(crate) async fn increment(state: &State) -> Result<u64, Fault> {
    let added = state.change(|number: &mut u64| {
        *number += 1;
        Ok::<_, ()>(*number)
    });
    added.await.map(Result::unwrap)
}

/// Why there is no state.
pub(crate) fn lost<T: std::fmt::Debug>(outcome: Result<T, Fault>) -> Lost {
    match outcome {
        Err(Fault::Lost(lost)) => lost,
        other => panic!("a lost state, not {other:?}"),
    }
}
