//! The output queue: the messages of several streams in one queue, with what a client needs to resume them.

use bytes::Bytes;
use tenure_session::{EventId, StreamId};

/// The most messages that wait to be written. When the client does not read, the queue is full and every sender waits:
/// streams are not pulled, and no further message is taken from the client.
pub(crate) const MAX_WAITING: usize = 16;

/// One entry of the queue.
#[derive(Clone, Debug)]
pub(crate) enum Outgoing {
    /// A message for the client.
    Message {
        /// Its bytes.
        body: Bytes,
        /// Its event id, if the client can resume after it.
        event: Option<EventId>,
    },
    /// A stream begins after this event. Queued before any event of this stream, and of the streams that begin later.
    Begun(EventId),
    /// All messages of a stream were queued.
    Ended(StreamId),
}

impl Outgoing {
    /// A message that belongs to no stream.
    pub(crate) fn plain(body: Bytes) -> Self {
        Self::Message { body, event: None }
    }
}
