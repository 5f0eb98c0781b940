//! The place of a record in the log: its number, the hash of the record before, and heads that are signed.
//!
//! `hash` = SHA-256 of the line as it is without the member `hash`. The line holds `prev`, so it covers everything before. A
//! head is a record whose `sig` is an Ed25519 signature over its number and its `prev`.

use memchr::memmem;
use ring::digest::{Context, SHA256};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use tenure_session::port::clock::Time;

use super::key::AuditKey;
use super::record::{Event, Record, hex, unhex};

/// The `prev` of the first record.
pub(super) const NOTHING: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The end of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    /// The number of the last record; 0 for an empty log.
    pub(super) seq: u64,
    /// Its hash.
    pub(super) hash: Box<str>,
}

impl Default for Chain {
    fn default() -> Self {
        Self { seq: 0, hash: NOTHING.into() }
    }
}

impl Chain {
    /// Appends a record, and its line with the line break to the lines.
    pub(super) fn append(&mut self, mut record: Record, node: &str, lines: &mut Vec<u8>) {
        self.seq += 1;
        record.seq = self.seq;
        record.node = node.into();
        record.prev = std::mem::take(&mut self.hash);
        // Written once, with zeros in the place of the hash.
        record.hash = Some(NOTHING.into());
        let start = lines.len();
        record.write(lines);
        let line = &mut lines[start..];
        // A quote within a string is written with a backslash, so the member is found nowhere else.
        let member = memmem::find(line, HASH_NAME).expect("the record has a hash");
        let text = member + HASH_NAME.len()..member + HASH_NAME.len() + NOTHING.len();
        self.hash = hash(&line[..member], &line[text.end + 1..]);
        line[text].copy_from_slice(self.hash.as_bytes());
        lines.push(b'\n');
    }

    /// Appends a head that signs everything before it; returns its line.
    pub(super) fn sign(&mut self, key: &AuditKey, node: &str, now: Time) -> Vec<u8> {
        let mut record = Record::new(Event::Head, now);
        record.key = Some(key.public().into());
        record.sig = Some(hex(&key.sign(&signed(self.seq + 1, &self.hash))));
        let mut line = Vec::new();
        self.append(record, node, &mut line);
        line
    }
}

/// The text in front of the hash.
const HASH_NAME: &[u8] = b",\"hash\":\"";

/// The hash of a line without the member `hash`, which stands between these two parts.
fn hash(before: &[u8], after: &[u8]) -> Box<str> {
    let mut context = Context::new(&SHA256);
    context.update(before);
    context.update(after);
    hex(context.finish().as_ref())
}

/// The bytes that a head signs.
fn signed(seq: u64, prev: &str) -> Vec<u8> {
    format!("tenure audit head 1\n{seq}\n{prev}\n").into_bytes()
}

/// The members of a line by which it is checked.
#[derive(Deserialize)]
pub(super) struct Place {
    pub(super) seq: u64,
    pub(super) prev: Box<str>,
    pub(super) hash: Box<str>,
    pub(super) event: Box<str>,
    #[serde(default)]
    key: Option<Box<str>>,
    #[serde(default)]
    sig: Option<Box<str>>,
}

/// Why a line alone is not a valid record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LineFault {
    NoRecord,
    OtherHash,
    BadSignature,
}

impl Place {
    /// Reads a line without its line break, and checks its hash and its signature.
    pub(super) fn read(line: &[u8]) -> Result<Self, LineFault> {
        let place: Self = serde_json::from_slice(line).map_err(|_| LineFault::NoRecord)?;
        let member = format!(",\"hash\":\"{}\"", place.hash);
        let text = std::str::from_utf8(line).map_err(|_| LineFault::NoRecord)?;
        // A quote within a string is written with a backslash, so the member is found nowhere else.
        let (before, after) = text.split_once(&member).ok_or(LineFault::NoRecord)?;
        if !is_in_order(line) || hash(before.as_bytes(), after.as_bytes()) != place.hash {
            return Err(LineFault::OtherHash);
        }
        if place.is_head() && !place.is_signed() {
            return Err(LineFault::BadSignature);
        }
        Ok(place)
    }

    pub(super) fn is_head(&self) -> bool {
        &*self.event == "head"
    }

    /// The public key of a head.
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    fn is_signed(&self) -> bool {
        let (Some(key), Some(sig)) =
            (self.key.as_deref().and_then(unhex), self.sig.as_deref().and_then(unhex))
        else {
            return false;
        };
        UnparsedPublicKey::new(&ED25519, key).verify(&signed(self.seq, &self.prev), &sig).is_ok()
    }

    pub(super) fn chain(&self) -> Chain {
        Chain { seq: self.seq, hash: self.hash.clone() }
    }
}

/// Whether the names of the members are in order, none of them twice. The hash does not say where its own member stands.
fn is_in_order(line: &[u8]) -> bool {
    let Some(members) = tenure_protocol::json::members::read(line) else { return false };
    members.windows(2).all(|pair| pair[0].0 < pair[1].0)
}

/// A head that is kept outside of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub(crate) seq: u64,
    pub(crate) hash: Box<str>,
    /// The public key that signed it; `None` for one that a person wrote down as `SEQ:HASH`.
    pub(crate) key: Option<Box<str>>,
}

impl Head {
    /// Reads a head: the line of one, or `SEQ:HASH`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Some((seq, hash)) = text.split_once(':')
            && let Ok(seq) = seq.parse()
        {
            return unhex(hash).filter(|bytes| bytes.len() == 32).map(|_| Self {
                seq,
                hash: hash.into(),
                key: None,
            });
        }
        let place = Place::read(text.as_bytes()).ok().filter(Place::is_head)?;
        Some(Self { seq: place.seq, key: place.key().map(Box::from), hash: place.hash })
    }
}
