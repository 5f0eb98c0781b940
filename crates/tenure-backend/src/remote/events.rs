//! A stream of Server-Sent Events, each within bounds.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt};
use reqwest::Response;
use sse_stream::SseStream;

use crate::overlong;

/// One event.
pub(super) struct Event {
    pub(super) id: Option<String>,
    /// Its message, if it carries one.
    pub(super) data: Option<Bytes>,
    /// How long to wait before coming back.
    pub(super) retry: Option<Duration>,
    /// It was too long to be taken. If it was an answer, this is the number of its request.
    pub(super) too_long: Option<Option<u64>>,
}

/// The shortest pause that a server can ask for; without one it could keep us busy.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST: Duration = Duration::from_secs(60);

/// What an event is called that stands for one that was too long.
const TOO_LONG: &str = "too-long";
/// How much of the start of such an event is looked at, and of its end.
const SHOWN: usize = 256;

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
            let mut event = match self.0.next().await? {
                Ok(event) => event,
                Err(error) => {
                    tracing::debug!(%error, "a stream of events broke off");
                    return None;
                }
            };
            let too_long = match event.event.as_deref() {
                None | Some("message") => None,
                Some(TOO_LONG) => Some(event.data.take().and_then(|number| number.parse().ok())),
                Some(_) => continue,
            };
            let data = event.data.filter(|data| !data.trim().is_empty()).map(Bytes::from);
            let retry = event.retry.map(|retry| Duration::from_millis(retry).clamp(SHORTEST, LONGEST));
            return Some(Event { id: event.id, data, retry, too_long });
        }
    }
}

/// Passes whole events on. In place of one that is longer than `max` bytes, so that nobody can fill the memory, comes
/// one that says which request it would have answered.
fn bounded(
    chunks: impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static,
    max: usize,
) -> impl Stream<Item = Result<Bytes, reqwest::Error>> + Send + 'static {
    let mut bound = Bound { max, held: BytesMut::new(), dropped: None, last: 0 };
    chunks.map(move |chunk| Ok(bound.whole(&chunk?)))
}

/// Cuts events apart, however they are cut into chunks.
struct Bound {
    max: usize,
    /// An event that has not ended.
    held: BytesMut,
    /// How it began, if it was too long; then the last of it is held.
    dropped: Option<Bytes>,
    /// The last byte of the chunk before: an empty line may begin there.
    last: u8,
}

impl Bound {
    /// Whatever has ended with this chunk.
    fn whole(&mut self, chunk: &Bytes) -> Bytes {
        let last = self.last;
        self.last = chunk.last().copied().unwrap_or(last);
        let ends = memchr::memchr2_iter(b'\n', b'\r', chunk).filter(|at| {
            let before = if *at == 0 { last } else { chunk[at - 1] };
            // Two ends of line in a row are an empty line, which ends an event; `\r\n` is only one.
            matches!((before, chunk[*at]), (b'\n', _) | (b'\r', b'\r'))
        });
        let ends = ends.map(|at| match (chunk[at], chunk.get(at + 1)) {
            (b'\r', Some(b'\n')) => at + 2,
            _ => at + 1,
        });
        // Mostly, and then nothing is copied.
        if self.held.is_empty() && chunk.len() <= self.max {
            let end = ends.last().unwrap_or(0);
            self.hold(&chunk[end..]);
            return chunk.slice(..end);
        }
        let (mut whole, mut begin) = (BytesMut::new(), 0);
        for end in ends {
            self.hold(&chunk[begin..end]);
            match self.dropped.take() {
                None => whole.extend_from_slice(&self.held),
                Some(start) => whole.extend_from_slice(in_place_of(&start, &self.held).as_bytes()),
            }
            self.held.clear();
            begin = end;
        }
        self.hold(&chunk[begin..]);
        whole.freeze()
    }

    fn hold(&mut self, more: &[u8]) {
        self.held.extend_from_slice(more);
        if self.dropped.is_none() && self.held.len() > self.max {
            tracing::error!(max = self.max, "an event from upstream is too long; dropped");
            self.dropped = Some(Bytes::copy_from_slice(&self.held[..self.held.len().min(SHOWN)]));
        }
        if self.dropped.is_some() {
            let end = self.held.len().saturating_sub(SHOWN);
            self.held = BytesMut::from(&self.held[end..]);
        }
    }
}

fn in_place_of(start: &[u8], end: &[u8]) -> String {
    let number = overlong::answers(start, end).map(|number| number.to_string()).unwrap_or_default();
    format!("event: {TOO_LONG}\ndata: {number}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes out of a text in chunks of this size.
    fn whole(max: usize, text: &str, size: usize) -> String {
        let mut bound = Bound { max, held: BytesMut::new(), dropped: None, last: 0 };
        let chunks = text.as_bytes().chunks(size);
        let whole: Vec<_> = chunks.map(|chunk| bound.whole(&Bytes::copy_from_slice(chunk))).collect();
        assert!(bound.held.len() <= max.max(SHOWN), "no more is held than may be");
        String::from_utf8(whole.concat()).unwrap()
    }

    #[test]
    fn events_end_wherever_they_are_cut() {
        for end in ["\n\n", "\r\n\r\n", "\r\r"] {
            let text = format!("data: 1{end}").repeat(9);
            for size in 1..=text.len() {
                let (whole, all) = (whole(16, &text, size), text.trim_end_matches('\n'));
                assert_eq!(whole.trim_end_matches('\n'), all, "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_left_out_and_the_next_is_whole() {
        for end in ["\n\n", "\r\n\r\n", "\r\r"] {
            let long = format!("data: {{\"id\":7,\"result\":\"{}\"}}{end}", "x".repeat(1000));
            let text = format!("data: 1{end}{long}data: 2{end}data: {}{end}data: 3{end}", "y".repeat(500));
            for size in 1..=text.len() {
                let whole = whole(32, &text, size);
                let events: Vec<_> = whole.split(['\r', '\n']).filter(|line| !line.is_empty()).collect();
                let wanted = [
                    "data: 1",
                    "event: too-long",
                    "data: 7",
                    "data: 2",
                    "event: too-long",
                    "data: ",
                    "data: 3",
                ];
                assert_eq!(events, wanted, "in pieces of {size}");
            }
        }
        assert_eq!(whole(8, &"data: 1\n".repeat(9), 100), "", "without an end nothing comes");
    }
}
