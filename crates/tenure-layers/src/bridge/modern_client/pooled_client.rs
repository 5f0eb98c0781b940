//! The client of a pooled session, as its server sees it.
//!
//! In: messages that the server sends outside of any request. Out: log messages, progress and questions go to the
//! request that leases the session; news (changed lists and resources) go to the listens; other messages are dropped.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::translate::questions;
use tenure_protocol::{Error, Method, RawJson, RequestId, Revision, RpcError};
use tenure_session::call::{Client, Origin};
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tokio_util::sync::CancellationToken;

use crate::bridge::modern_client::listens::Listens;
use crate::bridge::modern_client::pool::{Pool, PoolKey};
use crate::bridge::modern_client::pooled_request::PooledRequest;

/// The client of a pooled session.
pub(super) struct PooledClient {
    pub(super) number: u64,
    pub(super) key: PoolKey,
    label: String,
    timeout: Duration,
    opened: Time,
    listens: Arc<Listens>,
    pool: Weak<Pool>,
    lost: CancellationToken,
    /// The request that the session is leased to.
    request: Mutex<Option<Arc<PooledRequest>>>,
}

impl PooledClient {
    pub(super) fn new(pool: &Arc<Pool>, key: &PoolKey) -> Self {
        let number = pool.next_number();
        Self {
            number,
            key: key.clone(),
            label: format!("bridge-{number}"),
            timeout: pool.limits.open_timeout,
            opened: SystemClock.now(),
            listens: Arc::clone(&pool.listens),
            pool: Arc::downgrade(pool),
            lost: CancellationToken::new(),
            request: Mutex::default(),
        }
    }

    /// Gives the session to a request.
    pub(super) fn take(&self, request: &Arc<PooledRequest>) {
        *self.request.lock() = Some(Arc::clone(request));
    }

    /// No request has the session any more.
    pub(super) fn leave(&self) {
        let request = self.request.lock().take();
        // Dropped outside the lock: this may be the last reference to the request's context.
        drop(request);
    }

    /// Marks the link as lost: it ended without having been closed.
    pub(super) fn lose(&self) {
        self.lost.cancel();
        if let Some(pool) = self.pool.upgrade() {
            pool.lost(self.number);
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Resolves when the link is lost.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    pub(super) fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.upgrade()
    }

    /// Passes news to the listens; `false` if the message is not news.
    pub(super) fn tell(&self, method: &Method, params: Option<&RawJson>) -> bool {
        let is_news = matches!(
            method,
            Method::ToolsListChanged
                | Method::PromptsListChanged
                | Method::ResourcesListChanged
                | Method::ResourceUpdated
        );
        if *method == Method::ToolsListChanged
            && let Some(pool) = self.pool()
        {
            pool.task_support.forget(&self.key.route);
        }
        if is_news {
            self.listens.tell(&self.key.route, Some(&self.key.principal), method, params);
        }
        is_news
    }
}

/// The `clientInfo` of a pooled session: our own, since one session serves many clients.
pub(super) fn ourselves() -> RawJson {
    RawJson::of(&serde_json::json!({ "name": "tenure", "version": env!("CARGO_PKG_VERSION") }))
}

impl Client for PooledClient {
    fn notify(
        self: Arc<Self>,
        origin: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<(), Error>> {
        if !self.tell(method, params) {
            let request = self.request.lock().clone();
            match request.filter(|request| request.concerns(method, params)) {
                Some(request) => return request.notify(origin, method, params),
                None => {
                    tracing::debug!(session = self.label, %method, "dropped a message that belongs to no request")
                }
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn ask(
        self: Arc<Self>,
        origin: &Origin,
        method: &Method,
        params: Option<&RawJson>,
    ) -> BoxFuture<Result<RawJson, RpcError>> {
        let request = self.request.lock().clone();
        match request {
            Some(request) => request.ask(origin, method, params),
            None => Box::pin(std::future::ready(questions::refusal(method))),
        }
    }

    fn cancellation(&self, _: &RequestId, _: u64) -> Option<CancellationToken> {
        Some(self.lost.clone())
    }

    fn capabilities(&self) -> RawJson {
        self.key.relayed.object()
    }

    fn client_info(&self) -> Option<RawJson> {
        Some(ourselves())
    }

    fn protocol(&self) -> &'static str {
        Revision::LATEST.as_str()
    }

    fn revision(&self) -> Revision {
        Revision::LATEST
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn started(&self) -> Time {
        self.opened
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn route(&self) -> &Route {
        &self.key.route
    }

    fn principal(&self) -> Principal {
        self.key.principal.clone()
    }
}
