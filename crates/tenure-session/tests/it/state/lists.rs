//! Lists, page by page: each state exactly once, only the caller's, whatever happens between the pages.

use std::collections::{HashMap, HashSet};

use tenure_protocol::Reason;
use tenure_session::Principal;
use tenure_session::state::{About, Edition, NewState, StateId, StateInfo};

use crate::state::support::{Engine, HOUR, World, ann, bob, holding, increment, kind, on_every_engine};

on_every_engine!(
    pages_show_each_state_of_the_caller_exactly_once,
    ends_between_pages_do_not_break_a_list,
    operators_see_everything_exactly_once,
    a_list_tells_what_is_known_of_a_state,
);

fn owners() -> [Principal; 3] {
    [ann(), bob(), Principal::named("carol")]
}

/// A thousand states of three owners.
async fn crowd(world: &World) -> HashMap<Principal, HashSet<StateId>> {
    let mut all: HashMap<Principal, HashSet<StateId>> = HashMap::new();
    for n in 0..1_000 {
        let owner = &owners()[n % 3];
        all.entry(owner.clone()).or_default().insert(world.make(owner, "1").await.id());
    }
    all
}

/// All pages of a list, with something done after each.
async fn pages(
    world: &World,
    owner: &Principal,
    limit: usize,
    mut between: impl AsyncFnMut(&[StateInfo]),
) -> Vec<StateInfo> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = world.states.list(owner, after, limit).await.unwrap();
        assert!(page.states.len() == limit || (page.next.is_none() && page.states.len() < limit));
        between(&page.states).await;
        all.extend(page.states);
        match page.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

fn ids(listed: &[StateInfo]) -> HashSet<StateId> {
    let ids: HashSet<_> = listed.iter().map(|listed| listed.id.unwrap()).collect();
    assert_eq!(ids.len(), listed.len(), "one came twice");
    ids
}

async fn pages_show_each_state_of_the_caller_exactly_once(engine: Engine) {
    let world = World::new(engine);
    let all = crowd(&world).await;
    for owner in owners() {
        for limit in [1, 7, 100, 333, 334, 1_000] {
            let listed = pages(&world, &owner, limit, async |_| {}).await;
            assert_eq!(ids(&listed), all[&owner], "{owner:?}, by {limit}");
            assert!(listed.iter().all(|listed| listed.owner.as_deref() == owner.name()));
            assert!(listed.is_sorted_by_key(|listed| listed.key));
        }
    }
    for listed in pages(&world, &ann(), 100, async |_| {}).await {
        world.states.find(&ann(), listed.id.unwrap()).await.expect("a list's ids can be used");
    }
    let of_dora = world.states.list(&Principal::named("dora"), None, 10).await.unwrap();
    assert!(of_dora.states.is_empty() && of_dora.next.is_none());
}

async fn ends_between_pages_do_not_break_a_list(engine: Engine) {
    let world = World::new(engine);
    let all = crowd(&world).await;
    let (mut left, mut deleted) = (all[&ann()].clone(), HashSet::new());
    // After each page its last one goes, where the next begins, and another one from anywhere.
    let owner = ann();
    let listed = pages(&world, &owner, 10, async |page| {
        let anywhere = *left.iter().next().unwrap();
        for id in [page.last().unwrap().id.unwrap(), anywhere] {
            if left.remove(&id) {
                world.states.find(&ann(), id).await.unwrap().delete().await.unwrap();
                deleted.insert(id);
            }
        }
        world.make(&bob(), "1").await;
    });
    let seen = ids(&listed.await);
    assert!(deleted.len() > 30, "{} were deleted", deleted.len());
    assert!(seen.is_superset(&left), "one that was there all the time was left out");
    assert!(seen.is_subset(&all[&ann()]), "one came out of nowhere");
    let now = pages(&world, &ann(), 64, async |_| {}).await;
    assert_eq!(ids(&now), left);
}

async fn operators_see_everything_exactly_once(engine: Engine) {
    let world = World::new(engine);
    let mut labels = HashSet::new();
    for n in 0..600 {
        let owner = [ann(), bob(), Principal::ANONYMOUS][n % 3].clone();
        let state = world.make(&owner, "1").await;
        labels.insert(state.label());
        match n % 10 {
            3 => state.delete().await.unwrap(),
            4 => state.revoke().await.unwrap(),
            _ => {}
        }
    }
    for limit in [50, 256, 600, 1_000] {
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = world.states.list_all(after, limit).await.unwrap();
            seen.extend(page.states);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen.len(), 600, "by {limit}");
        assert_eq!(seen.iter().map(StateInfo::label).collect::<HashSet<_>>(), labels);
        let ended = |why| seen.iter().filter(|listed| listed.end == Some(why)).count();
        assert_eq!((ended(Reason::SessionDeleted), ended(Reason::SessionRevoked)), (60, 60));
    }
}

async fn a_list_tells_what_is_known_of_a_state(engine: Engine) {
    let world = World::new(engine);
    let about = About { label: Some("mine".into()), data: serde_json::from_str(r#"{"a":1}"#).ok() };
    let state = world.states.create(&ann(), NewState { about, ..holding("1234") }).await.unwrap();
    let created = world.now();
    world.clock.turn(HOUR / 4);
    increment(&state).await.unwrap();
    let [listed] = &world.states.list(&ann(), None, 10).await.unwrap().states[..] else { panic!("one") };
    assert_eq!((listed.id, &*listed.kind), (Some(state.id()), kind().as_str()));
    assert_eq!((listed.created, listed.used), (created, world.now()));
    assert_eq!((listed.edition, listed.bytes, listed.end), (Edition(2), 4, None));
    assert_eq!(listed.expiry, state.expiry());
    assert_eq!(listed.label(), state.label());
    assert_eq!(listed.about.label.as_deref(), Some("mine"));
    assert_eq!(listed.about.data.as_ref().unwrap().get(), r#"{"a":1}"#);
    // An expired state is not listed to clients, but operators see it.
    world.clock.turn(HOUR);
    assert!(world.states.list(&ann(), None, 10).await.unwrap().states.is_empty());
    let [listed] = &world.states.list_all(None, 10).await.unwrap().states[..] else { panic!("one") };
    assert_eq!(listed.end, Some(Reason::SessionExpired));
}
