//! Which sessions watch which resource: the server is subscribed once for all of them.
//!
//! What is asked of the server about one resource is asked one after the other, so that it always ends up as the
//! sessions want it. Somebody always waits for the server's answer, also when the client that asked has left.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson, Reply, RpcError};
use tokio::sync::{Semaphore, oneshot};

use super::member::Member;
use super::traffic::Traffic;
use crate::pending::gone;

pub(super) struct Topics {
    traffic: Arc<Traffic>,
    by_uri: Mutex<HashMap<Box<str>, Arc<Topic>>>,
}

struct Topic {
    uri: Box<str>,
    /// Held by whoever talks to the server about it.
    turn: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    members: HashMap<u64, Watcher>,
    /// How many subscriptions of each session wait for their turn.
    waiting: HashMap<u64, usize>,
    /// The server knows that somebody watches it.
    is_subscribed: bool,
}

struct Watcher {
    member: Arc<Member>,
    /// The session knows that it watches.
    is_told: bool,
}

impl Topics {
    pub(super) fn new(traffic: Arc<Traffic>) -> Self {
        Self { traffic, by_uri: Mutex::default() }
    }

    /// A session watches a resource, and is told. If nobody hears that, it never was.
    pub(super) async fn subscribe(&self, member: &Arc<Member>, uri: &str, tell: oneshot::Sender<Reply>) {
        let topic = self.topic(uri);
        *topic.state.lock().waiting.entry(member.number).or_default() += 1;
        {
            let _turn = topic.turn.acquire().await;
            let begun = topic.state.lock().begin(member);
            let reply = match begun {
                Err(error) => Err(error),
                Ok(true) => Ok(RawJson::EMPTY_OBJECT),
                // With the session among the members already: an update may come before the answer.
                Ok(false) => self.ask(&Method::ResourcesSubscribe, uri).await,
            };
            // What it comes to is settled before the next one has its turn: that may be of the same session.
            let is_unused = topic.state.lock().finish(member.number, reply, tell);
            if is_unused {
                self.withdraw(uri).await;
            }
        }
        self.forget_if_unused(&topic);
    }

    /// A session does not watch a resource any more.
    pub(super) async fn unsubscribe(&self, member: &Member, uri: &str) -> Reply {
        let topic = self.topic(uri);
        let _turn = topic.turn.acquire().await;
        let others = {
            let mut state = topic.state.lock();
            let others = state.members.keys().any(|number| *number != member.number);
            if others {
                state.members.remove(&member.number);
            }
            others
        };
        // If it was the last, or there never was one, this is between it and the server.
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

    /// A session has left without a word.
    pub(super) async fn leave(&self, member: &Member) {
        let watched = |topic: &&Arc<Topic>| topic.state.lock().members.contains_key(&member.number);
        let topics: Vec<_> = self.by_uri.lock().values().filter(watched).cloned().collect();
        let leaving = topics.into_iter().map(|topic| async move {
            let _turn = topic.turn.acquire().await;
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

    /// The sessions that watch this resource, or one that it is part of.
    pub(super) fn watchers(&self, uri: &str) -> Vec<Arc<Member>> {
        let by_uri = self.by_uri.lock();
        // Ends of what it may be part of: before and after each of these, and the whole.
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

    /// Nobody watches it any more.
    async fn withdraw(&self, uri: &str) {
        if let Err(error) = self.ask(&Method::ResourcesUnsubscribe, uri).await {
            tracing::debug!(%error, "the server did not take back a subscription");
        }
    }

    async fn ask(&self, method: &Method, uri: &str) -> Reply {
        self.traffic.ask(method, &RawJson::of(&serde_json::json!({ "uri": uri }))).await
    }

    fn topic(&self, uri: &str) -> Arc<Topic> {
        let new = || {
            let uri = Box::from(uri);
            Arc::new(Topic { uri, turn: Semaphore::new(1), state: Mutex::default() })
        };
        Arc::clone(self.by_uri.lock().entry(Box::from(uri)).or_insert_with(new))
    }

    fn forget_if_unused(&self, topic: &Arc<Topic>) {
        let mut by_uri = self.by_uri.lock();
        let is_unused = {
            let state = topic.state.lock();
            state.members.is_empty() && !state.is_subscribed
        };
        // Nobody else is about to do something with it: the table has it, and the caller.
        if is_unused && Arc::strong_count(topic) == 2 {
            by_uri.remove(&topic.uri);
        }
    }
}

impl State {
    /// It is the turn of a session's subscription. Returns whether the server knows of one already.
    fn begin(&mut self, member: &Arc<Member>) -> Result<bool, RpcError> {
        if let Some(waiting) = self.waiting.get_mut(&member.number) {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&member.number);
            }
        }
        // Here, under the lock: a session that leaves from now on finds itself among the members.
        if member.has_left() {
            return Err(gone());
        }
        let watcher = || Watcher { member: Arc::clone(member), is_told: false };
        self.members.entry(member.number).or_insert_with(watcher);
        Ok(self.is_subscribed)
    }

    /// The server has answered. Returns whether it watches for nobody.
    fn finish(&mut self, number: u64, reply: Reply, tell: oneshot::Sender<Reply>) -> bool {
        let is_ok = reply.is_ok();
        self.is_subscribed |= is_ok;
        let is_heard = tell.send(reply).is_ok();
        if let Some(watcher) = self.members.get_mut(&number) {
            watcher.is_told |= is_ok && is_heard;
            // The next one of the same session makes use of this one, or undoes it.
            let is_left_to_next = is_ok && self.waiting.contains_key(&number);
            if !watcher.is_told && !is_left_to_next {
                self.members.remove(&number);
            }
        }
        self.members.is_empty() && std::mem::take(&mut self.is_subscribed)
    }
}
