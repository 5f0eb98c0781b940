//! Records that are a head in JSON and a body of raw bytes.
//!
//! Layout: the format (1 byte), the length of the head (4 bytes, big endian), the head, the body unchanged. A reader
//! accepts any head whose format it knows, and ignores members that it does not know.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_protocol::RawJson;

/// Why a record could not be read.
#[derive(Debug)]
pub(crate) enum UnreadableFrame {
    /// It has a newer format, this one.
    Newer(u8),
    /// It is not such a record, or a part is missing.
    Broken,
}

pub(crate) fn encode(format: u8, head: &impl Serialize, body: &[u8]) -> Bytes {
    let head = RawJson::of(head);
    let head = head.bytes();
    let mut bytes = BytesMut::with_capacity(5 + head.len() + body.len());
    bytes.put_u8(format);
    bytes.put_u32(u32::try_from(head.len()).expect("a head is smaller than a message may be"));
    bytes.put_slice(head);
    bytes.put_slice(body);
    bytes.freeze()
}

/// Reads the head, and returns the body as a slice of the same buffer.
pub(crate) fn decode<H: DeserializeOwned>(format: u8, bytes: &Bytes) -> Result<(H, Bytes), UnreadableFrame> {
    match bytes.first() {
        Some(first) if *first == format => decode_parts(bytes).ok_or(UnreadableFrame::Broken),
        // Every format is a control character; other bytes were written by another program.
        Some(newer) if *newer > format && *newer < b' ' => Err(UnreadableFrame::Newer(*newer)),
        _ => Err(UnreadableFrame::Broken),
    }
}

fn decode_parts<H: DeserializeOwned>(bytes: &Bytes) -> Option<(H, Bytes)> {
    let (length, rest) = bytes.get(1..)?.split_first_chunk::<4>()?;
    let (head, body) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((serde_json::from_slice(head).ok()?, bytes.slice_ref(body)))
}
