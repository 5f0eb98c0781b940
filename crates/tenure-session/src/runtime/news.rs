//! News of servers, as sessions hear them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

use super::session::Session;
use super::sessions::Inner;
use super::stream::Origin;
use crate::call::{Listener, News};
use crate::id::{Route, SessionId};
use crate::message::{self, RawJson};
use crate::method::Method;
use crate::phase::Phase;
use crate::port::clock::Time;

/// When each list last changed, for sessions that slept meanwhile.
#[derive(Default)]
pub(super) struct LastNews([AtomicU64; 3]);

impl LastNews {
    fn note(&self, news: News, now: Time) {
        self.0[news as usize].store(now.0, Ordering::Relaxed);
    }

    /// The lists that changed after this time.
    pub(super) fn since(&self, time: Time) -> impl Iterator<Item = Method> {
        let changed = move |news: &News| self.0[*news as usize].load(Ordering::Relaxed) > time.0;
        News::ALL.into_iter().filter(changed).map(News::method)
    }
}

impl Listener for Inner {
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
        self.news.note(news, self.clock.now());
        let body = message::write_notification(&news.method(), None);
        for session in self.live.all().into_iter().filter(|session| session.route == *route) {
            if session.state.lock().phase == Phase::Initialized {
                tell(&session, &body);
            }
        }
    }
}

fn tell(session: &Arc<Session>, body: &bytes::Bytes) {
    if let Err(error) = session.emit_now(&Origin::Session, body.clone()) {
        tracing::debug!(session = %session.label, %error, "could not pass news on");
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
