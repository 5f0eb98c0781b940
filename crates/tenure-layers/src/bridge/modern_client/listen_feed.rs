//! Listens of modern clients, fed by sessions.
//!
//! As long as somebody of a principal listens, one session of theirs is kept for what the server tells by itself, and
//! watches the resources that any of the listens is for. News that come in other sessions of the same principal reach
//! the listens too. Should the session be lost, another takes its place, and the listens are told that everything may
//! have changed meanwhile.
//!
//! In: `subscriptions/listen`. Out: an acknowledgement of what the server will tell, then news, each with the id of the
//! listen.

use std::sync::Arc;
use std::time::Duration;

use tenure_protocol::translate::codes;
use tenure_protocol::translate::notifications::{self, Filter};
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RpcError};
use tenure_session::call::CallContext;
use tokio::sync::{OnceCell, OwnedSemaphorePermit};
use tokio::time::Instant;

use crate::bridge::modern_client::listens::Listen;
use crate::bridge::modern_client::pool::{Key, Lease, Pool, Reuse, Which, over};
use crate::bridge::modern_client::pooled_session::Slot;

/// How often another session is tried for before a listen ends.
const TRIES: u32 = 6;
/// The pause after the first of them; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(100);
/// A session that held for so long was a good one.
const HELD: Duration = Duration::from_secs(10);

/// The session that feeds the listens of a principal.
#[derive(Default)]
pub(super) struct Feed {
    fed: OnceCell<Fed>,
}

struct Fed {
    lease: Option<Lease>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Fed {
    fn drop(&mut self) {
        // Nothing was asked in it, so there is nothing that it could still speak about.
        if let Some(lease) = self.lease.take() {
            lease.release();
        }
    }
}

impl Feed {
    /// The session, which the first who needs it opens.
    async fn slot(&self, pool: &Arc<Pool>, key: &Key) -> Result<Arc<Slot>, RpcError> {
        let open = async {
            let permit = Arc::clone(&pool.feeding).try_acquire_owned().map_err(|_| full(pool))?;
            let lease = pool.lease(key, Which::Any).await?;
            Ok(Fed { lease: Some(lease), _permit: permit })
        };
        let fed = self.fed.get_or_try_init(|| open).await?;
        fed.lease.as_ref().map(|lease| Arc::clone(lease.slot())).ok_or_else(over)
    }

    fn is_lost(&self) -> bool {
        let lease = self.fed.get().and_then(|fed| fed.lease.as_ref());
        lease.is_some_and(|lease| lease.slot().seat.is_lost())
    }
}

impl Pool {
    /// The feed of a principal, for one more who listens.
    fn feed(&self, key: &Key) -> Arc<Feed> {
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

/// A listen that is entered, until this is dropped.
struct Listening {
    pool: Arc<Pool>,
    key: Key,
    listen: Arc<Listen>,
    watches: bool,
    feed: Option<Arc<Feed>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.pool.listens.leave(&self.listen, self.watches);
        let Some(feed) = self.feed.take().filter(|_| self.watches) else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (pool, key) = (Arc::clone(&self.pool), self.key.clone());
        // The session stays in its place until its server knows what nobody watches any more.
        let unwatch = async move {
            let slot = feed.fed.get().and_then(|fed| fed.lease.as_ref()).map(Lease::slot);
            if let Some(slot) = slot.filter(|slot| !slot.seat.is_lost()) {
                slot.watch(|| pool.listens.watched(&key)).await;
            }
        };
        drop(self.pool.tasks.spawn_on(unwatch, &runtime));
    }
}

/// Answers a listen, which is done when it ends.
pub(super) async fn listen(pool: &Arc<Pool>, request: &Request, context: &CallContext) -> Reply {
    let asked = Filter::read(request.params.as_ref())?;
    let key = Key::to_listen(context);
    // Before the server is asked for anything: what it tells meanwhile waits for the acknowledgement.
    let mut listening = Listening {
        pool: Arc::clone(pool),
        listen: pool.listens.enter(&key, asked.clone()),
        key,
        watches: !asked.uris.is_empty(),
        feed: None,
    };
    let mut tries = 0;
    let mut is_acknowledged = false;
    loop {
        let slot = match listening.slot().await {
            Ok(slot) => slot,
            Err(error) if !is_acknowledged => return Err(codes::to_modern(None, &error)),
            Err(error) if tries >= TRIES => {
                tracing::warn!(session = context.session_label(), %error, "a listen ends for want of a server");
                return Ok(notifications::end(&request.id));
            }
            Err(_) => {
                tries += 1;
                tokio::time::sleep(PAUSE * 2_u32.pow(tries - 1)).await;
                continue;
            }
        };
        let heard = listening.hear_from(&slot, &asked).await?;
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
                () = slot.seat.lost() => break,
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

impl Listening {
    async fn slot(&mut self) -> Result<Arc<Slot>, RpcError> {
        let feed = self.pool.feed(&self.key);
        let slot = feed.slot(&self.pool, &self.key).await?;
        self.feed = Some(feed);
        Ok(slot)
    }

    /// Has the server tell what the listen is for, and returns what of it the server will.
    async fn hear_from(&self, slot: &Arc<Slot>, asked: &Filter) -> Result<Filter, RpcError> {
        let everything = Filter {
            tools: true,
            prompts: true,
            resources: true,
            uris: vec![String::new()],
            tasks: Vec::new(),
        };
        if everything.of_session(&slot.initialized) == Filter::default() {
            let words = "The server tells nothing by itself";
            return Err(RpcError::of(Reason::MethodNotFound, words));
        }
        slot.forget_refusals();
        slot.watch(|| self.pool.listens.watched(&self.key)).await;
        let mut heard = asked.of_session(&slot.initialized);
        heard.uris.retain(|uri| slot.watches(uri));
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
    RpcError::of(Reason::TooManyRequests, "As many sessions listen to the server as may; try again later")
}
