//! Tells the other nodes what servers in this process say to all clients: a list changed, a resource was updated. And which tasks
//! have ended here, since clients of any node may watch them.
//!
//! In: news, from handlers that must not wait. Out: one request with all of a kind to each node, at once. News that waits is kept
//! once, however often it comes; if there is too much of it, more is dropped, since clients lose only a hint. What
//! comes from another node is not told on.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use tenure_session::call::{News, NewsListener};
use tenure_session::{Route, SessionKey};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::relay::Relay;
use super::relayed_head::{RelayedHead, RelayedWish};

/// The most news that wait.
const MOST: usize = 1024;

/// How long a node may take to hear it.
const HEARD_WITHIN: Duration = Duration::from_secs(2);

/// The longest text with news that a node takes.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// One piece of news. A later version may know more kinds; this one ignores a text that it cannot read.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RelayedNews {
    /// The endpoint, if it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint: Option<String>,
    pub(crate) what: WhatChanged,
}

/// What has changed.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhatChanged {
    Tools,
    Prompts,
    Resources,
    /// The resource of this URI.
    Resource(String),
    /// The task with this key.
    Task(String),
}

impl WhatChanged {
    /// The list, if it is one.
    pub(crate) fn list(&self) -> Option<News> {
        match self {
            Self::Tools => Some(News::Tools),
            Self::Prompts => Some(News::Prompts),
            Self::Resources => Some(News::Resources),
            Self::Resource(_) | Self::Task(_) => None,
        }
    }
}

/// The news that waits.
#[derive(Default)]
struct WaitingNews {
    of_servers: BTreeSet<RelayedNews>,
    /// Apart, because a node of an earlier version reads no text that has them in it. And so that many of them do not displace the
    /// others.
    of_tasks: BTreeSet<RelayedNews>,
}

/// Takes the news of this node.
pub struct PeerNews {
    waiting: Mutex<WaitingNews>,
    came: Notify,
}

impl PeerNews {
    /// Tells the nodes to which this relay leads. The task is of `tasks`, and ends when the relay is closed.
    pub fn start(relay: Relay, tasks: &TaskTracker) -> Arc<Self> {
        let news = Arc::new(Self { waiting: Mutex::default(), came: Notify::new() });
        let (told, closed) = (Arc::clone(&news), relay.closed().clone());
        tasks.spawn(async move {
            closed.run_until_cancelled(told.tell(&relay)).await;
        });
        news
    }

    async fn tell(&self, relay: &Relay) {
        loop {
            self.came.notified().await;
            let WaitingNews { of_servers, of_tasks } = std::mem::take(&mut *self.waiting());
            futures_util::future::join(tell_all(relay, &of_servers), tell_all(relay, &of_tasks)).await;
        }
    }

    fn add(&self, route: &Route, what: WhatChanged) {
        {
            let mut waiting = self.waiting();
            let of_kind = match what {
                WhatChanged::Task(_) => &mut waiting.of_tasks,
                _ => &mut waiting.of_servers,
            };
            if of_kind.len() >= MOST {
                return;
            }
            of_kind.insert(RelayedNews { endpoint: route.name().map(str::to_owned), what });
        }
        self.came.notify_one();
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, WaitingNews> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells all nodes, if there is something to tell.
async fn tell_all(relay: &Relay, news: &BTreeSet<RelayedNews>) {
    let Some(text) = serde_json::to_vec(news).ok().filter(|_| !news.is_empty()) else { return };
    let text = Bytes::from(text);
    let head = RelayedHead { wish: Some(RelayedWish::News), ..RelayedHead::default() };
    let (nodes, head) = (relay.roster().peers(), &head);
    let told = nodes.into_iter().map(|(node, _)| {
        let request = (Method::POST, HeaderMap::new(), text.clone());
        async move {
            let sent = tokio::time::timeout(HEARD_WITHIN, relay.send(node, head, request)).await;
            if !matches!(sent, Ok(Ok(_))) {
                tracing::debug!(?node, "a node did not hear what has changed at this one");
            }
        }
    });
    futures_util::future::join_all(told).await;
}

impl NewsListener for PeerNews {
    fn resource_updated(&self, route: &Route, uri: &str) {
        self.add(route, WhatChanged::Resource(uri.to_owned()));
    }

    fn list_changed(&self, route: &Route, news: News) {
        let what = match news {
            News::Tools => WhatChanged::Tools,
            News::Prompts => WhatChanged::Prompts,
            News::Resources => WhatChanged::Resources,
        };
        self.add(route, what);
    }

    fn task_ended(&self, route: &Route, task: SessionKey) {
        self.add(route, WhatChanged::Task(task.hex()));
    }
}

impl std::fmt::Debug for PeerNews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerNews").field("waiting", &self.waiting().of_servers.len()).finish_non_exhaustive()
    }
}
