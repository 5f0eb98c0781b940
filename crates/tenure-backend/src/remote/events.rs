//! A stream of Server-Sent Events, each within bounds.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt};
use reqwest::Response;
use sse_stream::SseStream;

/// One event.
pub(super) struct Event {
    pub(super) id: Option<String>,
    /// Its message, if it carries one.
    pub(super) data: Option<Bytes>,
    /// How long to wait before coming back.
    pub(super) retry: Option<Duration>,
}

/// The shortest pause that a server can ask for; without one it could keep us busy.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) struct Events(BoxStream<'static, Result<sse_stream::Sse, sse_stream::Error>>);

impl Events {
    pub(super) fn new(response: Response, max: usize) -> Self {
        // What breaks it off is logged, and the URL may carry a key.
        let chunks = response.bytes_stream().map_err(reqwest::Error::without_url);
        Self(SseStream::from_bytes_stream(bounded(chunks, max)).boxed())
    }

    /// The endpoint that the first event names, as HTTP+SSE begins; `None` if it begins with something else.
    pub(super) async fn endpoint(&mut self) -> Option<String> {
        loop {
            let event = self.0.next().await?.ok()?;
            match event.event.as_deref() {
                Some("endpoint") => return event.data,
                // A comment, or how long to wait before coming back.
                None if event.data.is_none() => {}
                _ => return None,
            }
        }
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
            let retry = event.retry.map(|retry| Duration::from_millis(retry).clamp(SHORTEST, LONGEST));
            return Some(Event { id: event.id, data, retry });
        }
    }
}

/// Ends when an event is longer than `max` bytes, so that nobody can fill the memory.
fn bounded(
    chunks: impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static,
    max: usize,
) -> impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static {
    let mut bound = Bound { max, since_end: 0, last: 0 };
    chunks.take_while(move |chunk| {
        let fits = chunk.as_ref().map_or(true, |chunk| bound.fits(chunk));
        if !fits {
            tracing::error!(max, "an event from upstream is too long; the stream is closed");
        }
        std::future::ready(fits)
    })
}

/// Measures events, however they are cut into chunks.
struct Bound {
    max: usize,
    /// Bytes since the last event ended.
    since_end: usize,
    /// The last byte of the chunk before: an empty line may begin there.
    last: u8,
}

impl Bound {
    /// Whether the events up to the end of this chunk are short enough.
    fn fits(&mut self, chunk: &[u8]) -> bool {
        let mut begin = 0;
        for at in memchr::memchr2_iter(b'\n', b'\r', chunk) {
            let before = if at == 0 { self.last } else { chunk[at - 1] };
            // Two ends of line in a row are an empty line, which ends an event; `\r\n` is only one.
            if matches!((before, chunk[at]), (b'\n', _) | (b'\r', b'\r')) {
                if self.since_end + (at - begin) > self.max {
                    return false;
                }
                (self.since_end, begin) = (0, at + 1);
            }
        }
        self.since_end += chunk.len() - begin;
        self.last = chunk.last().copied().unwrap_or(self.last);
        self.since_end <= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(max: usize, text: &str, size: usize) -> bool {
        let mut bound = Bound { max, since_end: 0, last: 0 };
        text.as_bytes().chunks(size).all(|chunk| bound.fits(chunk))
    }

    #[test]
    fn events_end_wherever_they_are_cut() {
        for end in ["\n\n", "\r\n\r\n", "\r\r"] {
            let text = format!("data: 1{end}").repeat(9);
            for size in 1..=text.len() {
                assert!(fits(16, &text, size), "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn an_event_without_an_end_is_too_long() {
        for line in ["data: 1\n", "data: 1\r\n", "data: 1\r"] {
            let text = line.repeat(9);
            for size in 1..=text.len() {
                assert!(!fits(32, &text, size), "{text:?} in pieces of {size}");
            }
        }
        assert!(!fits(8, "data: 12345\n\n", 100), "also if its end comes with it");
    }
}
