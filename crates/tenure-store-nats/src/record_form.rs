//! The bytes of a record: before its value its deadline, and the bucket in which it is filed as due (`dues`).

use bytes::{BufMut, Bytes, BytesMut};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{Record, StoreError, Version};

const FORM: u8 = 1;
const HEAD: usize = 1 + 8 + 4;
const NEVER: u64 = u64::MAX;

/// The bucket of a record that is not filed.
pub(crate) const NOT_FILED: u32 = u32::MAX;

/// How much time records share a bucket for.
const BUCKET_MS: u64 = 10_000;

/// Where this version of a record is filed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Filed {
    pub(crate) version: Version,
    pub(crate) bucket: u32,
}

/// A record with the bucket in which it is filed.
pub(crate) struct FiledRecord {
    pub(crate) record: Record,
    pub(crate) bucket: u32,
}

/// The bucket of a moment.
pub(crate) fn bucket_of(at: Time) -> u32 {
    u32::try_from(at.0 / BUCKET_MS).unwrap_or(NOT_FILED).min(NOT_FILED - 1)
}

pub(crate) fn encode(deadline: Option<Time>, bucket: u32, value: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD + value.len());
    bytes.put_u8(FORM);
    bytes.put_u64(deadline.map_or(NEVER, |at| at.0));
    bytes.put_u32(bucket);
    bytes.put_slice(value);
    bytes.freeze()
}

/// Reads a record; `None` if it was written in a form that this version does not know.
pub(crate) fn decode(sequence: u64, payload: &Bytes) -> Option<FiledRecord> {
    if payload.len() < HEAD || payload[0] != FORM {
        return None;
    }
    let deadline = u64::from_be_bytes(payload[1..9].try_into().ok()?);
    let bucket = u32::from_be_bytes(payload[9..13].try_into().ok()?);
    let record = Record {
        version: Version(sequence),
        value: payload.slice(HEAD..),
        deadline: (deadline != NEVER).then_some(Time(deadline)),
    };
    Some(FiledRecord { record, bucket })
}

pub(crate) fn unreadable(what: &str) -> StoreError {
    StoreError::Unavailable(format!("{what} is damaged, or of another version of tenure"))
}
