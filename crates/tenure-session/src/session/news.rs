//! Notifications from servers to all sessions: a list changed, a resource was updated.
//!
//! Remembers which session watches which resource, and when each list last changed, for sessions that were dormant. A
//! session that slept at another node of a cluster may have missed more than this node knows.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use serde::Deserialize;
use tenure_protocol::{Method, RawJson, message};

use crate::call::{News, NewsListener, Origin};
use crate::id::{NodeId, Route, SessionId};
use crate::port::clock::Time;
use crate::session::live_session::Session;
use crate::session::phase::Phase;
use crate::session::sessions::SessionRuntime;

/// When each list last changed, for sessions that were dormant at that time.
#[derive(Default)]
pub(super) struct LastNews(Mutex<HashMap<Route, [Time; 3], RandomState>>);

impl LastNews {
    fn note(&self, route: &Route, news: News, now: Time) {
        self.0.lock().entry(route.clone()).or_default()[news as usize] = now;
    }

    /// The lists of an endpoint that changed after this time.
    pub(super) fn since(&self, route: &Route, time: Time) -> impl Iterator<Item = Method> + use<> {
        let last = self.0.lock().get(route).copied().unwrap_or_default();
        let changed = move |news: &News| last[*news as usize] > time;
        News::ALL.into_iter().filter(changed).map(News::method)
    }
}

/// The lists that may change without another handshake, as the server says.
pub(super) fn changing_lists(initialize_result: &RawJson) -> Vec<Method> {
    #[derive(Deserialize, Default)]
    struct Promised {
        #[serde(default, rename = "listChanged")]
        list_changed: bool,
    }
    #[derive(Deserialize, Default)]
    struct Lists {
        #[serde(default)]
        tools: Promised,
        #[serde(default)]
        prompts: Promised,
        #[serde(default)]
        resources: Promised,
    }
    #[derive(Deserialize, Default)]
    struct Initialized {
        #[serde(default)]
        capabilities: Lists,
    }
    let Lists { tools, prompts, resources } =
        initialize_result.read::<Initialized>().unwrap_or_default().capabilities;
    let lists = [(News::Tools, tools), (News::Prompts, prompts), (News::Resources, resources)];
    lists.into_iter().filter(|(_, promised)| promised.list_changed).map(|(news, _)| news.method()).collect()
}

impl Session {
    /// Where its client hears of changes while the session is in memory here.
    pub(super) fn hears_at(&self) -> Option<NodeId> {
        self.inner.roster.as_ref().map(|_| self.by.node)
    }
}

impl NewsListener for SessionRuntime {
    fn resource_updated(&self, route: &Route, uri: &str) {
        let params = RawJson::of(&serde_json::json!({ "uri": uri }));
        let body = message::write_notification(&Method::ResourceUpdated, Some(&params));
        for id in self.watchers.of(uri) {
            if let Some(session) = self.live.get(&id).filter(|session| session.route == *route) {
                tell(&session, &body);
            }
        }
    }

    fn list_changed(&self, route: &Route, news: News) {
        self.news.note(route, news, self.clock.now());
        let body = message::write_notification(&news.method(), None);
        for session in self.live.all().into_iter().filter(|session| session.route == *route) {
            if session.state.lock().phase == Phase::Initialized {
                tell(&session, &body);
            }
        }
    }
}

fn tell(session: &Arc<Session>, body: &bytes::Bytes) {
    if let Err(error) = session.emit_now(&Origin::Unasked, body.clone()) {
        tracing::debug!(session = %session.label, %error, "could not pass on a notification");
    }
}

/// Which sessions watch which resource.
#[derive(Default)]
pub(super) struct Watchers {
    by_uri: Mutex<HashMap<Box<str>, HashSet<SessionId, RandomState>, RandomState>>,
}

impl Watchers {
    pub(super) fn add(&self, uri: &str, id: SessionId) {
        self.by_uri.lock().entry(uri.into()).or_default().insert(id);
    }

    pub(super) fn remove(&self, uri: &str, id: &SessionId) {
        let mut by_uri = self.by_uri.lock();
        if let Some(sessions) = by_uri.get_mut(uri) {
            sessions.remove(id);
            if sessions.is_empty() {
                by_uri.remove(uri);
            }
        }
    }

    fn of(&self, uri: &str) -> Vec<SessionId> {
        self.by_uri.lock().get(uri).map(|sessions| sessions.iter().copied().collect()).unwrap_or_default()
    }
}
