//! Copies everything that clients rely on from one store to another, across engines and keys.
//!
//! Records keep their deadlines and events keep their positions, so the ids that clients hold stay valid. The copy
//! leaves out the store's own records ([`Space::Store`]) and the owners of sessions: on the target every session waits
//! for its first claim. No other process should write to either store during the copy. At most one page of records and
//! the events of one session are in memory at a time. This file looks into a record only to find the log that a record
//! of rmcp names.

use tenure_session::id::{Position, SessionKey};
use tenure_session::port::store::{
    EntryPlace, Expected, ReadLimit, RecordKey, SavedLog, SavedStream, Space, Store, StoreError, Surveyed,
};

/// Records that are listed at once.
const PAGE: usize = 64;

/// Events that are read at once.
const STRETCH: ReadLimit = ReadLimit { events: 512, bytes: 4 << 20 };

/// What was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyTotals {
    /// Records, of all spaces.
    pub records: u64,
    /// Streams.
    pub streams: u64,
    /// Events on them.
    pub events: u64,
    /// Bytes of records and events.
    pub bytes: u64,
}

/// How far a copy has come; reported after every record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyProgress {
    /// Which space is being copied.
    pub space: Space,
    /// What was copied until now.
    pub totals: CopyTotals,
}

/// Why a copy failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The target has records.
    #[error("the target already has records; copy into a new store")]
    NotEmpty,
    /// The source did not answer.
    #[error("could not read {what}")]
    Read {
        /// What was to be read.
        what: String,
        /// Why not.
        #[source]
        cause: StoreError,
    },
    /// The target did not take it.
    #[error("could not write {what}")]
    Write {
        /// What was to be written.
        what: String,
        /// Why not.
        #[source]
        cause: StoreError,
    },
}

/// Copies a store into one that has no records yet.
///
/// # Errors
/// When the target has records, or either store fails. The target then has some of the sessions, each with all of
/// its events; it cannot be copied into again.
///
/// # Cancel safety
/// Dropped early it leaves the target as an error does.
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    mut progress: impl FnMut(CopyProgress),
) -> Result<CopyTotals, CopyError> {
    let spaces = || Space::ALL.into_iter().filter(|space| *space != Space::Store);
    for space in spaces() {
        let there = to.list(space, None, 1).await.map_err(|cause| read("the target", cause))?;
        if !there.is_empty() {
            return Err(CopyError::NotEmpty);
        }
    }
    let mut totals = CopyTotals::default();
    for space in spaces() {
        let mut after = None;
        loop {
            let page =
                from.list(space, after, PAGE).await.map_err(|cause| read("the list of records", cause))?;
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            for (key, record) in page {
                match space {
                    Space::Rmcp => copy_rmcp_log(from, to, &record.value, &mut totals).await?,
                    // None of these has events.
                    Space::State | Space::Task | Space::Call | Space::Principal | Space::Quota => {}
                    _ => copy_events(from, to, key, &mut totals).await?,
                }
                totals.records += 1;
                totals.bytes += record.value.len() as u64;
                // After the events, so that a reader who finds the session also finds its events.
                let key = RecordKey { space, key };
                to.put(key, record.value, Expected::Absent, record.deadline)
                    .await
                    .map_err(|cause| write(format!("the record {}", key.label()), cause))?;
                progress(CopyProgress { space, totals });
            }
        }
    }
    Ok(totals)
}

/// Copies the log of an rmcp stream, with its owner: the rmcp store takes a log without an owner for unknown.
async fn copy_rmcp_log(
    from: &dyn Store,
    to: &dyn Store,
    record: &[u8],
    totals: &mut CopyTotals,
) -> Result<(), CopyError> {
    let Some(log) = log_of_rmcp(record) else { return Ok(()) };
    copy_events(from, to, log, totals).await?;
    let what = || format!("the owner of {}", log.label());
    let Some((node, _)) = from.owner(log).await.map_err(|cause| read(what(), cause))? else { return Ok(()) };
    // An earlier copy that was cut off may have claimed this log already.
    let owner = to.owner(log).await.map_err(|cause| read(what(), cause))?;
    let expected = owner.map(|(_, epoch)| epoch);
    to.claim(log, node, expected).await.map_err(|cause| write(what(), cause)).map(drop)
}

/// The log that an rmcp record names, if the record is about a stream.
pub(crate) fn log_of_rmcp(record: &[u8]) -> Option<SessionKey> {
    // As `rmcp/layout.rs` writes it: a byte for the kind of record, then the key of the log if it is about a stream.
    let [2 | 3, log @ ..] = record else { return None };
    log.try_into().map(SessionKey::from_bytes).ok()
}

async fn copy_events(
    from: &dyn Store,
    to: &dyn Store,
    key: SessionKey,
    totals: &mut CopyTotals,
) -> Result<(), CopyError> {
    let what = || format!("the events of {}", key.label());
    let log = save_log(from, key).await.map_err(|cause| read(what(), cause))?;
    // Most records are tombstones without events, so there is nothing to restore.
    if log == SavedLog::default() {
        return Ok(());
    }
    totals.streams += log.streams.len() as u64;
    for event in log.streams.iter().flat_map(|stream| &stream.events) {
        totals.events += 1;
        totals.bytes += event.body.len() as u64;
    }
    to.restore(key, log).await.map_err(|cause| write(what(), cause))
}

fn read(what: impl Into<String>, cause: StoreError) -> CopyError {
    CopyError::Read { what: what.into(), cause }
}

fn write(what: String, cause: StoreError) -> CopyError {
    CopyError::Write { what, cause }
}

/// Everything that is kept of a session's streams, as [`Store::restore`] takes it.
///
/// If the session is in use, the result leaves out streams that begin during the call and events that are trimmed.
///
/// # Errors
/// When the store fails.
pub async fn save_log(store: &dyn Store, session: SessionKey) -> Result<SavedLog, StoreError> {
    let survey = store.survey(session).await?;
    let mut streams = Vec::with_capacity(survey.streams.len());
    for known in survey.streams {
        streams.push(save_stream(store, session, known).await?);
    }
    // The streams were read one after the other, so a trim may have come in between. Apply it to what was read:
    // otherwise a stream that ended and was trimmed away would be open again, and saved events would lie at or before
    // the trimmed position, where nothing may be kept.
    let now = store.survey(session).await?;
    let (next_stream, trimmed) = (now.next_stream, now.kept.trimmed);
    let mut kept = Vec::with_capacity(streams.len());
    for mut saved in streams {
        let Some(known) = now.streams.iter().find(|known| known.stream == saved.stream) else { continue };
        if saved.note.is_some() && known.ended {
            // It ended after it was read. A trim that came after its end may apply to what was read, so the end has to be
            // there too; if another trim has taken that meanwhile, nothing of the stream is left.
            saved = save_stream(store, session, known.clone()).await?;
            if saved.events.is_empty() {
                continue;
            }
        }
        let gone = saved.events.partition_point(|event| event.position <= trimmed);
        saved.trimmed = saved.events.drain(..gone).last().map_or(saved.trimmed, |event| event.position);
        kept.push(saved);
    }
    Ok(SavedLog { streams: kept, next_stream, trimmed })
}

async fn save_stream(
    store: &dyn Store,
    session: SessionKey,
    known: Surveyed,
) -> Result<SavedStream, StoreError> {
    let Surveyed { stream, note, .. } = known;
    let mut saved = SavedStream { stream, note, trimmed: Position::START, events: Vec::new() };
    loop {
        let after = saved.events.last().map_or(Position::START, |event| event.position);
        let stretch = store.read(session, stream, after, STRETCH).await?;
        saved.trimmed = saved.trimmed.max(stretch.trimmed);
        if stretch.events.is_empty() {
            break;
        }
        saved.events.extend(stretch.events);
    }
    // A trim between two reads may have left a gap, so drop the events that were read before it.
    saved.events.retain(|event| event.position > saved.trimmed);
    if saved.events.last().is_some_and(|event| event.place == EntryPlace::End) {
        saved.note = None;
    }
    Ok(saved)
}
