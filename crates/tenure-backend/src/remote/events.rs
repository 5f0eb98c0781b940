//! A stream of Server-Sent Events, each within bounds.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use reqwest::Response;
use sse_stream::SseStream;

/// One event.
pub(super) struct Event {
    pub(super) id: Option<String>,
    /// Its message, if it carries one.
    pub(super) data: Option<Bytes>,
    /// How long to wait before coming back, in milliseconds.
    pub(super) retry: Option<u64>,
}

pub(super) struct Events(BoxStream<'static, Result<sse_stream::Sse, sse_stream::Error>>);

impl Events {
    pub(super) fn new(response: Response, max: usize) -> Self {
        Self(SseStream::from_bytes_stream(bounded(response.bytes_stream(), max)).boxed())
    }

    /// The next event; `None` when the connection is over, in whatever way.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match self.0.next().await? {
                Ok(event) => event,
                Err(error) => {
                    tracing::debug!(%error, "a stream of events broke off");
                    return None;
                }
            };
            if event.event.as_deref().is_some_and(|name| name != "message") {
                continue;
            }
            let data = event.data.filter(|data| !data.trim().is_empty()).map(Bytes::from);
            return Some(Event { id: event.id, data, retry: event.retry });
        }
    }
}

/// Ends when more than `max` bytes came without an end of event, so that nobody can fill the memory.
fn bounded(
    chunks: impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static,
    max: usize,
) -> impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static {
    let mut since_end = 0;
    chunks.take_while(move |chunk| {
        if let Ok(chunk) = chunk {
            // An empty line ends an event; where it is within the chunk does not matter here.
            let ends = chunk.windows(2).any(|pair| pair == b"\n\n" || pair == b"\n\r");
            since_end = if ends { chunk.len() } else { since_end + chunk.len() };
        }
        let fits = since_end <= max;
        if !fits {
            tracing::error!(max, "an event from upstream is too long; the stream is closed");
        }
        std::future::ready(fits)
    })
}
