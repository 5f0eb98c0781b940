//! What sessions take from the shares of those who begin and wake them.

use std::time::Duration;

use tenure_session::budget::{Budget, BudgetLimits, Peer, Resource};
use tenure_session::{Limits, Principal, Reason};

use crate::support::World;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_session_that_is_woken_is_charged_to_whoever_wakes_it() {
    let limits = Limits { dormant_after: Some(MINUTE), ..Limits::default() };
    let mut world = World::with(limits.clone());
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(*world.session().await.id());
    }
    world.kill(limits);
    let budget = Budget::new(BudgetLimits::default().with(Resource::Sessions, 4).with_share(50));
    let used = |resource: Resource| budget.usage()[resource as usize].used;
    let wake = async |last: u8, number: usize| {
        let share = || Some(budget.share(Peer::at([127, 0, 0, last].into())));
        let found = world.sessions.find_within(share, &ids[number], &Principal::ANONYMOUS).await;
        found.map(drop).map_err(|error| error.reason())
    };
    assert_eq!(wake(2, 0).await, Ok(()));
    assert!(used(Resource::Memory) > 100, "the params of initialize");
    assert_eq!((wake(2, 1).await, used(Resource::Sessions)), (Ok(()), 2));
    assert_eq!(wake(2, 2).await, Err(Reason::TooManySessionsOfPrincipal));
    assert_eq!((world.sessions.tallies().awake, world.sessions.tallies().sessions), (2, 3));
    // It sleeps on, and somebody else may wake it. Those that are awake are charged no more.
    assert_eq!((wake(1, 2).await, wake(1, 0).await, wake(2, 2).await), (Ok(()), Ok(()), Ok(())));
    assert_eq!(used(Resource::Sessions), 3);
    tokio::time::sleep(3 * MINUTE).await;
    assert_eq!(world.sessions.tallies().awake, 0);
    assert_eq!((used(Resource::Sessions), used(Resource::Memory)), (0, 0));
}
