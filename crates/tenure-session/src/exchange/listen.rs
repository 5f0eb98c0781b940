//! Listens at servers in this process: who wants to hear of what, fed by what the servers tell all.

use std::sync::{Arc, Weak};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::translate::notifications::{self, Filter};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tokio::sync::Notify;

use crate::backend::Call;
use crate::call::{Fanout, Listener, News};
use crate::id::Route;

/// Resources whose change one listen was not told yet, beside those that it named.
const MAX_UNTOLD: usize = 1000;

/// All listens at one server.
#[derive(Clone, Debug)]
pub struct Listens(Arc<Board>);

struct Board {
    route: Route,
    ears: Mutex<Ears>,
}

#[derive(Default)]
struct Ears {
    next: u64,
    open: HashMap<u64, Arc<Ear>>,
}

/// One listen. What it has not been told yet is kept once, however often it happened: news says that something is
/// different now, and not how often it changed.
struct Ear {
    filter: Filter,
    news: Mutex<Untold>,
    more: Notify,
}

#[derive(Default)]
struct Untold {
    lists: [bool; 3],
    uris: HashSet<String>,
}

impl Listens {
    /// Listens to whatever is told to all who use an endpoint.
    pub fn new(fanout: &Fanout) -> Self {
        let board = Arc::new(Board { route: fanout.route().clone(), ears: Mutex::default() });
        let listener: Weak<dyn Listener> = Arc::downgrade(&(Arc::clone(&board) as Arc<dyn Listener>));
        fanout.add(listener);
        Self(board)
    }

    /// Answers a `subscriptions/listen`: acknowledges what a server with these capabilities tells, and tells it until
    /// the call is dropped.
    ///
    /// # Errors
    /// When the params cannot be read, or the server never tells anything.
    ///
    /// # Cancel safety
    /// Dropping it ends the listen.
    pub async fn serve(&self, call: Call, capabilities: &RawJson) -> Reply {
        let (id, wanted) = (&call.request.id, Filter::read(call.request.params.as_ref())?);
        let all =
            Filter { tools: true, prompts: true, resources: true, uris: vec![String::new()], tasks: vec![] };
        let introduction = RawJson::trusted(format!(
            r#"{{"capabilities":{}}}"#,
            String::from_utf8_lossy(capabilities.bytes()),
        ));
        if all.of_session(&introduction) == Filter::default() {
            return Err(RpcError::of(Reason::MethodNotFound, "This server has no news to listen to"));
        }
        let filter = wanted.of_session(&introduction);
        // Open before it is acknowledged: from then on nothing may be missed.
        let seat = self.seat(filter.clone());
        let said = |error: tenure_protocol::Error| error.to_rpc();
        call.context.notify(&Method::Acknowledged, Some(&filter.acknowledgement(id))).await.map_err(said)?;
        loop {
            let more = seat.ear.more.notified();
            let untold = std::mem::take(&mut *seat.ear.news.lock());
            for news in News::ALL.into_iter().filter(|news| untold.lists[*news as usize]) {
                call.context
                    .notify(&news.method(), Some(&notifications::to_modern(None, id)))
                    .await
                    .map_err(said)?;
            }
            for uri in untold.uris {
                let params = RawJson::of(&serde_json::json!({ "uri": uri }));
                let params = notifications::to_modern(Some(&params), id);
                call.context.notify(&Method::ResourceUpdated, Some(&params)).await.map_err(said)?;
            }
            more.await;
        }
    }

    fn seat(&self, filter: Filter) -> Seat {
        let ear = Arc::new(Ear { filter, news: Mutex::default(), more: Notify::new() });
        let mut ears = self.0.ears.lock();
        ears.next += 1;
        let number = ears.next;
        ears.open.insert(number, Arc::clone(&ear));
        Seat { board: Arc::clone(&self.0), number, ear }
    }
}

/// A listen as long as it lasts.
struct Seat {
    board: Arc<Board>,
    number: u64,
    ear: Arc<Ear>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.board.ears.lock().open.remove(&self.number);
    }
}

impl Board {
    /// Those who listen, so that nobody is told under the lock.
    fn ears(&self) -> Vec<Arc<Ear>> {
        self.ears.lock().open.values().cloned().collect()
    }
}

impl Listener for Board {
    fn resource_updated(&self, route: &Route, uri: &str) {
        if *route != self.route {
            return;
        }
        let params = RawJson::of(&serde_json::json!({ "uri": uri }));
        for ear in self.ears() {
            if ear.filter.hears(&Method::ResourceUpdated, Some(&params)) {
                let mut untold = ear.news.lock();
                if untold.uris.len() < MAX_UNTOLD {
                    untold.uris.insert(uri.to_owned());
                } else {
                    // Parts of what it watches; that the whole changed says as much.
                    untold.uris.extend(ear.filter.uris.iter().cloned());
                }
                drop(untold);
                ear.more.notify_one();
            }
        }
    }

    fn list_changed(&self, route: &Route, news: News) {
        if *route != self.route {
            return;
        }
        for ear in self.ears() {
            if ear.filter.hears(&news.method(), None) {
                ear.news.lock().lists[news as usize] = true;
                ear.more.notify_one();
            }
        }
    }
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listens").field("open", &self.ears.lock().open.len()).finish_non_exhaustive()
    }
}
