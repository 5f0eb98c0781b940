//! The later events of a stream, read from the store as the client takes them.
//!
//! One stretch is in memory at a time. The replay ends where the log ends: a client that wants more resumes with its
//! last id. If the log expires and is dropped meanwhile, the replay ends early but without a gap: the client has
//! every event up to its last id, and learns at its next resume that the stream is gone.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::vec;

use futures_util::Stream;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tenure_session::id::SessionKey;
use tenure_session::port::store::{Event, ReadLimit, Store, Stored, StreamEvents};

use super::STREAM;
use super::layout;
use super::names::EventName;

/// The limit of one read.
const STRETCH: ReadLimit = ReadLimit { events: 256, bytes: 1 << 20 };

pub(super) struct RmcpReplay {
    store: Arc<dyn Store>,
    /// The last event that was passed on.
    after: EventName,
    ready: vec::IntoIter<Event>,
    /// The read under way. The mutex is never locked; it only makes the stream `Sync`, as rmcp requires.
    reading: Mutex<Option<Stored<StreamEvents>>>,
    ended: bool,
}

impl RmcpReplay {
    pub(super) fn new(store: Arc<dyn Store>, after: EventName) -> Self {
        Self { store, after, ready: Vec::new().into_iter(), reading: Mutex::new(None), ended: false }
    }

    fn log(&self) -> SessionKey {
        self.after.log
    }

    /// The next event of the stretch; skips events that cannot be decoded.
    fn next_ready(&mut self) -> Option<ServerSseMessage> {
        loop {
            let event = self.ready.next()?;
            self.after.position = event.position;
            match layout::read_event(&event.body) {
                Ok(mut message) => {
                    message.event_id = Some(self.after.to_string());
                    return Some(message);
                }
                // Skip it: otherwise every replay would stop at this event for ever.
                Err(error) => {
                    let log = self.log();
                    tracing::error!(?log, position = event.position.0, %error, "an event cannot be read back");
                }
            }
        }
    }

    fn take(&mut self, stretch: StreamEvents) {
        if stretch.trimmed > self.after.position {
            tracing::warn!(log = ?self.log(), "events that a client asks for are no longer kept");
        }
        self.ended = stretch.events.is_empty();
        self.ready = stretch.events.into_iter();
    }
}

impl Stream for RmcpReplay {
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
                    // The client asks again for the events that it did not get, so none is lost.
                    tracing::warn!(?log, %error, "a replay ends early");
                    this.ended = true;
                }
            }
        }
    }
}
