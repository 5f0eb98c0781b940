//! One of the servers of a merged session. It may be up, starting, or away; the next request for it opens it again.
//!
//! The session goes on without it. It is opened again as a woken session opens its server: with the same handshake, log
//! level and subscriptions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RequestId, Revision, RpcError};
use tenure_session::Route;
use tenure_session::backend::{Call, Link, Open, Opening, repeatable_tools};
use tenure_session::call::{CallContext, Fanout, Outlet};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::merge::MergedMember;
use crate::merge::handshake::MemberHandshake;
use crate::merge::lists::ListKind;

/// How long after a failed open no other is tried.
const PAUSE: Duration = Duration::from_secs(2);

/// How many links may be lost during one request, or while one is opened, before we give up. More than one, since
/// servers that die together do not die at the same moment; not many, since the request itself may kill them.
const MAX_LOST: u32 = 3;

/// How long one server may delay a request that concerns all.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How many settings a server that is back gets at once.
const AT_ONCE: usize = 16;

/// How long after a list was read whole it is not read again.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// What all servers of a session share, also those that start later.
pub(super) struct MergeShared {
    pub(super) params: RawJson,
    pub(super) revision: Revision,
    pub(super) route: Route,
    pub(super) outlet: Outlet,
    pub(super) fanout: Fanout,
    pub(super) open_timeout: Duration,
    /// The client has its `initialize` result; from now on it is told of changes.
    pub(super) begun: AtomicBool,
    /// The client is ready.
    pub(super) initialized: AtomicBool,
    pub(super) level: Mutex<Option<RawJson>>,
    /// URIs that the client watches and no server has accepted yet. Every server that starts is asked for them.
    pub(super) unplaced: Mutex<BTreeSet<String>>,
}

pub(super) struct MergePart {
    pub(super) member: Arc<MergedMember>,
    shared: Arc<MergeShared>,
    opening: Opening,
    state: Mutex<MergePartState>,
}

type OpenOutcome = Option<Result<(), RpcError>>;

#[derive(Default)]
struct MergePartState {
    up: Option<Arc<dyn Link>>,
    /// The number of the current link; links are counted.
    number: u64,
    /// The highest number of a link that was lost.
    lost: u64,
    /// `initialized` was sent on this link.
    is_told: bool,
    coming: Option<watch::Receiver<OpenOutcome>>,
    /// The task that opens a link. It is held here, since dropping the handle would abort it.
    opener: Option<AbortOnDropHandle<()>>,
    /// The last `initialize` result.
    result: Option<RawJson>,
    handshake: MemberHandshake,
    failed: Option<(Instant, RpcError)>,
    subscriptions: BTreeSet<String>,
    /// When each of its lists was last read whole.
    read: [Option<Instant>; ListKind::COUNT],
    closed: bool,
}

impl MergePart {
    pub(super) fn new(member: Arc<MergedMember>, shared: Arc<MergeShared>, opening: Opening) -> Arc<Self> {
        Arc::new(Self { member, shared, opening, state: Mutex::default() })
    }

    /// Whether the server has this capability; `false` if it has never been up.
    pub(super) fn has(&self, capability: &str) -> bool {
        self.state.lock().handshake.has(capability)
    }

    /// The last handshake; `None` if the server has never been up.
    pub(super) fn handshake(&self) -> Option<MemberHandshake> {
        let state = self.state.lock();
        state.result.is_some().then(|| state.handshake.clone())
    }

    /// The link, once there is one.
    ///
    /// # Cancel safety
    /// A server that is starting goes on starting.
    pub(super) async fn link(self: &Arc<Self>) -> Result<(Arc<dyn Link>, u64), RpcError> {
        let mut coming = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(gone());
            }
            if let Some(link) = &state.up {
                return Ok((Arc::clone(link), state.number));
            }
            match (&state.coming, &state.failed) {
                (Some(coming), _) => coming.clone(),
                (None, Some((when, error))) if when.elapsed() < PAUSE => return Err(error.clone()),
                (None, _) => self.bring_up(&mut state),
            }
        };
        match coming.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Err(error))) => return Err(error.clone()),
            Ok(Some(Ok(()))) => {}
            Ok(None) | Err(_) => return Err(gone()),
        }
        let state = self.state.lock();
        match &state.up {
            Some(link) => Ok((Arc::clone(link), state.number)),
            None => Err(gone()),
        }
    }

    /// Starts to open a link.
    fn bring_up(self: &Arc<Self>, state: &mut MergePartState) -> watch::Receiver<OpenOutcome> {
        let (tell, outcome) = watch::channel(None);
        state.number += 1;
        state.is_told = false;
        let number = state.number;
        let part = Arc::clone(self);
        #[expect(clippy::disallowed_methods, reason = "held by the part, and aborted with it")]
        let task = tokio::spawn(async move {
            let opened = part.open_one_that_stays(number).await;
            let (opened, changed) = match opened {
                Ok(changed) => (Ok(()), changed),
                Err(error) => (Err(error), Vec::new()),
            };
            if let Err(error) = &opened {
                let (backend, session) = (&part.member.name, part.shared.outlet.session_label());
                tracing::warn!(backend, session, %error, "one of the servers is not available");
                let mut state = part.state.lock();
                state.failed = Some((Instant::now(), error.clone()));
                state.coming = None;
            }
            tell.send_replace(Some(opened));
            // Last, because it may have to wait for the client.
            for method in changed {
                drop(part.shared.outlet.notify(&method, None).await);
            }
        });
        state.coming = Some(outcome.clone());
        state.opener = Some(AbortOnDropHandle::new(task));
        outcome
    }

    /// Opens a link. If it is lost before it is ready, another is tried.
    async fn open_one_that_stays(self: &Arc<Self>, mut number: u64) -> Result<Vec<Method>, RpcError> {
        let mut tries = 1;
        loop {
            let opened = self.open(number).await;
            if opened.is_ok() || tries >= MAX_LOST || !self.has_lost(number) {
                return opened;
            }
            tries += 1;
            let mut state = self.state.lock();
            if state.closed {
                return opened;
            }
            state.number += 1;
            state.is_told = false;
            number = state.number;
        }
    }

    /// Opens a link. Returns the notifications about changed lists for the client.
    async fn open(self: &Arc<Self>, number: u64) -> Result<Vec<Method>, RpcError> {
        let shared = &self.shared;
        let part: Weak<Self> = Arc::downgrade(self);
        let lost = move || {
            if let Some(part) = part.upgrade() {
                part.lost(number);
            }
        };
        let before = self.state.lock().result.clone();
        let open = Open {
            params: shared.params.clone(),
            revision: shared.revision,
            opening: if before.is_none() { self.opening } else { Opening::Wake },
            route: shared.route.clone(),
            outlet: shared.outlet.of_part(lost),
            fanout: shared.fanout.clone(),
        };
        let opening = tokio::time::timeout(shared.open_timeout, self.member.backend.open(open));
        let opened = opening
            .await
            .map_err(|_| RpcError::of(Reason::TimedOut, "The server did not answer initialize in time"))??;
        let link: Arc<dyn Link> = Arc::from(opened.link);
        let handshake = MemberHandshake::read(&opened.result);
        let level = self.greet(&link, &handshake).await;
        {
            let mut state = self.state.lock();
            if state.lost >= number || state.closed {
                return Err(gone());
            }
            state.up = Some(Arc::clone(&link));
            state.handshake = handshake;
            state.result = Some(opened.result.clone());
            state.failed = None;
            state.coming = None;
            state.read = Default::default();
        }
        // `initialized` may have come while the link was being opened.
        self.tell_initialized();
        let now = self.level();
        if now.as_ref().map(RawJson::bytes) != level.as_ref().map(RawJson::bytes) {
            drop(self.inquire(&link, &Method::LoggingSetLevel, now).await);
        }
        if !shared.begun.load(Ordering::Acquire) {
            return Ok(Vec::new());
        }
        Ok(params::changed_lists(&before.unwrap_or(RawJson::EMPTY_OBJECT), &opened.result))
    }

    /// The log level that the server should have, if it logs.
    fn level(&self) -> Option<RawJson> {
        self.shared.level.lock().clone().filter(|_| self.has("logging"))
    }

    /// Sends `initialized`, the log level and the subscriptions on a new link, once the client is ready: a few at a time,
    /// all within one time limit, because the client's request waits. Returns the log level that it sent.
    async fn greet(&self, link: &Arc<dyn Link>, handshake: &MemberHandshake) -> Option<RawJson> {
        let subscriptions = self.state.lock().subscriptions.clone();
        let level = self.shared.level.lock().clone().filter(|_| handshake.has("logging"));
        if !self.shared.initialized.load(Ordering::Acquire) {
            return None;
        }
        link.notify(Notification { method: Method::Initialized, params: None });
        self.state.lock().is_told = true;
        let unplaced = match handshake.has("resources") {
            true => self.shared.unplaced.lock().clone(),
            false => BTreeSet::new(),
        };
        let mut settings: Vec<_> =
            level.iter().map(|level| self.restore_level(link, level).boxed()).collect();
        settings.extend(subscriptions.iter().map(|uri| self.restore_subscription(link, uri).boxed()));
        settings.extend(unplaced.iter().map(|uri| self.offer(link, uri).boxed()));
        let all = stream::iter(settings).for_each_concurrent(AT_ONCE, |setting| setting);
        if tokio::time::timeout(self.patience(), all).await.is_err() {
            tracing::warn!(backend = &self.member.name, "the new server did not take all settings in time");
        }
        level
    }

    async fn restore_level(&self, link: &Arc<dyn Link>, level: &RawJson) {
        self.restore(link, &Method::LoggingSetLevel, level.clone()).await;
    }

    async fn restore_subscription(&self, link: &Arc<dyn Link>, uri: &str) {
        self.restore(link, &Method::ResourcesSubscribe, of_resource(uri)).await;
    }

    async fn restore(&self, link: &Arc<dyn Link>, method: &Method, params: RawJson) {
        if let Err(error) = self.inquire(link, method, Some(params)).await {
            let backend = &self.member.name;
            tracing::warn!(backend, %method, %error, "the new server refused a setting of the old one");
        }
    }

    /// Subscribes to a URI that the client watches and no other server has accepted.
    async fn offer(&self, link: &Arc<dyn Link>, uri: &str) {
        if self.inquire(link, &Method::ResourcesSubscribe, Some(of_resource(uri))).await.is_ok() {
            self.watches(uri, true);
        }
    }

    /// How long the server may take to answer requests of our own.
    fn patience(&self) -> Duration {
        self.shared.open_timeout.min(PATIENCE)
    }

    /// Sends `initialized` to the server, if the client is ready and the server was not told yet.
    pub(super) fn tell_initialized(&self) {
        let link = {
            let mut state = self.state.lock();
            let tell = self.shared.initialized.load(Ordering::Acquire) && !state.is_told;
            let Some(link) = state.up.clone().filter(|_| tell) else { return };
            state.is_told = true;
            link
        };
        link.notify(Notification { method: Method::Initialized, params: None });
    }

    /// Whether the server is up now.
    pub(super) fn is_up(&self) -> bool {
        self.state.lock().up.is_some()
    }

    /// The link, with a timeout.
    pub(super) async fn link_soon(self: &Arc<Self>) -> Result<(Arc<dyn Link>, u64), RpcError> {
        tokio::time::timeout(PATIENCE, self.link()).await.unwrap_or_else(|_| Err(late()))
    }

    /// Whether a list was read whole a short while ago. If not, it counts as read from now on.
    pub(super) fn was_read(&self, kind: ListKind) -> bool {
        let mut state = self.state.lock();
        let read = &mut state.read[kind as usize];
        if read.is_some_and(|when| when.elapsed() < READ_AGAIN) {
            return true;
        }
        *read = Some(Instant::now());
        false
    }

    /// Passes a notification on, if the server is up.
    pub(super) fn notify(&self, notification: Notification) {
        let link = self.state.lock().up.clone();
        if let Some(link) = link {
            link.notify(notification);
        }
    }

    fn lost(&self, number: u64) {
        let link = {
            let mut state = self.state.lock();
            state.lost = state.lost.max(number);
            if state.number != number {
                return;
            }
            state.up.take()
        };
        let Some(link) = link else { return };
        let (backend, session) = (&self.member.name, self.shared.outlet.session_label());
        tracing::warn!(backend, session, "one of the servers is gone");
        // Detached: the task ends by itself, and frees the rest of the server.
        #[expect(clippy::disallowed_methods, reason = "bounded by the link's own deadlines")]
        drop(tokio::spawn(async move { link.close().await }));
    }

    fn has_lost(&self, number: u64) -> bool {
        self.state.lock().lost >= number
    }

    /// Sends a request. If the server is lost meanwhile and a repeat is safe, it is sent to the next one.
    pub(super) async fn call(self: &Arc<Self>, request: Request, context: &CallContext) -> Reply {
        let (mut link, mut number) = self.link().await?;
        let mut lost = 0;
        loop {
            let reply = link.call(Call { request: request.clone(), context: context.clone() }).await;
            let Err(error) = &reply else { return reply };
            if !error.is(Reason::BackendUnavailable) || !self.has_lost(number) || context.is_cancelled() {
                return reply;
            }
            let repeat = if error.is_refused() { Repeat::Safe } else { params::repeat(&request.method) };
            (link, number) = self.next_link(&request, repeat, &mut lost).await?;
            let (backend, method) = (&self.member.name, &request.method);
            tracing::info!(backend, request = ?request.id, %method, "the request runs again on another server");
            context.begins_again();
        }
    }

    /// The link to the next server, if the request may be sent to it. If that server is lost while it is asked for its
    /// tools, the one after it is asked.
    async fn next_link(
        self: &Arc<Self>,
        request: &Request,
        repeat: Repeat,
        lost: &mut u32,
    ) -> Result<(Arc<dyn Link>, u64), RpcError> {
        let name = params::tool_name(request.params.as_ref());
        loop {
            *lost += 1;
            if repeat == Repeat::Never || *lost > MAX_LOST {
                return Err(RpcError::server_lost());
            }
            let (link, number) = match self.link().await {
                Ok(linked) => linked,
                Err(error) if repeat == Repeat::Safe => return Err(error),
                Err(_) => return Err(RpcError::server_lost()),
            };
            if repeat == Repeat::Safe {
                return Ok((link, number));
            }
            let (tools, failure) = repeatable_tools(|cursor| {
                let params = cursor.map(|cursor| RawJson::of(&serde_json::json!({ "cursor": cursor })));
                self.inquire(&link, &Method::ToolsList, params)
            })
            .await;
            if name.as_ref().is_some_and(|name| tools.contains(name)) {
                return Ok((link, number));
            }
            if failure.is_none() || !self.has_lost(number) {
                return Err(RpcError::server_lost());
            }
        }
    }

    /// Sends the server a request of our own.
    pub(super) async fn inquire(
        &self,
        link: &Arc<dyn Link>,
        method: &Method,
        params: Option<RawJson>,
    ) -> Reply {
        let request = Request { id: RequestId::from_text("tenure-merge"), method: method.clone(), params };
        let context = self.shared.outlet.inquiry(&request).map_err(|error| error.to_rpc())?;
        let call = link.call(Call { request, context });
        tokio::time::timeout(self.patience(), call).await.unwrap_or_else(|_| Err(late()))
    }

    /// Remembers whether the client watches a URI at this server, for the server that replaces it.
    pub(super) fn watches(&self, uri: &str, does: bool) {
        let mut state = self.state.lock();
        if does {
            self.shared.unplaced.lock().remove(uri);
            state.subscriptions.insert(uri.to_owned());
        } else {
            state.subscriptions.remove(uri);
        }
    }

    /// Takes the link away for good, and aborts one that is being opened.
    pub(super) fn abandon(&self) -> Option<Arc<dyn Link>> {
        let (link, opener) = {
            let mut state = self.state.lock();
            state.closed = true;
            state.coming = None;
            (state.up.take(), state.opener.take())
        };
        drop(opener);
        link
    }

    pub(super) async fn close(&self) {
        if let Some(link) = self.abandon() {
            link.close().await;
        }
    }
}

fn of_resource(uri: &str) -> RawJson {
    RawJson::of(&serde_json::json!({ "uri": uri }))
}

pub(super) fn late() -> RpcError {
    RpcError::of(Reason::TimedOut, "The server did not answer in time")
}

fn gone() -> RpcError {
    RpcError::of(Reason::BackendUnavailable, "The server has ended")
}
