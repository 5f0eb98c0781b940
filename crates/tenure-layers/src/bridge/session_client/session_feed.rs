//! Notifications of a modern server for a session: one listen per session, for everything that the session wants.
//!
//! In: `initialized`, subscribe and unsubscribe of the session. Out: notifications to its outlet. `listen_loop` keeps
//! the listen in step with the wishes, in one task for each session that wants anything; the task ends with the link.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Revision, RpcError};
use tenure_session::backend::Open;
use tenure_session::call::{Caller, Outlet};
use tenure_session::id::Route;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::bridge::session_client::backend::ModernServer;
use crate::bridge::session_client::client::DeclaredClient;
use crate::bridge::session_client::dedupe::HeldNews;

/// The notifications of a server for one session.
pub(super) struct SessionFeed {
    listener: Arc<SessionListener>,
    task: Mutex<ListenTask>,
}

enum ListenTask {
    /// The session wants nothing yet.
    NotNeeded,
    /// Holds the handle, so that the task ends with the link.
    Runs { _until_dropped: AbortOnDropHandle<()> },
    /// The link is closed.
    Over,
}

/// Listens on behalf of one session.
pub(super) struct SessionListener {
    pub(super) server: Arc<ModernServer>,
    pub(super) declared: Arc<DeclaredClient>,
    pub(super) caller: Caller,
    pub(super) route: Route,
    pub(super) revision: Revision,
    pub(super) label: String,
    pub(super) outlet: Outlet,
    /// The notifications that the server offers; `uris` is not empty if it offers to watch resources.
    offered: Filter,
    pub(super) wishes: Mutex<Wishes>,
    pub(super) changed: Notify,
    pub(super) held: HeldNews,
}

/// A subscription that waits for the server's answer.
pub(super) type PendingSubscribe = (String, oneshot::Sender<Reply>);

/// The notifications that the session wants.
#[derive(Default)]
pub(super) struct Wishes {
    pub(super) filter: Filter,
    pub(super) waiting: Vec<PendingSubscribe>,
}

impl SessionFeed {
    pub(super) fn new(
        server: &Arc<ModernServer>,
        declared: &Arc<DeclaredClient>,
        open: &Open,
        caller: Caller,
        initialized: &RawJson,
    ) -> Self {
        let listener = SessionListener {
            server: Arc::clone(server),
            declared: Arc::clone(declared),
            caller,
            route: open.route.clone(),
            revision: open.revision,
            label: open.outlet.session_label(),
            outlet: open.outlet.clone(),
            offered: Filter::everything().of_session(initialized),
            wishes: Mutex::default(),
            changed: Notify::new(),
            held: HeldNews::default(),
        };
        Self { listener: Arc::new(listener), task: Mutex::new(ListenTask::NotNeeded) }
    }

    /// The client is ready: from now on it is told of changed lists, if the server offers that.
    pub(super) fn initialized(&self) {
        let Filter { tools, prompts, resources, .. } = self.listener.offered;
        if !tools && !prompts && !resources {
            return;
        }
        {
            let filter = &mut self.listener.wishes.lock().filter;
            (filter.tools, filter.prompts, filter.resources) = (tools, prompts, resources);
        }
        self.wish();
    }

    /// Watches a resource, and answers when the server has agreed.
    ///
    /// # Errors
    /// When the server does not agree.
    pub(super) async fn subscribe(&self, uri: String) -> Reply {
        self.check_subscribe()?;
        let (tell, told) = oneshot::channel();
        {
            let mut wishes = self.listener.wishes.lock();
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
        self.listener.wishes.lock().add(uri);
        self.wish();
        Ok(RawJson::EMPTY_OBJECT)
    }

    /// Stops watching a resource.
    ///
    /// # Errors
    /// When the server says that nothing can be watched.
    pub(super) fn unsubscribe(&self, uri: &str) -> Reply {
        self.check_subscribe()?;
        self.listener.wishes.lock().remove(uri);
        self.wish();
        Ok(RawJson::EMPTY_OBJECT)
    }

    /// Ends the listen for good.
    pub(super) fn close(&self) {
        drop(std::mem::replace(&mut *self.task.lock(), ListenTask::Over));
    }

    fn check_subscribe(&self) -> Result<(), RpcError> {
        match self.listener.offered.uris.is_empty() {
            true => Err(RpcError::of(Reason::MethodNotFound, "The server's resources cannot be watched")),
            false => Ok(()),
        }
    }

    /// Wakes the task, because the wishes have changed; starts it if it does not run yet.
    #[expect(clippy::disallowed_methods, reason = "the link owns the task, and ends it")]
    fn wish(&self) {
        self.listener.changed.notify_one();
        let mut task = self.task.lock();
        if matches!(*task, ListenTask::NotNeeded) {
            let running = tokio::spawn(Arc::clone(&self.listener).run());
            *task = ListenTask::Runs { _until_dropped: AbortOnDropHandle::new(running) };
        }
    }
}

impl Wishes {
    fn add(&mut self, uri: &str) {
        if !self.filter.uris.iter().any(|watched| watched == uri) {
            self.filter.uris.push(uri.to_owned());
        }
    }

    pub(super) fn remove(&mut self, uri: &str) {
        self.filter.uris.retain(|watched| watched != uri);
    }
}

impl SessionListener {
    /// Passes news on, if the session still wants it.
    pub(super) async fn hear(&self, method: &Method, params: Option<RawJson>) -> Result<(), Error> {
        if !self.wishes.lock().filter.hears(method, params.as_ref()) {
            return Ok(());
        }
        match self.held.keep((method.clone(), params)) {
            Some((method, params)) => self.outlet.notify(&method, params.as_ref()).await,
            None => Ok(()),
        }
    }
}

/// The error for a resource that is no longer watched.
pub(super) fn gone() -> RpcError {
    RpcError::of(Reason::Cancelled, "The resource is no longer watched")
}
