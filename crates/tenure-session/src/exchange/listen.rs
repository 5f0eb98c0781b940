//! Listens at servers in this process.
//!
//! In: news that a server sends to all through the [`Fanout`]. Out: the notifications that each listen asked for.

use std::sync::{Arc, Weak};

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::translate::notifications::{self, Filter};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tokio::sync::Notify;

use crate::backend::Call;
use crate::call::{Fanout, News, NewsListener};
use crate::id::Route;

/// The most changed resources that wait for one listen, beside the URIs of its filter.
const MAX_PENDING: usize = 1000;

/// All listens at one server.
#[derive(Clone, Debug)]
pub struct Listens(Arc<Board>);

struct Board {
    route: Route,
    table: Mutex<ListenTable>,
}

#[derive(Default)]
struct ListenTable {
    next: u64,
    open: HashMap<u64, Arc<OpenListen>>,
}

/// One listen. A change that was not sent yet is kept once, however often it happened: news says that something has
/// changed, not how often.
struct OpenListen {
    filter: Filter,
    news: Mutex<PendingNews>,
    more: Notify,
}

#[derive(Default)]
struct PendingNews {
    lists: [bool; 3],
    uris: HashSet<String>,
}

impl Listens {
    /// Serves listens from the news of an endpoint.
    pub fn new(fanout: &Fanout) -> Self {
        let board = Arc::new(Board { route: fanout.route().clone(), table: Mutex::default() });
        let listener: Weak<dyn NewsListener> = Arc::downgrade(&(Arc::clone(&board) as Arc<dyn NewsListener>));
        fanout.add(listener);
        Self(board)
    }

    /// Answers a `subscriptions/listen`: acknowledges the news that a server with these capabilities sends, and sends
    /// it until the call is dropped.
    ///
    /// # Errors
    /// When the params cannot be read, or the server never sends news.
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
        // Opened before it is acknowledged, because after the acknowledgement no news may be missed.
        let guard = self.open(filter.clone());
        let to_rpc = |error: tenure_protocol::Error| error.to_rpc();
        call.context
            .notify(&Method::Acknowledged, Some(&filter.acknowledgement(id)))
            .await
            .map_err(to_rpc)?;
        loop {
            let more = guard.listen.more.notified();
            let pending = std::mem::take(&mut *guard.listen.news.lock());
            for news in News::ALL.into_iter().filter(|news| pending.lists[*news as usize]) {
                call.context
                    .notify(&news.method(), Some(&notifications::to_modern(None, id)))
                    .await
                    .map_err(to_rpc)?;
            }
            for uri in pending.uris {
                let params = RawJson::of(&serde_json::json!({ "uri": uri }));
                let params = notifications::to_modern(Some(&params), id);
                call.context.notify(&Method::ResourceUpdated, Some(&params)).await.map_err(to_rpc)?;
            }
            more.await;
        }
    }

    fn open(&self, filter: Filter) -> ListenGuard {
        let listen = Arc::new(OpenListen { filter, news: Mutex::default(), more: Notify::new() });
        let mut table = self.0.table.lock();
        table.next += 1;
        let number = table.next;
        table.open.insert(number, Arc::clone(&listen));
        ListenGuard { board: Arc::clone(&self.0), number, listen }
    }
}

/// Keeps a listen in the table. Dropping it ends the listen.
struct ListenGuard {
    board: Arc<Board>,
    number: u64,
    listen: Arc<OpenListen>,
}

impl Drop for ListenGuard {
    fn drop(&mut self) {
        self.board.table.lock().open.remove(&self.number);
    }
}

impl Board {
    /// A copy of the open listens, so that the lock is not held while they get news.
    fn listens(&self) -> Vec<Arc<OpenListen>> {
        self.table.lock().open.values().cloned().collect()
    }
}

impl NewsListener for Board {
    fn resource_updated(&self, route: &Route, uri: &str) {
        if *route != self.route {
            return;
        }
        let params = RawJson::of(&serde_json::json!({ "uri": uri }));
        for listen in self.listens() {
            if listen.filter.hears(&Method::ResourceUpdated, Some(&params)) {
                let mut pending = listen.news.lock();
                if pending.uris.len() < MAX_PENDING {
                    pending.uris.insert(uri.to_owned());
                } else {
                    // Too many changes wait: report every watched URI as changed.
                    pending.uris.extend(listen.filter.uris.iter().cloned());
                }
                drop(pending);
                listen.more.notify_one();
            }
        }
    }

    fn list_changed(&self, route: &Route, news: News) {
        if *route != self.route {
            return;
        }
        for listen in self.listens() {
            if listen.filter.hears(&news.method(), None) {
                listen.news.lock().lists[news as usize] = true;
                listen.more.notify_one();
            }
        }
    }
}

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listens").field("open", &self.table.lock().open.len()).finish_non_exhaustive()
    }
}
