//! The client of a session that is kept for exchanges, as its server sees it.
//!
//! What the server says outside of any request belongs to the request that the session is leased to, as far as it can
//! belong to one; news go to those who listen; the rest is said to nobody.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::translate::questions;
use tenure_protocol::{Error, Method, RawJson, Revision, RpcError};
use tenure_session::call::Stage;
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tokio_util::sync::CancellationToken;

use crate::bridge::modern_client::listens::Listens;
use crate::bridge::modern_client::pool::{Key, Pool};
use crate::bridge::modern_client::pooled_request::Turn;

/// The client of a session.
pub(super) struct Seat {
    pub(super) number: u64,
    pub(super) key: Key,
    label: String,
    timeout: Duration,
    opened: Time,
    listens: Arc<Listens>,
    pool: Weak<Pool>,
    lost: CancellationToken,
    /// The request that the session is leased to.
    turn: Mutex<Option<Arc<Turn>>>,
}

impl Seat {
    pub(super) fn new(pool: &Arc<Pool>, key: &Key) -> Self {
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
            turn: Mutex::default(),
        }
    }

    /// Gives the session to a request.
    pub(super) fn take(&self, turn: &Arc<Turn>) {
        *self.turn.lock() = Some(Arc::clone(turn));
    }

    /// No request has the session any more.
    pub(super) fn leave(&self) {
        let turn = self.turn.lock().take();
        // Not under the lock: it may be the last that holds the request's context.
        drop(turn);
    }

    /// The link is gone without having been closed.
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

    /// Tells those who listen; `false` if it is no news.
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
            pool.supports.forget(&self.key.route);
        }
        if is_news {
            self.listens.tell(&self.key.route, Some(&self.key.principal), method, params);
        }
        is_news
    }
}

/// Who a session's client is: we are, since a session serves many.
pub(super) fn ourselves() -> RawJson {
    RawJson::of(&serde_json::json!({ "name": "tenure", "version": env!("CARGO_PKG_VERSION") }))
}

impl Stage for Seat {
    fn notify(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<(), Error>> {
        if !self.tell(method, params) {
            let turn = self.turn.lock().clone();
            match turn.filter(|turn| turn.concerns(method, params)) {
                Some(turn) => return turn.notify(method, params),
                None => {
                    tracing::debug!(session = self.label, %method, "a message that belongs to no request")
                }
            }
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn ask(&self, method: &Method, params: Option<&RawJson>) -> BoxFuture<Result<RawJson, RpcError>> {
        let turn = self.turn.lock().clone();
        match turn {
            Some(turn) => turn.ask(method, params),
            None => Box::pin(std::future::ready(questions::refusal(method))),
        }
    }

    fn cancellation(&self) -> CancellationToken {
        self.lost.clone()
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
