//! The messages of a client, one after the other, over any transport.

use std::io;

use bytes::Bytes;
use tenure_protocol::Incoming;
use tenure_session::call::Granted;

use crate::duplex::oversize_id::OversizeMessage;

/// One message of the client.
#[derive(Debug)]
pub(crate) enum InputMessage {
    /// The whole message, not parsed yet.
    Whole(Bytes),
    /// The transport has parsed it already, and it came with credentials of its own.
    Read(Incoming, Granted),
    /// It was too long and not kept; only its kind and id are known.
    TooLong(OversizeMessage),
}

/// Where the messages of a client come from.
pub(crate) trait Input: Send {
    /// The next message; `None` at the end, and on every later call.
    ///
    /// # Cancel safety
    /// No message may be lost when the future is dropped.
    fn next(&mut self) -> impl Future<Output = io::Result<Option<InputMessage>>> + Send;
}
