//! The registry of listens, and the queue of notifications for each.
//!
//! A listen gets the notifications of its own principal's sessions, and those that are for all principals. A notification
//! says only that something changed, so a queue holds each one once, and a listen whose queue is full is told that
//! everything changed. The sender never waits.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Method, RawJson};
use tenure_session::call::{News, NewsListener};
use tenure_session::id::{Principal, Route};
use tokio::sync::Notify;

use crate::bridge::modern_client::pool::PoolKey;

/// Capacity of one listen's queue. When it is full, the listen is told that everything changed.
const WAITING: usize = 256;

/// All listens.
#[derive(Default)]
pub(super) struct Listens {
    all: Mutex<Vec<Arc<Listen>>>,
    /// How many listens watch resources.
    watching: AtomicUsize,
}

/// One listen.
pub(super) struct Listen {
    route: Route,
    principal: Principal,
    state: Mutex<ListenState>,
    more: Notify,
}

struct ListenState {
    filter: Filter,
    /// The server has agreed to this filter.
    is_agreed: bool,
    waiting: VecDeque<(Method, Option<RawJson>)>,
}

impl Listens {
    /// Enters a listen. From now on its notifications are queued.
    pub(super) fn enter(self: &Arc<Self>, key: &PoolKey, filter: Filter) -> Arc<Listen> {
        let watches = !filter.uris.is_empty();
        let listen = Arc::new(Listen {
            route: key.route.clone(),
            principal: key.principal.clone(),
            state: Mutex::new(ListenState { filter, is_agreed: false, waiting: VecDeque::new() }),
            more: Notify::new(),
        });
        self.watching.fetch_add(usize::from(watches), Ordering::Relaxed);
        self.all.lock().push(Arc::clone(&listen));
        listen
    }

    /// Removes a listen. `watched` says whether it was entered with resources to watch.
    pub(super) fn leave(&self, listen: &Arc<Listen>, watched: bool) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, listen));
        self.watching.fetch_sub(usize::from(watched), Ordering::Relaxed);
    }

    /// Whether any listen watches resources.
    pub(super) fn somebody_watches(&self) -> bool {
        self.watching.load(Ordering::Relaxed) > 0
    }

    /// The resources that the listens of a principal watch.
    pub(super) fn watched(&self, key: &PoolKey) -> BTreeSet<String> {
        self.uris(key, |_| true)
    }

    /// Those of them that a server has agreed to report.
    pub(super) fn agreed(&self, key: &PoolKey) -> BTreeSet<String> {
        self.uris(key, |state| state.is_agreed)
    }

    fn uris(&self, key: &PoolKey, counts: impl Fn(&ListenState) -> bool) -> BTreeSet<String> {
        let all = self.all.lock();
        let own = all.iter().filter(|listen| listen.belongs(&key.route, Some(&key.principal)));
        let mut uris = BTreeSet::new();
        for listen in own {
            let state = listen.state.lock();
            if counts(&state) {
                uris.extend(state.filter.uris.iter().cloned());
            }
        }
        uris
    }

    /// Queues a notification for the listens of a principal, or for all at an endpoint.
    pub(super) fn tell(
        &self,
        route: &Route,
        principal: Option<&Principal>,
        method: &Method,
        params: Option<&RawJson>,
    ) {
        for listen in self.all.lock().iter().filter(|listen| listen.belongs(route, principal)) {
            listen.hear(method, params);
        }
    }
}

impl NewsListener for Listens {
    fn resource_updated(&self, route: &Route, uri: &str) {
        let params = RawJson::of(&serde_json::json!({ "uri": uri }));
        self.tell(route, None, &Method::ResourceUpdated, Some(&params));
    }

    fn list_changed(&self, route: &Route, news: News) {
        self.tell(route, None, &news.method(), None);
    }
}

impl Listen {
    fn belongs(&self, route: &Route, principal: Option<&Principal>) -> bool {
        self.route == *route && principal.is_none_or(|principal| self.principal == *principal)
    }

    fn hear(&self, method: &Method, params: Option<&RawJson>) {
        let mut state = self.state.lock();
        if !state.filter.hears(method, params) {
            return;
        }
        let is_new = !state.waiting.iter().any(|(other, told)| other == method && told.as_ref() == params);
        if is_new && state.waiting.len() < WAITING {
            state.waiting.push_back((method.clone(), params.map(RawJson::detached)));
        } else if is_new {
            state.change_everything();
        }
        drop(state);
        self.more.notify_one();
    }

    /// Notifications may have been missed: report everything as changed.
    pub(super) fn missed(&self) {
        self.state.lock().change_everything();
        self.more.notify_one();
    }

    /// Narrows the filter and drops queued notifications that no longer match.
    pub(super) fn narrow(&self, filter: Filter) {
        let mut state = self.state.lock();
        state.waiting.retain(|(method, params)| filter.hears(method, params.as_ref()));
        state.filter = filter;
        state.is_agreed = true;
    }

    /// The next notification.
    ///
    /// # Cancel safety
    /// No notification is lost.
    pub(super) async fn next(&self) -> (Method, Option<RawJson>) {
        loop {
            let next = self.state.lock().waiting.pop_front();
            if let Some(next) = next {
                return next;
            }
            self.more.notified().await;
        }
    }
}

impl ListenState {
    fn change_everything(&mut self) {
        self.waiting = self.filter.all_changed().collect();
    }
}
