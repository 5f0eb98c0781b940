//! Many random interleavings of speaking, reading, dropping, resuming and a store that dawdles.
//!
//! Whatever happens, a client that keeps what it saw up to the id it resumes after must end up with every
//! message of its stream once and in order. A failure prints its seed.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use serde_json::json;
use tenure_session::port::store::Store;
use tenure_session::session::{Item, Reader};
use tenure_session::{Limits, Session};
use tenure_store::disk::{Disk, Sync};
use tenure_store::memory::Memory;
use tenure_testkit::fake_backend::FakeCall;

use crate::runtime::support::{World, resume, say, short};

const CALLS: usize = 3;
const SEEDS: u64 = 300;
const SEEDS_ON_DISK: u64 = 10;
const STEPS: usize = 300;

/// A small generator: the same seed gives the same run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }
}

/// One stream as its client knows it.
struct Client {
    said: usize,
    reader: Option<Reader>,
    /// What it has, each with the id after which it could resume.
    seen: Vec<(Option<String>, String)>,
    prime: Option<String>,
    ended: bool,
}

impl Client {
    /// Takes one item if there is one now.
    async fn read(&mut self) -> bool {
        let Some(reader) = &mut self.reader else { return false };
        let item = poll_fn(|cx| match reader.poll_next(cx) {
            Poll::Ready(item) => Poll::Ready(Some(item)),
            Poll::Pending => Poll::Ready(None),
        });
        match item.await {
            None => return false,
            Some(None) => self.ended = true,
            // The first one stands before everything; later ones stand where the client resumed.
            Some(Some(Item::Prime(id))) => drop(self.prime.get_or_insert(id.to_string())),
            Some(Some(item)) => {
                let text = short(&item);
                let Item::Event { id, .. } = item else { panic!("{text} in a run without gaps") };
                self.seen.push((id.map(|id| id.to_string()), text));
            }
        }
        !self.ended
    }

    /// Forgets some of what it saw and comes back for it.
    async fn come_back(&mut self, session: &Arc<Session>, dice: &mut Dice) {
        let keep = self.seen.len() - dice.roll(self.seen.len().min(6) + 1);
        self.seen.truncate(keep);
        let after = self.seen.last().and_then(|(id, _)| id.clone()).or_else(|| self.prime.clone());
        // Sometimes the old connection is still there: the new one replaces it.
        if dice.roll(2) == 0 {
            self.reader = None;
        }
        self.reader = Some(resume(session, &after.expect("it has seen an id")).await.unwrap());
        self.ended = false;
    }
}

async fn run(seed: u64, store: Arc<dyn Store>) {
    let limits = Limits { max_tail_events: 3, max_session_events: 1_000_000, ..Limits::default() };
    let mut world = World::on(store, limits);
    let session = world.session().await;
    let mut dice = Dice::new(seed);
    let mut calls: Vec<Option<FakeCall>> = Vec::new();
    let mut clients = Vec::new();
    for id in 0..CALLS {
        let (call, reader) = world.streaming_call(&session, id as u64).await;
        calls.push(Some(call));
        clients.push(Client { said: 0, reader: Some(reader), seen: Vec::new(), prime: None, ended: false });
    }
    for client in &mut clients {
        while client.seen.is_empty() {
            client.read().await;
            tokio::task::yield_now().await;
        }
    }
    let mut held = false;
    for _ in 0..STEPS {
        let n = dice.roll(CALLS);
        match dice.roll(10) {
            0..=3 => {
                for _ in 0..=dice.roll(5) {
                    if let Some(call) = &calls[n] {
                        say(call, &format!("{n}.{}", clients[n].said)).await;
                        clients[n].said += 1;
                    }
                }
            }
            4..=6 => {
                for _ in 0..dice.roll(8) {
                    clients[n].read().await;
                }
            }
            7 => clients[n].reader = None,
            8 => clients[n].come_back(&session, &mut dice).await,
            _ => {
                held = !held;
                if held {
                    world.store.hold_appends()
                } else {
                    world.store.release_appends()
                }
                tokio::task::yield_now().await;
            }
        }
    }
    world.store.release_appends();
    for call in &mut calls {
        call.take().unwrap().answer(&json!({}));
    }
    let mut ids = HashSet::new();
    for (n, client) in clients.iter_mut().enumerate() {
        client.come_back(&session, &mut dice).await;
        while !client.ended {
            if !client.read().await {
                tokio::task::yield_now().await;
            }
        }
        let texts: Vec<&str> = client.seen.iter().map(|(_, text)| text.as_str()).collect();
        let mut expected = vec!["hello".to_owned()];
        expected.extend((0..client.said).map(|said| format!("{n}.{said}")));
        expected.push(format!("result {n}"));
        assert_eq!(texts, expected, "seed {seed}, stream {n}");
        let unique = client.seen.iter().all(|(id, _)| ids.insert(id.clone().expect("an id")));
        assert!(unique, "seed {seed}: an id was used twice");
    }
}

#[tokio::test]
async fn whatever_happens_every_message_arrives_once_and_in_order() {
    for seed in 0..SEEDS {
        run(seed, Arc::new(Memory::new())).await;
    }
}

#[tokio::test]
async fn the_same_holds_on_disk() {
    let folder = tempfile::TempDir::new().unwrap();
    for seed in 0..SEEDS_ON_DISK {
        let store = Disk::open(&folder.path().join(seed.to_string()), Sync::Os).unwrap();
        run(seed, Arc::new(store)).await;
    }
}
