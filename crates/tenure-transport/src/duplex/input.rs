//! What comes in: messages, one after the other, however they are cut apart.

use std::io;

use bytes::Bytes;
use tenure_protocol::Incoming;

use crate::duplex::oversize_id::Skimmed;

/// One thing that the client said.
#[derive(Debug)]
pub(crate) enum Line {
    /// Its bytes.
    Whole(Bytes),
    /// It was read already by whoever took it.
    Read(Incoming),
    /// It was too long and not kept; this much is known of it.
    TooLong(Skimmed),
}

/// Where the messages of a client come from.
pub(crate) trait Input: Send {
    /// The next message; `None` when there will be no more, however often it is asked.
    ///
    /// # Cancel safety
    /// Nothing may be lost when the future is dropped.
    fn next(&mut self) -> impl Future<Output = io::Result<Option<Line>>> + Send;
}
