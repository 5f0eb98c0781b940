//! Records of states, tasks and calls that a newer version wrote: when they are due, they are left to nodes of that version.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tenure_session::SessionKey;
use tenure_session::fingerprint::Fingerprints;
use tenure_session::port::clock::Clock;
use tenure_session::port::store::{Expected, RecordKey, Space, Store};
use tenure_session::state::{StateLimits, States};
use tenure_session::task::{TaskLimits, Tasks};
use tenure_store::memory::Memory;
use tenure_testkit::clock::TurnableClock;
use tokio::time::sleep;

use crate::exchange::support::{Making, World};

#[tokio::test(start_paused = true)]
async fn what_a_newer_version_wrote_is_not_removed_when_it_is_due_and_what_is_broken_is_put_off() {
    let (store, clock) = (Arc::new(Memory::new()), Arc::new(TurnableClock::start()));
    let due = Some(clock.now());
    let spaces = [Space::State, Space::Task, Space::Call];
    let put = async |space, number: u8, value: &'static [u8]| {
        let key = RecordKey { space, key: SessionKey::from_bytes([number; 16]) };
        store.put(key, Bytes::from_static(value), Expected::Absent, due).await.unwrap();
        (key, store.get(key).await.unwrap())
    };
    let mut kept = Vec::new();
    for space in spaces {
        kept.push(put(space, 1, b"\x09of a later version").await);
        put(space, 2, b"\x01").await;
    }
    let states = States::start(store.clone(), clock.clone(), StateLimits::default());
    let tasks = Tasks::start(store.clone(), clock.clone(), TaskLimits::default());
    let noted = Some((store.clone() as Arc<dyn Store>, Fingerprints::default()));
    let calls = World::of(Making { clock: clock.clone(), store: noted, ..Making::default() });
    sleep(Duration::from_secs(60 * 30)).await;
    for (key, before) in kept {
        assert_eq!(store.get(key).await.unwrap(), before, "{}", key.label());
        let all_due = store.expired(key.space, clock.now(), 10).await.unwrap();
        assert_eq!(all_due.iter().map(|(due, _)| *due).collect::<Vec<_>>(), [key], "{}", key.label());
    }
    drop((states, tasks, calls));
}
