//! Requests under way: noted in their log before they begin, and answered after a restart.
//!
//! rmcp does not tell an event store which request a stream is for. `RmcpSessions` sees the request and puts a note
//! beside the stream, which stays until the answer is stored. A note of a request that this process does not work on
//! means that another process ended during the request. The store answers such a request once, with an error that says
//! so, as an event of its stream.

use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use serde::{Deserialize, Serialize};
use tenure_protocol::Reason;
use tenure_session::id::SessionKey;
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, NewEvent, StoreError};

use super::{RmcpStore, RmcpStoreError, STREAM, layout};

/// The note beside a stream.
#[derive(Serialize, Deserialize)]
struct Note {
    id: RequestId,
}

/// The requests that this process works on, by the log of their stream.
#[derive(Default)]
pub(super) struct RmcpCalls {
    running: HashMap<SessionKey, Arc<str>, RandomState>,
    /// The same logs by session, so that they can be forgotten with it.
    of: HashMap<Arc<str>, HashSet<SessionKey, RandomState>, RandomState>,
    /// Logs whose request is being answered because its process has ended.
    settling: HashSet<SessionKey, RandomState>,
}

impl RmcpCalls {
    fn begin(&mut self, session: &str, log: SessionKey) {
        let session: Arc<str> = session.into();
        self.of.entry(Arc::clone(&session)).or_default().insert(log);
        self.running.insert(log, session);
    }

    fn end(&mut self, log: &SessionKey) {
        let Some(session) = self.running.remove(log) else { return };
        if let Some(logs) = self.of.get_mut(&session) {
            logs.remove(log);
            if logs.is_empty() {
                self.of.remove(&session);
            }
        }
    }

    fn end_session(&mut self, session: &str) {
        for log in self.of.remove(session).into_iter().flatten() {
            self.running.remove(&log);
        }
    }
}

impl RmcpStore {
    /// Notes the request that a stream is for. The request may begin after that.
    pub(super) async fn note(
        &self,
        session: &str,
        log: SessionKey,
        id: RequestId,
    ) -> Result<(), RmcpStoreError> {
        let body = serde_json::to_vec(&Note { id })?.into();
        let Some((node, epoch)) = self.store.owner(log).await? else {
            return Err(RmcpStoreError::UnknownStream);
        };
        if node != self.shared.node {
            return Err(StoreError::Fenced.into());
        }
        // In memory first: a client that resumes the stream from now on must find the request running.
        self.shared.calls.lock().begin(session, log);
        let noted =
            self.store.append(log, epoch, vec![entry(body, EntryPlace::Note, self.clock.now())]).await;
        if noted.is_err() {
            self.shared.calls.lock().end(&log);
        }
        noted?;
        Ok(())
    }

    /// The place of an event in its stream: the answer to a noted request ends the stream and removes the note.
    pub(super) fn place_of(&self, log: &SessionKey, event: &ServerSseMessage) -> EntryPlace {
        let is_answer =
            matches!(event.message.as_deref(), Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)));
        if is_answer && self.shared.calls.lock().running.contains_key(log) {
            EntryPlace::End
        } else {
            EntryPlace::Middle
        }
    }

    /// Forgets a request whose answer is stored.
    pub(super) fn answered(&self, log: &SessionKey) {
        self.shared.calls.lock().end(log);
    }

    /// Forgets the requests of a session that has ended.
    pub(super) fn forget_calls(&self, session: &str) {
        self.shared.calls.lock().end_session(session);
    }

    /// Answers the request of a stream if its process ended during the request. If the store fails, the next resume of
    /// the stream tries again.
    ///
    /// # Cancel safety
    /// The answer is stored or not, and never twice.
    pub(super) async fn settle(&self, log: SessionKey) -> Result<(), StoreError> {
        let Some(_alone) = Settling::begin(&self.shared.calls, log) else { return Ok(()) };
        let survey = self.store.survey(log).await?;
        let stream = survey.streams.into_iter().find(|known| known.stream == STREAM && !known.ended);
        let Some(note) = stream.and_then(|known| known.note) else { return Ok(()) };
        let Some(body) = interrupted(&note) else {
            tracing::error!(?log, "the note of a request cannot be read; the request gets no answer");
            return Ok(());
        };
        // Another process may resume the stream at the same time; only one of them answers.
        let Some(epoch) = self.own(log).await? else { return Ok(()) };
        match self.store.append(log, epoch, vec![entry(body, EntryPlace::End, self.clock.now())]).await {
            Ok(_) => {
                tracing::info!(?log, "a request that was cut off by a restart was answered");
                Ok(())
            }
            Err(StoreError::Fenced) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn entry(body: Bytes, place: EntryPlace, at: Time) -> NewEvent {
    NewEvent { stream: STREAM, body, place, at }
}

/// The event that tells a client that its request was cut off.
fn interrupted(note: &Bytes) -> Option<Bytes> {
    let note: Note = serde_json::from_slice(note).ok()?;
    let error = ErrorData::new(
        ErrorCode(Reason::Interrupted.code()),
        "The server ended before the answer came; the request may or may not have been carried out",
        Some(serde_json::json!({ "reason": Reason::Interrupted.as_str() })),
    );
    let message = ServerJsonRpcMessage::error(error, Some(note.id));
    layout::write_event(&ServerSseMessage::from_message(message)).ok()
}

/// Marks a log while its request is being answered. Clients that resume it meanwhile find the answer at their next
/// resume.
struct Settling<'a> {
    calls: &'a Mutex<RmcpCalls>,
    log: SessionKey,
}

impl<'a> Settling<'a> {
    /// `None` if this process works on the request, or another task settles it already.
    fn begin(calls: &'a Mutex<RmcpCalls>, log: SessionKey) -> Option<Self> {
        let mut held = calls.lock();
        let is_free = !held.running.contains_key(&log) && held.settling.insert(log);
        // `then`, not `then_some`: a guard made in vain would remove the other task's mark when dropped.
        is_free.then(|| Self { calls, log })
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.calls.lock().settling.remove(&self.log);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use rmcp::model::{EmptyResult, NumberOrString, ServerResult};
    use tenure_session::port::store::Store;
    use tenure_testkit::faulty::Faulty;

    use super::*;
    use crate::memory::Memory;
    use crate::rmcp::names::EventName;

    fn id(number: i64) -> RequestId {
        NumberOrString::Number(number)
    }

    /// A stream whose request has begun.
    async fn begun(store: &RmcpStore, stream: &str) -> (String, SessionKey) {
        let primed = ServerSseMessage::retry(std::time::Duration::from_secs(3));
        let event = store.append(stream, &primed).await.unwrap();
        let log = EventName::parse(&event).unwrap().log;
        store.note("session", log, id(7)).await.unwrap();
        (event, log)
    }

    fn answer() -> ServerSseMessage {
        let result = ServerResult::EmptyResult(EmptyResult {});
        ServerSseMessage::from_message(ServerJsonRpcMessage::response(result, id(7)))
    }

    async fn after(store: &RmcpStore, event: &str) -> Vec<serde_json::Value> {
        let events: Vec<_> = store.replay(event).await.unwrap().collect().await;
        events.iter().map(|event| serde_json::to_value(event.message.as_deref()).unwrap()).collect()
    }

    #[tokio::test]
    async fn a_request_that_is_under_way_or_answered_is_left_alone() {
        let engine: Arc<dyn Store> = Arc::new(Memory::new());
        let store = RmcpStore::new(engine.clone());
        let (event, log) = begun(&store, "one").await;
        assert_eq!(after(&store, &event).await, [] as [serde_json::Value; 0]);
        store.append("one", &answer()).await.unwrap();
        assert!(engine.survey(log).await.unwrap().streams[0].note.is_none());
        {
            let calls = store.shared.calls.lock();
            assert!(calls.running.is_empty() && calls.of.is_empty());
        }
        let next = RmcpStore::new(engine);
        for store in [&store, &next] {
            let answers = after(store, &event).await;
            assert_eq!((answers.len(), &answers[0]["result"]), (1, &serde_json::json!({})));
        }
    }

    #[tokio::test]
    async fn a_request_whose_process_ended_is_answered_once_however_many_resume_it() {
        let engine: Arc<dyn Store> = Arc::new(Memory::new());
        let (event, _) = begun(&RmcpStore::new(engine.clone()), "one").await;
        let next = [RmcpStore::new(engine.clone()), RmcpStore::new(engine)];
        let resumed = futures_util::future::join_all((0..8).map(|n| after(&next[n % 2], &event))).await;
        assert!(resumed.iter().any(|answers| answers.len() == 1), "{resumed:?}");
        let answers = after(&next[0], &event).await;
        assert_eq!(answers.len(), 1, "{answers:?}");
        assert_eq!((&answers[0]["id"], &answers[0]["error"]["code"]), (&7.into(), &(-31010).into()));
        assert_eq!(answers[0]["error"]["data"]["reason"], "interrupted");
    }

    #[tokio::test]
    async fn a_store_that_fails_meanwhile_leaves_it_to_the_next_who_resumes() {
        let engine: Arc<dyn Store> = Arc::new(Memory::new());
        let (event, log) = begun(&RmcpStore::new(engine.clone()), "one").await;
        let faulty = Arc::new(Faulty::new(engine.clone()));
        let store = RmcpStore::new(faulty.clone());
        for nth in 0.. {
            faulty.fail_nth(nth);
            match store.settle(log).await {
                Err(_) => assert!(nth < 10, "it fails for ever"),
                Ok(()) => {
                    assert!(nth >= 3, "a look, a claim and a write can fail: {nth}");
                    break;
                }
            }
        }
        assert_eq!(after(&RmcpStore::new(engine), &event).await.len(), 1);
    }

    #[tokio::test]
    async fn the_calls_of_a_session_are_forgotten_with_it() {
        let store = RmcpStore::new(Arc::new(Memory::new()));
        begun(&store, "one").await;
        begun(&store, "two").await;
        store.forget_calls("another");
        assert_eq!(store.shared.calls.lock().running.len(), 2);
        store.forget_calls("session");
        let calls = store.shared.calls.lock();
        assert!(calls.running.is_empty() && calls.of.is_empty());
    }
}
