//! One of the servers of a session: it may be there, be coming up, or be away for a while, and comes back with the next
//! request for it.
//!
//! Its loss is no loss to the session. It is opened again as a woken session opens its server: with the handshake, the
//! log level and the subscriptions that it had.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::params::{self, Repeat};
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RequestId, Revision, RpcError};
use tenure_session::Route;
use tenure_session::backend::{Call, Link, Open, Opening};
use tenure_session::call::{CallContext, Fanout, Outlet};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::merge::Member;
use crate::merge::handshake::Said;
use crate::merge::lists::Kind;

/// For how long a server that could not be opened is not tried again.
const PAUSE: Duration = Duration::from_secs(2);

/// Links that may be lost under one request, or before they are of use, until it is given up. More than one, since servers
/// that die together do not die at the same moment; not many, since it may be the request that kills them.
const MAX_LOST: u32 = 3;

/// How long a server may hold up what concerns all.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// For how long a list that was read whole is not read again.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// What all servers of a session are told, also those that come later.
pub(super) struct Shared {
    pub(super) params: RawJson,
    pub(super) revision: Revision,
    pub(super) route: Route,
    pub(super) outlet: Outlet,
    pub(super) fanout: Fanout,
    pub(super) open_timeout: Duration,
    /// The client was told what there is; from here on it is told of changes.
    pub(super) begun: AtomicBool,
    /// The client is ready.
    pub(super) initialized: AtomicBool,
    pub(super) level: Mutex<Option<RawJson>>,
    /// What the client watches, but no server that was there took. Whoever comes is asked.
    pub(super) unplaced: Mutex<BTreeSet<String>>,
}

pub(super) struct Slot {
    pub(super) member: Arc<Member>,
    shared: Arc<Shared>,
    opening: Opening,
    state: Mutex<State>,
}

type Outcome = Option<Result<(), RpcError>>;

#[derive(Default)]
struct State {
    up: Option<Arc<dyn Link>>,
    /// Counts the links; the last one that was lost.
    number: u64,
    lost: u64,
    /// This link knows that the client is ready.
    is_told: bool,
    coming: Option<watch::Receiver<Outcome>>,
    /// Opens a link. Not dropped by itself, or it would end in the middle.
    opener: Option<AbortOnDropHandle<()>>,
    /// What it said to `initialize` last.
    result: Option<RawJson>,
    said: Said,
    failed: Option<(Instant, RpcError)>,
    subscriptions: BTreeSet<String>,
    /// When each of its lists was last read whole.
    read: [Option<Instant>; Kind::COUNT],
    closed: bool,
}

impl Slot {
    pub(super) fn new(member: Arc<Member>, shared: Arc<Shared>, opening: Opening) -> Arc<Self> {
        Arc::new(Self { member, shared, opening, state: Mutex::default() })
    }

    /// Whether the server can do this; `false` if it has not been there yet.
    pub(super) fn has(&self, capability: &str) -> bool {
        self.state.lock().said.has(capability)
    }

    /// What it said to `initialize`; `None` if it has not been there yet.
    pub(super) fn said(&self) -> Option<Said> {
        let state = self.state.lock();
        state.result.is_some().then(|| state.said.clone())
    }

    /// The link, once there is one.
    ///
    /// # Cancel safety
    /// A server that is coming up goes on coming up.
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
    fn bring_up(self: &Arc<Self>, state: &mut State) -> watch::Receiver<Outcome> {
        let (tell, outcome) = watch::channel(None);
        state.number += 1;
        state.is_told = false;
        let number = state.number;
        let slot = Arc::clone(self);
        #[expect(clippy::disallowed_methods, reason = "held by the slot, and aborted with it")]
        let task = tokio::spawn(async move {
            let opened = slot.open_one_that_stays(number).await;
            let (opened, changed) = match opened {
                Ok(changed) => (Ok(()), changed),
                Err(error) => (Err(error), Vec::new()),
            };
            if let Err(error) = &opened {
                let (backend, session) = (&slot.member.name, slot.shared.outlet.session_label());
                tracing::warn!(backend, session, %error, "one of the servers is not available");
                let mut state = slot.state.lock();
                state.failed = Some((Instant::now(), error.clone()));
                state.coming = None;
            }
            tell.send_replace(Some(opened));
            // Last, because it may have to wait for the client.
            for method in changed {
                drop(slot.shared.outlet.notify(&method, None).await);
            }
        });
        state.coming = Some(outcome.clone());
        state.opener = Some(AbortOnDropHandle::new(task));
        outcome
    }

    /// Opens a link; if that is lost before it is of use, the next is tried.
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

    /// Opens a link. Returns what to tell the client of.
    async fn open(self: &Arc<Self>, number: u64) -> Result<Vec<Method>, RpcError> {
        let shared = &self.shared;
        let slot: Weak<Self> = Arc::downgrade(self);
        let lost = move || {
            if let Some(slot) = slot.upgrade() {
                slot.lost(number);
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
        let said = Said::read(&opened.result);
        let level = self.greet(&link, &said).await;
        {
            let mut state = self.state.lock();
            if state.lost >= number || state.closed {
                return Err(gone());
            }
            state.up = Some(Arc::clone(&link));
            state.said = said;
            state.result = Some(opened.result.clone());
            state.failed = None;
            state.coming = None;
            state.read = Default::default();
        }
        // Should it have been said in between.
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

    /// Tells a server that is back what the one before it knew. Returns the log level that it was told.
    async fn greet(&self, link: &Arc<dyn Link>, said: &Said) -> Option<RawJson> {
        let subscriptions = self.state.lock().subscriptions.clone();
        let level = self.shared.level.lock().clone().filter(|_| said.has("logging"));
        if !self.shared.initialized.load(Ordering::Acquire) {
            return None;
        }
        link.notify(Notification { method: Method::Initialized, params: None });
        self.state.lock().is_told = true;
        let mut asked = Vec::new();
        asked.extend(level.clone().map(|level| (Method::LoggingSetLevel, level)));
        for uri in subscriptions {
            asked.push((Method::ResourcesSubscribe, RawJson::of(&serde_json::json!({ "uri": uri }))));
        }
        for (method, params) in asked {
            if let Err(error) = self.inquire(link, &method, Some(params)).await {
                let backend = &self.member.name;
                tracing::warn!(backend, %method, %error, "the server that is back refused what the last one took");
            }
        }
        if said.has("resources") {
            self.offer_unplaced(link).await;
        }
        level
    }

    /// Asks the server for what the client watches and nobody else took.
    async fn offer_unplaced(&self, link: &Arc<dyn Link>) {
        let unplaced = self.shared.unplaced.lock().clone();
        for uri in unplaced {
            let params = RawJson::of(&serde_json::json!({ "uri": uri }));
            if self.inquire(link, &Method::ResourcesSubscribe, Some(params)).await.is_ok() {
                self.watches(&uri, true);
            }
        }
    }

    /// Tells the server that the client is ready, if it is and the server does not know.
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

    /// Whether the server is there now.
    pub(super) fn is_up(&self) -> bool {
        self.state.lock().up.is_some()
    }

    /// The link, unless that takes long.
    pub(super) async fn link_soon(self: &Arc<Self>) -> Result<(Arc<dyn Link>, u64), RpcError> {
        tokio::time::timeout(PATIENCE, self.link()).await.unwrap_or_else(|_| Err(late()))
    }

    /// Whether a list was read whole a short while ago. Notes that it is being read now.
    pub(super) fn was_read(&self, kind: Kind) -> bool {
        let mut state = self.state.lock();
        let read = &mut state.read[kind as usize];
        if read.is_some_and(|when| when.elapsed() < READ_AGAIN) {
            return true;
        }
        *read = Some(Instant::now());
        false
    }

    /// Passes a notification on, if the server is there.
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
        // Not held: it ends by itself, and frees what is left of the server.
        #[expect(clippy::disallowed_methods, reason = "bounded by the link's own deadlines")]
        drop(tokio::spawn(async move { link.close().await }));
    }

    fn has_lost(&self, number: u64) -> bool {
        self.state.lock().lost >= number
    }

    /// Sends a request; if the server is lost meanwhile and it is safe, to the next one.
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
            lost += 1;
            if repeat == Repeat::Never || lost > MAX_LOST {
                return Err(RpcError::server_lost());
            }
            (link, number) = match self.link().await {
                Ok(linked) => linked,
                Err(error) => {
                    return Err(if repeat == Repeat::Safe { error } else { RpcError::server_lost() });
                }
            };
            if repeat == Repeat::AskTool && !self.may_repeat(&link, &request).await {
                return Err(RpcError::server_lost());
            }
            let backend = &self.member.name;
            tracing::info!(backend, request = ?request.id, method = %request.method, "run again on another server");
            context.begins_again();
        }
    }

    async fn may_repeat(&self, link: &Arc<dyn Link>, request: &Request) -> bool {
        let Some(name) = params::tool_name(request.params.as_ref()) else { return false };
        let mut cursor = None;
        // Many pages of tools are nothing that a server should have.
        for _ in 0..100 {
            let params = cursor.map(|cursor: String| RawJson::of(&serde_json::json!({ "cursor": cursor })));
            let Ok(page) = self.inquire(link, &Method::ToolsList, params).await else { return false };
            let (repeatable, next) = params::repeatable_tools(&page);
            if repeatable.contains(&name) {
                return true;
            }
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        false
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
        tokio::time::timeout(self.shared.open_timeout.min(PATIENCE), call)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    /// Remembers what the client watches at this server, for the next one in its place.
    pub(super) fn watches(&self, uri: &str, does: bool) {
        let mut state = self.state.lock();
        if does {
            self.shared.unplaced.lock().remove(uri);
            state.subscriptions.insert(uri.to_owned());
        } else {
            state.subscriptions.remove(uri);
        }
    }

    /// Lets go of the server, and of one that is coming up.
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

pub(super) fn late() -> RpcError {
    RpcError::of(Reason::TimedOut, "The server did not answer in time")
}

fn gone() -> RpcError {
    RpcError::of(Reason::BackendUnavailable, "The server has ended")
}
