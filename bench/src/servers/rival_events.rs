//! An event store in memory for rmcp, which brings only the trait.
//!
//! As fast as such a store can be: ids hold their stream's number and the event's place, so a
//! replay starts without a search.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures_util::stream;
use rmcp::transport::streamable_http_server::session::{
    EventId, EventStore, EventStoreError, EventStream, ServerSseMessage,
};

#[derive(Debug, Default)]
pub(super) struct MemoryEvents {
    streams: Mutex<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    numbers: HashMap<String, usize>,
    events: Vec<Vec<ServerSseMessage>>,
}

#[async_trait::async_trait]
impl EventStore for MemoryEvents {
    async fn store_event(&self, stream: &str, event: &ServerSseMessage) -> Result<EventId, EventStoreError> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match streams.numbers.get(stream) {
            Some(number) => *number,
            None => {
                let number = streams.events.len();
                streams.events.push(Vec::new());
                streams.numbers.insert(stream.to_owned(), number);
                number
            }
        };
        let events = &mut streams.events[number];
        let id = format!("{number}-{}", events.len());
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        events.push(event);
        Ok(id)
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        let (number, place) = parse(last).ok_or_else(|| format!("bad event id `{last}`"))?;
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let events = streams.events.get(number).ok_or_else(|| format!("no stream of event `{last}`"))?;
        let missed = events.get(place + 1..).unwrap_or_default().to_vec();
        Ok(Box::pin(stream::iter(missed)))
    }
}

fn parse(id: &str) -> Option<(usize, usize)> {
    let (number, place) = id.split_once('-')?;
    Some((number.parse().ok()?, place.parse().ok()?))
}
