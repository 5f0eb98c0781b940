//! What a modern server tells a session by itself: one listen for each session, with all that the session wants.
//!
//! In: `initialized`, subscribe and unsubscribe of the session. Out: its outlet. How a listen follows the wishes is
//! in `relisten`: one task for each session that wants anything at all, which ends with the link.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Revision, RpcError};
use tenure_session::backend::Open;
use tenure_session::call::{Caller, Outlet};
use tenure_session::id::Route;
use tokio::sync::{Notify, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::bridge::session_client::backend::Server;
use crate::bridge::session_client::client::Client;
use crate::bridge::session_client::dedupe::Held;

/// What a server tells a session by itself.
pub(super) struct Feed {
    listener: Arc<Listener>,
    task: Mutex<Task>,
}

enum Task {
    /// The session wants nothing yet.
    NotNeeded,
    /// Held, so that it ends with the link.
    Runs { _until_dropped: AbortOnDropHandle<()> },
    /// The link is closed.
    Over,
}

/// Whoever listens for a session.
pub(super) struct Listener {
    pub(super) server: Arc<Server>,
    pub(super) client: Arc<Client>,
    pub(super) caller: Caller,
    pub(super) route: Route,
    pub(super) revision: Revision,
    pub(super) label: String,
    pub(super) outlet: Outlet,
    /// What the server says it tells by itself; watched resources if there is anything in `uris`.
    offered: Filter,
    pub(super) wishes: Mutex<Wishes>,
    pub(super) changed: Notify,
    pub(super) held: Held,
}

/// Somebody who waits to hear whether a resource is watched.
pub(super) type Waiting = (String, oneshot::Sender<Reply>);

/// What the session wants to hear.
#[derive(Default)]
pub(super) struct Wishes {
    pub(super) filter: Filter,
    pub(super) waiting: Vec<Waiting>,
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
        let listener = Listener {
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
            held: Held::default(),
        };
        Self { listener: Arc::new(listener), task: Mutex::new(Task::NotNeeded) }
    }

    /// The client is ready: from now on it hears of changed lists, if the server tells of them.
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

    /// Watches a resource, and answers when the server agrees.
    ///
    /// # Errors
    /// When it does not.
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

    /// Watches a resource no more.
    ///
    /// # Errors
    /// When the server says that nothing can be watched.
    pub(super) fn unsubscribe(&self, uri: &str) -> Reply {
        self.check_subscribe()?;
        self.listener.wishes.lock().remove(uri);
        self.wish();
        Ok(RawJson::EMPTY_OBJECT)
    }

    /// Hears nothing any more.
    pub(super) fn close(&self) {
        drop(std::mem::replace(&mut *self.task.lock(), Task::Over));
    }

    fn check_subscribe(&self) -> Result<(), RpcError> {
        match self.listener.offered.uris.is_empty() {
            true => Err(RpcError::of(Reason::MethodNotFound, "The server's resources cannot be watched")),
            false => Ok(()),
        }
    }

    /// Lets the task look at the wishes, which have changed.
    #[expect(clippy::disallowed_methods, reason = "the link owns the task, and ends it")]
    fn wish(&self) {
        self.listener.changed.notify_one();
        let mut task = self.task.lock();
        if matches!(*task, Task::NotNeeded) {
            let running = tokio::spawn(Arc::clone(&self.listener).run());
            *task = Task::Runs { _until_dropped: AbortOnDropHandle::new(running) };
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

impl Listener {
    /// Passes news of a listen on, if it is wanted.
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

/// The error for a resource that is watched no more.
pub(super) fn gone() -> RpcError {
    RpcError::of(Reason::Cancelled, "The resource is watched no more")
}
