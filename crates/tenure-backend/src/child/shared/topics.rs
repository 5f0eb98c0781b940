//! Which sessions watch which resource. We subscribe at the server once for all of them.
//!
//! Requests about one resource go to the server one after the other, so that its final state is what the sessions
//! want. A task always waits for the server's answer, even if the client that asked has left.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson, Reply, RpcError};
use tokio::sync::{Semaphore, oneshot};

use super::member::MemberSession;
use super::traffic::SharedTraffic;
use crate::pending::gone;

pub(super) struct Topics {
    traffic: Arc<SharedTraffic>,
    by_uri: Mutex<HashMap<Box<str>, Arc<Topic>>>,
}

struct Topic {
    uri: Box<str>,
    /// One permit: only one request about this resource is in flight at the server.
    exclusive: Semaphore,
    state: Mutex<TopicState>,
}

#[derive(Default)]
struct TopicState {
    members: HashMap<u64, Watcher>,
    /// How many subscriptions of each session wait for the permit.
    waiting: HashMap<u64, usize>,
    /// We are subscribed at the server.
    is_subscribed: bool,
}

struct Watcher {
    member: Arc<MemberSession>,
    /// The session has got the answer to its subscription.
    is_told: bool,
}

impl Topics {
    pub(super) fn new(traffic: Arc<SharedTraffic>) -> Self {
        Self { traffic, by_uri: Mutex::default() }
    }

    /// Subscribes a session, and sends it the reply. If the session no longer waits for the reply, undoes the
    /// subscription.
    pub(super) async fn subscribe(
        &self,
        member: &Arc<MemberSession>,
        uri: &str,
        tell: oneshot::Sender<Reply>,
    ) {
        let topic = self.topic(uri);
        *topic.state.lock().waiting.entry(member.number).or_default() += 1;
        {
            let _permit = topic.exclusive.acquire().await;
            let begun = topic.state.lock().begin(member);
            let reply = match begun {
                Err(error) => Err(error),
                Ok(true) => Ok(RawJson::EMPTY_OBJECT),
                // `begin` has added the session to the members, because an update may come before the answer.
                Ok(false) => self.ask(&Method::ResourcesSubscribe, uri).await,
            };
            // Finish before releasing the permit: the next subscription may be of the same session.
            let is_unused = topic.state.lock().finish(member.number, reply, tell);
            if is_unused {
                self.withdraw(uri).await;
            }
        }
        self.forget_if_unused(&topic);
    }

    /// Unsubscribes a session.
    pub(super) async fn unsubscribe(&self, member: &MemberSession, uri: &str) -> Reply {
        let topic = self.topic(uri);
        let _permit = topic.exclusive.acquire().await;
        let others = {
            let mut state = topic.state.lock();
            let others = state.members.keys().any(|number| *number != member.number);
            if others {
                state.members.remove(&member.number);
            }
            others
        };
        // If no other session watches the resource, the server decides about the request.
        let reply = match others {
            true => Ok(RawJson::EMPTY_OBJECT),
            false => self.ask(&Method::ResourcesUnsubscribe, uri).await,
        };
        if reply.is_ok() && !others {
            let mut state = topic.state.lock();
            state.members.remove(&member.number);
            state.is_subscribed = false;
        }
        self.forget_if_unused(&topic);
        reply
    }

    /// Removes a session that has left without unsubscribing.
    pub(super) async fn leave(&self, member: &MemberSession) {
        let watched = |topic: &&Arc<Topic>| topic.state.lock().members.contains_key(&member.number);
        let topics: Vec<_> = self.by_uri.lock().values().filter(watched).cloned().collect();
        let leaving = topics.into_iter().map(|topic| async move {
            let _permit = topic.exclusive.acquire().await;
            let is_last = {
                let mut state = topic.state.lock();
                state.members.remove(&member.number);
                state.members.is_empty() && std::mem::take(&mut state.is_subscribed)
            };
            if is_last {
                self.withdraw(&topic.uri).await;
            }
            self.forget_if_unused(&topic);
        });
        futures_util::future::join_all(leaving).await;
    }

    /// The sessions that watch this resource, or a resource that contains it.
    pub(super) fn watchers(&self, uri: &str) -> Vec<Arc<MemberSession>> {
        let by_uri = self.by_uri.lock();
        // Prefixes that may name a containing resource: up to and including each separator, and the whole URI.
        let cuts = uri.match_indices(['/', '?', '#']).flat_map(|(at, _)| [at, at + 1]);
        let parts: HashSet<&str> = cuts.map(|at| &uri[..at]).chain([uri]).collect();
        let mut found = HashMap::new();
        for topic in parts.into_iter().filter_map(|part| by_uri.get(part)) {
            let state = topic.state.lock();
            found
                .extend(state.members.iter().map(|(number, watcher)| (*number, Arc::clone(&watcher.member))));
        }
        found.into_values().collect()
    }

    /// Unsubscribes at the server, because no session watches the resource any more.
    async fn withdraw(&self, uri: &str) {
        if let Err(error) = self.ask(&Method::ResourcesUnsubscribe, uri).await {
            tracing::debug!(%error, "the server refused to unsubscribe");
        }
    }

    async fn ask(&self, method: &Method, uri: &str) -> Reply {
        self.traffic.ask(method, &RawJson::of(&serde_json::json!({ "uri": uri }))).await
    }

    fn topic(&self, uri: &str) -> Arc<Topic> {
        let new = || {
            let uri = Box::from(uri);
            Arc::new(Topic { uri, exclusive: Semaphore::new(1), state: Mutex::default() })
        };
        Arc::clone(self.by_uri.lock().entry(Box::from(uri)).or_insert_with(new))
    }

    fn forget_if_unused(&self, topic: &Arc<Topic>) {
        let mut by_uri = self.by_uri.lock();
        let is_unused = {
            let state = topic.state.lock();
            state.members.is_empty() && !state.is_subscribed
        };
        // Two references, the table's and the caller's: no other task uses the topic.
        if is_unused && Arc::strong_count(topic) == 2 {
            by_uri.remove(&topic.uri);
        }
    }
}

impl TopicState {
    /// Called with the permit held. Adds the session and returns whether we are subscribed already.
    fn begin(&mut self, member: &Arc<MemberSession>) -> Result<bool, RpcError> {
        if let Some(waiting) = self.waiting.get_mut(&member.number) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&member.number);
            }
        }
        // Check under the lock: a session that leaves later finds itself among the members and is removed.
        if member.has_left() {
            return Err(gone());
        }
        let watcher = || Watcher { member: Arc::clone(member), is_told: false };
        self.members.entry(member.number).or_insert_with(watcher);
        Ok(self.is_subscribed)
    }

    /// The server has answered. True if no session wants the subscription any more: the caller then unsubscribes.
    fn finish(&mut self, number: u64, reply: Reply, tell: oneshot::Sender<Reply>) -> bool {
        let is_ok = reply.is_ok();
        self.is_subscribed |= is_ok;
        let is_heard = tell.send(reply).is_ok();
        if let Some(watcher) = self.members.get_mut(&number) {
            watcher.is_told |= is_ok && is_heard;
            // A subscription of the same session that waits for the permit will use this one or undo it.
            let is_left_to_next = is_ok && self.waiting.contains_key(&number);
            if !watcher.is_told && !is_left_to_next {
                self.members.remove(&number);
            }
        }
        self.members.is_empty() && std::mem::take(&mut self.is_subscribed)
    }
}
