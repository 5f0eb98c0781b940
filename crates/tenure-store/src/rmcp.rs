//! rmcp's own HTTP server on our engines: its sessions and streams outlive the process.
//!
//! [`RmcpStore`] implements both store traits of rmcp, and [`RmcpSessions`] uses it for rmcp's sessions. In: session
//! ids, stream ids and messages of rmcp. Out: hashes and bytes for the engine. Every rmcp stream has a log of its own
//! in the engine, and a record that names the log. Sessions and streams expire, and later writes remove expired ones:
//! there is no task and no timer.

mod noting;
mod sessions;
mod streams;
mod lanes;
mod calls;
mod replay;
mod sweep;
mod names;
mod layout;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::store::{EventId, EventStream};
use rmcp::transport::streamable_http_server::session::{
    EventStore, EventStoreError, ServerSseMessage, SessionState, SessionStore, SessionStoreError,
};
use tenure_session::id::{NodeId, StreamId};
use tenure_session::port::clock::{Clock, SystemClock};
use tenure_session::port::store::{Store, StoreError};

use self::calls::RmcpCalls;
use self::lanes::Lanes;
pub use self::noting::RmcpSessions;

/// The stream number of the one rmcp stream in a log.
const STREAM: StreamId = StreamId::STANDALONE;

/// How often a write is tried while other writers change the same record.
const TRIES: usize = 8;

/// Why rmcp's session or event was not stored or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RmcpStoreError {
    /// The engine did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Other writers changed the same record in every try.
    #[error("the record was changed by others too often")]
    Contended,
    /// This store did not make the event id of the client.
    #[error("not an event id of this store")]
    EventId,
    /// The stream of an event id is unknown, or has expired.
    #[error("the stream is unknown or has expired")]
    UnknownStream,
    /// A session's state or a message cannot be written as JSON or read from it.
    #[error("cannot be written or read as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The record of a session holds something else.
    #[error("the record of the session is damaged")]
    Damaged,
}

/// rmcp's [`SessionStore`] and [`EventStore`] over one of our engines.
///
/// ```
/// # use std::sync::Arc;
/// # use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
/// # use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
/// # use tenure_store::{memory::Memory, rmcp::RmcpStore};
/// let store = Arc::new(RmcpStore::new(Arc::new(Memory::new())));
/// let sessions = LocalSessionManager::default().with_event_store(store.clone());
/// let mut config = StreamableHttpServerConfig::default();
/// config.session_store = Some(store);
/// ```
///
/// With the event store alone, a request that is under way when the process is killed gets no answer: use
/// [`RmcpSessions`] in place of `with_event_store`.
///
/// Clones share their caches. An event id is as secret as its stream: rmcp gives the events of a stream to every client
/// that names one of them.
#[derive(Clone)]
pub struct RmcpStore {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    shared: Arc<RmcpShared>,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    session_ttl: Duration,
    event_ttl: Duration,
    max_events: usize,
    max_bytes: usize,
}

struct RmcpShared {
    /// The name under which this process owns logs.
    node: NodeId,
    lanes: Mutex<Lanes>,
    calls: Mutex<RmcpCalls>,
    next_sweep: sweep::NextSweep,
}

impl RmcpStore {
    /// Keeps rmcp's sessions and events in this engine. Sessions of ours may be in it too.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let bounds = Bounds {
            session_ttl: Duration::from_secs(24 * 60 * 60),
            event_ttl: Duration::from_secs(60 * 60),
            max_events: 10_000,
            max_bytes: 64 << 20,
        };
        let shared = RmcpShared {
            node: NodeId::random(),
            lanes: Mutex::default(),
            calls: Mutex::default(),
            next_sweep: sweep::NextSweep::default(),
        };
        Self { store, clock: Arc::new(SystemClock), bounds, shared: Arc::new(shared) }
    }

    /// How long a session can be woken after it began, or after it was last woken; a day by default. rmcp does not tell
    /// the store that a session is in use, so a session that runs longer than this does not survive the next restart.
    #[must_use]
    pub fn with_session_ttl(mut self, ttl: Duration) -> Self {
        self.bounds.session_ttl = ttl;
        self
    }

    /// How long a stream's events are kept at least after the last of them; an hour by default. The first write after
    /// one and a half times this long removes them.
    #[must_use]
    pub fn with_event_ttl(mut self, ttl: Duration) -> Self {
        self.bounds.event_ttl = ttl;
        self
    }

    /// How many events of one stream are kept at most; 10 000 by default. The oldest are removed first.
    #[must_use]
    pub fn with_max_events(mut self, events: usize) -> Self {
        self.bounds.max_events = events;
        self
    }

    /// How many bytes of events of one stream are kept at most, besides the newest event; 64 MiB by default.
    #[must_use]
    pub fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.bounds.max_bytes = bytes;
        self
    }

    /// Uses this clock instead of the system's.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

#[async_trait]
impl SessionStore for RmcpStore {
    async fn load(&self, session_id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        Ok(self.load_session(session_id).await?)
    }

    async fn store(&self, session_id: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        Ok(self.store_session(session_id, state).await?)
    }

    async fn delete(&self, session_id: &str) -> Result<(), SessionStoreError> {
        Ok(self.delete_session(session_id).await?)
    }
}

#[async_trait]
impl EventStore for RmcpStore {
    async fn store_event(
        &self,
        stream_id: &str,
        event: &ServerSseMessage,
    ) -> Result<EventId, EventStoreError> {
        Ok(self.append(stream_id, event).await?)
    }

    async fn replay_events_after(&self, last_event_id: &str) -> Result<EventStream, EventStoreError> {
        Ok(Box::pin(self.replay(last_event_id).await?))
    }
}

impl std::fmt::Debug for RmcpStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RmcpStore").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
