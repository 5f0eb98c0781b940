//! The messages of an event stream, with the ids and the pause for resuming it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use reqwest::Response;

use super::sse::{Block, Data, Parser};
use crate::oversize;

/// One event.
pub(super) struct UpstreamEvent {
    /// The id to resume after, if the event has one.
    pub(super) id: Option<String>,
    /// Its message, if it carries one.
    pub(super) data: Option<Bytes>,
    /// Set if the event was too long. The inner value is the number of the request, if the event was an answer.
    pub(super) too_long: Option<Option<u64>>,
}

/// The shortest pause that a server can set, so that it cannot keep us busy.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest pause that a server can set.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) struct UpstreamEvents {
    chunks: BoxStream<'static, reqwest::Result<Bytes>>,
    /// The unparsed rest of the last chunk.
    chunk: Bytes,
    /// Boxed, because it would enlarge every `HttpAnswer`.
    parser: Box<Parser>,
}

impl UpstreamEvents {
    /// Reads events of at most `max` bytes.
    pub(super) fn new(response: Response, max: usize) -> Self {
        // Errors are logged, and the URL may contain a key.
        let chunks = response.bytes_stream().map_err(reqwest::Error::without_url).boxed();
        Self { chunks, chunk: Bytes::new(), parser: Box::new(Parser::new(max)) }
    }

    /// The endpoint in the first event of an HTTP+SSE stream; `None` if the first event is another one.
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

    /// The next event; `None` when the connection has ended or failed.
    ///
    /// # Cancel safety
    /// Nothing is lost when it is dropped.
    pub(super) async fn next(&mut self) -> Option<UpstreamEvent> {
        let Block { name, id, data } = self.block().await?;
        let (data, too_long) = match data {
            // Another event type without a message for us; but the stream can be resumed after its id.
            _ if !matches!(&*name, "" | "message") => (None, None),
            Data::None => (None, None),
            Data::Whole(data) => (Some(data).filter(|data| !data.trim_ascii().is_empty()), None),
            Data::TooLong { start, end } => (None, Some(oversize::answers(&start, &end))),
        };
        Some(UpstreamEvent { id, data, too_long })
    }

    /// The pause before reconnecting, if the server has set one.
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
