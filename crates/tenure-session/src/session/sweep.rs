//! What becomes of records that nobody comes back for: expired sessions are ended, tombstones are removed.
//!
//! The store lists what is due by its deadline; nothing else is looked at. How often does not matter to
//! clients, because a record that is due counts as ended from that moment. At the start, sessions that an
//! earlier process left are counted once, in the background.

use std::sync::Arc;
use std::time::Duration;

use crate::id::Principal;
use crate::port::store::{Expected, Record, RecordKey, Space, StoreError, Version};
use crate::record::{End, Kept};
use crate::session::sessions::Inner;
use crate::take_back::is_due;

/// When a record that cannot be read is tried again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(60 * 60);

/// How many records are handled at a time.
const PAGE: usize = 256;

/// Runs until the runtime stops.
pub(super) async fn run(inner: Arc<Inner>) {
    let work = async {
        let limits = &inner.limits;
        let shortest = limits.idle_ttl.unwrap_or(limits.tombstone_ttl).min(limits.tombstone_ttl);
        let every = (shortest / 8).clamp(Duration::from_secs(1), Duration::from_secs(5 * 60));
        loop {
            if let Err(error) = count(&inner).await {
                tracing::warn!(%error, "could not count the sessions in the store; going on later");
            }
            if let Err(error) = sweep(&inner).await {
                tracing::warn!(%error, "could not remove what has expired; trying again later");
            }
            tokio::time::sleep(every).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = inner.stop.cancelled() => {}
    }
}

/// Counts the sessions that an earlier process left, once.
async fn count(inner: &Inner) -> Result<(), StoreError> {
    let owner_of = |record: &Record| match Kept::decode(&record.value) {
        Ok(Kept::Session(session)) => {
            Some(session.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named))
        }
        _ => None,
    };
    inner.census.count(inner.store.as_ref(), Space::Session, owner_of).await
}

async fn sweep(inner: &Arc<Inner>) -> Result<(), StoreError> {
    loop {
        let now = inner.clock.now();
        let due = inner.store.expired(Space::Session, now, PAGE).await?;
        let full = due.len() == PAGE;
        let (mut moved, mut failed) = (false, None);
        for (key, version) in due {
            let Some(_in_hand) = inner.avoided.take(key) else { continue };
            match handle(inner, key, version).await {
                Ok(gone) => moved |= gone,
                // One that cannot be dealt with does not hold up the others.
                Err(error) => failed = Some(error),
            }
        }
        // Without progress the same page would come again and again.
        if full && moved {
            continue;
        }
        return failed.map_or(Ok(()), Err);
    }
}

/// Deals with one record that is due; true if that took it off the list.
async fn handle(inner: &Arc<Inner>, key: RecordKey, version: Version) -> Result<bool, StoreError> {
    if let Some(session) = inner.live.by_key(&key.key) {
        // It looks after itself; only its record was not written for a while.
        session.save(&mut session.state.lock());
        return Ok(false);
    }
    if inner.waking.contains(&key.key) {
        return Ok(false);
    }
    // The list may be older than the record. Everything below is done to this version, or not at all.
    let Some(record) = inner.store.get(key).await?.filter(|record| record.version == version) else {
        return Ok(false);
    };
    if !is_due(&record, inner.clock.now()) {
        return Ok(false);
    }
    match Kept::decode(&record.value) {
        Ok(Kept::Session(mut session)) => {
            let due = crate::session::idle_ttl::due(&session, record.deadline, &inner.limits);
            if due.is_none_or(|due| inner.clock.now() < due) {
                // It was written with a shorter idle time than is in force now.
                (session.ttl_ms, session.idle_ms) =
                    crate::session::idle_ttl::IdleTtl::Default.noted(&inner.limits);
                return match inner.store.put(key, session.encode(), Expected::Version(version), due).await {
                    Ok(_) => Ok(true),
                    Err(StoreError::Conflict { .. }) => Ok(false),
                    Err(error) => Err(error),
                };
            }
            let dormant = crate::session::wake::Dormant { key: key.key, version, record: session };
            inner.end_dormant(&dormant, End::Expired).await
        }
        Ok(Kept::Tombstone(_)) => {
            // Its events went when it ended, unless the process did too at that very moment.
            inner.store.drop_session(key.key).await?;
            match inner.store.delete(key, version).await {
                Ok(()) => Ok(true),
                Err(StoreError::Conflict { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        }
        Err(error) => {
            tracing::error!(session = ?key.key, %error, "a record that is due cannot be read; left as it is");
            // Out of the way of those behind it, until it is looked at again.
            let later = inner.clock.now().after(UNREADABLE_AGAIN);
            match inner.store.put(key, record.value, Expected::Version(version), Some(later)).await {
                Ok(_) => Ok(true),
                Err(StoreError::Conflict { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        }
    }
}
