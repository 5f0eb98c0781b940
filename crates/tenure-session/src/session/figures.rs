//! Counts what happens to a session, for operators.
//!
//! In: requests from the transport, events from the runtime. Out: the session's figures, and the observer's events.

use std::net::SocketAddr;

use tokio::time::Instant;

use crate::figures::{RequestFigures, SessionFigures, TimelineEvent};
use crate::id::SessionKey;
use crate::port::clock::Time;
use crate::port::observer::{Happened, Resumption};
use crate::record::EndCause;
use crate::session::live_session::Session;
use crate::session::sessions::Sessions;
use crate::session::wake;

impl Session {
    /// What was counted of it since it was created.
    pub fn figures(&self) -> SessionFigures {
        self.figures.lock().as_deref().cloned().unwrap_or_default()
    }

    /// The tool that was called last; the address and the transport of the last request.
    pub(super) fn last_request(&self) -> (Option<Box<str>>, Option<SocketAddr>, Option<Box<str>>) {
        let figures = self.figures.lock();
        let Some(figures) = figures.as_deref() else { return (None, None, None) };
        (figures.last_tool.clone(), figures.remote, figures.transport.clone())
    }

    /// Counts a request that has ended. The transport calls this, which knows how the answer went out.
    pub fn count(&self, request: &RequestFigures<'_>) {
        self.figures.lock().get_or_insert_default().count(request);
    }

    /// Notes something that happened to it. It is written with the next write of its record.
    pub(super) fn note(&self, what: TimelineEvent) {
        let now = self.inner.clock.now();
        self.figures.lock().get_or_insert_default().note(now, what);
    }

    /// Removes a note, because it did not happen after all.
    pub(super) fn take_note_back(&self, what: TimelineEvent) {
        if let Some(figures) = self.figures.lock().as_mut() {
            figures.take_back(what);
        }
    }

    /// Tells the observer and the timeline the result of a client's resume.
    pub(super) fn tell_resumed(&self, how: Resumption) {
        self.note(match how {
            Resumption::Replayed => TimelineEvent::Resumed,
            Resumption::Gap => TimelineEvent::ResumedWithGap,
            Resumption::Foreign | Resumption::Fresh => TimelineEvent::ResumedForeign,
        });
        self.tell_observer(Happened::Resumed { how });
    }

    /// Tells the observer how the session ended.
    pub(super) fn tell_ended(&self, end: EndCause) {
        if !self.inner.hub.observer.is_set() {
            return;
        }
        let (requests, errors) =
            self.figures.lock().as_deref().map_or((0, 0), |figures| (figures.requests, figures.errors));
        let lived = Some(self.inner.clock.now().since(self.created));
        let client = self.client_name();
        self.tell_observer(Happened::Ended { how: end.word(), lived, client, requests, errors });
    }

    /// The time, if there is an observer that wants to know how long something takes.
    pub(super) fn stopwatch(&self) -> Option<Instant> {
        self.inner.hub.observer.stopwatch()
    }
}

impl Sessions {
    /// The figures of a session, awake or dormant, and the time at which it was created. `None` if there is no such session, or
    /// its record cannot be read.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn figures_of(&self, key: &SessionKey) -> Option<(SessionFigures, Time)> {
        if let Some(session) = self.0.live.by_key(key) {
            return Some((session.figures(), session.created));
        }
        let dormant = wake::any_dormant(&self.0, *key).await.ok()??;
        let figures = dormant.record.figures.as_deref().cloned().unwrap_or_default();
        Some((figures, Time(dormant.record.created)))
    }
}
