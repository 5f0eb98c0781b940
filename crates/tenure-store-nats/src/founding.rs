//! Founds a cluster on the engine, or checks that an existing one is whole.
//!
//! The cluster's record names its id and how many shards it has. It is written when all streams are there, and says that
//! the cluster is complete once every shard has a marker with the same id. From then on a missing stream or marker
//! means that the engine has lost data: it is reported, and nothing is made in its place.

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use tenure_session::port::store::StoreError;
use tokio::time::{Duration, Instant};

use crate::connect::Waiting;
use crate::error::NatsError;
use crate::names::{Names, Shard};
use crate::options::NatsOptions;
use crate::swap::{self, SwapError, WriteIds, there};
use crate::wire::{Fault, Refusal, Which, Wire, code, missing_stream};

const FORMAT: u32 = 1;
/// How long the engine knows a write by its id. A write is repeated only within its operation, which is shorter.
const DUPLICATES: Duration = Duration::from_secs(30);
/// Replicas of a new cluster, if the engine has servers enough.
const REPLICAS: usize = 3;
const ONE_REQUEST: Duration = Duration::from_secs(5);
/// How long the engine has to say that a stream is missing. A server that has just become its leader says it of any stream.
const CERTAINLY_LOST: Duration = Duration::from_secs(2);
/// Shards that are made or checked at the same time.
const AT_ONCE: usize = 8;

/// The cluster's own record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct ClusterRecord {
    format: u32,
    id: String,
    shards: u16,
    /// Whether every shard has its marker.
    complete: bool,
}

/// The marker of a shard, which also says to which founding it belongs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Marker {
    id: String,
    shard: u16,
}

/// A cluster that is whole.
pub(crate) struct Founded {
    pub(crate) names: Names,
    pub(crate) id: String,
    pub(crate) replicas: usize,
}

/// Opens the cluster of these options.
pub(crate) async fn open(wire: &Wire, options: &NatsOptions, ids: &WriteIds) -> Result<Founded, NatsError> {
    let work = Founding {
        wire,
        options,
        ids,
        until: Instant::now() + options.patience,
        names: Names::new(&options.cluster, 0),
    };
    work.run().await
}

struct Founding<'a> {
    wire: &'a Wire,
    options: &'a NatsOptions,
    ids: &'a WriteIds,
    until: Instant,
    /// Without shards: only the stream of the nodes is known before the record was read.
    names: Names,
}

impl Founding<'_> {
    async fn run(&self) -> Result<Founded, NatsError> {
        let subjects = self.names.subjects_of_nodes();
        let replicas = self.stream(&self.names.nodes, subjects, Missing::Make).await?;
        let (record, sequence) = match self.record().await? {
            Some(found) => found,
            None => self.found().await?,
        };
        if record.format != FORMAT {
            return Err(NatsError::Later);
        }
        if self.options.shards != record.shards && self.options.shards != NatsOptions::SHARDS {
            let (there, wanted) = (record.shards, self.options.shards);
            return Err(NatsError::OtherShards { there, wanted });
        }
        let names = Names::new(&self.options.cluster, record.shards);
        let checks: Vec<_> = names.shards().iter().map(|shard| self.shard(&names, shard, &record)).collect();
        stream::iter(checks).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        if !record.complete {
            self.complete(&record, sequence).await?;
            tracing::info!(
                cluster = self.options.cluster,
                shards = record.shards,
                replicas,
                "founded a new cluster on the NATS engine"
            );
        }
        Ok(Founded { names, id: record.id, replicas })
    }

    async fn shard(&self, names: &Names, shard: &Shard, record: &ClusterRecord) -> Result<(), NatsError> {
        let missing = if record.complete { Missing::Lost } else { Missing::Make };
        self.stream(shard, names.subjects_of(shard), missing).await?;
        self.marker(names, shard, record).await
    }

    async fn record(&self) -> Result<Option<(ClusterRecord, u64)>, NatsError> {
        let kept = self.last(&self.names.nodes, &self.names.founding()).await?;
        let Some(kept) = kept else { return Ok(None) };
        let record = serde_json::from_slice(&kept.1).map_err(|_| NatsError::Later)?;
        Ok(Some((record, kept.0)))
    }

    /// Writes the record of a new cluster. Other nodes may do the same at the same time; one of them wins.
    async fn found(&self) -> Result<(ClusterRecord, u64), NatsError> {
        let shards = self.options.shards;
        if !(1..=NatsOptions::MAX_SHARDS).contains(&shards) {
            return Err(NatsError::Shards(shards));
        }
        let names = Names::new(&self.options.cluster, shards);
        let made: Vec<_> = names.shards().iter().map(|shard| self.new_shard(&names, shard)).collect();
        stream::iter(made).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        let record = ClusterRecord { format: FORMAT, id: self.ids.next(), shards, complete: false };
        match self.write(&self.names.nodes, &self.names.founding(), 0, &record).await? {
            Written::Done(sequence) => Ok((record, sequence)),
            Written::ByAnother => self.record().await?.ok_or_else(|| {
                let what = "its record was removed while it was founded".to_owned();
                NatsError::Incomplete { cluster: self.options.cluster.clone(), what }
            }),
        }
    }

    async fn new_shard(&self, names: &Names, shard: &Shard) -> Result<(), NatsError> {
        self.stream(shard, names.subjects_of(shard), Missing::Make).await?;
        // Another node may just have founded the cluster, so this counts only if there still is no record.
        let has_data = self.last(shard, &names.marker(shard)).await?.is_some();
        if has_data && self.record().await?.is_none() {
            let what = "its record is gone, but there are shards with data".to_owned();
            return Err(NatsError::Incomplete { cluster: self.options.cluster.clone(), what });
        }
        Ok(())
    }

    async fn marker(&self, names: &Names, shard: &Shard, record: &ClusterRecord) -> Result<(), NatsError> {
        let marker = Marker { id: record.id.clone(), shard: shard.number };
        let lost = |what: &str| {
            let (cluster, stream) = (self.options.cluster.clone(), &shard.stream);
            NatsError::Incomplete { cluster, what: format!("the stream `{stream}` {what}") }
        };
        let subject = names.marker(shard);
        if let Some((_, payload)) = self.last(shard, &subject).await? {
            let is_ours = serde_json::from_slice::<Marker>(&payload).is_ok_and(|found| found == marker);
            return if is_ours { Ok(()) } else { Err(lost("belongs to another founding of the cluster")) };
        }
        if record.complete {
            return Err(lost("is empty"));
        }
        match self.write(shard, &subject, 0, &marker).await? {
            Written::Done(_) => Ok(()),
            Written::ByAnother => {
                let found = self.last(shard, &subject).await?;
                let is_ours = found.is_some_and(|(_, payload)| {
                    serde_json::from_slice::<Marker>(&payload).is_ok_and(|found| found == marker)
                });
                if is_ours { Ok(()) } else { Err(lost("belongs to another founding of the cluster")) }
            }
        }
    }

    async fn complete(&self, record: &ClusterRecord, sequence: u64) -> Result<(), NatsError> {
        let complete = ClusterRecord { complete: true, ..record.clone() };
        // If another node was faster, it wrote the same.
        self.write(&self.names.nodes, &self.names.founding(), sequence, &complete).await.map(drop)
    }

    /// The last message of a subject: its sequence and content.
    async fn last(&self, shard: &Shard, subject: &str) -> Result<Option<(u64, Bytes)>, NatsError> {
        let mut waiting = Waiting::until(self.until);
        loop {
            match self.wire.last(&mut self.wire.tries(), shard, subject).await {
                Ok(kept) => return Ok(there(kept).map(|kept| (kept.sequence, kept.payload))),
                Err(error) => self.again(&mut waiting, error).await?,
            }
        }
    }

    async fn write<T: Serialize + Sync>(
        &self,
        shard: &Shard,
        subject: &async_nats::Subject,
        expected: u64,
        value: &T,
    ) -> Result<Written, NatsError> {
        let payload: Bytes =
            serde_json::to_vec(value).map_err(|error| NatsError::Refused(error.to_string()))?.into();
        let mut waiting = Waiting::until(self.until);
        loop {
            let mut tries = self.wire.tries();
            let written =
                swap::swap(self.wire, self.ids, &mut tries, shard, subject, expected, payload.clone()).await;
            match written {
                Ok(sequence) => return Ok(Written::Done(sequence)),
                Err(SwapError::Mismatch(_)) => return Ok(Written::ByAnother),
                Err(SwapError::Store(error)) => self.again(&mut waiting, error).await?,
            }
        }
    }

    async fn again(&self, waiting: &mut Waiting, error: StoreError) -> Result<(), NatsError> {
        if let Some(denied) = self.wire.health.denied() {
            return Err(NatsError::Denied(denied));
        }
        match error {
            StoreError::Busy | StoreError::Unknown => waiting.again(|| error.to_string()).await,
            // The stream was there a moment ago. A server that has just become leader of the engine may not know it yet.
            error if error == missing_stream() => waiting.again(|| error.to_string()).await,
            error => Err(NatsError::Refused(error.to_string())),
        }
    }

    /// Checks a stream, or makes it. Returns its replicas.
    async fn stream(
        &self,
        shard: &Shard,
        subjects: Vec<String>,
        missing: Missing,
    ) -> Result<usize, NatsError> {
        let mut waiting = Waiting::until(self.until);
        let mut missing_since = None;
        loop {
            let wait = self.until.min(Instant::now() + ONE_REQUEST);
            let fault = match self.wire.ask::<StreamSetup>(wait, shard.info.clone(), String::new()).await {
                Ok(info) => return self.check(&info.config, &subjects).map(|()| info.config.num_replicas),
                Err(Fault::Refused(refusal)) if refusal.err_code == code::NO_STREAM => {
                    if missing == Missing::Lost {
                        if missing_since.get_or_insert_with(Instant::now).elapsed() < CERTAINLY_LOST {
                            waiting.again(|| refusal.description.clone()).await?;
                            continue;
                        }
                        let (cluster, stream) = (self.options.cluster.clone(), &shard.stream);
                        let what = format!("the stream `{stream}` is missing");
                        return Err(NatsError::Incomplete { cluster, what });
                    }
                    match self.make(shard, &subjects).await {
                        Ok(()) => continue,
                        Err(fault) => fault,
                    }
                }
                Err(fault) => fault,
            };
            if let Some(denied) = self.wire.health.denied() {
                return Err(NatsError::Denied(denied));
            }
            match fault {
                Fault::Refused(refusal) if refusal.err_code == code::NO_PEERS => {
                    let replicas = self.options.replicas.unwrap_or(REPLICAS);
                    let said = refusal.description;
                    let again = waiting.again(|| said.clone()).await;
                    again.map_err(|_| NatsError::TooFewServers { replicas, said })?;
                }
                Fault::Refused(refusal) => return Err(self.refused(refusal)),
                Fault::NotNow | Fault::NoAnswer => {
                    waiting.again(|| "it has no leader yet".to_owned()).await?
                }
                Fault::TooLarge | Fault::Closed(_) => return Err(NatsError::Refused(format!("{fault:?}"))),
            }
        }
    }

    fn refused(&self, refusal: Refusal) -> NatsError {
        match refusal.err_code {
            code::NOT_CLUSTERED => NatsError::TooFewServers {
                replicas: self.options.replicas.unwrap_or(REPLICAS),
                said: refusal.description,
            },
            _ => NatsError::Refused(refusal.description),
        }
    }

    async fn make(&self, shard: &Shard, subjects: &[String]) -> Result<(), Fault> {
        let alone = self.wire.client.server_info().cluster.is_none();
        let replicas = self.options.replicas.unwrap_or(if alone { 1 } else { REPLICAS });
        let config = config(&shard.stream, subjects, replicas);
        let body = serde_json::to_string(&config).map_err(|_| Fault::TooLarge)?;
        let until = self.until.min(Instant::now() + ONE_REQUEST);
        let subject = format!("$JS.API.STREAM.CREATE.{}", shard.stream);
        self.wire.ask::<serde::de::IgnoredAny>(until, subject.into(), body).await.map(drop)
    }

    /// Whether a stream keeps what it is given, and can do what we need.
    fn check(&self, there: &Config, subjects: &[String]) -> Result<(), NatsError> {
        let needed = [
            (there.subjects == *subjects, "it takes other subjects"),
            (there.storage == StorageType::File, "it is not kept in files"),
            (there.retention == RetentionPolicy::Limits, "its retention is not `limits`"),
            (there.max_age.is_zero(), "it forgets messages by their age"),
            (there.max_messages <= 0, "it keeps only so many messages"),
            (there.max_messages_per_subject <= 0, "it keeps only so many messages of a subject"),
            (
                there.max_bytes <= 0 || there.discard == DiscardPolicy::New,
                "it forgets the oldest messages when it is full: set `discard` to `new`",
            ),
            (there.allow_direct, "it does not allow direct reads"),
            (there.allow_rollup, "it does not allow rollups"),
            (there.allow_message_ttl, "it does not allow messages with a time to live"),
            (!there.deny_delete && !there.deny_purge, "it does not allow removals"),
            (!there.sealed && there.mirror.is_none() && there.sources.is_none(), "it is a copy, or sealed"),
            (there.duplicate_window >= DUPLICATES, "its duplicate window is shorter than 30 s"),
            (there.subject_delete_marker_ttl.is_none(), "it writes markers for removed messages"),
            (
                self.options.replicas.is_none_or(|replicas| replicas == there.num_replicas),
                "it has another number of replicas than this node is told",
            ),
        ];
        match needed.into_iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, what)) => Err(NatsError::Stream { stream: there.name.clone(), what: what.to_owned() }),
        }
    }
}

/// The action for a missing stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Lost,
}

enum Written {
    Done(u64),
    ByAnother,
}

#[derive(Deserialize)]
struct StreamSetup {
    config: Config,
}

fn config(name: &str, subjects: &[String], replicas: usize) -> Config {
    Config {
        name: name.to_owned(),
        subjects: subjects.to_vec(),
        num_replicas: replicas,
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        max_consumers: -1,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_bytes: -1,
        allow_direct: true,
        allow_rollup: true,
        allow_message_ttl: true,
        duplicate_window: DUPLICATES,
        description: Some("sessions and events of tenure".to_owned()),
        ..Config::default()
    }
}

/// Whether the engine still has this cluster: `Some` says what is wrong. It fails if the record of the cluster or the
/// shard of this number does not answer; another shard without an answer is taken as it was.
pub(crate) async fn probe(
    wire: &Wire,
    names: &Names,
    id: &str,
    turn: usize,
    until: Instant,
) -> Result<Option<String>, Fault> {
    let wrong = |what: String| Ok(Some(what));
    let record = wire
        .get_once(until, &names.nodes, &Which::Last(&names.founding()))
        .await
        .or_else(none_without_stream)?;
    let Some(record) = there(record) else { return wrong("the record of the cluster is gone".to_owned()) };
    match serde_json::from_slice::<ClusterRecord>(&record.payload) {
        Ok(record) if record.id == id => {}
        _ => return wrong("the engine has another cluster of the same name".to_owned()),
    }
    let shards = names.shards();
    let probes: Vec<_> = shards.iter().map(|shard| probe_shard(wire, names, id, shard, until)).collect();
    let probed: Vec<_> = stream::iter(probes).buffered(AT_ONCE).collect().await;
    let lost = probed.iter().zip(shards).find(|(probed, _)| matches!(probed, Ok(false)));
    if let Some((_, shard)) = lost {
        return wrong(format!("the stream `{}` has lost its data", shard.stream));
    }
    let turn = turn % shards.len();
    probed.into_iter().nth(turn).unwrap_or(Ok(true)).map(|_| None)
}

/// Whether a shard has its marker.
async fn probe_shard(
    wire: &Wire,
    names: &Names,
    id: &str,
    shard: &Shard,
    until: Instant,
) -> Result<bool, Fault> {
    let marker = wire.get_once(until, shard, &Which::Last(&names.marker(shard))).await;
    let marker = there(marker.or_else(none_without_stream)?);
    let marker = marker.and_then(|kept| serde_json::from_slice::<Marker>(&kept.payload).ok());
    Ok(marker.is_some_and(|marker| marker.id == id))
}

fn none_without_stream<T>(fault: Fault) -> Result<Option<T>, Fault> {
    match fault {
        Fault::Refused(refusal) if refusal.err_code == code::NO_STREAM => Ok(None),
        fault => Err(fault),
    }
}
