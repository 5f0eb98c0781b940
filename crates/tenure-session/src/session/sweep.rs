//! Handles records past their deadline: ends expired sessions, deletes tombstones.
//!
//! The store lists the records that are due; no others are read. The interval does not matter to clients, because a
//! session counts as ended from its deadline on. At the start, the sessions of earlier processes are counted once, in
//! the background.

use std::sync::Arc;
use std::time::Duration;

use crate::id::Principal;
use crate::port::store::{Expected, Record, RecordKey, Space, StoreError, Version};
use crate::record::{EndCause, StoredSession};
use crate::session::sessions::SessionRuntime;
use crate::take_back::is_due;

/// Delay before an unreadable record is tried again.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(60 * 60);

/// Most records that are listed at a time.
const PAGE: usize = 256;

/// Runs until the runtime stops.
pub(super) async fn run(inner: Arc<SessionRuntime>) {
    let work = async {
        let limits = &inner.limits;
        let shortest = limits.idle_ttl.unwrap_or(limits.tombstone_ttl).min(limits.tombstone_ttl);
        let every = (shortest / 8).clamp(Duration::from_secs(1), Duration::from_secs(5 * 60));
        loop {
            if let Err(error) = count(&inner).await {
                tracing::warn!(%error, "could not count the sessions in the store; will go on later");
            }
            if let Err(error) = sweep(&inner).await {
                tracing::warn!(%error, "could not remove expired records; will try again later");
            }
            tokio::time::sleep(every).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = inner.stop.cancelled() => {}
    }
}

/// Counts the sessions of earlier processes, once.
async fn count(inner: &SessionRuntime) -> Result<(), StoreError> {
    let owner_of = |record: &Record| match StoredSession::decode(&record.value) {
        Ok(StoredSession::Session(session)) => {
            Some(session.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named))
        }
        _ => None,
    };
    inner.counts.count(inner.store.as_ref(), Space::Session, owner_of).await
}

async fn sweep(inner: &Arc<SessionRuntime>) -> Result<(), StoreError> {
    loop {
        let now = inner.clock.now();
        let due = inner.store.expired(Space::Session, now, PAGE).await?;
        let full = due.len() == PAGE;
        let (mut moved, mut failed) = (false, None);
        for (key, version) in due {
            let Some(_in_hand) = inner.avoided.take(key) else { continue };
            match handle(inner, key, version).await {
                Ok(gone) => moved |= gone,
                // A record that fails does not stop the others.
                Err(error) => failed = Some(error),
            }
        }
        // Without progress the store would list the same page again.
        if full && moved {
            continue;
        }
        return failed.map_or(Ok(()), Err);
    }
}

/// Handles one record that is due. Returns true if the record is no longer due.
async fn handle(inner: &Arc<SessionRuntime>, key: RecordKey, version: Version) -> Result<bool, StoreError> {
    if let Some(session) = inner.live.by_key(&key.key) {
        // The deadline queue checks sessions in memory; only the record is old.
        session.save(&mut session.state.lock());
        return Ok(false);
    }
    if inner.waking.contains(&key.key) {
        return Ok(false);
    }
    // The record may have changed since it was listed. All writes below expect this version.
    let Some(record) = inner.store.get(key).await?.filter(|record| record.version == version) else {
        return Ok(false);
    };
    if !is_due(&record, inner.clock.now()) {
        return Ok(false);
    }
    match StoredSession::decode(&record.value) {
        Ok(StoredSession::Session(mut session)) => {
            let due = crate::settings::due(&session, record.deadline, &inner.limits);
            if due.is_none_or(|due| inner.clock.now() < due) {
                // The record was written with a shorter idle time than the one in force now.
                (session.ttl_ms, session.idle_ms) = crate::settings::IdleTtl::Default.noted(&inner.limits);
                return match inner.store.put(key, session.encode(), Expected::Version(version), due).await {
                    Ok(_) => Ok(true),
                    Err(StoreError::Conflict { .. }) => Ok(false),
                    Err(error) => Err(error),
                };
            }
            let dormant = crate::session::wake::Dormant { key: key.key, version, record: session };
            inner.end_dormant(&dormant, EndCause::Expired).await
        }
        Ok(StoredSession::Tombstone(_)) => {
            // The events were dropped at the end of the session, unless the process crashed at that moment.
            inner.store.drop_session(key.key).await?;
            match inner.store.delete(key, version).await {
                Ok(()) => Ok(true),
                Err(StoreError::Conflict { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        }
        Err(error) => {
            tracing::error!(session = ?key.key, %error, "a record that is due cannot be read; left as it is");
            // Postpone it, so that it does not block the records behind it.
            let later = inner.clock.now().after(UNREADABLE_AGAIN);
            match inner.store.put(key, record.value, Expected::Version(version), Some(later)).await {
                Ok(_) => Ok(true),
                Err(StoreError::Conflict { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        }
    }
}
