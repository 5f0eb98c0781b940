//! Tasks of several nodes on one store.

use std::sync::Arc;

use tenure_session::Route;
use tenure_session::cluster::{NodeInfo, Place, Roster};
use tenure_session::id::NodeId;
use tenure_testkit::memory_members::MemoryMembers;

use crate::tasks::support::{Engine, SECOND, World, ann};

#[tokio::test(start_paused = true)]
async fn a_task_is_left_to_its_node_while_that_is_there_and_has_failed_when_it_is_gone() {
    let members = Arc::new(MemoryMembers::new());
    let mut one = World::new(Engine::memory());
    let two = one.beside();
    let roster = |world: &World| {
        Roster::start(members.clone(), world.clock.clone(), NodeId::random(), NodeInfo::default())
    };
    let (first, second) = (roster(&one), roster(&two));
    one.tasks.join(first.clone());
    two.tasks.join(second.clone());
    first.confirmed().await.unwrap();
    second.confirmed().await.unwrap();
    let (id, _asked) = one.task(&ann()).await;
    assert_eq!(two.get(&ann(), &id).await["result"]["status"], "working");
    let place = two.tasks.place(&ann(), &Route::MAIN, &id).await.unwrap();
    assert_eq!(place, Place::There(first.node()));
    assert_eq!(one.tasks.place(&ann(), &Route::MAIN, &id).await.unwrap(), Place::Here);
    let refused = two.cancel(&ann(), &id).await;
    assert_eq!(refused["error"]["data"]["reason"], "store_unavailable", "{refused}");
    assert_eq!(one.get(&ann(), &id).await["result"]["status"], "working");
    first.leave().await;
    tokio::time::sleep(SECOND * 2).await;
    let seen = two.get(&ann(), &id).await;
    assert_eq!(seen["result"]["status"], "failed", "{seen}");
    assert_eq!(seen["result"]["error"]["data"]["reason"], "interrupted", "{seen}");
}
