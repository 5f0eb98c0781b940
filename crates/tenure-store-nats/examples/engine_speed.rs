//! Measures writes through the store beside the same writes by the bare client: how much does the store cost?
//!
//! Usage: engine_speed HOST:PORT[,HOST:PORT…] [SECONDS [AT_ONCE]]. Needs running NATS servers; founds clusters `speed-…` and
//! leaves them there. Rounds take turns, so that a busy machine slows both alike.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_ID, NATS_ROLLUP};
use async_nats::{Client, HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use tenure_session::id::{NodeId, SessionId, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{EntryPlace, Epoch, Expected, NewEvent, RecordKey, Store};
use tenure_store_nats::{Nats, NatsOptions};
use tokio::task::JoinSet;
use tokio::time::Instant;

const BODY: usize = 600;
const RECORD: usize = 300;
const ROUNDS: usize = 5;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let mut arguments = std::env::args().skip(1);
    let servers = arguments.next().ok_or("name the servers")?;
    let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let at_once: usize = arguments.next().map_or(Ok(64), |text| text.parse())?;
    let cluster = format!("speed-{}", &SessionId::random().key().hex()[..8]);
    let store = Arc::new(
        Nats::open(&NatsOptions { cluster: cluster.clone(), ..NatsOptions::new(servers.clone()) }).await?,
    );
    let client = async_nats::ConnectOptions::new().connect(servers.as_slice()).await?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{} servers, {} replicas, {at_once} writers, {seconds} s a round",
        servers.len(),
        store.replicas()
    )?;
    writeln!(out, "{:<10} {:>14} {:>14} {:>8}", "writes/s", "bare client", "store", "ratio")?;
    let length = Duration::from_secs_f64(seconds);
    for what in [Write::Append, Write::Put] {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(round(length, at_once, |_| BareWriter::new(&client, &cluster, what)).await?);
            ours.push(round(length, at_once, |_| StoreWriter::new(&store, what)).await?);
        }
        let (bare, ours) = (median(bare), median(ours));
        writeln!(out, "{:<10} {bare:>14.0} {ours:>14.0} {:>8.2}", format!("{what:?}"), ours / bare)?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Append,
    Put,
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

trait Writer: Send + 'static {
    fn write(&mut self) -> impl Future<Output = Result<(), AnyError>> + Send;
}

/// Runs writers side by side, each with one write at a time. Returns writes for each second.
async fn round<W: Writer, F: Future<Output = Result<W, AnyError>>>(
    length: Duration,
    at_once: usize,
    make: impl Fn(usize) -> F,
) -> Result<f64, AnyError> {
    let mut writers = Vec::new();
    for number in 0..at_once {
        writers.push(make(number).await?);
    }
    let (count, mut tasks, began) = (Arc::new(AtomicU64::new(0)), JoinSet::new(), Instant::now());
    for mut writer in writers {
        let count = Arc::clone(&count);
        tasks.spawn(async move {
            while began.elapsed() < length {
                writer.write().await?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), AnyError>(())
        });
    }
    for outcome in tasks.join_all().await {
        outcome?;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
}

/// Writes the same messages with the same headers, and waits for the same answers.
struct BareWriter {
    client: Client,
    subject: String,
    owner: String,
    last: u64,
    what: Write,
}

async fn publish(client: &Client, subject: String, headers: HeaderMap, body: Bytes) -> Result<u64, AnyError> {
    #[derive(serde::Deserialize)]
    struct Answer {
        seq: u64,
    }
    let answer = client.request_with_headers(subject, headers, body).await?;
    let text = &answer.payload;
    let Answer { seq } = serde_json::from_slice(text)?;
    if seq == 0 { Err(String::from_utf8_lossy(text).into_owned().into()) } else { Ok(seq) }
}

impl BareWriter {
    async fn new(client: &Client, cluster: &str, what: Write) -> Result<Self, AnyError> {
        let key = SessionId::random().key();
        let shard = u16::from_be_bytes([key.as_bytes()[14], key.as_bytes()[15]]) % NatsOptions::SHARDS;
        let name = |kind: &str| format!("{cluster}.{shard}.{kind}.{}", key.hex());
        let mut last = 0;
        if matches!(what, Write::Append) {
            last = publish(client, name("o"), HeaderMap::new(), Bytes::from_static(b"owner")).await?;
        }
        let subject = name(if matches!(what, Write::Append) { "e" } else { "r.bare" });
        Ok(Self { client: client.clone(), subject, owner: name("o"), last, what })
    }
}

impl Writer for BareWriter {
    async fn write(&mut self) -> Result<(), AnyError> {
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(self.last));
        match self.what {
            Write::Append => {
                let subject = HeaderName::from_static("Nats-Expected-Last-Subject-Sequence-Subject");
                headers.insert(subject, self.owner.as_str());
                let body = Bytes::from(vec![b'x'; BODY + 18]);
                publish(&self.client, self.subject.clone(), headers, body).await?;
            }
            Write::Put => {
                headers.insert(NATS_ROLLUP, "sub");
                headers.insert(NATS_MESSAGE_ID, format!("{}-{}", self.owner, self.last));
                let body = Bytes::from(vec![b'x'; RECORD + 13]);
                self.last = publish(&self.client, self.subject.clone(), headers, body).await?;
            }
        }
        Ok(())
    }
}

struct StoreWriter {
    store: Arc<Nats>,
    key: SessionKey,
    epoch: Epoch,
    expected: Expected,
    what: Write,
}

impl StoreWriter {
    async fn new(store: &Arc<Nats>, what: Write) -> Result<Self, AnyError> {
        let key = SessionId::random().key();
        let epoch = store.claim(key, NodeId::random(), None).await?;
        Ok(Self { store: Arc::clone(store), key, epoch, expected: Expected::Absent, what })
    }
}

impl Writer for StoreWriter {
    async fn write(&mut self) -> Result<(), AnyError> {
        match self.what {
            Write::Append => {
                let body = Bytes::from(vec![b'x'; BODY]);
                let event =
                    NewEvent { stream: StreamId::new(0), body, place: EntryPlace::Middle, at: Time(1) };
                self.store.append(self.key, self.epoch, vec![event]).await?;
            }
            Write::Put => {
                let body = Bytes::from(vec![b'x'; RECORD]);
                let key = RecordKey::session(self.key);
                // Far away and always later, as the deadline of a session that is used.
                let deadline = Some(Time(4_000_000_000_000));
                let version = self.store.put(key, body, self.expected, deadline).await?;
                self.expected = Expected::Version(version);
            }
        }
        Ok(())
    }
}
