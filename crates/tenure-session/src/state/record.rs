//! What a store keeps of a state: a head in JSON, and its data as they are.
//!
//! The head has a format number. A reader takes any head whose format it knows and ignores members it does not
//! know. Bytes: the length of the head (4, big endian), the head, the data.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::fault::Lost;
use crate::port::clock::Time;
use crate::record::End;

const FORMAT: u32 = 1;

/// How often a state's data were changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Edition(pub u64);

/// What its client said of a state when it was made.
#[derive(Serialize, Deserialize, Debug, Clone, Default)]
pub struct About {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Anything, as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
}

/// Everything about a state but its data.
#[derive(Serialize, Deserialize, Debug, Clone)]
pub(super) struct Head {
    format: u32,
    /// `None` for anonymous.
    pub(super) owner: Option<String>,
    pub(super) kind: Box<str>,
    /// The id itself, for owners who must prove who they are: so that they can be told what is theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) about: About,
    pub(super) created: u64,
    /// When it was last used, as far as that was written down.
    pub(super) used: u64,
    /// It expires if nobody uses it for so many milliseconds; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) idle_ms: Option<u64>,
    /// When it expires if nobody uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<u64>,
    /// When it expires, used or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ends: Option<u64>,
    pub(super) edition: Edition,
    /// Tells one write from another, so that a writer that lost its answer can tell whether it came through.
    pub(super) stamp: u64,
    /// It has ended, and this is its tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<End>,
}

/// A record as it is kept.
#[derive(Debug, Clone)]
pub(super) struct StateRecord {
    pub(super) head: Head,
    pub(super) data: Bytes,
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("state format {0} is newer than {FORMAT}, the newest this version reads")]
    Newer(u32),
    #[error("not the record of a state")]
    Broken,
}

impl Head {
    pub(super) fn new(owner: Option<&str>, kind: &str, about: About, now: Time) -> Self {
        Self {
            format: FORMAT,
            owner: owner.map(str::to_owned),
            kind: kind.into(),
            id: None,
            about,
            created: now.0,
            used: now.0,
            idle_ms: None,
            expires: None,
            ends: None,
            edition: Edition(1),
            stamp: 0,
            end: None,
        }
    }

    /// How it stands at that time.
    pub(super) fn standing(&self, now: Time) -> Result<(), Lost> {
        match self.end {
            Some(End::Deleted) => Err(Lost::Deleted),
            Some(End::Revoked) => Err(Lost::Revoked),
            Some(End::Expired) => Err(Lost::Expired),
            None if self.is_too_old(now) || self.expires.is_some_and(|at| at <= now.0) => Err(Lost::Expired),
            None => Ok(()),
        }
    }

    pub(super) fn is_too_old(&self, now: Time) -> bool {
        self.ends.is_some_and(|at| at <= now.0)
    }
}

impl StateRecord {
    pub(super) fn encode(&self) -> Bytes {
        let head = serde_json::to_vec(&self.head).expect("a head has a JSON form");
        let mut bytes = BytesMut::with_capacity(4 + head.len() + self.data.len());
        bytes.put_u32(u32::try_from(head.len()).expect("a head is small"));
        bytes.put_slice(&head);
        bytes.put_slice(&self.data);
        bytes.freeze()
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, Unreadable> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let (length, rest) = bytes.split_first_chunk::<4>().ok_or(Unreadable::Broken)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (head, data) = rest.split_at_checked(length).ok_or(Unreadable::Broken)?;
        match serde_json::from_slice::<Head>(head) {
            Ok(head) if head.format <= FORMAT => Ok(Self { head, data: bytes.slice_ref(data) }),
            _ => match serde_json::from_slice::<Format>(head) {
                Ok(Format { format }) if format > FORMAT => Err(Unreadable::Newer(format)),
                _ => Err(Unreadable::Broken),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let about = About { label: Some("notes".into()), data: serde_json::from_str("{\n\"a\": 1.50}").ok() };
        let mut head = Head::new(Some("ann"), "basket", about, Time(7));
        head.expires = Some(9);
        let record = StateRecord { head, data: Bytes::from_static(b"\x00\xffraw") };
        let read = StateRecord::decode(&record.encode()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{record:?}"));
    }

    #[test]
    fn a_newer_writer_with_the_same_format_may_add_members() {
        let head =
            br#"{"format":1,"owner":null,"kind":"k","created":1,"used":1,"edition":3,"stamp":5,"more":[]}"#;
        let bytes = [&(head.len() as u32).to_be_bytes(), &head[..], b"data"].concat();
        let read = StateRecord::decode(&bytes.into()).unwrap();
        assert_eq!((read.head.edition, &read.data[..]), (Edition(3), &b"data"[..]));
    }

    #[test]
    fn a_newer_format_is_refused_by_name_and_anything_else_is_broken() {
        let head = br#"{"format":2}"#;
        let bytes = [&(head.len() as u32).to_be_bytes(), &head[..]].concat();
        let error = StateRecord::decode(&bytes.into()).unwrap_err();
        assert_eq!(error.to_string(), "state format 2 is newer than 1, the newest this version reads");
        for broken in [&b""[..], b"\0\0\0\x05{}", b"\xff\xff\xff\xff", b"\0\0\0\x02{}"] {
            assert!(matches!(StateRecord::decode(&Bytes::from_static(broken)), Err(Unreadable::Broken)));
        }
    }
}
