//! The messages on a stream of events, and the ids and pauses for resuming it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::Response;

use super::sse::{Block, Data, Parser};
use crate::oversize;

/// One event.
pub(super) struct Event {
    /// The id to resume after, if the event has one.
    pub(super) id: Option<String>,
    /// Its message, if it carries one.
    pub(super) data: Option<Bytes>,
    /// It was too long to be taken. If it was an answer, this is the number of its request.
    pub(super) too_long: Option<Option<u64>>,
}

/// The shortest pause that a server can ask for; without one it could keep us busy.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) struct Events {
    chunks: BoxStream<'static, reqwest::Result<Bytes>>,
    /// The rest of the last one.
    chunk: Bytes,
    /// Boxed, because an answer that is no stream has room for this too.
    parser: Box<Parser>,
}

impl Events {
    /// Events of at most `max` bytes.
    pub(super) fn new(response: Response, max: usize) -> Self {
        // What breaks it off is logged, and the URL may carry a key.
        let chunks = response.bytes_stream().map_err(reqwest::Error::without_url).boxed();
        Self { chunks, chunk: Bytes::new(), parser: Box::new(Parser::new(max)) }
    }

    /// The endpoint that the first event names, as HTTP+SSE begins; `None` if it begins with something else.
    pub(super) async fn endpoint(&mut self) -> Option<String> {
        loop {
            let block = self.block().await?;
            return match block.data {
                Data::Whole(name) if block.name == "endpoint" => String::from_utf8(name.into()).ok(),
                Data::None => continue,
                Data::Whole(_) | Data::TooLong { .. } => None,
            };
        }
    }

    /// The next event; `None` when the connection is over, in whatever way.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn next(&mut self) -> Option<Event> {
        let Block { name, id, data } = self.block().await?;
        let (data, too_long) = match data {
            // Of another kind, and not for us; but it is an event, and can be resumed after.
            _ if !matches!(&*name, "" | "message") => (None, None),
            Data::None => (None, None),
            Data::Whole(data) => (Some(data).filter(|data| !data.trim_ascii().is_empty()), None),
            Data::TooLong { start, end } => (None, Some(oversize::answers(&start, &end))),
        };
        Some(Event { id, data, too_long })
    }

    /// How long to wait before coming back, if the server has said so.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.parser.retry_ms().map(|retry| Duration::from_millis(retry).clamp(SHORTEST, LONGEST))
    }

    async fn block(&mut self) -> Option<Block> {
        loop {
            if let Some(block) = self.parser.next(&mut self.chunk) {
                return Some(block);
            }
            match self.chunks.next().await? {
                Ok(chunk) => self.chunk = chunk,
                Err(error) => {
                    tracing::debug!(%error, "a stream of events broke off");
                    return None;
                }
            }
        }
    }
}
