//! Who listens to what, and the news that wait for them.
//!
//! A listen hears what servers tell its own principal, and what they tell everybody. News say only that something
//! changed, so the same news do not wait twice, and a listener that is too slow is told that everything has changed.
//! Nobody who tells something waits.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tenure_protocol::translate::notifications::Filter;
use tenure_protocol::{Method, RawJson};
use tenure_session::call::{Listener, News};
use tenure_session::id::{Principal, Route};
use tokio::sync::Notify;

use crate::bridge::modern_client::pool::Key;

/// News that may wait for one listener. Beyond that it is told that everything has changed.
const WAITING: usize = 256;

/// All listens.
#[derive(Default)]
pub(super) struct Listens {
    all: Mutex<Vec<Arc<Listen>>>,
    /// How many of them watch resources.
    watching: AtomicUsize,
}

/// One listen.
pub(super) struct Listen {
    route: Route,
    principal: Principal,
    state: Mutex<State>,
    more: Notify,
}

struct State {
    filter: Filter,
    /// The server agreed to tell what the filter says.
    is_agreed: bool,
    waiting: VecDeque<(Method, Option<RawJson>)>,
}

impl Listens {
    /// Enters a listen. From here on news wait for it.
    pub(super) fn enter(self: &Arc<Self>, key: &Key, filter: Filter) -> Arc<Listen> {
        let watches = !filter.uris.is_empty();
        let listen = Arc::new(Listen {
            route: key.route.clone(),
            principal: key.principal.clone(),
            state: Mutex::new(State { filter, is_agreed: false, waiting: VecDeque::new() }),
            more: Notify::new(),
        });
        self.watching.fetch_add(usize::from(watches), Ordering::Relaxed);
        self.all.lock().push(Arc::clone(&listen));
        listen
    }

    /// Takes a listen out that was entered with resources to watch, or without.
    pub(super) fn leave(&self, listen: &Arc<Listen>, watched: bool) {
        self.all.lock().retain(|other| !Arc::ptr_eq(other, listen));
        self.watching.fetch_sub(usize::from(watched), Ordering::Relaxed);
    }

    /// Whether any listen is for resources.
    pub(super) fn somebody_watches(&self) -> bool {
        self.watching.load(Ordering::Relaxed) > 0
    }

    /// The resources that somebody's listens are for.
    pub(super) fn watched(&self, key: &Key) -> BTreeSet<String> {
        self.uris(key, |_| true)
    }

    /// Those of them that a server has agreed to tell of.
    pub(super) fn agreed(&self, key: &Key) -> BTreeSet<String> {
        self.uris(key, |state| state.is_agreed)
    }

    fn uris(&self, key: &Key, counts: impl Fn(&State) -> bool) -> BTreeSet<String> {
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

    /// Tells the listens of a principal, or all at an endpoint.
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

impl Listener for Listens {
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

    /// The server may have told something that nobody heard.
    pub(super) fn missed(&self) {
        self.state.lock().change_everything();
        self.more.notify_one();
    }

    /// From here on it hears this; what waits and is something else goes.
    pub(super) fn narrow(&self, filter: Filter) {
        let mut state = self.state.lock();
        state.waiting.retain(|(method, params)| filter.hears(method, params.as_ref()));
        state.filter = filter;
        state.is_agreed = true;
    }

    /// The next news.
    ///
    /// # Cancel safety
    /// Nothing is lost.
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

impl State {
    fn change_everything(&mut self) {
        let Filter { tools, prompts, resources, uris, .. } = &self.filter;
        let lists = [(tools, News::Tools), (prompts, News::Prompts), (resources, News::Resources)];
        let lists = lists.into_iter().filter(|(wanted, _)| **wanted).map(|(_, news)| (news.method(), None));
        let updated = uris
            .iter()
            .map(|uri| (Method::ResourceUpdated, Some(RawJson::of(&serde_json::json!({ "uri": uri })))));
        self.waiting = lists.chain(updated).collect();
    }
}
