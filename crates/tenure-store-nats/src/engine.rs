//! The engine as the ports see it.

use std::sync::Arc;

use bytes::Bytes;
use tenure_session::id::{NodeId, Position, SessionKey, StreamId};
use tenure_session::port::clock::{Clock, SystemClock, Time};
use tenure_session::port::members::{Member, Members, Renewal};
use tenure_session::port::store::{
    Epoch, Expected, Keep, KeptEvents, NewEvent, ReadLimit, Record, RecordKey, SavedLog, Space, Store,
    StoreCapabilities, StoreDurability, StoreError, Stored, StreamEvents, Survey, Trouble, Version,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connect::connect;
use crate::error::NatsError;
use crate::founding::{self, Founded};
use crate::head::MAX_ENTRIES;
use crate::names::Names;
use crate::options::NatsOptions;
use crate::parts::Parts;
use crate::swap::WriteIds;
use crate::watch::watch;

/// The bytes of a message beside its value: headers, and the prefix of the value.
const BESIDE_A_VALUE: usize = 8 << 10;
/// The bytes of a batch beside the bodies of its events.
const BESIDE_BODIES: usize = 32 << 10;
/// The least that a server must take: smaller messages would refuse ordinary requests.
const LEAST_PAYLOAD: usize = 128 << 10;

/// A store on NATS JetStream, and the nodes that use it.
pub struct Nats {
    parts: Arc<Parts>,
    replicas: usize,
    closed: CancellationToken,
}

impl Nats {
    /// Connects to the engine, and opens the cluster there; founds it if the engine has no cluster.
    ///
    /// # Errors
    /// When the engine does not answer in time, refuses us, is too old, or has not all of the cluster's data.
    ///
    /// # Cancel safety
    /// Dropped early it may leave a cluster half founded; the next call completes it.
    pub async fn open(options: &NatsOptions) -> Result<Self, NatsError> {
        Self::open_with(options, Arc::new(SystemClock)).await
    }

    /// [`Nats::open`] with another clock.
    ///
    /// # Errors
    /// As [`Nats::open`].
    pub async fn open_with(options: &NatsOptions, clock: Arc<dyn Clock>) -> Result<Self, NatsError> {
        if !Names::is_cluster(&options.cluster) {
            return Err(NatsError::Cluster(options.cluster.clone()));
        }
        if options.servers.is_empty() {
            return Err(NatsError::Servers(String::new()));
        }
        let wire = connect(options).await?;
        let ids = WriteIds::new();
        let Founded { names, id, replicas } = founding::open(&wire, options, &ids).await?;
        let max_payload = wire.client.max_payload();
        if max_payload < LEAST_PAYLOAD {
            let what = format!("its servers take messages of {max_payload} bytes; set `max_payload` to 8MB");
            return Err(NatsError::Refused(what));
        }
        let parts = Arc::new(Parts::new(wire, names, ids, clock, max_payload - BESIDE_A_VALUE));
        let closed = CancellationToken::new();
        // The watch ends with the store; shutdown need not wait for it, since it writes nothing.
        TaskTracker::new().spawn(watch(Arc::clone(&parts), id, closed.clone()));
        Ok(Self { parts, replicas, closed })
    }

    /// How many servers keep each message.
    pub fn replicas(&self) -> usize {
        self.replicas
    }

    fn run<T: Send + 'static, F: Future<Output = Result<T, StoreError>> + Send + 'static>(
        &self,
        operation: impl FnOnce(Arc<Parts>) -> F,
    ) -> Stored<T> {
        Box::pin(operation(Arc::clone(&self.parts)))
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl Store for Nats {
    fn put(
        &self,
        key: RecordKey,
        value: Bytes,
        expected: Expected,
        deadline: Option<Time>,
    ) -> Stored<Version> {
        self.run(|parts| async move { parts.put(key, value, expected, deadline).await })
    }

    fn get(&self, key: RecordKey) -> Stored<Option<Record>> {
        self.run(|parts| async move { parts.get(key).await })
    }

    fn delete(&self, key: RecordKey, expected: Version) -> Stored<()> {
        self.run(|parts| async move { parts.delete(key, expected).await })
    }

    fn expired(&self, space: Space, now: Time, limit: usize) -> Stored<Vec<(RecordKey, Version)>> {
        self.run(move |parts| async move { parts.expired(space, now, limit, |_| true).await })
    }

    fn list(
        &self,
        space: Space,
        after: Option<SessionKey>,
        limit: usize,
    ) -> Stored<Vec<(SessionKey, Record)>> {
        self.run(move |parts| async move { parts.list(space, after, limit).await })
    }

    fn claim(&self, session: SessionKey, node: NodeId, expected: Option<Epoch>) -> Stored<Epoch> {
        self.run(move |parts| async move {
            let claimed = parts.claim(session, node, expected).await;
            // Another process may have appended before; and all writes with an unknown outcome are settled now.
            parts.logs.forget(session);
            claimed
        })
    }

    fn owner(&self, session: SessionKey) -> Stored<Option<(NodeId, Epoch)>> {
        self.run(move |parts| async move { parts.owner(session).await })
    }

    fn release(&self, session: SessionKey, epoch: Epoch) -> Stored<()> {
        self.run(move |parts| async move {
            parts.logs.forget(session);
            parts.release(session, epoch).await
        })
    }

    fn append(&self, session: SessionKey, epoch: Epoch, batch: Vec<NewEvent>) -> Stored<Vec<Position>> {
        self.run(move |parts| async move { parts.append(session, epoch, batch).await })
    }

    fn read(
        &self,
        session: SessionKey,
        stream: StreamId,
        after: Position,
        limit: ReadLimit,
    ) -> Stored<StreamEvents> {
        self.run(move |parts| async move { parts.read(session, stream, after, limit).await })
    }

    fn trim(&self, session: SessionKey, keep: Keep) -> Stored<KeptEvents> {
        self.run(move |parts| async move { parts.trim(session, keep).await })
    }

    fn drop_session(&self, session: SessionKey) -> Stored<()> {
        self.run(move |parts| async move { parts.drop_session(session).await })
    }

    fn tail(&self, session: SessionKey) -> Stored<Position> {
        self.run(move |parts| async move { parts.tail(session).await })
    }

    fn survey(&self, session: SessionKey) -> Stored<Survey> {
        self.run(move |parts| async move { parts.survey(session).await })
    }

    fn restore(&self, session: SessionKey, log: SavedLog) -> Stored<()> {
        self.run(move |parts| async move { parts.restore(session, log).await })
    }

    fn capabilities(&self) -> StoreCapabilities {
        StoreCapabilities {
            // Servers sync every two minutes unless they are told otherwise, and do not say so.
            durability: match self.replicas {
                1 => StoreDurability::Machine,
                _ => StoreDurability::Replicated { majority_synced: false },
            },
            max_batch: MAX_ENTRIES,
            max_batch_bytes: self.parts.max_batch_bytes - BESIDE_BODIES,
            max_value_bytes: self.parts.max_value_bytes - BESIDE_BODIES,
        }
    }

    fn trouble(&self) -> Option<Trouble> {
        self.parts.wire.health.trouble()
    }
}

impl Members for Nats {
    fn renew(&self, node: NodeId, info: Bytes, last: Option<Renewal>) -> Stored<Renewal> {
        self.run(move |parts| async move { parts.renew(node, info, last).await })
    }

    fn remove(&self, node: NodeId, seen: Renewal) -> Stored<()> {
        self.run(move |parts| async move { parts.remove(node, seen).await })
    }

    fn members(&self) -> Stored<Vec<Member>> {
        self.run(|parts| async move { parts.members().await })
    }
}

impl std::fmt::Debug for Nats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nats").field("replicas", &self.replicas).finish_non_exhaustive()
    }
}
