//! After a node was lost its sessions are wanted all at once: they are woken some at a time.

use std::sync::Arc;
use std::time::Duration;

use tenure_session::cluster::{NodeInfo, Roster};
use tenure_session::id::NodeId;
use tenure_session::session::SessionParts;
use tenure_session::{Limits, Principal, Sessions};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tenure_testkit::fake_backend::{FakeBackend, Opens};
use tenure_testkit::memory_members::MemoryMembers;
use tenure_testkit::runtime;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

// B37
#[tokio::test(start_paused = true)]
async fn no_more_sessions_are_woken_at_a_time_than_is_allowed_and_none_is_forgotten() {
    let (store, clock) = (Arc::new(Memory::new()), Arc::new(TurnableClock::start()));
    let members = Arc::new(MemoryMembers::new());
    let node = async || {
        let (backend, script) = FakeBackend::new();
        let roster = Roster::start(members.clone(), clock.clone(), NodeId::random(), NodeInfo::default());
        roster.confirmed().await.unwrap();
        let limits = Limits { max_parallel_wakes: 2, initialize_timeout: SECOND * 5, ..Limits::default() };
        let parts = SessionParts {
            store: store.clone(),
            backend: backend.clone(),
            clock: clock.clone(),
            limits,
            roster: Some(roster.clone()),
        };
        (Sessions::start(parts), roster, backend, script)
    };
    let (first, roster, _backend, _script) = node().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(*runtime::session(&first, "2025-11-25").await.id());
    }
    // Its sessions may be taken at once.
    roster.leave().await;
    let (second, _roster, backend, _script) = node().await;
    backend.set_opens(Opens::Hangs);
    let find = |id| {
        let sessions = second.clone();
        tokio::spawn(async move { sessions.find(&id, &Principal::ANONYMOUS).await.is_ok() })
    };
    let hanging = [find(ids[0]), find(ids[1])];
    tokio::time::sleep(SECOND).await;
    backend.set_opens(Opens::Well);
    let began = Instant::now();
    let others: Vec<_> = ids[2..].iter().map(|id| find(*id)).collect();
    for found in others {
        assert!(found.await.unwrap(), "it waited for its turn");
    }
    assert!(began.elapsed() >= SECOND * 3, "{:?}", began.elapsed());
    for found in hanging {
        assert!(!found.await.unwrap(), "its server did not start in time");
    }
}
