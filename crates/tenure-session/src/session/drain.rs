//! The one way down: take no new sessions, wait for requests that cannot be repeated, leave the others to the next
//! process, stop.
//!
//! A stop is never worse than a kill. A request that is noted in the log and safe to repeat stays open there, and its
//! reader is sent away to come back: the next process runs it again, as after a kill. Everything else is waited for, up
//! to a deadline, and answered as interrupted then. Meanwhile everything is served that may be repeated. Requests that
//! may not are held, if their clients can come back: noted for the next process, and not begun. Shortly before the end
//! all requests are held.
//!
//! Where nothing survives the process, or a client cannot come back, everything is waited for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Error, Reason, Request, RequestId, RpcError, message};
use tokio::time::Instant;

use crate::call::Collect;
use crate::id::Position;
use crate::port::store::Durability;
use crate::session::session::{InFlight, Session, State};
use crate::session::sessions::{Inner, Sessions};
use crate::session::stream::Known;

/// What requests get whose answers are about to come as JSON, when nothing else holds the end up.
const MOMENT: Duration = Duration::from_millis(250);

/// How long the store may take to note the last things, and servers and tasks to end.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// The least time between two looks at all sessions, however much happens in them.
const BREATH: Duration = Duration::from_millis(5);

/// How far the way down has been gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Stage {
    /// Everything is served.
    Open,
    /// Everything is served, and another process follows on the same socket.
    HandingOver,
    /// Everything but new sessions.
    Draining,
    /// New requests are noted for the next process, and not begun.
    Holding,
    /// What is open belongs to the next process.
    Left,
}

/// Which tools may be called twice, as the server says.
pub(super) enum Hints {
    /// It was not asked yet.
    Unknown,
    /// It is being asked.
    Asked,
    /// These.
    Known(Vec<String>),
}

/// Which requests are waited for, of those that cannot be left to the next process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Those that were in flight when the stop began.
    Early,
    /// All, and those that can be left but are about to be answered with JSON.
    Soon,
    /// All.
    All,
}

/// What becomes of a request when the process ends before it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The next process runs it again.
    Left,
    /// The next process finds out whether it may.
    Undecided,
    /// It ends with an error.
    Interrupted,
}

/// A session that is being created; it is waited for.
pub(super) struct Creating<'a>(&'a Inner);

impl<'a> Creating<'a> {
    pub(super) fn begin(inner: &'a Inner) -> Self {
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
    /// Takes no new sessions from now on. Everything else goes on.
    pub fn drain(&self) {
        self.0.go_to(Stage::Draining);
        self.0.ask_for_hints();
    }

    /// Gets ready for another process that follows on the same socket and store. Everything goes on, new sessions too:
    /// the next process finds them in the store.
    pub fn hand_over(&self) {
        if self.0.outlives_us() {
            self.0.is_handed_over.store(true, Ordering::Relaxed);
            self.0.go_to(Stage::HandingOver);
            self.0.ask_for_hints();
        } else {
            self.drain();
        }
    }

    /// Waits until no request is in flight that came before the drain or the hand-over and cannot be left to the next
    /// process, at most this long.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn calm(&self, limit: Duration) {
        self.0.wait(Wait::Early, limit).await;
    }

    /// Ends everything but the servers behind: holds new requests back, waits until the limit for requests that cannot be
    /// left to the next process, answers those that are left then with an error, and writes down what is to be kept.
    /// Afterwards nothing here uses the store. Returns how many requests had to be interrupted.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn settle(&self, limit: Duration) -> usize {
        let deadline = Instant::now() + limit;
        self.drain();
        self.0.go_to(Stage::Holding);
        self.0.ask_for_hints();
        self.0.wait(Wait::Soon, limit.min(MOMENT)).await;
        for session in self.0.live.all() {
            session.stream_what_can_be_left();
        }
        self.0.wait(Wait::All, deadline - Instant::now()).await;
        // No session rises from here on that would not be left.
        self.0.waking.meanwhile(|| self.0.go_to(Stage::Left));
        let interrupted = self.0.live.all().iter().map(|session| session.leave()).sum();
        self.note_deliveries().await;
        self.0.stop.cancel();
        self.0.tasks.close();
        // Among them are the last appends.
        if tokio::time::timeout(LAST_WRITES, self.0.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.0.tasks.len(), "tasks were still running at shutdown");
        }
        interrupted
    }

    /// Closes the links to all servers behind. To be said when everything is settled.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn close(&self) {
        for session in self.0.live.all() {
            let link = session.state.lock().link.take();
            if let Some(link) = link {
                // All at once: each may take its time.
                self.0.closing.spawn(async move { link.close().await });
            }
        }
        self.0.closing.close();
        // A link that does not close is left to the end of the process.
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

    /// Writes down what listening clients were given, so that nothing is repeated to them in the next process.
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
        // A store that does not answer is left to the end of the process.
        drop(tokio::time::timeout(LAST_WRITES, saved).await);
    }
}

impl Inner {
    pub(super) fn stage(&self) -> Stage {
        const STAGES: [Stage; 5] =
            [Stage::Open, Stage::HandingOver, Stage::Draining, Stage::Holding, Stage::Left];
        STAGES[usize::from(self.stage.load(Ordering::SeqCst)).min(4)]
    }

    fn go_to(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::SeqCst);
    }

    /// Lets a stop look again: something may have ended that it waits for.
    pub(super) fn stir(&self) {
        if self.stage() != Stage::Open {
            self.idle.notify_waiters();
        }
    }

    /// Whether what is noted in the log is there for the next process.
    pub(super) fn outlives_us(&self) -> bool {
        self.store.capabilities().durability != Durability::Process
    }

    /// Waits until nothing of that kind is in flight, or the limit.
    async fn wait(&self, wait: Wait, limit: Duration) {
        let calm = async {
            loop {
                let stirred = self.idle.notified();
                tokio::pin!(stirred);
                // Registered before anything is looked at, so that no end is missed.
                stirred.as_mut().enable();
                if !self.is_held_up(wait) {
                    return;
                }
                stirred.await;
                tokio::time::sleep(BREATH).await;
            }
        };
        drop(tokio::time::timeout(limit, calm).await);
    }

    fn is_held_up(&self, wait: Wait) -> bool {
        self.creating.load(Ordering::SeqCst) > 0
            || !self.waking.is_empty()
            || self.live.all().iter().any(|session| session.holds_up(wait))
    }

    /// Asks servers which tools may be called twice, where that decides whether a call is waited for.
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
            Wait::Early => !call.is_late && self.fate(&state, call) != Fate::Left,
            Wait::Soon => call.stream.is_none() || self.fate(&state, call) != Fate::Left,
            Wait::All => self.fate(&state, call) != Fate::Left,
        };
        state.end.is_none() && !state.left && state.calls.values().any(awaited)
    }

    fn ask_for_hints(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            let decides = |call: &InFlight| params::repeat(&call.method) == Repeat::AskTool && !call.is_held;
            let asks = state.end.is_none() && state.calls.values().any(decides);
            if !asks || !matches!(state.hints, Hints::Unknown) {
                return;
            }
            state.hints = Hints::Asked;
        }
        let (session, stop) = (Arc::clone(self), self.inner.stop.clone());
        self.inner.tasks.spawn(async move {
            let Some(tools) = stop.run_until_cancelled(session.repeatable_tools()).await else { return };
            let whose = (session.route.clone(), session.owner.clone());
            session.inner.safe_tools.lock().insert(whose, tools.clone());
            session.state.lock().hints = Hints::Known(tools);
            session.inner.stir();
        });
    }

    /// Whether a request that comes during a stop may be repeated, as far as that is known without asking a server: a
    /// server that was asked because of another session says the same here.
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

    /// What becomes of a request if the process ends now.
    fn fate(&self, state: &State, call: &InFlight) -> Fate {
        if !self.inner.outlives_us() || call.collect == Collect::Here || !state.can_come_back(call) {
            return Fate::Interrupted;
        }
        match params::repeat(&call.method) {
            _ if call.is_held => Fate::Left,
            Repeat::Safe => Fate::Left,
            Repeat::Never => Fate::Interrupted,
            Repeat::AskTool => match &state.hints {
                Hints::Unknown | Hints::Asked => Fate::Undecided,
                Hints::Known(tools) => {
                    let name = params::tool_name(call.params.as_ref());
                    if name.is_some_and(|name| tools.contains(&name)) {
                        Fate::Left
                    } else {
                        Fate::Interrupted
                    }
                }
            },
        }
    }

    /// Makes streams of requests whose clients wait for JSON and can come back for it, so that they are in the log.
    fn stream_what_can_be_left(self: &Arc<Self>) {
        {
            let mut state = self.state.lock();
            let waits = |call: &InFlight| call.stream.is_none() && call.waiter.is_some();
            let left = |call: &InFlight| waits(call) && self.fate(&state, call) == Fate::Left;
            let left: Vec<(RequestId, u64)> = state
                .calls
                .iter()
                .filter(|(_, call)| left(call))
                .map(|(id, call)| (id.clone(), call.number))
                .collect();
            for (id, number) in left {
                // It fails only for a request that is not in flight.
                drop(self.stream_of(&mut state, &id, number));
            }
        }
        self.flush();
    }

    /// Leaves what is open to the next process, and ends the rest with an error. Returns how many requests that were.
    fn leave(self: &Arc<Self>) -> usize {
        let interrupted = {
            let mut state = self.state.lock();
            if state.end.is_some() || state.left {
                return 0;
            }
            let all: Vec<RequestId> = state.calls.keys().cloned().collect();
            let mut interrupted = 0;
            for id in all {
                interrupted += usize::from(self.leave_request(&mut state, &id));
            }
            // Also refuses a link that is just being opened.
            state.settled = Some(interrupted_error());
            state.left = true;
            // The server that asked is gone with this process; the next process takes the questions back.
            state.asks.clear();
            state.outbox.make_room();
            let open: Vec<_> = state.streams.keys().copied().collect();
            for id in open {
                let retry = self.stop_retry(id);
                let Some(slot) = state.streams.get_mut(&id).and_then(|stream| stream.reader.as_mut()) else {
                    continue;
                };
                slot.closing = Some(retry);
                if let Some(waker) = slot.waker.take() {
                    waker.wake();
                }
            }
            self.catch_log_up(&mut state);
            interrupted
        };
        self.flush();
        if interrupted > 0 {
            tracing::warn!(session = %self.label(), requests = interrupted, "interrupted by shutdown");
        }
        interrupted
    }

    /// Leaves a request to the next process if that is possible. Returns whether it was interrupted.
    fn leave_request(&self, state: &mut State, id: &RequestId) -> bool {
        let Some(call) = state.calls.get(id) else { return false };
        if self.fate(state, call) != Fate::Interrupted {
            let number = call.number;
            if call.stream.is_none() && call.waiter.is_some() {
                drop(self.stream_of(state, id, number));
            }
            return false;
        }
        let Some(call) = state.calls.remove(id) else { return false };
        if let Some(cancel) = call.cancel {
            cancel.cancel();
        }
        // Through the outbox like everything else, so that it comes after what is already on its way.
        if let Some(stream) = call.stream {
            self.answer_on(state, stream, id, message::write_error(Some(id), &interrupted_error()));
        }
        if let Some(waiter) = call.waiter {
            waiter.wake();
        }
        true
    }
}

impl State {
    /// Whether the client of a request has what it needs to come back for the answer, or has left already.
    fn can_come_back(&self, call: &InFlight) -> bool {
        let primes = self.revision.primes_streams();
        let Some(stream) = call.stream else { return primes || call.waiter.is_none() };
        let Some(stream) = self.streams.get(&stream) else { return true };
        let has_id = primes || stream.delivered > Position::START;
        matches!(stream.known, Known::Yes | Known::Soon) && (has_id || stream.reader.is_none())
    }
}

/// The error of what is refused because the process stops.
pub(super) fn draining() -> Error {
    Error::new(Reason::Draining, "The server is shutting down; try again later")
}

fn interrupted_error() -> RpcError {
    RpcError::of(Reason::Interrupted, "The server shut down before the answer came")
}
