//! Listens of modern clients, fed by sessions.
//!
//! While a principal has listens, one pooled session (the feed) is leased for them. It subscribes to every resource
//! that any of the listens watches. Notifications from other sessions of the same principal reach the listens too. If
//! the feed's session is lost, another replaces it, and the listens are told that everything may have changed.
//!
//! In: `subscriptions/listen`. Out: an acknowledgement of the filter that the server agreed to, then notifications,
//! each with the id of the listen.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::translate::codes;
use tenure_protocol::translate::notifications::{self, Filter};
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RpcError};
use tenure_session::call::CallContext;
use tokio::sync::{OnceCell, OwnedSemaphorePermit};
use tokio::time::Instant;

use crate::bridge::modern_client::listens::Listen;
use crate::bridge::modern_client::pool::{Lease, Pool, PoolKey, Reuse, Which, over};
use crate::bridge::modern_client::pooled_session::PooledSession;

/// Retries for another session before a listen ends.
const TRIES: u32 = 6;
/// The back-off before the first retry; it doubles each time.
const PAUSE: Duration = Duration::from_millis(100);
/// A session that lasted this long resets the retries.
const HELD: Duration = Duration::from_secs(10);

/// The session that feeds the listens of a principal.
#[derive(Default)]
pub(super) struct ListenFeed {
    fed: OnceCell<FeedLease>,
}

struct FeedLease {
    lease: Option<Lease>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for FeedLease {
    fn drop(&mut self) {
        // No client's request ran under this lease, so the server has no late messages about one.
        if let Some(lease) = self.lease.take() {
            lease.release();
        }
    }
}

impl ListenFeed {
    /// The session. The first listen opens it.
    async fn session(&self, pool: &Arc<Pool>, key: &PoolKey) -> Result<Arc<PooledSession>, RpcError> {
        let open = async {
            let permit = Arc::clone(&pool.feeding).try_acquire_owned().map_err(|_| full(pool))?;
            let lease = pool.lease(key, Which::Any).await?;
            Ok(FeedLease { lease: Some(lease), _permit: permit })
        };
        let fed = self.fed.get_or_try_init(|| open).await?;
        fed.lease.as_ref().map(|lease| Arc::clone(lease.session())).ok_or_else(over)
    }

    fn is_lost(&self) -> bool {
        let lease = self.fed.get().and_then(|fed| fed.lease.as_ref());
        lease.is_some_and(|lease| lease.session().client.is_lost())
    }
}

impl Pool {
    /// The feed of a principal, for one more listen.
    fn feed(&self, key: &PoolKey) -> Arc<ListenFeed> {
        if self.limits.reuse == Reuse::Request {
            return Arc::default();
        }
        let whose = (key.route.clone(), key.principal.clone());
        let mut feeds = self.feeds.lock();
        if let Some(feed) = feeds.get(&whose).and_then(|feed| feed.upgrade()).filter(|feed| !feed.is_lost()) {
            return feed;
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = Arc::default();
        feeds.insert(whose, Arc::downgrade(&feed));
        feed
    }
}

/// Keeps a listen in the registry until it is dropped.
struct RegisteredListen {
    pool: Arc<Pool>,
    key: PoolKey,
    listen: Arc<Listen>,
    watches: bool,
    feed: Option<Arc<ListenFeed>>,
}

impl Drop for RegisteredListen {
    fn drop(&mut self) {
        self.pool.listens.leave(&self.listen, self.watches);
        let Some(feed) = self.feed.take().filter(|_| self.watches) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (pool, key) = (Arc::clone(&self.pool), self.key.clone());
        // `feed` keeps the lease until the server knows which resources are no longer watched.
        let unwatch = async move {
            let session = feed.fed.get().and_then(|fed| fed.lease.as_ref()).map(Lease::session);
            if let Some(session) = session.filter(|session| !session.client.is_lost()) {
                session.watch(|| pool.listens.watched(&key)).await;
            }
        };
        drop(self.pool.tasks.spawn_on(unwatch, &runtime));
    }
}

/// Serves a listen until it ends, and returns its final answer.
pub(super) async fn listen(pool: &Arc<Pool>, request: &Request, context: &CallContext) -> Reply {
    let asked = Filter::read(request.params.as_ref())?;
    let key = PoolKey::to_listen(context);
    // Entered before the server is asked: notifications that come meanwhile are queued until the acknowledgement.
    let mut listening = RegisteredListen {
        pool: Arc::clone(pool),
        listen: pool.listens.enter(&key, asked.clone()),
        key,
        watches: !asked.uris.is_empty(),
        feed: None,
    };
    let mut tries = 0;
    let mut is_acknowledged = false;
    loop {
        let session = match listening.session().await {
            Ok(session) => session,
            Err(error) if !is_acknowledged => return Err(codes::to_modern(None, &error)),
            Err(error) if tries >= TRIES => {
                tracing::warn!(session = context.session_label(), %error, "a listen ends, because no session opens");
                return Ok(notifications::end(&request.id));
            }
            Err(_) => {
                tries += 1;
                tokio::time::sleep(PAUSE * 2_u32.pow(tries - 1)).await;
                continue;
            }
        };
        let heard = listening.hear_from(&session, &asked).await?;
        listening.listen.narrow(heard.clone());
        if is_acknowledged {
            listening.listen.missed();
        } else {
            let params = heard.acknowledgement(&request.id);
            say(context, &Method::Acknowledged, &params).await?;
            is_acknowledged = true;
        }
        let since = Instant::now();
        loop {
            let (method, params) = tokio::select! {
                biased;
                () = context.cancelled() => return Ok(notifications::end(&request.id)),
                () = pool.over.cancelled() => return Ok(notifications::end(&request.id)),
                () = session.client.lost() => break,
                news = listening.listen.next() => news,
            };
            say(context, &method, &notifications::to_modern(params.as_ref(), &request.id)).await?;
        }
        tries = if since.elapsed() >= HELD { 0 } else { tries + 1 };
        if tries > TRIES {
            return Ok(notifications::end(&request.id));
        }
        listening.feed = None;
    }
}

impl RegisteredListen {
    async fn session(&mut self) -> Result<Arc<PooledSession>, RpcError> {
        let feed = self.pool.feed(&self.key);
        let session = feed.session(&self.pool, &self.key).await?;
        self.feed = Some(feed);
        Ok(session)
    }

    /// Subscribes the session for the listen. Returns the part of the filter that the server agreed to.
    async fn hear_from(&self, session: &Arc<PooledSession>, asked: &Filter) -> Result<Filter, RpcError> {
        if Filter::everything().of_session(&session.initialized) == Filter::default() {
            let words = "The server sends no notifications";
            return Err(RpcError::of(Reason::MethodNotFound, words));
        }
        session.forget_refusals();
        session.watch(|| self.pool.listens.watched(&self.key)).await;
        let mut heard = asked.of_session(&session.initialized);
        heard.uris.retain(|uri| session.watches(uri));
        Ok(heard)
    }
}

async fn say(context: &CallContext, method: &Method, params: &RawJson) -> Result<(), RpcError> {
    context.notify(method, Some(params)).await.map_err(|error| error.to_rpc())
}

fn full(pool: &Pool) -> RpcError {
    if pool.over.is_cancelled() {
        return over();
    }
    RpcError::of(Reason::TooManyRequests, "Too many sessions listen to the server; try again later")
}
