//! The connections that read streams of a session, as operators see them.
//!
//! In: the streams of a session, under its lock. Out: one row for each that has a reader.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::id::{Position, StreamId};
use crate::session::stream::EventStream;

/// A connection that reads a stream, as operators see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderInfo {
    /// The stream.
    pub stream: StreamId,
    /// The last event that was delivered on it.
    pub position: Position,
    /// Events in memory that wait to be read.
    pub waiting: usize,
}

/// The readers of these streams.
pub(super) fn attached(streams: &HashMap<StreamId, EventStream, RandomState>) -> Vec<ReaderInfo> {
    let row = |(id, stream): (&StreamId, &EventStream)| {
        let reader = stream.reader.as_ref()?;
        Some(ReaderInfo { stream: *id, position: stream.delivered, waiting: reader.tail.len() })
    };
    streams.iter().filter_map(row).collect()
}
