//! The clauses that have to hold while others write: every test here runs a writer on a thread of its own.
//!
//! The moment that a test has to hit is short, so every test makes many tries.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Expected, RecordKey, Space, Version};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{Shared, bytes, key};

/// Writes on a thread of its own, so that it also meets the reader of an engine without threads.
fn beside(rounds: usize, mut round: impl AsyncFnMut(usize) + Send + 'static) -> JoinHandle<()> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        runtime.block_on(async {
            for number in 0..rounds {
                round(number).await;
            }
        });
    })
}

pub(super) async fn clause_5_expired_names_the_version_that_is_due(store: Shared) {
    const NOW: Time = Time(1_000);
    const KEYS: usize = 128;
    // Versions are unique per record, so both tell which write it was.
    let deadlines: Arc<Mutex<HashMap<(RecordKey, Version), Time>>> = Arc::default();
    let mut records: Vec<_> =
        (0..KEYS).map(|_| (RecordKey { space: Space::State, key: key() }, Expected::Absent)).collect();
    let (renewing, written) = (Arc::clone(&store), Arc::clone(&deadlines));
    let writer = beside(16, async move |round| {
        let deadline = if round % 2 == 0 { Time(1) } else { Time(1_000_000) };
        for (key, expected) in &mut records {
            let version = renewing.put(*key, bytes("x"), *expected, Some(deadline)).await.expect("puts");
            written.lock().insert((*key, version), deadline);
            *expected = Expected::Version(version);
        }
    });
    let mut listed = Vec::new();
    while !writer.is_finished() {
        listed.extend(store.expired(Space::State, NOW, 2 * KEYS).await.expect("lists"));
    }
    writer.await.expect("writes");
    let deadlines = deadlines.lock();
    let renewed = listed.iter().filter(|due| deadlines[due] > NOW).count();
    assert_eq!(renewed, 0, "of {} that were listed as due, so many were renewed", listed.len());
}
