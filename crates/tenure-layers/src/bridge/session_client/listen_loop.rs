//! The task that keeps the listen of a session in step with what the session wants to hear.
//!
//! A listen cannot be changed. So the task opens another one with the new wishes, and closes the old one when the new
//! one is acknowledged. A listen that ends is opened again with a growing back-off; then the client is told that
//! everything it listens to may have changed.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Error, Kind, Method, RawJson, Reason, RpcError};
use tokio::time::Instant;

use crate::bridge::session_client::listen::{ListenClient, UpstreamListen};
use crate::bridge::session_client::session_feed::{PendingSubscribe, SessionListener, gone};

/// How long a listen may take to be acknowledged.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(30);
/// The back-off before a listen is opened again; it doubles each time, until a listen has lasted.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why the task woke up.
enum ListenEvent {
    Changed,
    Ended,
    Due,
}

/// The state of the task.
#[derive(Default)]
struct ListenLoopState {
    listen: Option<UpstreamListen>,
    /// The last listen ended, so news may have been missed.
    missed: bool,
    /// When a failed listen is tried again.
    retry: Option<Instant>,
    pause: Duration,
    /// The wishes that the server refused for good.
    refused: Option<Filter>,
}

impl SessionListener {
    pub(super) async fn run(self: Arc<Self>) {
        let mut state = ListenLoopState::default();
        loop {
            let (filter, waiting) = {
                let mut wishes = self.wishes.lock();
                (wishes.filter.clone(), std::mem::take(&mut wishes.waiting))
            };
            if !waiting.is_empty() || state.wants(&filter) {
                self.follow(&mut state, filter, waiting).await;
                continue;
            }
            let due = [state.retry, self.held.until()].into_iter().flatten().min();
            let event = tokio::select! {
                () = self.changed.notified() => ListenEvent::Changed,
                () = ended(state.listen.as_mut()) => ListenEvent::Ended,
                () = until(due) => ListenEvent::Due,
            };
            match event {
                ListenEvent::Changed => {}
                ListenEvent::Ended => {
                    tracing::debug!(session = %self.label, "a listen ended");
                    state.ended();
                }
                ListenEvent::Due => {
                    state.retry = state.retry.filter(|retry| *retry > Instant::now());
                    self.release().await;
                }
            }
        }
    }

    /// Replaces the listen by one for these wishes.
    async fn follow(
        self: &Arc<Self>,
        state: &mut ListenLoopState,
        filter: Filter,
        waiting: Vec<PendingSubscribe>,
    ) {
        self.release().await;
        // Subscriptions that the current listen already covers are answered at once.
        let heard = state.listen.as_ref().map(|listen| &listen.honoured.uris);
        let (known, waiting): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(uri, _)| heard.is_some_and(|heard| heard.contains(uri)));
        settle(known, &Ok(RawJson::EMPTY_OBJECT));
        if filter == Filter::default() {
            state.listen = None;
            return settle(waiting, &Err(gone()));
        }
        if state.listen.as_ref().is_some_and(|listen| listen.asked == filter) {
            // Asked for before, and not honoured.
            return drop(self.answer(waiting, &Filter::default()));
        }
        if state.listen.is_some() {
            self.held.begin();
        }
        let acknowledged =
            tokio::time::timeout(ACKNOWLEDGED_WITHIN, ListenClient::begin(self, &filter)).await;
        let late = || RpcError::of(Reason::TimedOut, "The server did not acknowledge a listen in time");
        let acknowledged = acknowledged.unwrap_or_else(|_| Err(late()));
        self.held.end_soon();
        match acknowledged {
            Ok(mut listen) => {
                let honoured = listen.honoured.clone();
                let denied = self.answer(waiting, &honoured);
                // Removed as if they had not been asked for, so that no new listen is opened for them.
                listen.asked.uris.retain(|uri| !denied.contains(uri));
                state.began(listen);
                if std::mem::take(&mut state.missed) {
                    for (method, params) in honoured.all_changed() {
                        self.tell(&method, params.as_ref()).await;
                    }
                }
            }
            Err(error) => {
                tracing::warn!(session = %self.label, %error, "a listen failed");
                if !waiting.is_empty() {
                    // The waiting subscriptions get the error; the old listen goes on.
                    return self.refuse(waiting, &error);
                }
                if is_final(&error) {
                    state.refused = Some(filter);
                } else {
                    state.later();
                }
            }
        }
    }

    /// Passes on held news that is due.
    async fn release(&self) {
        for (method, params) in self.held.due() {
            self.tell(&method, params.as_ref()).await;
        }
    }

    async fn tell(&self, method: &Method, params: Option<&RawJson>) {
        if let Err(error) = self.outlet.notify(method, params).await {
            tracing::debug!(session = %self.label, %error, "news could not be passed on");
        }
    }

    /// Answers the waiting subscriptions by what the server honoured. Returns the URIs that were denied.
    fn answer(&self, waiting: Vec<PendingSubscribe>, honoured: &Filter) -> Vec<String> {
        let mut denied = Vec::new();
        for (uri, tell) in waiting {
            let (reply, is_denied) = match honoured.uris.contains(&uri) {
                true => (Ok(RawJson::EMPTY_OBJECT), false),
                false => (
                    Err(RpcError::of(
                        Reason::InvalidParams,
                        "The server does not allow this resource to be watched",
                    )),
                    true,
                ),
            };
            // A client that cancelled its request does not watch.
            if tell.send(reply).is_err() || is_denied {
                self.wishes.lock().remove(&uri);
            }
            if is_denied {
                denied.push(uri);
            }
        }
        denied
    }

    fn refuse(&self, waiting: Vec<PendingSubscribe>, error: &RpcError) {
        for (uri, _) in &waiting {
            self.wishes.lock().remove(uri);
        }
        settle(waiting, &Err(error.clone()));
    }
}

impl ListenLoopState {
    /// Whether a listen must be opened or closed although no subscription waits for it.
    fn wants(&self, filter: &Filter) -> bool {
        let asked = self.listen.as_ref().map(|listen| &listen.asked);
        let is_new = asked.map_or(*filter != Filter::default(), |asked| asked != filter);
        is_new && self.retry.is_none() && self.refused.as_ref() != Some(filter)
    }

    /// Replaces the old listen, which is dropped and so closed.
    fn began(&mut self, listen: UpstreamListen) {
        self.listen = Some(listen);
        (self.retry, self.refused) = (None, None);
    }

    fn ended(&mut self) {
        let listen = self.listen.take();
        // Only a listen that has lasted resets the back-off, or one that ends at once would be reopened in a busy loop.
        if listen.is_some_and(|listen| listen.began.elapsed() >= LONGEST_PAUSE) {
            self.pause = Duration::ZERO;
        }
        self.missed = true;
        self.later();
    }

    fn later(&mut self) {
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.retry = Some(Instant::now() + spread(self.pause));
    }
}

/// Jitter: a random time between half the pause and the whole, since a server that ends breaks the listens of all
/// sessions at once.
fn spread(pause: Duration) -> Duration {
    let mut byte = [0];
    // If there is no randomness, the pause is half.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause / 2 * u32::from(byte[0]) / 255
}

fn settle(waiting: Vec<PendingSubscribe>, reply: &Result<RawJson, RpcError>) {
    for (_, tell) in waiting {
        // A client that cancelled its request does not wait any more.
        drop(tell.send(reply.clone()));
    }
}

/// Whether the error is the server's final answer, so that a retry is useless.
fn is_final(error: &RpcError) -> bool {
    let passing = |reason: &&Reason| Error::new(**reason, "").kind() == Kind::Unavailable;
    !Reason::ALL.iter().filter(passing).any(|reason| error.is(*reason))
}

async fn ended(listen: Option<&mut UpstreamListen>) {
    match listen {
        Some(listen) => listen.ended().await,
        None => std::future::pending().await,
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
