//! The later events of a stream, read from the store as they are asked for.
//!
//! One stretch is in memory at a time. The stream ends where the log ends: a client that wants more comes back
//! with the last id it got. A log that expires and is dropped meanwhile ends early, but has no hole: the client has
//! then got everything up to its last id, and learns that the stream is gone when it comes back.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::vec;

use futures_util::Stream;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tenure_session::id::SessionKey;
use tenure_session::port::store::{Event, ReadLimit, Store, Stored, Stretch};

use super::STREAM;
use super::layout;
use super::names::EventName;

/// How much is read at once.
const STRETCH: ReadLimit = ReadLimit { events: 256, bytes: 1 << 20 };

pub(super) struct Replay {
    store: Arc<dyn Store>,
    /// The last event that was passed on.
    after: EventName,
    ready: vec::IntoIter<Event>,
    /// The read that is under way. It is never locked: rmcp wants a stream that is `Sync`, and a future alone
    /// is not.
    reading: Mutex<Option<Stored<Stretch>>>,
    ended: bool,
}

impl Replay {
    pub(super) fn new(store: Arc<dyn Store>, after: EventName) -> Self {
        Self { store, after, ready: Vec::new().into_iter(), reading: Mutex::new(None), ended: false }
    }

    fn log(&self) -> SessionKey {
        self.after.log
    }

    /// The next event of the stretch that can be read.
    fn next_ready(&mut self) -> Option<ServerSseMessage> {
        loop {
            let event = self.ready.next()?;
            self.after.position = event.position;
            match layout::read_event(&event.body) {
                Ok(mut message) => {
                    message.event_id = Some(self.after.to_string());
                    return Some(message);
                }
                // To stop here would stop every replay here, for ever.
                Err(error) => {
                    let log = self.log();
                    tracing::error!(?log, position = event.position.0, %error, "an event cannot be read back");
                }
            }
        }
    }

    fn take(&mut self, stretch: Stretch) {
        if stretch.trimmed > self.after.position {
            tracing::warn!(log = ?self.log(), "events that a client asks for are no longer kept");
        }
        self.ended = stretch.events.is_empty();
        self.ready = stretch.events.into_iter();
    }
}

impl Stream for Replay {
    type Item = ServerSseMessage;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(message) = this.next_ready() {
                return Poll::Ready(Some(message));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            let reading = this.reading.get_mut();
            let (log, position) = (this.after.log, this.after.position);
            let read = reading.get_or_insert_with(|| this.store.read(log, STREAM, position, STRETCH));
            let stretch = ready!(read.as_mut().poll(context));
            *reading = None;
            match stretch {
                Ok(stretch) => this.take(stretch),
                Err(error) => {
                    // What was not passed on is asked for again, so nothing is lost.
                    tracing::warn!(?log, %error, "a replay ends early");
                    this.ended = true;
                }
            }
        }
    }
}
