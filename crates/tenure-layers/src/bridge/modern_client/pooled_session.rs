//! One session towards a server: its link, the server's `initialize` result, its log level and its subscriptions.
//!
//! It is opened with our own name, the latest revision and the capabilities in its key, and closed when the last
//! reference to it is dropped.

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
use tenure_session::call::{CallContext, Client, Outlet};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::bridge::modern_client::pool::{Pool, PoolKey};
use crate::bridge::modern_client::pooled_client::{PooledClient, ourselves};
use crate::bridge::modern_client::pooled_request::PooledRequest;

/// How long a server may take to answer a request of our own.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct PooledSession {
    pub(super) client: Arc<PooledClient>,
    pub(super) revision: Revision,
    /// The server's `initialize` result.
    pub(super) initialized: RawJson,
    features: ServedFeatures,
    link: Arc<dyn Link>,
    tasks: TaskTracker,
    logs_everything: AtomicBool,
    /// The resources that we subscribed to, and whether the server agreed.
    watched: Mutex<BTreeMap<String, bool>>,
    /// Serialises changes of subscriptions, or a subscribe could overtake an unsubscribe.
    watching: Semaphore,
}

/// The server capabilities that matter here.
struct ServedFeatures {
    logs: bool,
    subscribes: bool,
    tasks: bool,
}

impl PooledSession {
    /// Opens a session.
    ///
    /// # Cancel safety
    /// The backend frees a link that was half opened.
    pub(super) async fn open(pool: &Arc<Pool>, key: &PoolKey) -> Result<Arc<Self>, RpcError> {
        let client = Arc::new(PooledClient::new(pool, key));
        let as_client: Arc<dyn Client> = Arc::clone(&client) as _;
        let loser = Arc::downgrade(&client);
        let lost = move || {
            if let Some(client) = loser.upgrade() {
                client.lose();
            }
        };
        let open = Open {
            params: handshake::initialize_params(key.relayed, &ourselves()),
            revision: Revision::LATEST,
            opening: Opening::Fresh,
            route: key.route.clone(),
            outlet: Outlet::to(&as_client).of_part(lost),
            fanout: pool.fanout(&key.route),
        };
        let late = |_| RpcError::of(Reason::TimedOut, "The server did not answer initialize in time");
        let opening = tokio::time::timeout(pool.limits.open_timeout, pool.backend.open(open));
        let opened = opening.await.map_err(late)??;
        let answered = PooledHandshake::read(&opened.result);
        let session = Arc::new(Self {
            client,
            revision: answered.revision.unwrap_or(Revision::LATEST),
            initialized: opened.result.detached(),
            features: answered.features,
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
        if session.client.is_lost() {
            return Err(RpcError::of(Reason::BackendUnavailable, "The server has ended"));
        }
        session.link.notify(Notification { method: Method::Initialized, params: None });
        pool.opened(&session);
        Ok(session)
    }

    /// Sends a client's request, to which the session belongs until the lease ends.
    pub(super) async fn call(&self, request: Request, pooled: &Arc<PooledRequest>) -> Reply {
        self.client.take(pooled);
        let client: Arc<dyn Client> = Arc::clone(pooled) as _;
        let of_client = pooled.context();
        // A new context, not a copy of the client's: its params would hold the client's progress token instead of ours.
        let mut context = CallContext::new(client, &request, of_client.caller().clone());
        if let Some(state) = of_client.state() {
            context.set_state(state.clone());
        }
        self.link.call(Call { request, context }).await
    }

    /// The server's `serverInfo`.
    pub(super) fn server_info(&self) -> Option<RawJson> {
        #[derive(Deserialize)]
        struct ServerInfoMember<'a> {
            #[serde(rename = "serverInfo", borrow)]
            server: &'a RawValue,
        }
        let named = self.initialized.read::<ServerInfoMember<'_>>().ok()?;
        named.server.get().starts_with('{').then(|| RawJson::of(&named.server))
    }

    /// Whether the server makes tasks of calls.
    pub(super) fn has_tasks(&self) -> bool {
        self.features.tasks
    }

    /// The name in logs.
    pub(super) fn label(&self) -> &str {
        self.client.label()
    }

    /// Sets the server's log level to `debug`, once.
    pub(super) async fn log_everything(&self) {
        if !self.features.logs || self.logs_everything.swap(true, Ordering::Relaxed) {
            return;
        }
        let params = RawJson::trusted(r#"{"level":"debug"}"#);
        if let Err(error) = self.inquire(&Method::LoggingSetLevel, params).await {
            tracing::debug!(session = self.client.label(), %error, "the server refused the log level");
        }
    }

    /// Whether there is any subscription.
    pub(super) fn watches_something(&self) -> bool {
        !self.watched.lock().is_empty()
    }

    /// Whether the server agreed to report a resource.
    pub(super) fn watches(&self, uri: &str) -> bool {
        self.watched.lock().get(uri).copied().unwrap_or_default()
    }

    /// Forgets refused subscriptions, so that the next `watch` tries them again.
    pub(super) fn forget_refusals(&self) {
        self.watched.lock().retain(|_, told| *told);
    }

    /// Subscribes to these resources and unsubscribes from all others, within one time limit for all of them. When it is
    /// over, the rest is not sent: there may be many, and the caller waits.
    pub(super) async fn watch(&self, wanted: impl Fn() -> BTreeSet<String>) {
        if !self.features.subscribes {
            return;
        }
        let Ok(_one_at_a_time) = self.watching.acquire().await else { return };
        // Read after the wait: it may have changed meanwhile.
        let wanted = wanted();
        let watched: BTreeSet<_> = self.watched.lock().keys().cloned().collect();
        let deadline = Instant::now() + PATIENCE;
        let mut is_silent = false;
        for uri in watched.difference(&wanted) {
            let told = self.watched.lock().remove(uri);
            if told == Some(true) && !is_silent {
                let answer =
                    self.inquire_until(deadline, &Method::ResourcesUnsubscribe, of_resource(uri)).await;
                is_silent = is_late(&answer);
            }
        }
        for uri in wanted.difference(&watched) {
            if is_silent {
                self.watched.lock().insert(uri.clone(), false);
                continue;
            }
            let answer = self.inquire_until(deadline, &Method::ResourcesSubscribe, of_resource(uri)).await;
            is_silent = is_late(&answer);
            if let Err(error) = &answer {
                tracing::debug!(session = self.client.label(), %error, "the server refused a subscription");
            }
            self.watched.lock().insert(uri.clone(), answer.is_ok());
        }
    }

    /// Sends a request of our own.
    pub(super) async fn inquire(&self, method: &Method, params: RawJson) -> Reply {
        self.inquire_until(Instant::now() + PATIENCE, method, params).await
    }

    async fn inquire_until(&self, deadline: Instant, method: &Method, params: RawJson) -> Reply {
        let id = RequestId::from_text("tenure-bridge");
        let request = Request { id, method: method.clone(), params: Some(params) };
        let client: Arc<dyn Client> = Arc::clone(&self.client) as _;
        let context = Outlet::to(&client).inquiry(&request).map_err(|error| error.to_rpc())?;
        let answer = tokio::time::timeout_at(deadline, self.link.call(Call { request, context })).await;
        answer.unwrap_or_else(|_| Err(RpcError::of(Reason::TimedOut, "The server did not answer in time")))
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        if let Some(pool) = self.client.pool() {
            pool.closed(self.client.number);
        }
        // Without a runtime the process is ending, and the link ends with it.
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

/// The members of an `initialize` result that matter here.
struct PooledHandshake {
    revision: Option<Revision>,
    features: ServedFeatures,
}

impl PooledHandshake {
    fn read(result: &RawJson) -> Self {
        #[derive(Deserialize, Default)]
        struct InitializeResult {
            #[serde(rename = "protocolVersion", default)]
            version: String,
            #[serde(default)]
            capabilities: ServedCapabilities,
        }
        #[derive(Deserialize, Default)]
        struct ServedCapabilities {
            logging: Option<serde::de::IgnoredAny>,
            #[serde(default)]
            resources: ServedResources,
        }
        #[derive(Deserialize, Default)]
        struct ServedResources {
            #[serde(default)]
            subscribe: bool,
        }
        let tasks = tasks::served(result);
        let result: InitializeResult = result.read().unwrap_or_default();
        let ServedCapabilities { logging, resources } = result.capabilities;
        Self {
            revision: Revision::parse(&result.version),
            features: ServedFeatures { logs: logging.is_some(), subscribes: resources.subscribe, tasks },
        }
    }
}
