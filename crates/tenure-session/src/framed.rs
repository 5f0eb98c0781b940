//! Records that are a head and a body of raw bytes: states, tasks and calls.
//!
//! Layout: the format (1 byte), the length of the head (4 bytes, big endian), the head, the body unchanged. The head is
//! JSON, except that of states. A reader accepts any head whose format it knows, and ignores members that it does not
//! know.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_protocol::RawJson;

/// A kind of record, and the format that this version writes.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) of: &'static str,
    pub(crate) format: u8,
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableFrame {
    /// It was written by a newer version.
    #[error("{of} format {found} is newer than {known}, the newest this version reads")]
    Newer { of: &'static str, found: u8, known: u8 },
    /// It is not such a record, or a part is missing.
    #[error("not the record of a {0}")]
    Broken(&'static str),
}

impl UnreadableFrame {
    /// Whether a newer version wrote it. Then it is left as it is.
    pub(crate) fn is_newer(&self) -> bool {
        matches!(self, Self::Newer { .. })
    }
}

impl Frame {
    pub(crate) fn encode(&self, head: &impl Serialize, body: &[u8]) -> Bytes {
        let head = RawJson::of(head);
        let head = head.bytes();
        let mut bytes = BytesMut::with_capacity(5 + head.len() + body.len());
        bytes.put_u8(self.format);
        bytes.put_u32(u32::try_from(head.len()).expect("a head is smaller than a message may be"));
        bytes.put_slice(head);
        bytes.put_slice(body);
        bytes.freeze()
    }

    /// Reads a head in JSON, and returns the body as a slice of the same buffer.
    pub(crate) fn decode<H: DeserializeOwned>(&self, bytes: &Bytes) -> Result<(H, Bytes), UnreadableFrame> {
        self.decode_with(bytes, |head| serde_json::from_slice(head).ok())
    }

    /// The same with a reader of heads.
    pub(crate) fn decode_with<H>(
        &self,
        bytes: &Bytes,
        read: impl FnOnce(&[u8]) -> Option<H>,
    ) -> Result<(H, Bytes), UnreadableFrame> {
        let Self { of, format } = *self;
        match bytes.first() {
            Some(first) if *first == format => {}
            // Every format is a control character; other bytes were written by another program.
            Some(newer) if *newer > format && *newer < b' ' => {
                return Err(UnreadableFrame::Newer { of, found: *newer, known: format });
            }
            _ => return Err(UnreadableFrame::Broken(of)),
        }
        let read = || {
            let (head, body) = halves(bytes)?;
            Some((read(head)?, bytes.slice_ref(body)))
        };
        read().ok_or(UnreadableFrame::Broken(of))
    }
}

/// Splits a record into its encoded head and its body.
pub(crate) fn halves(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.get(1..)?.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}
