//! One session towards a server: its link, what the server said of itself, and what it was told to do by itself.
//!
//! Opened with our own name, the latest revision and what the clients of its requests can do; closed when nobody holds
//! it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_protocol::translate::{handshake, tasks};
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, Request, RequestId, Revision, RpcError};
use tenure_session::backend::{Call, Link, Open, Opening};
use tenure_session::call::{CallContext, Outlet, Stage};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::bridge::modern_client::pool::{Key, Pool};
use crate::bridge::modern_client::pooled_client::{Seat, ourselves};
use crate::bridge::modern_client::pooled_request::Turn;

/// How long a server may take to do what we ask of it by ourselves.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Slot {
    pub(super) seat: Arc<Seat>,
    pub(super) revision: Revision,
    /// What the server said to `initialize`.
    pub(super) initialized: RawJson,
    said: Said,
    link: Arc<dyn Link>,
    tasks: TaskTracker,
    logs_everything: AtomicBool,
    /// The resources that the server was asked to tell of, and whether it does.
    watched: Mutex<BTreeMap<String, bool>>,
    /// One at a time changes what the server tells of, or a subscription could overtake the end of another.
    watching: Semaphore,
}

/// What counts of a server's capabilities.
struct Said {
    logs: bool,
    subscribes: bool,
    tasks: bool,
}

impl Slot {
    /// Opens a session.
    ///
    /// # Cancel safety
    /// What was opened by then is freed by the backend.
    pub(super) async fn open(pool: &Arc<Pool>, key: &Key) -> Result<Arc<Self>, RpcError> {
        let seat = Arc::new(Seat::new(pool, key));
        let stage: Arc<dyn Stage> = Arc::clone(&seat) as _;
        let loser = Arc::downgrade(&seat);
        let lost = move || {
            if let Some(seat) = loser.upgrade() {
                seat.lose();
            }
        };
        let open = Open {
            params: handshake::initialize_params(key.relayed, &ourselves()),
            revision: Revision::LATEST,
            opening: Opening::Fresh,
            route: key.route.clone(),
            outlet: Outlet::of_stage(&stage).of_part(lost),
            fanout: pool.fanout(&key.route),
        };
        let late = |_| RpcError::of(Reason::TimedOut, "The server did not answer initialize in time");
        let opening = tokio::time::timeout(pool.limits.open_timeout, pool.backend.open(open));
        let opened = opening.await.map_err(late)??;
        let answered = Answered::read(&opened.result);
        let slot = Arc::new(Self {
            seat,
            revision: answered.revision.unwrap_or(Revision::LATEST),
            initialized: opened.result.detached(),
            said: answered.said,
            link: Arc::from(opened.link),
            tasks: pool.tasks.clone(),
            logs_everything: AtomicBool::new(false),
            watched: Mutex::default(),
            watching: Semaphore::new(1),
        });
        if answered.revision.is_none() {
            let words = "The server speaks a revision of the protocol that is not known";
            return Err(RpcError::of(Reason::BackendUnavailable, words));
        }
        if slot.seat.is_lost() {
            return Err(RpcError::of(Reason::BackendUnavailable, "The server has ended"));
        }
        slot.link.notify(Notification { method: Method::Initialized, params: None });
        pool.opened(&slot);
        Ok(slot)
    }

    /// Sends a client's request, which has the session until the lease ends.
    pub(super) async fn call(&self, request: Request, turn: &Arc<Turn>) -> Reply {
        self.seat.take(turn);
        let stage: Arc<dyn Stage> = Arc::clone(turn) as _;
        let of_client = turn.context();
        // Not the client's own context with another stage: its params hold the client's token, and not ours.
        let mut context = CallContext::staged(stage, &request, of_client.caller().clone());
        if let Some(state) = of_client.state() {
            context.set_state(state.clone());
        }
        self.link.call(Call { request, context }).await
    }

    /// What the server calls itself.
    pub(super) fn server_info(&self) -> Option<RawJson> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(rename = "serverInfo", borrow)]
            server: &'a RawValue,
        }
        let named = self.initialized.read::<Named<'_>>().ok()?;
        named.server.get().starts_with('{').then(|| RawJson::of(&named.server))
    }

    /// Whether the server makes tasks of calls.
    pub(super) fn has_tasks(&self) -> bool {
        self.said.tasks
    }

    /// The name in logs.
    pub(super) fn label(&self) -> &str {
        self.seat.label()
    }

    /// Has the server send all its log messages from now on.
    pub(super) async fn log_everything(&self) {
        if !self.said.logs || self.logs_everything.swap(true, Ordering::Relaxed) {
            return;
        }
        let params = RawJson::trusted(r#"{"level":"debug"}"#);
        if let Err(error) = self.inquire(&Method::LoggingSetLevel, params).await {
            tracing::debug!(session = self.seat.label(), %error, "the server does not take a log level");
        }
    }

    /// Whether the server was asked to tell of anything.
    pub(super) fn watches_something(&self) -> bool {
        !self.watched.lock().is_empty()
    }

    /// Whether the server tells of a resource.
    pub(super) fn watches(&self, uri: &str) -> bool {
        self.watched.lock().get(uri).copied().unwrap_or_default()
    }

    /// Resources that the server did not want to tell of are asked for again with the next.
    pub(super) fn forget_refusals(&self) {
        self.watched.lock().retain(|_, told| *told);
    }

    /// Has the server tell of these resources, and of no others. One that does not answer is not asked for the next:
    /// there may be many, and somebody waits.
    pub(super) async fn watch(&self, wanted: impl Fn() -> BTreeSet<String>) {
        if !self.said.subscribes {
            return;
        }
        let Ok(_one_at_a_time) = self.watching.acquire().await else { return };
        // Only now: others may have changed it meanwhile.
        let wanted = wanted();
        let watched: BTreeSet<_> = self.watched.lock().keys().cloned().collect();
        let mut is_silent = false;
        for uri in watched.difference(&wanted) {
            let told = self.watched.lock().remove(uri);
            if told == Some(true) && !is_silent {
                let answer = self.inquire(&Method::ResourcesUnsubscribe, of_resource(uri)).await;
                is_silent = is_late(&answer);
            }
        }
        for uri in wanted.difference(&watched) {
            if is_silent {
                self.watched.lock().insert(uri.clone(), false);
                continue;
            }
            let answer = self.inquire(&Method::ResourcesSubscribe, of_resource(uri)).await;
            is_silent = is_late(&answer);
            if let Err(error) = &answer {
                tracing::debug!(session = self.seat.label(), %error, "the server does not tell of a resource");
            }
            self.watched.lock().insert(uri.clone(), answer.is_ok());
        }
    }

    /// Sends a request of our own.
    pub(super) async fn inquire(&self, method: &Method, params: RawJson) -> Reply {
        let id = RequestId::from_text("tenure-bridge");
        let request = Request { id, method: method.clone(), params: Some(params) };
        let stage: Arc<dyn Stage> = Arc::clone(&self.seat) as _;
        let context = Outlet::of_stage(&stage).inquiry(&request).map_err(|error| error.to_rpc())?;
        let answer = tokio::time::timeout(PATIENCE, self.link.call(Call { request, context })).await;
        answer.unwrap_or_else(|_| Err(RpcError::of(Reason::TimedOut, "The server did not answer in time")))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(pool) = self.seat.pool() {
            pool.closed(self.seat.number);
        }
        // Without a runtime the process is ending, and the link ends with us.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let link = Arc::clone(&self.link);
            drop(self.tasks.spawn_on(async move { link.close().await }, &runtime));
        }
    }
}

fn is_late(answer: &Reply) -> bool {
    answer.as_ref().is_err_and(|error| error.is(Reason::TimedOut))
}

fn of_resource(uri: &str) -> RawJson {
    RawJson::of(&serde_json::json!({ "uri": uri }))
}

/// An answer to `initialize`, as far as it matters here.
struct Answered {
    revision: Option<Revision>,
    said: Said,
}

impl Answered {
    fn read(result: &RawJson) -> Self {
        #[derive(Deserialize, Default)]
        struct Result {
            #[serde(rename = "protocolVersion", default)]
            version: String,
            #[serde(default)]
            capabilities: Capabilities,
        }
        #[derive(Deserialize, Default)]
        struct Capabilities {
            logging: Option<serde::de::IgnoredAny>,
            #[serde(default)]
            resources: Resources,
        }
        #[derive(Deserialize, Default)]
        struct Resources {
            #[serde(default)]
            subscribe: bool,
        }
        let tasks = tasks::served(result);
        let result: Result = result.read().unwrap_or_default();
        let Capabilities { logging, resources } = result.capabilities;
        Self {
            revision: Revision::parse(&result.version),
            said: Said { logs: logging.is_some(), subscribes: resources.subscribe, tasks },
        }
    }
}
