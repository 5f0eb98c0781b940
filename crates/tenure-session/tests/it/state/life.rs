//! A state from its making to its end: read, changed, forked, deleted, revoked.

use bytes::Bytes;
use serde_json::{Value, json};
use tenure_protocol::Reason;
use tenure_session::Principal;
use tenure_session::state::{About, Edition, Fault, Lost, NewState, StateId};

use crate::state::support::{Engine, World, ann, holding, increment, kind, lost, number, on_every_engine};

on_every_engine!(
    what_is_made_is_found_as_it_was,
    a_change_names_the_edition_it_saw,
    what_a_change_refuses_is_not_written,
    both_names_lead_to_the_same_state_and_die_with_it,
    a_fork_goes_its_own_way,
    what_has_ended_cannot_be_changed_forked_or_ended_again,
    an_operator_ends_a_state_by_its_key,
    nothing_of_an_ended_state_is_left_but_that_it_was,
);

async fn what_is_made_is_found_as_it_was(engine: Engine) {
    let world = World::new(engine);
    let about = About { label: Some("mine".into()), data: serde_json::from_str(r#"{ "a":1.50 }"#).ok() };
    let data = Bytes::from_static(b"\x00\xff not JSON");
    let new = NewState { about, data: data.clone(), ..holding("") };
    let made = world.states.create(&ann(), new).await.unwrap();
    let found = world.states.find(&ann(), made.id()).await.unwrap();
    assert_eq!((found.data(), found.kind(), found.id()), ((data, Edition(1)), kind(), made.id()));
    assert_eq!(found.about().label.as_deref(), Some("mine"));
    assert_eq!(found.about().data.unwrap().get(), r#"{ "a":1.50 }"#);
    assert_eq!((found.expiry(), found.label()), (made.expiry(), made.label()));
    assert!(found.is_alive() && !found.was_written());
    assert!(matches!(found.get::<Value>(), Err(Fault::Shape(_))), "it is not JSON");
    assert_eq!(world.states.count(), 1);
    let empty = world.make(&ann(), "").await;
    assert_eq!(empty.get::<Vec<u8>>().unwrap(), (Vec::new(), Edition(1)));
}

async fn a_change_names_the_edition_it_saw(engine: Engine) {
    let world = World::new(engine);
    let first = world.make(&ann(), "1").await;
    let second = world.states.find(&ann(), first.id()).await.unwrap();
    assert_eq!(first.update(Edition(1), &2).await.unwrap(), Edition(2));
    assert_eq!(number(&first), 2);
    assert_eq!(number(&second), 1, "what was read is kept");
    let late = second.replace(Edition(1), Bytes::from_static(b"9")).await;
    assert!(matches!(late, Err(Fault::Conflict(Edition(2)))), "{late:?}");
    let error = late.unwrap_err().to_error();
    assert_eq!(error.reason(), Reason::Conflict);
    assert_eq!(number(&second), 2, "the loser reads the winner's data");
    assert_eq!(second.replace(Edition(2), Bytes::from_static(b"3")).await.unwrap(), Edition(3));
    assert!(matches!(first.update(Edition(7), &9).await, Err(Fault::Conflict(Edition(3)))));
    assert_eq!(increment(&first).await.unwrap(), 4);
    assert!(first.was_written() && second.was_written());
    let found = world.states.find(&ann(), first.id()).await.unwrap();
    assert_eq!(found.data(), (Bytes::from_static(b"4"), Edition(4)));
}

async fn what_a_change_refuses_is_not_written(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "1").await;
    let puts = world.store.puts();
    let refused = state.change(|number: &mut u64| {
        *number = 99;
        Err::<(), _>("no")
    });
    assert_eq!(refused.await.unwrap(), Err("no"));
    assert_eq!((number(&state), world.store.puts()), (1, puts));
    let shape = state.change(|_: &mut Vec<u8>| Ok::<_, ()>(())).await;
    assert!(matches!(shape, Err(Fault::Shape(_))), "{shape:?}");
    let found = world.states.find(&ann(), state.id()).await.unwrap();
    assert_eq!(found.data(), (Bytes::from_static(b"1"), Edition(1)));
}

async fn both_names_lead_to_the_same_state_and_die_with_it(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "1").await;
    let (cookie, handle) = (state.id().cookie(), state.id().handle(&kind()));
    let names = [StateId::from_cookie(&cookie).unwrap(), StateId::from_handle(&kind(), &handle).unwrap()];
    for name in names {
        increment(&world.states.find(&ann(), name).await.unwrap()).await.unwrap();
    }
    for name in names {
        assert_eq!(number(&world.states.find(&ann(), name).await.unwrap()), 3);
    }
    world.states.find(&ann(), names[1]).await.unwrap().delete().await.unwrap();
    for name in names {
        assert_eq!(lost(world.states.find(&ann(), name).await), Lost::Deleted);
    }
    assert_eq!(world.states.count(), 0);
}

async fn a_fork_goes_its_own_way(engine: Engine) {
    let world = World::new(engine);
    let about = About { label: Some("parent".into()), data: serde_json::from_str("{}").ok() };
    let parent = world.states.create(&ann(), NewState { about, ..holding("5") }).await.unwrap();
    increment(&parent).await.unwrap();
    let child = parent.fork(Some("child".into())).await.unwrap();
    let namesake = parent.fork(None).await.unwrap();
    assert_eq!((number(&child), number(&namesake), world.states.count()), (6, 6, 3));
    assert_eq!(child.kind(), kind());
    assert_eq!(child.about().label.as_deref(), Some("child"));
    assert_eq!(namesake.about().label.as_deref(), Some("parent"));
    assert_eq!(child.about().data.unwrap().get(), "{}");
    increment(&child).await.unwrap();
    assert_eq!(number(&world.states.find(&ann(), parent.id()).await.unwrap()), 6);
    parent.delete().await.unwrap();
    assert_eq!(number(&world.states.find(&ann(), child.id()).await.unwrap()), 7);
    assert_eq!(number(&world.states.find(&ann(), namesake.id()).await.unwrap()), 6);
    assert_eq!(lost(world.states.find(&Principal::ANONYMOUS, child.id()).await), Lost::NotFound);
}

async fn what_has_ended_cannot_be_changed_forked_or_ended_again(engine: Engine) {
    let world = World::new(engine);
    let state = world.make(&ann(), "1").await;
    // One that knows of the end, one that saw the newest edition, and one that saw an older one.
    let newest = world.states.find(&ann(), state.id()).await.unwrap();
    let older = world.states.find(&ann(), state.id()).await.unwrap();
    increment(&newest).await.unwrap();
    state.delete().await.unwrap();
    for held in [&state, &newest, &older] {
        assert_eq!(lost(held.replace(Edition(1), Bytes::new()).await), Lost::Deleted);
        let (_, seen) = held.data();
        assert_eq!(lost(held.replace(seen, Bytes::new()).await), Lost::Deleted);
        assert_eq!(lost(held.delete().await), Lost::Deleted);
        assert_eq!(lost(held.revoke().await), Lost::Deleted);
        assert_eq!(lost(held.fork(None).await), Lost::Deleted);
        assert!(!held.is_alive());
    }
    assert_eq!(world.states.count(), 0);
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Deleted);
}

async fn an_operator_ends_a_state_by_its_key(engine: Engine) {
    let world = World::new(engine);
    let (state, other) = (world.make(&ann(), "1").await, world.make(&Principal::ANONYMOUS, "2").await);
    let all = world.states.list_all(None, 10).await.unwrap().states;
    let key = all.iter().find(|listed| listed.label() == state.label()).unwrap().key;
    world.states.revoke(key).await.unwrap();
    assert_eq!(lost(world.states.find(&ann(), state.id()).await), Lost::Revoked);
    assert_eq!(lost(world.states.recover(&ann(), state.id()).await), Lost::Revoked);
    assert_eq!(lost(world.states.revoke(key).await), Lost::Revoked);
    assert_eq!(lost(increment(&state).await), Lost::Revoked);
    assert_eq!(world.states.count(), 1);
    world.states.find(&Principal::ANONYMOUS, other.id()).await.unwrap();
    let mut nowhere = *key.as_bytes();
    nowhere[15] ^= 1;
    let nowhere = tenure_session::SessionKey::from_bytes(nowhere);
    assert_eq!(lost(world.states.revoke(nowhere).await), Lost::NotFound);
}

async fn nothing_of_an_ended_state_is_left_but_that_it_was(engine: Engine) {
    let world = World::new(engine);
    let about =
        About { label: Some("secret label".into()), data: serde_json::from_str(r#""secret about""#).ok() };
    let state = world.states.create(&ann(), NewState { about, ..holding("\"secret data\"") }).await.unwrap();
    state.delete().await.unwrap();
    assert!(state.data().0.is_empty());
    let [listed] = &world.states.list_all(None, 10).await.unwrap().states[..] else { panic!("a tombstone") };
    assert_eq!((listed.end, listed.bytes), (Some(Reason::SessionDeleted), 0));
    assert!(listed.id.is_none() && listed.about.label.is_none() && listed.about.data.is_none());
    let space = tenure_session::port::store::Space::State;
    let records = tenure_session::port::store::Store::list(&*world.store, space, None, 10).await.unwrap();
    let kept = String::from_utf8_lossy(&records[0].1.value).into_owned();
    assert!(!kept.contains("secret") && !kept.contains("sess-"), "{kept}");
}

#[tokio::test]
async fn a_change_never_sees_what_an_ended_state_does_not_hold_any_more() {
    let world = World::new(Engine::memory());
    let state = world.make(&ann(), r#"{"money":5}"#).await;
    let older = world.states.find(&ann(), state.id()).await.unwrap();
    state.update(Edition(1), &json!({ "money": 7 })).await.unwrap();
    let knowing = state.clone();
    state.delete().await.unwrap();
    for held in [older, knowing] {
        let spent = held.change(|purse: &mut Value| {
            // A refusal would tell the client of an empty purse, though the state is gone.
            if purse["money"].is_null() { Err("no money") } else { Ok(()) }
        });
        assert_eq!(lost(spent.await), Lost::Deleted);
    }
}
