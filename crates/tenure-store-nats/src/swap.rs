//! Compare-and-swap of the last message of a subject: the one write that decides anything.
//!
//! A message without content means that there is nothing. It is written in place of a removal, and the engine forgets
//! it after two minutes: until then a late write that expects nothing fails, as does one that expects the removed value.
//!
//! Every write carries an id of its own. A write whose answer is lost is repeated with the same id, so it happens once;
//! and a refusal counts only after the id was looked for, since the write that stands may be our own.

use std::sync::atomic::{AtomicU64, Ordering};

use async_nats::header::{
    NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID, NATS_MESSAGE_TTL, NATS_ROLLUP,
};
use async_nats::{HeaderMap, HeaderValue, Subject};
use bytes::Bytes;
use tenure_session::port::store::StoreError;

use crate::names::Shard;
use crate::wire::{Doubt, Fault, Kept, Tries, Wire, code};

/// How long the engine remembers that something was removed, in seconds: longer than any write is under way.
const GONE_SECONDS: u64 = 120;

/// Ids of writes, unique among all processes.
pub(crate) struct WriteIds {
    process: String,
    last: AtomicU64,
}

impl WriteIds {
    /// # Panics
    /// When the operating system has no randomness to give.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 10];
        getrandom::fill(&mut bytes).expect("the operating system provides randomness");
        let process = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { process, last: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> String {
        format!("{}-{:x}", self.process, self.last.fetch_add(1, Ordering::Relaxed))
    }
}

/// Why a swap failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SwapError {
    /// The last message is another one; nothing was changed.
    Mismatch(Option<Kept>),
    /// Anything else.
    Store(StoreError),
}

impl From<StoreError> for SwapError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl SwapError {
    /// As the error of an operation; `mismatch` says what a mismatch means there.
    pub(crate) fn or(self, mismatch: StoreError) -> StoreError {
        match self {
            Self::Mismatch(_) => mismatch,
            Self::Store(error) => error,
        }
    }
}

/// Replaces the last message of a subject if it has the expected sequence; 0 means that the subject is empty. Returns the new
/// sequence. Without content it removes.
///
/// # Cancel safety
/// Dropped early it leaves the write done or undone.
pub(crate) async fn swap(
    wire: &Wire,
    ids: &WriteIds,
    tries: &mut Tries,
    shard: &Shard,
    subject: &Subject,
    expected: u64,
    payload: Bytes,
) -> Result<u64, SwapError> {
    let id = ids.next();
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(expected));
    headers.insert(NATS_ROLLUP, "sub");
    headers.insert(NATS_MESSAGE_ID, id.as_str());
    if payload.is_empty() {
        headers.insert(NATS_MESSAGE_TTL, HeaderValue::from(GONE_SECONDS));
    }
    let mut doubt = Doubt::None;
    loop {
        match wire.publish(tries.until, subject.clone(), headers.clone(), payload.clone()).await {
            Ok(sequence) => return Ok(sequence),
            Err(Fault::Refused(refusal)) if refusal.err_code == code::WRONG_SEQUENCE => break,
            Err(fault) => {
                if fault == Fault::NoAnswer {
                    doubt = Doubt::MayHaveHappened;
                }
                tries.again(fault, doubt).await?;
            }
        }
    }
    let current = wire.last(tries, shard, subject).await.map_err(|error| match doubt {
        Doubt::None => error,
        Doubt::MayHaveHappened => StoreError::Unknown,
    })?;
    match current {
        Some(kept) if kept.id.as_deref() == Some(id.as_str()) => Ok(kept.sequence),
        // It may have been written, and then replaced by another.
        _ if doubt == Doubt::MayHaveHappened => Err(StoreError::Unknown.into()),
        current => Err(SwapError::Mismatch(current)),
    }
}

/// [`swap`] where there is no value, or where the value was removed.
pub(crate) async fn create(
    wire: &Wire,
    ids: &WriteIds,
    tries: &mut Tries,
    shard: &Shard,
    subject: &Subject,
    payload: Bytes,
) -> Result<u64, SwapError> {
    match swap(wire, ids, tries, shard, subject, 0, payload.clone()).await {
        Err(SwapError::Mismatch(Some(kept))) if kept.payload.is_empty() => {
            swap(wire, ids, tries, shard, subject, kept.sequence, payload).await
        }
        // It was removed, and forgotten since.
        Err(SwapError::Mismatch(None)) => swap(wire, ids, tries, shard, subject, 0, payload).await,
        outcome => outcome,
    }
}

/// The value that is there: a message without content counts as absent.
pub(crate) fn there(kept: Option<Kept>) -> Option<Kept> {
    kept.filter(|kept| !kept.payload.is_empty())
}
