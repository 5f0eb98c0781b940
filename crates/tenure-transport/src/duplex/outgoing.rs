//! What goes out: messages of several streams in one queue, and what they mean for whoever comes back.

use bytes::Bytes;
use tenure_session::{EventId, StreamId};

/// Messages that wait to be written. When the client does not read, the queue is full, and whoever has something to
/// say waits with it: streams are not pulled, and no further message is taken from the client.
pub(crate) const MAX_WAITING: usize = 16;

/// One entry of the queue.
#[derive(Clone, Debug)]
pub(crate) enum Outgoing {
    /// A message for the client.
    Message {
        /// Its bytes.
        body: Bytes,
        /// The event that it is, if one can come back after it.
        event: Option<EventId>,
    },
    /// A stream begins, after this event. Stands before any event of this stream and of those that began later.
    Begun(EventId),
    /// All of a stream was said.
    Ended(StreamId),
}

impl Outgoing {
    /// A message that is on no stream.
    pub(crate) fn plain(body: Bytes) -> Self {
        Self::Message { body, event: None }
    }
}
