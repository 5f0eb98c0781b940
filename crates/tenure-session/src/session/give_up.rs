//! Gives up a session that another node owns, or may own: this node shows and writes nothing more of it.
//!
//! Events that are not in the log are not shown, because no client could resume after them. Requests that wait for an
//! answer get an error that says that they were interrupted. Readers are closed, and their clients come back, to
//! whichever node. The record and the log stay as they are.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tenure_protocol::{Message, Reason, RequestId, RpcError, message};

use crate::id::{Position, StreamId};
use crate::port::observer::Happened;
use crate::session::deadline::Due;
use crate::session::live_session::{Session, SessionState, Settled};
use crate::session::request::Answer;
use crate::session::sessions::SessionRuntime;
use crate::session::stream::{NoteStatus, TailEvent};

impl SessionRuntime {
    /// Starts the loops that a node of a cluster needs.
    pub(super) fn watch_cluster(self: &Arc<Self>) {
        let Some(roster) = &self.roster else { return };
        self.loops.include(roster.loops());
        self.watch_unreleased();
        self.watch_counts();
        let (stop, watched) = (self.stop.clone(), Arc::clone(self));
        let watch = move || {
            let (stop, watched) = (watched.stop.clone(), Arc::clone(&watched));
            async move {
                stop.run_until_cancelled(watched.watch_terms()).await;
            }
        };
        self.tasks.spawn(self.loops.keep("sessions of a lost name", stop, watch));
    }

    /// Gives up the sessions of a name that this node has lost, whenever it loses one.
    async fn watch_terms(self: Arc<Self>) {
        let Some(roster) = &self.roster else { return };
        loop {
            let term = roster.term();
            for session in self.live.all() {
                if session.by.term != term {
                    session.give_up();
                }
            }
            roster.term_over(term).await;
        }
    }
}

impl Session {
    /// Whether the name that it was claimed under is still this node's. If not, the session is given up.
    pub(super) fn check_term(self: &Arc<Self>) -> bool {
        let is_ours = self.inner.roster.as_ref().is_none_or(|roster| roster.term() == self.by.term);
        if !is_ours {
            self.give_up();
        }
        is_ours
    }

    /// Gives the session up. Later requests are sent to its new owner.
    pub(super) fn give_up(self: &Arc<Self>) {
        let link = {
            let mut state = self.state.lock();
            if state.end.is_some() || state.is_given_up {
                return;
            }
            // With `left`, streams get no more events, and late answers of the server are ignored.
            (state.is_given_up, state.left) = (true, true);
            self.interrupt_all(&mut state);
            for uri in &std::mem::take(&mut state.subscriptions) {
                self.inner.watchers.remove(uri, &self.id);
            }
            if let Some(due) = state.due.take() {
                self.inner.deadlines.remove(due, Due::Session(self.id));
            }
            if let Some(count_guard) = state.count_guard.take() {
                count_guard.keep();
            }
            state.link.take()
        };
        tracing::warn!(session = %self.label, "the session is given up: another node has it, or may have it");
        self.inner.live.remove_if(&self.id, |session| Arc::ptr_eq(session, self));
        self.inner.places.forget(&self.key);
        self.tell_observer(Happened::GivenUp);
        if self.inner.claimant() == self.by {
            // This node may be the owner all the same, and must not keep others from taking it.
            self.inner.give_back_later(self.key);
        }
        if let Some(link) = link {
            self.inner.closing.spawn(async move { link.close().await });
        }
        self.inner.stir();
    }

    /// In a cluster a stream begins when its note is in the log. If the session is given up before, the answer is JSON, and
    /// not an event that a resume would not repeat.
    pub(super) async fn once_noted(&self, id: RequestId, answer: Answer) -> Answer {
        let Answer::Stream(mut reader) = answer else { return answer };
        if self.inner.roster.is_none() {
            return Answer::Stream(reader);
        }
        let can_resume = reader.can_resume().await;
        if can_resume || !self.state.lock().is_given_up {
            return Answer::Stream(reader);
        }
        Answer::Json(message::write_error(Some(&id), &interrupted_error()))
    }

    /// Called when the session's wake has failed: another try, or another node, wakes it as a new object.
    /// This object writes nothing any more, and leaves the entries of the watched resources to the new one.
    pub(super) fn abandon(&self) {
        if self.inner.roster.is_none() {
            return;
        }
        let mut state = self.state.lock();
        if state.end.is_some() || state.is_given_up {
            return;
        }
        (state.is_given_up, state.left) = (true, true);
        self.interrupt_all(&mut state);
        state.subscriptions.clear();
        drop(state);
        if self.fence() != self.epoch || self.claim_in_doubt.load(Ordering::Acquire) {
            // It was claimed again for a write, so the release of the first claim does nothing.
            self.inner.unreleased.add(self.key);
        }
    }

    pub(super) fn interrupt_all(&self, state: &mut SessionState) {
        let error = interrupted_error();
        let calls: Vec<(RequestId, _)> = std::mem::take(&mut state.calls).into_iter().collect();
        let mut unanswered: Vec<(StreamId, RequestId)> =
            calls.iter().filter_map(|(id, call)| Some((call.stream?, id.clone()))).collect();
        // An answer that is not in the log is not shown either, and its request is no longer among the calls.
        unanswered.extend(state.outbox.answers.drain(..).filter_map(|(stream, body)| {
            let Ok(Message::Response(response)) = Message::parse(&body) else { return None };
            Some((stream, response.id))
        }));
        let primes = state.revision.primes_streams();
        let numbers = calls.iter().map(|(_, call)| call.number).collect();
        state.settled = Some(Settled { error: error.clone(), calls: numbers });
        state.asks.clear();
        state.outbox.clear();
        (state.unsaved, state.log_lags, state.renew_notes) = (false, false, false);
        for (id, stream) in &mut state.streams {
            stream.queued = 0;
            stream.unlogged.clear();
            let has_id = primes || stream.delivered > Position::START;
            let can_resume =
                *id == StreamId::STANDALONE || (has_id && stream.note_status == NoteStatus::Written);
            if let Some(attached) = &mut stream.reader {
                attached.tail.retain(|event| event.position.is_some());
            }
            if can_resume {
                let retry = self.retry(*id);
                if let Some(attached) = &mut stream.reader {
                    attached.closing = Some(retry);
                }
            } else {
                // Its client has no id to come back with, so it gets its answers now. A reader that is not attached yet
                // gets them too.
                let own = unanswered.iter().filter(|(stream, _)| stream == id);
                let answers = own.map(|(_, request)| TailEvent {
                    position: None,
                    after: Position::START,
                    is_unknown: true,
                    body: message::write_error(Some(request), &error),
                });
                match &mut stream.reader {
                    Some(attached) => attached.tail.extend(answers),
                    None => stream.unlogged.extend(answers),
                }
                stream.ended = true;
                // It waits for its note, which no longer comes.
                stream.note_status = NoteStatus::Unknown;
            }
            stream.wake_reader();
        }
        for (_, call) in calls {
            if let Some(cancel) = call.cancel {
                cancel.cancel();
            }
            if let Some(waiter) = call.waiter {
                waiter.wake();
            }
        }
    }
}

/// The error for a request whose session went to another node.
pub(super) fn interrupted_error() -> RpcError {
    RpcError::of(
        Reason::Interrupted,
        "The session went to another node before the answer came; the request may or may not have been carried out",
    )
}
