//! Many at once: no change is lost, every conflict is told, nothing succeeds after the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use tenure_session::state::{Edition, Fault, Lost, State, States};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::state::support::{Engine, World, ann, increment, lost, number};

const TASKS: u64 = 64;

/// Makes each of these functions a test on every engine, on several threads.
macro_rules! in_parallel_on_every_engine {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                super::$test(crate::state::support::Engine::memory(), 50).await;
            })+
        }
        mod disk {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $test() {
                super::$test(crate::state::support::Engine::disk(), 10).await;
            })+
        }
    };
}

in_parallel_on_every_engine!(
    of_all_who_saw_the_same_edition_one_wins,
    no_replacement_is_lost,
    no_change_is_lost,
    no_change_is_lost_among_clones,
    nothing_succeeds_after_the_end,
    one_of_many_ends_it,
);

/// Runs something in many tasks at once and gathers what they say.
async fn crowd<T: Send + 'static, F: Future<Output = T> + Send + 'static>(task: impl Fn(u64) -> F) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        tasks.spawn(task(n));
    }
    tasks.join_all().await
}

async fn find(states: &States, state: &State) -> State {
    states.find(&ann(), state.id()).await.unwrap()
}

fn digits(number: u64) -> Bytes {
    number.to_string().into()
}

async fn of_all_who_saw_the_same_edition_one_wins(engine: Engine, rounds: u64) {
    let world = World::new(engine);
    let state = world.make(&ann(), "0").await;
    for round in 0..rounds {
        let together = Arc::new(Barrier::new(TASKS as usize));
        let outcomes = crowd(|n| {
            let (states, state, together) = (world.states.clone(), state.clone(), Arc::clone(&together));
            async move {
                let mine = find(&states, &state).await;
                let (seen, edition) = mine.get::<u64>().unwrap();
                // A number of its own, so that a winner is known by what it wrote.
                let wanted = (seen / 1_000 + 1) * 1_000 + n;
                together.wait().await;
                (wanted, mine.replace(edition, digits(wanted)).await)
            }
        });
        let (won, lost): (Vec<_>, Vec<_>) = outcomes.await.into_iter().partition(|(_, done)| done.is_ok());
        let [(winner, Ok(edition))] = &won[..] else { panic!("one wins: {won:?}") };
        assert_eq!(lost.len() as u64, TASKS - 1);
        for (_, conflict) in lost {
            assert!(matches!(conflict, Err(Fault::Conflict(at)) if at == *edition), "{conflict:?}");
        }
        let now = find(&world.states, &state).await.get::<u64>().unwrap();
        assert_eq!(now, (*winner, Edition(round + 2)));
    }
}

async fn no_replacement_is_lost(engine: Engine, times: u64) {
    let world = World::new(engine);
    let state = world.make(&ann(), "0").await;
    let counts = crowd(|_| {
        let (states, state) = (world.states.clone(), state.clone());
        async move {
            let (mut done, mut conflicts) = (0, 0);
            while done < times {
                let mine = find(&states, &state).await;
                let (seen, edition) = mine.get::<u64>().unwrap();
                // For some task the edition that it read is old when it writes.
                tokio::task::yield_now().await;
                match mine.replace(edition, digits(seen + 1)).await {
                    Ok(now) => {
                        assert_eq!(
                            (now, mine.get::<u64>().unwrap()),
                            (Edition(edition.0 + 1), (seen + 1, now))
                        );
                        done += 1;
                    }
                    Err(Fault::Conflict(at)) => {
                        assert!(at > edition);
                        conflicts += 1;
                    }
                    Err(fault) => panic!("{fault:?}"),
                }
            }
            (done, conflicts)
        }
    });
    let counts = counts.await;
    let done: u64 = counts.iter().map(|(done, _)| done).sum();
    let conflicts: u64 = counts.iter().map(|(_, conflicts)| conflicts).sum();
    let now = find(&world.states, &state).await.get::<u64>().unwrap();
    assert_eq!(now, (done, Edition(done + 1)));
    assert!(conflicts > 0, "no two changes met, so nothing was tried");
}

async fn no_change_is_lost(engine: Engine, times: u64) {
    let world = World::new(engine);
    let state = world.make(&ann(), "0").await;
    let seen = crowd(|_| {
        let (states, state) = (world.states.clone(), state.clone());
        async move {
            let mut seen = Vec::new();
            for _ in 0..times {
                seen.push(increment(&find(&states, &state).await).await.unwrap());
            }
            seen
        }
    });
    let mut seen: Vec<_> = seen.await.concat();
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(1..=TASKS * times), "every number was given out once");
    let now = find(&world.states, &state).await.get::<u64>().unwrap();
    assert_eq!(now, (TASKS * times, Edition(TASKS * times + 1)));
}

async fn no_change_is_lost_among_clones(engine: Engine, times: u64) {
    let world = World::new(engine);
    let state = world.make(&ann(), "0").await;
    let editions = crowd(|_| {
        // All of them see the same, and change it under each other's hands.
        let state = state.clone();
        async move {
            let mut mine = Vec::new();
            while (mine.len() as u64) < times {
                let (seen, edition) = state.get::<u64>().unwrap();
                match state.replace(edition, digits(seen + 1)).await {
                    Ok(now) => mine.push(now),
                    Err(Fault::Conflict(_)) => {}
                    Err(fault) => panic!("{fault:?}"),
                }
            }
            mine
        }
    });
    let mut editions: Vec<_> = editions.await.concat();
    editions.sort_unstable();
    let each = (2..=TASKS * times + 1).map(Edition);
    assert!(editions.into_iter().eq(each), "everyone was told the edition of their own change");
    assert_eq!(number(&find(&world.states, &state).await), TASKS * times);
    assert_eq!(number(&state), TASKS * times, "what is held is the newest that was written through it");
}

async fn nothing_succeeds_after_the_end(engine: Engine, times: u64) {
    let world = World::new(engine);
    let state = world.make(&ann(), "0").await;
    let (ended, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let outcomes = crowd(|n| {
        let (states, state) = (world.states.clone(), state.clone());
        let (ended, changes) = (Arc::clone(&ended), Arc::clone(&changes));
        async move {
            if n == 0 {
                while changes.load(Ordering::SeqCst) < times * 4 {
                    tokio::task::yield_now().await;
                }
                find(&states, &state).await.delete().await.unwrap();
                ended.store(true, Ordering::SeqCst);
                return;
            }
            loop {
                // Whatever begins after the end was told must fail.
                let over = ended.load(Ordering::SeqCst);
                let done = match states.find(&ann(), state.id()).await {
                    Ok(found) if n % 3 > 0 => increment(&found).await.map(drop),
                    found => found.map(drop),
                };
                match done {
                    Ok(()) => {
                        assert!(!over, "it succeeded after the end");
                        changes.fetch_add(1, Ordering::SeqCst);
                    }
                    Err(fault) => {
                        assert_eq!(lost(Err::<(), _>(fault)), Lost::Deleted);
                        return;
                    }
                }
                tokio::task::yield_now().await;
            }
        }
    });
    outcomes.await;
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Deleted);
    assert_eq!(lost(increment(&state).await), Lost::Deleted);
    assert_eq!(world.states.count(), 0);
}

async fn one_of_many_ends_it(engine: Engine, rounds: u64) {
    let world = World::new(engine);
    for _ in 0..rounds {
        let (state, other) = (world.make(&ann(), "0").await, world.make(&ann(), "0").await);
        let outcomes = crowd(|n| {
            let (states, state) = (world.states.clone(), state.clone());
            async move {
                let mine = states.find(&ann(), state.id()).await?;
                if n % 2 == 0 { mine.delete().await } else { mine.revoke().await }
            }
        });
        let outcomes = outcomes.await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        assert_eq!(world.states.count(), 1, "it is counted out once");
        other.delete().await.unwrap();
    }
}
