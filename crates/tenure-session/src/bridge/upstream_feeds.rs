//! What a modern server tells a session by itself: one listen for each session, with all that the session wants.
//!
//! A listen cannot be changed, so another one is opened with the new wishes, and the old one is closed when the new
//! one is acknowledged. News that comes meanwhile may come on both, and is held back until each has had time to say
//! it, so that the client hears it once and none is lost. A listen that ends is opened again, later each time; then
//! the client is told that everything it wanted to hear of may have changed.
//!
//! In: `initialized`, subscribe and unsubscribe of the session. Out: its outlet. One task for each session that
//! wants anything at all; it ends with the link.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::guise::Client;
use super::listening::{Listen, Listening};
use super::rules::news::Filter;
use super::sessions::Server;
use crate::call::{Caller, News, Outlet};
use crate::error::{Error, Kind, Reason, RpcError};
use crate::id::Route;
use crate::message::RawJson;
use crate::method::Method;
use crate::port::backend::{Open, Reply};
use crate::protocol::Revision;

/// How long a listen may take to be acknowledged.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(30);
/// For how long two listens may tell the same, one after the other.
const OVERLAP: Duration = Duration::from_millis(50);
/// For how long news is held back at most while listens are changed over and over.
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// How long to wait before a listen is opened again; longer each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How much news is held back at most.
const MAX_HELD: usize = 1024;

/// What a server tells a session by itself.
pub(super) struct Feed {
    inner: Arc<Inner>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

pub(super) struct Inner {
    pub(super) server: Arc<Server>,
    pub(super) client: Arc<Client>,
    pub(super) caller: Caller,
    pub(super) route: Route,
    pub(super) revision: Revision,
    pub(super) label: String,
    outlet: Outlet,
    /// What the server says it tells by itself; watched resources if there is anything in `uris`.
    offered: Filter,
    wishes: Mutex<Wishes>,
    changed: Notify,
    held: Mutex<Option<Held>>,
}

#[derive(Default)]
struct Wishes {
    filter: Filter,
    /// Subscriptions whose clients wait to hear whether they were taken.
    waiting: Vec<(String, oneshot::Sender<Reply>)>,
}

/// News that may come a second time.
struct Held {
    began: Instant,
    /// When it is told; `None` while a listen waits to be acknowledged.
    until: Option<Instant>,
    news: Vec<(Method, Option<RawJson>)>,
}

impl Feed {
    pub(super) fn new(
        server: &Arc<Server>,
        client: &Arc<Client>,
        open: &Open,
        caller: Caller,
        initialized: &RawJson,
    ) -> Self {
        let all =
            Filter { tools: true, prompts: true, resources: true, uris: vec![String::new()], tasks: vec![] };
        let inner = Inner {
            server: Arc::clone(server),
            client: Arc::clone(client),
            caller,
            route: open.route.clone(),
            revision: open.revision,
            label: open.outlet.session_label(),
            outlet: open.outlet.clone(),
            offered: all.of_session(initialized),
            wishes: Mutex::default(),
            changed: Notify::new(),
            held: Mutex::default(),
        };
        Self { inner: Arc::new(inner), task: Mutex::default() }
    }

    /// The client is ready: from now on it hears of changed lists, if the server tells of them.
    pub(super) fn initialized(&self) {
        let Filter { tools, prompts, resources, .. } = self.inner.offered;
        if !tools && !prompts && !resources {
            return;
        }
        {
            let filter = &mut self.inner.wishes.lock().filter;
            (filter.tools, filter.prompts, filter.resources) = (tools, prompts, resources);
        }
        self.wish();
    }

    /// Watches a resource, and answers when the server agrees.
    ///
    /// # Errors
    /// When it does not.
    pub(super) async fn subscribe(&self, uri: String) -> Reply {
        self.check_subscribe()?;
        let (tell, told) = oneshot::channel();
        {
            let mut wishes = self.inner.wishes.lock();
            wishes.add(&uri);
            wishes.waiting.push((uri, tell));
        }
        self.wish();
        told.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Watches a resource that the client watched before, without waiting for the server.
    ///
    /// # Errors
    /// When the server says that nothing can be watched.
    pub(super) fn resubscribe(&self, uri: &str) -> Reply {
        self.check_subscribe()?;
        self.inner.wishes.lock().add(uri);
        self.wish();
        Ok(RawJson::EMPTY_OBJECT)
    }

    /// Watches a resource no more.
    ///
    /// # Errors
    /// When the server says that nothing can be watched.
    pub(super) fn unsubscribe(&self, uri: &str) -> Reply {
        self.check_subscribe()?;
        self.inner.wishes.lock().remove(uri);
        self.wish();
        Ok(RawJson::EMPTY_OBJECT)
    }

    /// Hears nothing any more.
    pub(super) fn close(&self) {
        drop(self.task.lock().take());
    }

    fn check_subscribe(&self) -> Result<(), RpcError> {
        match self.inner.offered.uris.is_empty() {
            true => Err(RpcError::of(Reason::MethodNotFound, "The server's resources cannot be watched")),
            false => Ok(()),
        }
    }

    /// Lets the task look at the wishes, which have changed.
    #[expect(clippy::disallowed_methods, reason = "the link owns the task, and ends it")]
    fn wish(&self) {
        self.inner.changed.notify_one();
        let mut task = self.task.lock();
        if task.is_none() {
            *task = Some(AbortOnDropHandle::new(tokio::spawn(Arc::clone(&self.inner).run())));
        }
    }
}

impl Wishes {
    fn add(&mut self, uri: &str) {
        if !self.filter.uris.iter().any(|watched| watched == uri) {
            self.filter.uris.push(uri.to_owned());
        }
    }

    fn remove(&mut self, uri: &str) {
        self.filter.uris.retain(|watched| watched != uri);
    }
}

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

impl Inner {
    async fn run(self: Arc<Self>) {
        let mut standing = Standing::default();
        loop {
            let (filter, waiting) = {
                let mut wishes = self.wishes.lock();
                (wishes.filter.clone(), std::mem::take(&mut wishes.waiting))
            };
            if !waiting.is_empty() || standing.wants(&filter) {
                self.listen_for(&mut standing, filter, waiting).await;
                continue;
            }
            let due = [standing.retry, self.overlap_ends()].into_iter().flatten().min();
            let event = tokio::select! {
                () = self.changed.notified() => Event::Changed,
                () = ended(standing.listen.as_mut()) => Event::Ended,
                () = until(due) => Event::Due,
            };
            match event {
                Event::Changed => {}
                Event::Ended => {
                    tracing::debug!(session = %self.label, "a listen ended");
                    standing.listen = None;
                    standing.missed = true;
                    standing.fail();
                }
                Event::Due => {
                    if self.overlap_ends().is_some_and(|end| end <= Instant::now()) {
                        self.release().await;
                    }
                    standing.retry = standing.retry.filter(|retry| *retry > Instant::now());
                }
            }
        }
    }

    /// Puts a listen for these wishes in place of the last one.
    async fn listen_for(
        self: &Arc<Self>,
        standing: &mut Standing,
        filter: Filter,
        waiting: Vec<(String, oneshot::Sender<Reply>)>,
    ) {
        if self.held_too_long() {
            self.release().await;
        }
        if filter == Filter::default() {
            standing.listen = None;
            return settle(waiting, |_| Err(gone()));
        }
        // An old listen that hears all of this already need not be replaced for the sake of an answer.
        if let Some(listen) = standing.listen.as_ref().filter(|listen| listen.asked == filter) {
            self.answer(waiting, &listen.honoured);
            return;
        }
        if standing.listen.is_some() {
            self.hold();
        }
        let acknowledged = tokio::time::timeout(ACKNOWLEDGED_WITHIN, Listening::begin(self, &filter)).await;
        let late = || RpcError::of(Reason::TimedOut, "The server did not acknowledge a listen in time");
        let acknowledged = acknowledged.unwrap_or_else(|_| Err(late()));
        self.release_soon();
        match acknowledged {
            Ok(mut listen) => {
                let honoured = listen.honoured.clone();
                let denied = self.answer(waiting, &honoured);
                // As if they had not been asked for, so that nothing is opened anew for them.
                listen.asked.uris.retain(|uri| !denied.contains(uri));
                // The old one is closed by this.
                standing.listen = Some(listen);
                standing.succeed();
                if std::mem::take(&mut standing.missed) {
                    self.tell_all(&honoured).await;
                }
            }
            Err(error) => {
                tracing::warn!(session = %self.label, %error, "a listen failed");
                let alone = waiting.is_empty();
                self.refuse(waiting, &error);
                match alone && is_final(&error) {
                    true => standing.refused = Some(filter),
                    false if alone => standing.fail(),
                    // Whoever waited knows; what was heard before is still heard.
                    false => {}
                }
            }
        }
    }

    /// Passes news of a listen on.
    pub(super) async fn hear(&self, method: &Method, params: Option<RawJson>) -> Result<(), Error> {
        if !self.wishes.lock().filter.hears(method, params.as_ref()) {
            return Ok(());
        }
        {
            let mut held = self.held.lock();
            if let Some(held) = held.as_mut().filter(|held| held.news.len() < MAX_HELD) {
                let news = (method.clone(), params);
                if !held.news.contains(&news) {
                    held.news.push(news);
                }
                return Ok(());
            }
        }
        self.outlet.notify(method, params.as_ref()).await
    }

    fn hold(&self) {
        let mut held = self.held.lock();
        held.get_or_insert_with(|| Held { began: Instant::now(), until: None, news: Vec::new() }).until =
            None;
    }

    /// From now on only what is on its way already can come twice.
    fn release_soon(&self) {
        if let Some(held) = self.held.lock().as_mut() {
            held.until = Some(Instant::now() + OVERLAP);
        }
    }

    /// When news that is held back is told.
    fn overlap_ends(&self) -> Option<Instant> {
        self.held.lock().as_ref().and_then(|held| held.until)
    }

    /// Whether the next change of a listen must not hold news back any longer.
    fn held_too_long(&self) -> bool {
        let held = self.held.lock();
        let too_long = |held: &Held| {
            let now = Instant::now();
            held.until.is_some_and(|end| end <= now) || held.began + LONGEST_HOLD <= now
        };
        held.as_ref().is_some_and(too_long)
    }

    async fn release(&self) {
        let held = self.held.lock().take();
        for (method, params) in held.into_iter().flat_map(|held| held.news) {
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
    fn answer(&self, waiting: Vec<(String, oneshot::Sender<Reply>)>, honoured: &Filter) -> Vec<String> {
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

    fn refuse(&self, waiting: Vec<(String, oneshot::Sender<Reply>)>, error: &RpcError) {
        for (uri, _) in &waiting {
            self.wishes.lock().remove(uri);
        }
        settle(waiting, |_| Err(error.clone()));
    }
}

impl Standing {
    /// Whether a listen is to be opened, or closed, without anybody waiting for it.
    fn wants(&self, filter: &Filter) -> bool {
        let asked = self.listen.as_ref().map(|listen| &listen.asked);
        let is_new = asked.map_or(*filter != Filter::default(), |asked| asked != filter);
        is_new && self.retry.is_none() && self.refused.as_ref() != Some(filter)
    }

    fn succeed(&mut self) {
        (self.retry, self.pause, self.refused) = (None, Duration::ZERO, None);
    }

    fn fail(&mut self) {
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

fn settle(waiting: Vec<(String, oneshot::Sender<Reply>)>, reply: impl Fn(&str) -> Reply) {
    for (uri, tell) in waiting {
        // Whoever withdrew the request does not wait any more.
        drop(tell.send(reply(&uri)));
    }
}

/// Whether the server answered, and will not answer otherwise if it is asked again.
fn is_final(error: &RpcError) -> bool {
    let passing = Reason::ALL.iter().filter(|reason| Error::new(**reason, "").kind() == Kind::Unavailable);
    !passing.into_iter().any(|reason| error.is(*reason))
}

fn gone() -> RpcError {
    RpcError::of(Reason::Cancelled, "The resource is watched no more")
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
