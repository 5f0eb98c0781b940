//! The only shutdown path: accept no new sessions, wait for requests that cannot be repeated, leave the others to the
//! next process, stop.
//!
//! A stop is never worse than a kill. A request that has a note in the log and is safe to repeat stays open there, and
//! its client is told to come back: the next process runs it again, as after a kill. The stop waits for all other
//! requests, up to a deadline, and then answers them as interrupted. During the stop, new requests that are safe to
//! repeat are served. Other new requests are held if their clients can come back: a note is written for the next
//! process, and they do not start. Shortly before the end all new requests are held.
//!
//! If the store does not survive the process, or a client cannot come back, the stop waits for all requests.
//!
//! In a cluster with another node that can take them, sessions leave during the stop, each as soon as nothing runs in it
//! (`give_away`). New requests that are not safe to repeat then wait for the next owner, outside of this module.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Error, Reason, Request, RequestId, RpcError, message};
use tokio::time::Instant;

use crate::call::Collect;
use crate::id::Position;
use crate::port::store::StoreDurability;
use crate::session::live_session::{InFlight, Session, SessionState, Settled};
use crate::session::sessions::{SessionRuntime, Sessions};
use crate::session::stream::NoteStatus;

/// Extra time for requests that are about to be answered with JSON, even if the stop waits for no other request.
const MOMENT: Duration = Duration::from_millis(250);

/// Longest wait for the last writes to the store, and for servers and tasks to end.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Shortest time between two checks of all sessions, however often a request ends.
const CHECK_PAUSE: Duration = Duration::from_millis(5);

/// How far the shutdown is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum DrainStage {
    /// Everything is served.
    Open,
    /// Everything is served, and another process takes over the same socket.
    HandingOver,
    /// Everything is served, except new sessions.
    Draining,
    /// New requests get a note for the next process, and do not start.
    Holding,
    /// Open requests belong to the next process.
    Left,
}

/// Which tools may be called twice, according to the server.
pub(super) enum ToolHints {
    /// The server was not asked yet.
    Unknown,
    /// The server has been asked.
    Asked,
    /// The names of the tools.
    Known(Vec<String>),
}

/// Which requests the stop waits for, of those that cannot be left to the next process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Those that were in flight when the stop began.
    Early,
    /// All, and also those that can be left but are about to be answered with JSON.
    Soon,
    /// All.
    All,
}

/// What happens to a request if the process ends before the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShutdownFate {
    /// The next process runs it again.
    Left,
    /// The next process decides whether it may run again.
    Undecided,
    /// It ends with an error.
    Interrupted,
}

/// Counts a session that is being created, for which the stop waits.
pub(super) struct Creating<'a>(&'a SessionRuntime);

impl<'a> Creating<'a> {
    pub(super) fn begin(inner: &'a SessionRuntime) -> Self {
        inner.creating.fetch_add(1, Ordering::SeqCst);
        Self(inner)
    }
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        self.0.creating.fetch_sub(1, Ordering::SeqCst);
        self.0.stir();
    }
}

impl Sessions {
    /// Refuses new sessions from now on. Everything else goes on.
    ///
    /// In a cluster the other nodes are told, and take each session with its next request once nothing runs in it here.
    pub fn drain(&self) {
        let before = self.0.go_to(DrainStage::Draining);
        self.0.ask_for_hints();
        if let Some(roster) = &self.0.roster
            && before < DrainStage::Draining
        {
            roster.set_draining();
            if roster.takers().is_empty() {
                for session in self.0.live.all() {
                    session.fall_asleep();
                }
            }
            self.0.give_away_quiet();
        }
    }

    /// Prepares for another process that takes over the same socket and store. Everything goes on, including new
    /// sessions: the next process finds them in the store.
    pub fn hand_over(&self) {
        if self.0.outlives_us() {
            self.0.is_handed_over.store(true, Ordering::Relaxed);
            self.0.go_to(DrainStage::HandingOver);
            self.0.ask_for_hints();
        } else {
            self.drain();
        }
    }

    /// Waits, at most `limit`, for requests that arrived before the drain or hand-over and cannot be left to the next
    /// process.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn calm(&self, limit: Duration) {
        self.0.wait(Wait::Early, limit).await;
    }

    /// Stops all work, but leaves the servers running: holds new requests, waits up to `limit` for requests that cannot
    /// be left to the next process, answers the remaining ones with an error, and saves the sessions. Afterwards no
    /// task here uses the store. Returns the number of interrupted requests.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn settle(&self, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        self.drain();
        self.0.go_to(DrainStage::Holding);
        self.0.ask_for_hints();
        self.0.wait(Wait::Soon, limit.min(MOMENT)).await;
        for session in self.0.live.all() {
            session.stream_what_can_be_left();
        }
        self.0.stir();
        self.0.wait(Wait::All, deadline - Instant::now()).await;
        // A session that is woken later sees the stage and fails, so `leave` below reaches all sessions.
        self.0.waking.while_no_wake_ends(|| {
            self.0.go_to(DrainStage::Left);
        });
        let interrupted = self.0.live.all().iter().map(|session| session.leave()).sum();
        match &self.0.roster {
            // A session that is released now is not owned by a node that is about to end.
            Some(_) => self.0.give_away_all().await,
            None => self.note_deliveries().await,
        }
        self.0.stop.cancel();
        self.0.tasks.close();
        // These tasks include the last appends.
        if tokio::time::timeout(LAST_WRITES, self.0.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.0.tasks.len(), "tasks were still running at shutdown");
        }
        interrupted
    }

    /// Closes the links to all servers. Call it after [`Sessions::settle`].
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn close(&self) {
        for session in self.0.live.all() {
            let link = session.state.lock().link.take();
            if let Some(link) = link {
                // In parallel, because each may be slow.
                self.0.closing.spawn(async move { link.close().await });
            }
        }
        self.0.closing.close();
        // A link that does not close in time ends with the process.
        drop(tokio::time::timeout(LAST_WRITES, self.0.closing.wait()).await);
    }

    /// Stops: as [`Sessions::settle`], and closes all links.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn shut_down(&self, limit: Duration) -> usize {
        let interrupted = self.settle(limit).await;
        self.close().await;
        interrupted
    }

    /// Saves the delivery positions, so that the next process repeats no event to listening clients.
    async fn note_deliveries(&self) {
        let live = self.0.live.all();
        for session in &live {
            let mut state = session.state.lock();
            if state.end.is_none() && state.delivered() != session.saved_delivery.load(Ordering::Relaxed) {
                session.save(&mut state);
            }
        }
        let saved = async {
            for session in &live {
                session.saved().await;
            }
        };
        // Do not wait longer for a store that does not answer.
        drop(tokio::time::timeout(LAST_WRITES, saved).await);
    }
}

impl SessionRuntime {
    pub(super) fn stage(&self) -> DrainStage {
        const STAGES: [DrainStage; 5] = [
            DrainStage::Open,
            DrainStage::HandingOver,
            DrainStage::Draining,
            DrainStage::Holding,
            DrainStage::Left,
        ];
        STAGES[usize::from(self.stage.load(Ordering::SeqCst)).min(4)]
    }

    /// Goes on to a stage. Returns the stage before.
    fn go_to(&self, stage: DrainStage) -> DrainStage {
        let before = self.stage();
        self.stage.fetch_max(stage as u8, Ordering::SeqCst);
        before
    }

    /// Makes a stop check again, because a request that it waits for may have ended.
    pub(super) fn stir(&self) {
        if self.stage() != DrainStage::Open {
            self.idle.notify_waiters();
        }
    }

    /// Whether the next process, or another node, will find the log.
    pub(super) fn outlives_us(&self) -> bool {
        self.roster.is_some() || self.store.capabilities().durability != StoreDurability::Process
    }

    /// Waits until no request of that kind is in flight, at most `limit`.
    async fn wait(&self, wait: Wait, limit: Duration) {
        let calm = async {
            loop {
                let stirred = self.idle.notified();
                tokio::pin!(stirred);
                // Register before the check, so that no notification is missed.
                stirred.as_mut().enable();
                if !self.is_held_up(wait) {
                    return;
                }
                stirred.await;
                tokio::time::sleep(CHECK_PAUSE).await;
            }
        };
        drop(tokio::time::timeout(limit, calm).await);
    }

    fn is_held_up(&self, wait: Wait) -> bool {
        self.creating.load(Ordering::SeqCst) > 0
            || !self.waking.is_empty()
            || self.live.all().iter().any(|session| session.holds_up(wait))
    }

    /// Asks servers which tools may be called twice, if a running call depends on it.
    fn ask_for_hints(self: &Arc<Self>) {
        if !self.outlives_us() {
            return;
        }
        for session in self.live.all() {
            session.ask_for_hints();
        }
    }
}

impl Session {
    fn holds_up(&self, wait: Wait) -> bool {
        let state = self.state.lock();
        let awaited = |call: &InFlight| match wait {
            Wait::Early => !call.is_late && self.fate(&state, call) != ShutdownFate::Left,
            Wait::Soon => call.stream.is_none() || self.fate(&state, call) != ShutdownFate::Left,
            Wait::All => self.fate(&state, call) != ShutdownFate::Left,
        };
        state.end.is_none() && !state.left && state.calls.values().any(awaited)
    }

    fn ask_for_hints(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            let decides = |call: &InFlight| params::repeat(&call.method) == Repeat::AskTool && !call.is_held;
            let asks = state.end.is_none() && state.calls.values().any(decides);
            if !asks || !matches!(state.hints, ToolHints::Unknown) {
                return;
            }
            state.hints = ToolHints::Asked;
        }
        let (session, stop) = (Arc::clone(self), self.inner.stop.clone());
        self.inner.tasks.spawn(async move {
            let Some(tools) = stop.run_until_cancelled(session.repeatable_tools()).await else { return };
            let whose = (session.route.clone(), session.owner.clone());
            session.inner.safe_tools.lock().insert(whose, tools.clone());
            session.state.lock().hints = ToolHints::Known(tools);
            session.inner.stir();
        });
    }

    /// Whether a new request is known to be safe to repeat, without asking a server now: the hints that another session
    /// of the same owner and endpoint has received are valid here too.
    pub(super) fn is_known_to_be_safe(&self, request: &Request) -> bool {
        match params::repeat(&request.method) {
            Repeat::Safe => true,
            Repeat::Never => false,
            Repeat::AskTool => {
                let safe = self.inner.safe_tools.lock();
                let tools = safe.get(&(self.route.clone(), self.owner.clone()));
                let name = params::tool_name(request.params.as_ref());
                name.is_some_and(|name| tools.is_some_and(|tools| tools.contains(&name)))
            }
        }
    }

    /// Whether the next process runs a request if this one ends now.
    pub(super) fn is_left_open(&self, state: &SessionState, call: &InFlight) -> bool {
        self.fate(state, call) == ShutdownFate::Left
    }

    /// What happens to a request if the process ends now.
    fn fate(&self, state: &SessionState, call: &InFlight) -> ShutdownFate {
        if !self.inner.outlives_us() || call.collect == Collect::Here || !state.can_come_back(call) {
            return ShutdownFate::Interrupted;
        }
        match params::repeat(&call.method) {
            _ if call.is_held => ShutdownFate::Left,
            Repeat::Safe => ShutdownFate::Left,
            Repeat::Never => ShutdownFate::Interrupted,
            Repeat::AskTool => match &state.hints {
                ToolHints::Unknown | ToolHints::Asked => ShutdownFate::Undecided,
                ToolHints::Known(tools) => {
                    let name = params::tool_name(call.params.as_ref());
                    if name.is_some_and(|name| tools.contains(&name)) {
                        ShutdownFate::Left
                    } else {
                        ShutdownFate::Interrupted
                    }
                }
            },
        }
    }

    /// Turns requests whose clients wait for JSON, but can come back, into streams, so that the log has their notes.
    fn stream_what_can_be_left(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            let waits = |call: &InFlight| call.stream.is_none() && call.waiter.is_some();
            let left = |call: &InFlight| waits(call) && self.fate(&state, call) == ShutdownFate::Left;
            let left: Vec<(RequestId, u64)> = state
                .calls
                .iter()
                .filter(|(_, call)| left(call))
                .map(|(id, call)| (id.clone(), call.number))
                .collect();
            for (id, number) in left {
                // Fails only for a request that is not in flight.
                drop(self.stream_of(&mut state, &id, number));
            }
        }
        self.flush();
    }

    /// Leaves open requests to the next process if possible, and ends the others with an error. Returns their number.
    fn leave(self: &Arc<Self>) -> usize {
        self.leave_if(|_, _| true).unwrap_or(0)
    }

    /// Does so if `may_leave` says so; `None` if not.
    pub(super) fn leave_if(
        self: &Arc<Self>,
        may_leave: impl FnOnce(&Self, &SessionState) -> bool,
    ) -> Option<usize> {
        let interrupted = {
            let mut state = self.state.lock();
            if state.end.is_some() || state.left || !may_leave(self, &state) {
                return None;
            }
            let all: Vec<RequestId> = state.calls.keys().cloned().collect();
            let calls: Vec<u64> = all.iter().filter_map(|id| self.leave_request(&mut state, id)).collect();
            let interrupted = calls.len();
            // This also refuses a link that is being opened.
            state.settled = Some(Settled { error: interrupted_error(), calls });
            state.left = true;
            // The server that asked ends with this process; the next process cancels its questions.
            state.asks.clear();
            state.outbox.make_room();
            let open: Vec<_> = state.streams.keys().copied().collect();
            for id in open {
                let retry = self.stop_retry(id);
                let Some(attached) = state.streams.get_mut(&id).and_then(|stream| stream.reader.as_mut())
                else {
                    continue;
                };
                attached.closing = Some(retry);
                if let Some(waker) = attached.waker.take() {
                    waker.wake();
                }
            }
            self.catch_log_up(&mut state);
            interrupted
        };
        self.flush();
        if interrupted > 0 {
            tracing::warn!(session = %self.label(), requests = interrupted, "requests were interrupted by the shutdown");
        }
        Some(interrupted)
    }

    /// Leaves a request to the next process if that is possible. Returns its number if it was interrupted.
    fn leave_request(&self, state: &mut SessionState, id: &RequestId) -> Option<u64> {
        let call = state.calls.get(id)?;
        if self.fate(state, call) != ShutdownFate::Interrupted {
            let number = call.number;
            if call.stream.is_none() && call.waiter.is_some() {
                drop(self.stream_of(state, id, number));
            }
            return None;
        }
        let call = state.calls.remove(id)?;
        if let Some(cancel) = call.cancel {
            cancel.cancel();
        }
        // Through the outbox, so that the error comes after the events that are already queued.
        if let Some(stream) = call.stream {
            self.answer_on(state, stream, id, message::write_error(Some(id), &interrupted_error()));
        }
        if let Some(waiter) = call.waiter {
            waiter.wake();
        }
        Some(call.number)
    }
}

impl SessionState {
    /// Whether the client of a request has an event id to come back with, or has disconnected already.
    fn can_come_back(&self, call: &InFlight) -> bool {
        let primes = self.revision.primes_streams();
        let Some(stream) = call.stream else { return primes || call.waiter.is_none() };
        let Some(stream) = self.streams.get(&stream) else { return true };
        let has_id = primes || stream.delivered > Position::START;
        matches!(stream.note_status, NoteStatus::Written | NoteStatus::Pending)
            && (has_id || stream.reader.is_none())
    }
}

/// The error for requests that are refused because the process stops.
pub(super) fn draining() -> Error {
    Error::new(Reason::Draining, "The server is shutting down; try again later")
}

fn interrupted_error() -> RpcError {
    RpcError::of(Reason::Interrupted, "The server shut down before the answer came")
}
