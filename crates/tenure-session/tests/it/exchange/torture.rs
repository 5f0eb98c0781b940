//! Many calls at once on several threads, ended in every way at any moment: nothing is left in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tenure_protocol::{Method, RawJson, Reply};
use tenure_session::backend::Call;
use tenure_session::exchange::ExchangeAnswer;
use tenure_session::port::BoxFuture;

use super::support::{Making, Try, World, accepted};

/// Numbers that look random, from a seed.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// How many futures of the server there are.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(call: Call, alive: Alive) -> BoxFuture<Reply> {
    let seed = call.request.params.as_ref().unwrap().read::<serde_json::Value>().unwrap()["seed"].as_u64();
    let mut dice = Dice(seed.unwrap());
    Box::pin(async move {
        let _alive = alive;
        for _ in 0..dice.roll(8) {
            match dice.roll(6) {
                0 => tokio::time::sleep(Duration::from_millis(dice.roll(5))).await,
                1 => tokio::task::yield_now().await,
                2 => {
                    let params = RawJson::of(&json!({ "level": "error", "data": "x" }));
                    let _ = call.context.notify(&Method::LogMessage, Some(&params)).await;
                }
                3 | 4 => {
                    let _ = call.context.ask(&Method::ElicitationCreate, Some(&RawJson::EMPTY_OBJECT)).await;
                }
                _ => assert!(dice.roll(4) > 0, "a test's own panic"),
            }
        }
        Ok(RawJson::EMPTY_OBJECT)
    })
}

/// One client, through all its attempts; most do not wait for the end.
async fn client(world: Arc<World>, seed: u64) {
    let mut dice = Dice(seed ^ 0x5bd1_e995);
    let mut attempt = Try::tool().with("seed", json!(seed)).level("debug");
    if dice.roll(3) == 0 {
        attempt = attempt.json_only();
    }
    for _ in 0..6 {
        let mut waiting = world.send(&attempt);
        let patience = Duration::from_millis(dice.roll(120));
        let answer = match tokio::time::timeout(patience, &mut waiting).await {
            Ok(answer) => answer.unwrap(),
            Err(_) => return waiting.abort(),
        };
        let last = match answer {
            ExchangeAnswer::Json { body, .. } => body,
            ExchangeAnswer::Refused(_) => return,
            ExchangeAnswer::Stream(mut flow) => {
                let mut last = None;
                let reading = async {
                    while let Some(body) = flow.next().await {
                        last = Some(body);
                    }
                };
                if tokio::time::timeout(patience, reading).await.is_err() {
                    return;
                }
                let Some(last) = last else { return };
                last
            }
        };
        let asked: serde_json::Value = serde_json::from_slice(&last).unwrap();
        if asked["result"]["resultType"] != "input_required" {
            return;
        }
        let keys: Vec<_> = asked["result"]["inputRequests"].as_object().unwrap().keys().collect();
        let answers = keys.into_iter().map(|key| (key.clone(), accepted("x"))).collect();
        attempt = attempt.again(&asked, &serde_json::Value::Object(answers));
        if dice.roll(4) == 0 {
            // The same attempt twice, of which one is overtaken.
            drop(world.send(&attempt));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_clients_and_servers_do_nothing_is_left() {
    let alive = Arc::new(AtomicUsize::new(0));
    let mut making = Making::default();
    making.limits.max_waiting = 2;
    making.limits.gather = Duration::from_millis(1);
    making.limits.stream_after = Duration::from_millis(3);
    making.limits.ask_timeout = Duration::from_millis(100);
    let count = Arc::clone(&alive);
    struct Serving(Arc<AtomicUsize>);
    impl tenure_session::backend::Responder for Serving {
        fn respond(&self, call: Call) -> BoxFuture<Reply> {
            serve(call, Alive::new(&self.0))
        }
    }
    let world = Arc::new(World::served_by(making, Arc::new(Serving(count))));
    let mut clients = Vec::new();
    for seed in 1..=2000_u64 {
        clients.push(tokio::spawn(client(Arc::clone(&world), seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        if seed % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    for client in clients {
        client.await.unwrap();
    }
    let over = || {
        let tallies = world.tallies();
        (tallies.running, tallies.parked, alive.load(Ordering::SeqCst))
    };
    let patience = tokio::time::Instant::now() + Duration::from_secs(20);
    while over() != (0, 0, 0) && tokio::time::Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(over(), (0, 0, 0), "running, parked, futures of the server");
    assert_eq!(world.exchanges.shut_down(Duration::ZERO).await, 0);
}
