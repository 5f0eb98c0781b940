//! Random operations on a log, by two processes in turn, held against the store in memory.
//!
//! `TENURE_NATS_SEED` repeats a run; a failure prints its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tenure_session::id::{NodeId, Position, SessionId, SessionKey, StreamId};
use tenure_session::port::clock::Time;
use tenure_session::port::store::{
    EntryPlace, Epoch, Expected, Keep, NewEvent, ReadLimit, RecordKey, Space, Store, Survey,
};
use tenure_store::memory::Memory;
use tenure_store_nats::{Nats, NatsOptions};
use tenure_testkit::nats_servers::NatsServers;
use tokio::task::JoinSet;

use crate::stores::{open, options};

const STEPS: usize = 400;

/// Small random numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// One log in both stores.
struct Twin {
    session: SessionKey,
    model: Memory,
    epochs: (Epoch, Epoch),
    /// From positions of the engine to those of the model.
    positions: BTreeMap<Position, Position>,
    ended: BTreeSet<u64>,
    time: u64,
}

impl Twin {
    /// A position of the engine as the model has it.
    fn of_model(&self, position: Position) -> Position {
        self.positions.get(&position).copied().unwrap_or(Position::START)
    }

    fn survey_of_model(&self, mut survey: Survey) -> Survey {
        for known in &mut survey.streams {
            known.last = self.of_model(known.last);
        }
        survey.kept.trimmed = self.of_model(survey.kept.trimmed);
        survey
    }

    fn batch(&mut self, random: &mut Random) -> Vec<NewEvent> {
        let mut batch = Vec::new();
        for _ in 0..=random.below(12) {
            let stream = random.below(12);
            if self.ended.contains(&stream) {
                continue;
            }
            let place = match random.below(8) {
                0 => EntryPlace::Note,
                1 if stream > 0 => EntryPlace::End,
                _ => EntryPlace::Middle,
            };
            if place == EntryPlace::End {
                self.ended.insert(stream);
            }
            self.time += random.below(3);
            let body = Bytes::from(format!("{stream}/{}", "x".repeat(random.below(30) as usize)));
            let stream = StreamId::new(u32::try_from(stream).expect("small"));
            batch.push(NewEvent { stream, body, place, at: Time(self.time) });
        }
        batch
    }

    async fn step(&mut self, engine: &Nats, random: &mut Random) {
        match random.below(10) {
            0..5 => {
                let batch = self.batch(random);
                let there = engine.append(self.session, self.epochs.0, batch.clone()).await.expect("appends");
                let here = self.model.append(self.session, self.epochs.1, batch).await.expect("appends");
                self.positions.extend(there.into_iter().zip(here));
            }
            5 | 6 => {
                let keep = Keep {
                    events: random.below(60) as usize,
                    bytes: random.below(1500) as usize,
                    since: Time(self.time.saturating_sub(random.below(60))),
                };
                let mut there = engine.trim(self.session, keep).await.expect("trims");
                there.trimmed = self.of_model(there.trimmed);
                assert_eq!(there, self.model.trim(self.session, keep).await.expect("trims"));
            }
            7 => {
                let there = engine.survey(self.session).await.expect("surveys");
                let here = self.model.survey(self.session).await.expect("surveys");
                assert_eq!(self.survey_of_model(there), here);
                let tail = engine.tail(self.session).await.expect("a tail");
                assert_eq!(self.of_model(tail), self.model.tail(self.session).await.expect("a tail"));
            }
            _ => {
                let stream = StreamId::new(u32::try_from(random.below(13)).expect("small"));
                let known = self.positions.len() as u64;
                let nth = random.below(known + 1) as usize;
                let (after, of_model) = match self.positions.iter().nth(nth) {
                    Some((there, here)) => (*there, *here),
                    None => (Position::START, Position::START),
                };
                let limit = ReadLimit { events: 1 + random.below(20) as usize, bytes: usize::MAX };
                let mut there = engine.read(self.session, stream, after, limit).await.expect("reads");
                for event in &mut there.events {
                    event.position = self.of_model(event.position);
                }
                there.trimmed = self.of_model(there.trimmed);
                let mut here = self.model.read(self.session, stream, of_model, limit).await.expect("reads");
                // The engine may say less of what was trimmed than it knows, if events come after it.
                if let Some(last) = here.events.last() {
                    here.trimmed = here.trimmed.min(last.position);
                }
                assert_eq!(there, here, "{stream:?} after {of_model:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_log_is_what_the_memory_store_would_have() {
    let seed = match std::env::var("TENURE_NATS_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => u64::from_be_bytes(SessionId::random().key().as_bytes()[..8].try_into().expect("8")) | 1,
    };
    eprintln!("TENURE_NATS_SEED={seed}");
    let mut random = Random(seed);
    let servers = NatsServers::start(1);
    let mut engines = [open(&servers, "one").await, open(&servers, "one").await];
    for _ in 0..4 {
        let (session, model) = (SessionId::random().key(), Memory::new());
        let epochs = (
            engines[0].claim(session, NodeId::random(), None).await.expect("claims"),
            model.claim(session, NodeId::random(), None).await.expect("claims"),
        );
        let mut twin =
            Twin { session, model, epochs, positions: BTreeMap::new(), ended: BTreeSet::new(), time: 100 };
        for _ in 0..STEPS {
            if random.below(40) == 0 {
                // Another process takes over.
                engines.swap(0, 1);
                let epoch = engines[0].claim(session, NodeId::random(), Some(twin.epochs.0)).await;
                twin.epochs.0 = epoch.expect("claims");
            }
            twin.step(&engines[0], &mut random).await;
        }
    }
}

#[tokio::test]
async fn many_records_of_one_shard_are_listed_and_found_due() {
    const RECORDS: usize = 2500;
    let servers = NatsServers::start(1);
    let store = Nats::open(&NatsOptions { shards: 1, ..options(&servers, "one") }).await.expect("opens");
    let store = Arc::new(store);
    let (mut keys, mut tasks) = (Vec::new(), JoinSet::new());
    for number in 0..RECORDS {
        let key = RecordKey { space: Space::State, key: SessionId::random().key() };
        keys.push(key.key);
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let due = Time(1 + number as u64);
            store.put(key, Bytes::from_static(b"x"), Expected::Absent, Some(due)).await.expect("puts");
        });
    }
    tasks.join_all().await;
    keys.sort_unstable();
    for size in [500, 64] {
        let (mut walked, mut after) = (Vec::new(), None);
        loop {
            let page = store.list(Space::State, after, size).await.expect("lists");
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            walked.extend(page.into_iter().map(|(key, _)| key));
        }
        assert_eq!(walked, keys, "in pages of {size}");
    }
    let due = store.expired(Space::State, Time(700), 10_000).await.expect("lists");
    assert_eq!(due.len(), 700);
    // All of them are within ten seconds, so which come first is open. As many as wanted are given, and all at last.
    let mut left = RECORDS;
    while left > 0 {
        let page = store.expired(Space::State, Time(u64::MAX / 2), 600).await.expect("lists");
        assert_eq!(page.len(), left.min(600));
        for (key, version) in page {
            store.delete(key, version).await.expect("deletes");
        }
        left = left.saturating_sub(600);
    }
    assert_eq!(store.expired(Space::State, Time(u64::MAX / 2), 600).await, Ok(Vec::new()));
}

#[tokio::test]
async fn an_entry_is_kept_for_a_record_that_is_about_to_be_written() {
    let servers = NatsServers::start(1);
    let wanted = NatsOptions { shards: 1, ..options(&servers, "one") };
    let store = Nats::open(&wanted).await.expect("opens");
    // As a node writes it: the entry of the bucket of ten seconds, and then the record.
    let (key, deadline) = (SessionId::random().key(), 25_000u64);
    let hex = key.hex();
    let client = async_nats::connect(servers.addresses()).await.expect("connects");
    let jetstream = async_nats::jetstream::new(client);
    let publish = async |subject: String, payload: Vec<u8>| {
        let sent = jetstream.publish(subject, payload.into()).await.expect("sends");
        sent.await.expect("is kept");
    };
    publish("one.0.d.session.2".to_owned(), key.as_bytes().to_vec()).await;
    assert_eq!(store.expired(Space::Session, Time(30_000), 10).await, Ok(Vec::new()));
    let mut record = vec![1];
    record.extend(deadline.to_be_bytes());
    record.extend(2u32.to_be_bytes());
    record.extend(b"x");
    let (one, two, three) = (&hex[..1], &hex[1..2], &hex[2..3]);
    publish(format!("one.0.r.session.{one}.{two}.{three}.{hex}"), record).await;
    // Another node may have passed it over for a minute; one that begins now finds it.
    let other = Nats::open(&wanted).await.expect("opens");
    let due = other.expired(Space::Session, Time(30_000), 10).await.expect("lists");
    assert_eq!(due.into_iter().map(|(due, _)| due).collect::<Vec<_>>(), [RecordKey::session(key)]);
}
