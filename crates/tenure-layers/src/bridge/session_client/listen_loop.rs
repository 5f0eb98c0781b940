//! The listen of a session follows what the session wants to hear.
//!
//! A listen cannot be changed, so another one is opened with the new wishes, and the old one is closed when the new
//! one is acknowledged. A listen that ends is opened again, later each time; then the client is told that everything
//! it wanted to hear of may have changed.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Error, Kind, Method, RawJson, Reason, RpcError};
use tenure_session::call::News;
use tokio::time::Instant;

use crate::bridge::session_client::listen::{Listen, Listening};
use crate::bridge::session_client::session_feed::{Listener, Waiting, gone};

/// How long a listen may take to be acknowledged.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(30);
/// How long to wait before a listen is opened again; longer each time, until one has lasted.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What happened while the task waited.
enum Event {
    Changed,
    Ended,
    Due,
}

/// What the task knows.
#[derive(Default)]
struct Standing {
    listen: Option<Listen>,
    /// The last listen ended, so that news may have been missed.
    missed: bool,
    /// When a listen that failed is tried again.
    retry: Option<Instant>,
    pause: Duration,
    /// The wishes that the server will not hear of.
    refused: Option<Filter>,
}

impl Listener {
    pub(super) async fn run(self: Arc<Self>) {
        let mut standing = Standing::default();
        loop {
            let (filter, waiting) = {
                let mut wishes = self.wishes.lock();
                (wishes.filter.clone(), std::mem::take(&mut wishes.waiting))
            };
            if !waiting.is_empty() || standing.wants(&filter) {
                self.follow(&mut standing, filter, waiting).await;
                continue;
            }
            let due = [standing.retry, self.held.until()].into_iter().flatten().min();
            let event = tokio::select! {
                () = self.changed.notified() => Event::Changed,
                () = ended(standing.listen.as_mut()) => Event::Ended,
                () = until(due) => Event::Due,
            };
            match event {
                Event::Changed => {}
                Event::Ended => {
                    tracing::debug!(session = %self.label, "a listen ended");
                    standing.ended();
                }
                Event::Due => {
                    standing.retry = standing.retry.filter(|retry| *retry > Instant::now());
                    self.release().await;
                }
            }
        }
    }

    /// Puts a listen for these wishes in place of the last one.
    async fn follow(self: &Arc<Self>, standing: &mut Standing, filter: Filter, waiting: Vec<Waiting>) {
        self.release().await;
        // Who wants what is heard already need not wait for anything.
        let heard = standing.listen.as_ref().map(|listen| &listen.honoured.uris);
        let (known, waiting): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(uri, _)| heard.is_some_and(|heard| heard.contains(uri)));
        settle(known, &Ok(RawJson::EMPTY_OBJECT));
        if filter == Filter::default() {
            standing.listen = None;
            return settle(waiting, &Err(gone()));
        }
        if standing.listen.as_ref().is_some_and(|listen| listen.asked == filter) {
            // Asked for before, and not honoured.
            return drop(self.answer(waiting, &Filter::default()));
        }
        if standing.listen.is_some() {
            self.held.begin();
        }
        let acknowledged = tokio::time::timeout(ACKNOWLEDGED_WITHIN, Listening::begin(self, &filter)).await;
        let late = || RpcError::of(Reason::TimedOut, "The server did not acknowledge a listen in time");
        let acknowledged = acknowledged.unwrap_or_else(|_| Err(late()));
        self.held.end_soon();
        match acknowledged {
            Ok(mut listen) => {
                let honoured = listen.honoured.clone();
                let denied = self.answer(waiting, &honoured);
                // As if they had not been asked for, so that nothing is opened anew for them.
                listen.asked.uris.retain(|uri| !denied.contains(uri));
                standing.began(listen);
                if std::mem::take(&mut standing.missed) {
                    self.tell_all(&honoured).await;
                }
            }
            Err(error) => {
                tracing::warn!(session = %self.label, %error, "a listen failed");
                if !waiting.is_empty() {
                    // They know now, and what was heard before is still heard.
                    return self.refuse(waiting, &error);
                }
                if is_final(&error) {
                    standing.refused = Some(filter);
                } else {
                    standing.later();
                }
            }
        }
    }

    /// Tells what was held back, if it is time.
    async fn release(&self) {
        for (method, params) in self.held.due() {
            self.tell(&method, params.as_ref()).await;
        }
    }

    async fn tell_all(&self, honoured: &Filter) {
        let lists = [
            (honoured.tools, News::Tools),
            (honoured.prompts, News::Prompts),
            (honoured.resources, News::Resources),
        ];
        for (_, news) in lists.into_iter().filter(|(wanted, _)| *wanted) {
            self.tell(&news.method(), None).await;
        }
        for uri in &honoured.uris {
            let params = RawJson::of(&serde_json::json!({ "uri": uri }));
            self.tell(&Method::ResourceUpdated, Some(&params)).await;
        }
    }

    async fn tell(&self, method: &Method, params: Option<&RawJson>) {
        if let Err(error) = self.outlet.notify(method, params).await {
            tracing::debug!(session = %self.label, %error, "could not pass news on");
        }
    }

    /// Answers those who wait, by what the server will tell, and gives back what was denied.
    fn answer(&self, waiting: Vec<Waiting>, honoured: &Filter) -> Vec<String> {
        let mut denied = Vec::new();
        for (uri, tell) in waiting {
            let (reply, is_denied) = match honoured.uris.contains(&uri) {
                true => (Ok(RawJson::EMPTY_OBJECT), false),
                false => {
                    (Err(RpcError::of(Reason::InvalidParams, "The server lets nobody watch this")), true)
                }
            };
            // Whoever withdrew the request does not watch.
            if tell.send(reply).is_err() || is_denied {
                self.wishes.lock().remove(&uri);
            }
            if is_denied {
                denied.push(uri);
            }
        }
        denied
    }

    fn refuse(&self, waiting: Vec<Waiting>, error: &RpcError) {
        for (uri, _) in &waiting {
            self.wishes.lock().remove(uri);
        }
        settle(waiting, &Err(error.clone()));
    }
}

impl Standing {
    /// Whether a listen is to be opened, or closed, without anybody waiting for it.
    fn wants(&self, filter: &Filter) -> bool {
        let asked = self.listen.as_ref().map(|listen| &listen.asked);
        let is_new = asked.map_or(*filter != Filter::default(), |asked| asked != filter);
        is_new && self.retry.is_none() && self.refused.as_ref() != Some(filter)
    }

    /// The old listen, if there is one, is closed by this.
    fn began(&mut self, listen: Listen) {
        self.listen = Some(listen);
        (self.retry, self.refused) = (None, None);
    }

    fn ended(&mut self) {
        let listen = self.listen.take();
        // One that ends right after it began must not be opened again and again.
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

/// Somewhere between the half and the whole, since a server that ends ends the listens of all sessions.
fn spread(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without randomness all come after half the time.
    let _ = getrandom::fill(&mut byte);
    pause / 2 + pause / 2 * u32::from(byte[0]) / 255
}

fn settle(waiting: Vec<Waiting>, reply: &Result<RawJson, RpcError>) {
    for (_, tell) in waiting {
        // Whoever withdrew the request does not wait any more.
        drop(tell.send(reply.clone()));
    }
}

/// Whether the server answered, and will not answer otherwise if it is asked again.
fn is_final(error: &RpcError) -> bool {
    let passing = |reason: &&Reason| Error::new(**reason, "").kind() == Kind::Unavailable;
    !Reason::ALL.iter().filter(passing).any(|reason| error.is(*reason))
}

async fn ended(listen: Option<&mut Listen>) {
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
