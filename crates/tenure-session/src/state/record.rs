//! The record of a state: a head, and its data unchanged.
//!
//! The layout is that of [`crate::framed`]. The head is read with every request that names a state, so it is not JSON:
//! first numbers, then texts, each prefixed with its length, then fields that later versions added. A reader ignores
//! unknown fields at the end; when it writes the record, it leaves them out.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;

use super::fault::Lost;
use crate::budget::Peer;
use crate::counts::{CountedRecord, Weight};
use crate::framed::{Frame, UnreadableFrame};
use crate::id::Principal;
use crate::port::clock::Time;
use crate::record::EndCause;

const FRAME: Frame = Frame { of: "state", format: 1 };

/// The length field of a missing text.
const ABSENT: u32 = u32::MAX;

/// How often a state's data were changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Edition(pub u64);

/// The description that a client gave a state when it made it.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// A name for people.
    pub label: Option<String>,
    /// Any JSON, as the client sent it.
    pub data: Option<Box<RawValue>>,
}

/// Everything about a state but its data.
#[derive(Debug, Clone)]
pub(super) struct StateHead {
    /// `None` for anonymous.
    pub(super) owner: Option<String>,
    pub(super) kind: Box<str>,
    /// The id itself, only for authenticated owners, so that they can list their states.
    pub(super) id: Option<String>,
    pub(super) about: About,
    pub(super) created: u64,
    /// When it was last used, as far as the store knows.
    pub(super) used: u64,
    /// It expires if it is not used for this many milliseconds; `None`: never.
    pub(super) idle_ms: Option<u64>,
    /// When it expires if it is not used.
    pub(super) expires: Option<u64>,
    /// When it expires, used or not.
    pub(super) ends: Option<u64>,
    pub(super) edition: Edition,
    /// A random number for each write. A writer that did not get the store's answer can check whether its write
    /// happened.
    pub(super) stamp: u64,
    /// Set if the state has ended; the record is then a tombstone.
    pub(super) end: Option<EndCause>,
    /// The peer that its bytes count for: the one that made it. It is part of the record, so that it is known after a
    /// restart.
    pub(super) peer: Peer,
}

/// The size of a head without its texts.
const HEAD_BYTES: usize = 1 + 4 * 8 + 3 * 8 + 5 * 4 + 1;

/// A record as it is kept.
#[derive(Debug, Clone)]
pub(super) struct StateRecord {
    pub(super) head: Arc<StateHead>,
    pub(super) data: Bytes,
}

impl StateHead {
    pub(super) fn new(owner: Option<&str>, kind: &str, about: About, now: Time) -> Self {
        Self {
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
            peer: Peer::UNKNOWN,
        }
    }

    /// Whether it is alive at that time.
    pub(super) fn standing(&self, now: Time) -> Result<(), Lost> {
        match self.end {
            Some(EndCause::Deleted) => Err(Lost::Deleted),
            Some(EndCause::Revoked) => Err(Lost::Revoked),
            Some(EndCause::Expired) => Err(Lost::Expired),
            None if self.is_too_old(now) || self.expires.is_some_and(|at| at <= now.0) => Err(Lost::Expired),
            None => Ok(()),
        }
    }

    pub(super) fn is_too_old(&self, now: Time) -> bool {
        self.ends.is_some_and(|at| at <= now.0)
    }
}

impl StateRecord {
    /// The head, for changes.
    pub(super) fn head_mut(&mut self) -> &mut StateHead {
        Arc::make_mut(&mut self.head)
    }

    /// Its size in the store, and the peer that it counts for.
    pub(super) fn weight(&self) -> Weight {
        Weight { peer: self.head.peer, bytes: self.bytes() }
    }

    /// How it is counted.
    pub(super) fn entry(&self) -> CountedRecord {
        let is_over = self.head.end.is_some();
        let owner = || self.head.owner.as_deref().map_or(Principal::ANONYMOUS, Principal::named);
        CountedRecord { principal: (!is_over).then(owner), weight: self.weight() }
    }

    /// Its encoded length.
    fn bytes(&self) -> usize {
        let StateHead { owner, kind, id, about, peer, .. } = &*self.head;
        let said = about.data.as_ref().map(|data| data.get());
        let texts = [Some(&**kind), owner.as_deref(), id.as_deref(), about.label.as_deref(), said];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        5 + HEAD_BYTES + texts + peer_bytes(*peer).1 + self.data.len()
    }

    pub(super) fn encode(&self) -> Bytes {
        let StateHead {
            owner,
            kind,
            id,
            about,
            created,
            used,
            idle_ms,
            expires,
            ends,
            edition,
            stamp,
            end,
            peer,
        } = &*self.head;
        let mut bytes = BytesMut::with_capacity(160 + self.data.len());
        bytes.put_u8(FRAME.format);
        bytes.put_u32(0);
        bytes.put_u8(match end {
            None => 0,
            Some(EndCause::Deleted) => 1,
            Some(EndCause::Expired) => 2,
            Some(EndCause::Revoked) => 3,
        });
        for number in [*created, *used, edition.0, *stamp] {
            bytes.put_u64(number);
        }
        for time in [idle_ms, expires, ends] {
            bytes.put_u64(time.unwrap_or(u64::MAX));
        }
        let said = about.data.as_ref().map(|data| data.get());
        for text in [Some(&**kind), owner.as_deref(), id.as_deref(), about.label.as_deref(), said] {
            bytes.put_u32(text.map_or(ABSENT, |text| u32::try_from(text.len()).unwrap_or(ABSENT)));
            bytes.put_slice(text.unwrap_or_default().as_bytes());
        }
        let (peer, length) = peer_bytes(*peer);
        bytes.put_u8(u8::try_from(length).expect("an address is short"));
        bytes.put_slice(&peer[..length]);
        let length = u32::try_from(bytes.len() - 5).expect("a head is small");
        bytes[1..5].copy_from_slice(&length.to_be_bytes());
        bytes.put_slice(&self.data);
        bytes.freeze()
    }

    pub(super) fn decode(bytes: &Bytes) -> Result<Self, UnreadableFrame> {
        let (head, data) = FRAME.decode_with(bytes, StateHead::decode)?;
        Ok(Self { head: Arc::new(head), data })
    }
}

impl StateHead {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Fields(bytes);
        let end = match from.take::<1>()?[0] {
            0 => None,
            1 => Some(EndCause::Deleted),
            2 => Some(EndCause::Expired),
            3 => Some(EndCause::Revoked),
            _ => return None,
        };
        let (created, used, edition, stamp) =
            (from.number()?, from.number()?, from.number()?, from.number()?);
        let (idle_ms, expires, ends) = (from.time()?, from.time()?, from.time()?);
        let kind = from.text()??.into();
        let (owner, id, label) = (from.text()?, from.text()?, from.text()?);
        let said = from.text()?.map(|text| RawValue::from_string(text.to_owned()));
        // Earlier versions did not write it.
        let peer = from.peer().unwrap_or(Peer::UNKNOWN);
        Some(Self {
            owner: owner.map(str::to_owned),
            kind,
            id: id.map(str::to_owned),
            about: About { label: label.map(str::to_owned), data: said.transpose().ok()? },
            created,
            used,
            idle_ms,
            expires,
            ends,
            edition: Edition(edition),
            stamp,
            end,
            peer,
        })
    }
}

/// The IPv4 address, the IPv6 network, or no bytes.
fn peer_bytes(peer: Peer) -> ([u8; 8], usize) {
    let mut bytes = [0; 8];
    let length = match peer.address() {
        Some(IpAddr::V4(v4)) => {
            bytes[..4].copy_from_slice(&v4.octets());
            4
        }
        Some(IpAddr::V6(v6)) => {
            bytes.copy_from_slice(&v6.octets()[..8]);
            8
        }
        None => 0,
    };
    (bytes, length)
}

/// The unread rest of a head.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    #[expect(clippy::option_option, reason = "none at all, and none in particular")]
    fn time(&mut self) -> Option<Option<u64>> {
        self.number().map(|time| (time != u64::MAX).then_some(time))
    }

    fn peer(&mut self) -> Option<Peer> {
        match self.take::<1>()?[0] {
            4 => self.take::<4>().map(|v4| Peer::at(v4.into())),
            8 => self.take::<8>().map(|network| {
                let mut v6 = [0; 16];
                v6[..8].copy_from_slice(&network);
                Peer::at(v6.into())
            }),
            _ => None,
        }
    }

    #[expect(clippy::option_option, reason = "none at all, and none in particular")]
    fn text(&mut self) -> Option<Option<&'a str>> {
        let length = u32::from_be_bytes(self.take()?);
        if length == ABSENT {
            return Some(None);
        }
        let (text, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        std::str::from_utf8(text).ok().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was() {
        let about = About { label: Some("notes".into()), data: serde_json::from_str("{\n\"a\": 1.50}").ok() };
        let mut head = StateHead::new(Some("ann"), "basket", about, Time(7));
        head.expires = Some(9);
        let record = StateRecord { head: head.into(), data: Bytes::from_static(b"\x00\xffraw") };
        let read = StateRecord::decode(&record.encode()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{record:?}"));
    }

    #[test]
    fn a_newer_writer_with_the_same_format_may_add_to_the_head() {
        let head = StateHead::new(None, "k", About::default(), Time(1));
        let bytes = StateRecord { head: head.into(), data: Bytes::new() }.encode();
        let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) + 4;
        let bytes = [&bytes[..1], &length.to_be_bytes(), &bytes[5..], b"more", b"data"].concat();
        let read = StateRecord::decode(&bytes.into()).unwrap();
        assert_eq!((&*read.head.kind, &read.data[..]), ("k", &b"data"[..]));
    }

    #[test]
    fn a_record_of_an_earlier_version_has_no_peer_and_its_length_is_what_is_written() {
        for address in [None, Some("10.0.0.7"), Some("2001:db8:1:2::")] {
            let peer = address.map_or(Peer::UNKNOWN, |address| Peer::at(address.parse().unwrap()));
            let about = About { label: Some("notes".into()), data: serde_json::from_str("[1]").ok() };
            let head = StateHead { peer, ..StateHead::new(Some("ann"), "basket", about, Time(7)) };
            let record = StateRecord { head: head.into(), data: Bytes::from_static(b"data") };
            let bytes = record.encode();
            assert_eq!((record.bytes(), record.weight().peer), (bytes.len(), peer));
            assert_eq!(StateRecord::decode(&bytes).unwrap().head.peer, peer);
            // As earlier versions wrote it: the head ends after the texts.
            let added = 1 + peer_bytes(peer).1;
            let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) - added as u32;
            let head = &bytes[5..5 + length as usize];
            let earlier = [&bytes[..1], &length.to_be_bytes(), head, b"data"].concat();
            let read = StateRecord::decode(&earlier.into()).unwrap();
            assert_eq!((read.head.peer, &read.data[..]), (Peer::UNKNOWN, &b"data"[..]));
            assert_eq!(read.head.about.label.as_deref(), Some("notes"));
        }
    }

    #[test]
    fn a_newer_format_is_refused_by_name_and_anything_else_is_broken() {
        let error = StateRecord::decode(&Bytes::from_static(b"\x02anything")).unwrap_err();
        assert_eq!(error.to_string(), "state format 2 is newer than 1, the newest this version reads");
        let whole = StateRecord {
            head: StateHead::new(Some("ann"), "basket", About::default(), Time(7)).into(),
            data: Bytes::new(),
        };
        let whole = whole.encode();
        for cut in 0..whole.len() {
            assert!(StateRecord::decode(&whole.slice(..cut)).is_err(), "cut at {cut}");
        }
        for broken in [&b"{}"[..], b"\x01\xff\xff\xff\xff", b"\x01\0\0\0\x01\x09"] {
            assert!(matches!(
                StateRecord::decode(&Bytes::from_static(broken)),
                Err(UnreadableFrame::Broken(_))
            ));
        }
    }
}
