//! Which sessions watch which resource: the server is subscribed once for all of them.
//!
//! What is asked of the server about one resource is asked one after the other, so that it always ends up as the
//! sessions want it. Somebody always waits for the server's answer, also when the client that asked has left.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tenure_session::port::backend::Reply;
use tenure_session::{Method, RawJson};
use tokio::sync::Semaphore;

use super::member::Member;
use super::traffic::Traffic;

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
    members: HashMap<u64, Arc<Member>>,
    /// The server knows that somebody watches it.
    is_subscribed: bool,
}

impl Topics {
    pub(super) fn new(traffic: Arc<Traffic>) -> Self {
        Self { traffic, by_uri: Mutex::default() }
    }

    /// A session watches a resource. Returns whether it did not before, and what to tell it.
    pub(super) async fn subscribe(&self, member: &Arc<Member>, uri: &str) -> (bool, Reply) {
        let topic = self.topic(uri);
        let _turn = topic.turn.acquire().await;
        let (is_new, is_subscribed) = {
            let mut state = topic.state.lock();
            // Under the lock: a session that leaves from here on finds itself among the members.
            let is_new =
                !member.has_left() && state.members.insert(member.number, Arc::clone(member)).is_none();
            (is_new, state.is_subscribed)
        };
        let reply = match is_subscribed {
            true => Ok(RawJson::EMPTY_OBJECT),
            // With the session among the members already: an update may come before the answer.
            false => self.ask(&Method::ResourcesSubscribe, uri).await,
        };
        let mut state = topic.state.lock();
        match &reply {
            Ok(_) => state.is_subscribed = true,
            Err(_) if is_new => drop(state.members.remove(&member.number)),
            Err(_) => {}
        }
        drop(state);
        self.forget_if_unused(&topic);
        (is_new, reply)
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
            if is_last && let Err(error) = self.ask(&Method::ResourcesUnsubscribe, &topic.uri).await {
                tracing::debug!(%error, "the server did not take back a subscription");
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
            found.extend(state.members.iter().map(|(number, member)| (*number, Arc::clone(member))));
        }
        found.into_values().collect()
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
