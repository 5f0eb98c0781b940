//! A client: opens sessions, does something random in them, over and over, until it is told to stop.
//!
//! `calls` follows one request to its end, `news` follows the standalone stream, `replays` reads streams again, `work`
//! checks the notes of a data session, `counters` that answers fit one order, `ends` deletes sessions, `contact` handles a server that does not answer.

mod calls;
mod news;
mod replays;
mod work;
mod counters;
mod ends;
mod contact;

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use futures_util::future::join_all;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::calls::call_tool;
pub(crate) use self::calls::{CallOutcome, call};
pub(crate) use self::contact::open;
use crate::check::{CheckFault, FaultKind, Script};
use crate::session::{ClientSession, tool};
use crate::world::{DEADLINE, World};

/// The most sessions of one client at the same time.
const MAX_SESSIONS: usize = 4;

/// A session is deleted after this many events, well before the server may trim its oldest ones.
const MAX_EVENTS: u64 = 4000;

/// How many deleted sessions are checked at once in the end.
const AT_ONCE: usize = 32;

#[derive(Debug)]
pub(crate) struct RandomClient {
    number: usize,
    world: Arc<World>,
    rng: Rng,
    sessions: Vec<HeldSession>,
    opened: u32,
}

#[derive(Debug)]
struct HeldSession {
    session: Arc<ClientSession>,
    listener: Option<JoinHandle<()>>,
}

/// The tool that a call uses.
#[derive(Clone, Copy, Debug)]
enum Act {
    Echo,
    Count,
    Work,
    Ask,
}

impl RandomClient {
    pub(crate) fn new(number: usize, world: Arc<World>, rng: Rng) -> RandomClient {
        RandomClient { number, world, rng, sessions: Vec::new(), opened: 0 }
    }

    /// Acts until the run stops, and returns the client with its sessions. Every act finishes its requests.
    pub(crate) async fn run(mut self) -> RandomClient {
        while !self.world.stop.is_cancelled() {
            self.act().await;
            self.sessions.retain(|held| !held.session.is_over());
            tokio::time::sleep(Duration::from_millis(self.rng.u64(0..40))).await;
        }
        self
    }

    async fn act(&mut self) {
        if self.sessions.is_empty() || (self.sessions.len() < MAX_SESSIONS && self.rng.u8(0..12) == 0) {
            self.open().await;
            return;
        }
        let chosen = self.rng.usize(..self.sessions.len());
        let session = Arc::clone(&self.sessions[chosen].session);
        if session.events() > MAX_EVENTS {
            self.delete(chosen).await;
            return;
        }
        match self.rng.u32(0..100) {
            // One process cannot disagree with itself, so only a cluster spends time on this.
            0..12 if self.world.is_cluster() => {
                counters::count_up(&self.world, &session, &mut self.rng).await;
            }
            0..24 => self.calls(&session, &[Act::Echo]).await,
            24..38 => self.calls(&session, &[Act::Count]).await,
            38..50 => self.calls(&session, &[Act::Work]).await,
            50..60 => self.calls(&session, &[Act::Ask]).await,
            60..75 => {
                let kinds = [Act::Echo, Act::Count, Act::Count, Act::Work, Act::Ask];
                let acts: Vec<Act> =
                    (0..self.rng.usize(2..6)).map(|_| kinds[self.rng.usize(..kinds.len())]).collect();
                self.calls(&session, &acts).await;
            }
            75..84 => news::write_notes(&self.world, &session, &mut self.rng).await,
            84..89 => {
                let finished = session.finished();
                if !finished.is_empty() {
                    let chosen = &finished[self.rng.usize(..finished.len())];
                    replays::replay(&self.world, &session, chosen, &mut self.rng).await;
                }
            }
            89..91 => {
                let other = Arc::clone(&self.sessions[self.rng.usize(..self.sessions.len())].session);
                if !Arc::ptr_eq(&other, &session) {
                    replays::trespass(&self.world, &session, &other).await;
                }
            }
            91..95 => ends::disturb(&self.world, &mut self.rng).await,
            95 => self.delete(chosen).await,
            96 => self.delete_under_way(chosen).await,
            _ => tokio::time::sleep(Duration::from_millis(self.rng.u64(0..500))).await,
        }
    }

    async fn open(&mut self) {
        self.opened += 1;
        let Some(session) = open(&self.world, self.number, self.opened, &mut self.rng).await else { return };
        let session = Arc::new(session);
        let listener = self.rng.bool().then(|| {
            let listener = news::listen(Arc::clone(&self.world), Arc::clone(&session), self.rng.fork());
            self.world.tasks.spawn(listener)
        });
        self.sessions.push(HeldSession { session, listener });
    }

    /// Calls tools, all at the same time.
    async fn calls(&mut self, session: &ClientSession, acts: &[Act]) {
        let calls: Vec<_> = acts.iter().map(|act| self.call(session, *act)).collect();
        join_all(calls).await;
    }

    /// A call with a tag of its own. All its random values are drawn now, so that they depend on the seed alone.
    fn call<'a>(
        &mut self,
        session: &'a ClientSession,
        act: Act,
    ) -> impl Future<Output = CallOutcome> + use<'a> {
        let rng = &mut self.rng;
        let tag = format!("{}:{:x}", session.label, rng.u64(..));
        let (params, script) = match act {
            Act::Echo => (tool("public_echo", &json!({ "text": tag })), Script::Echo { text: tag }),
            Act::Count => {
                let (to, interval) = (rng.u64(1..40), rng.u64(2..50));
                let arguments = json!({ "to": to, "interval_ms": interval, "tag": tag });
                let mut params = tool("count_slowly", &arguments);
                params["_meta"] = json!({ "progressToken": tag });
                (params, Script::count(&tag, to))
            }
            Act::Work => {
                let (steps, interval) = (rng.u64(1..20), rng.u64(5..100));
                let mut params = tool("long_task", &json!({ "seconds": steps, "interval_ms": interval }));
                params["_meta"] = json!({ "progressToken": tag });
                let text = format!("worked for {} s", (steps * interval) as f64 / 1000.0);
                (params, Script::work(&tag, steps, &text))
            }
            Act::Ask => (tool("ask_name", &json!({})), Script::ask(&tag)),
        };
        let (world, rng) = (Arc::clone(&self.world), rng.fork());
        async move { call_tool(&world, session, &params, script, rng).await }
    }

    async fn delete(&mut self, chosen: usize) {
        let held = self.sessions.swap_remove(chosen);
        ends::delete(&self.world, &held.session, &mut self.rng).await;
        self.must_leave(held).await;
    }

    /// Deletes a session while one of its calls runs.
    async fn delete_under_way(&mut self, chosen: usize) {
        let held = self.sessions.swap_remove(chosen);
        let call = self.call(&held.session, Act::Count);
        let (wait, mut rng) = (Duration::from_millis(self.rng.u64(0..300)), self.rng.fork());
        let delete = async {
            tokio::time::sleep(wait).await;
            ends::delete(&self.world, &held.session, &mut rng).await;
        };
        futures_util::future::join(call, delete).await;
        self.must_leave(held).await;
    }

    /// Checks that the standalone stream of a deleted session ends.
    async fn must_leave(&self, held: HeldSession) {
        let Some(listener) = held.listener else { return };
        if timeout(DEADLINE, listener).await.is_err() {
            let detail = "the standalone stream of a deleted session stays open";
            self.world.violation(&held.session.label, CheckFault::new(FaultKind::Hangs, detail));
        }
    }

    /// The last checks, after the last kill: every session is there, every update arrives, every complete stream can be
    /// replayed.
    pub(crate) async fn finish(mut self) {
        for held in std::mem::take(&mut self.sessions) {
            let session = &held.session;
            ends::must_live(&self.world, session, &mut self.rng).await;
            self.calls(session, &[Act::Echo, Act::Count, Act::Work, Act::Ask]).await;
            news::write_notes(&self.world, session, &mut self.rng).await;
            if held.listener.is_some() {
                news::await_news(&self.world, session).await;
            }
            work::check(&self.world, session, &mut self.rng).await;
            for finished in session.finished() {
                replays::replay(&self.world, session, &finished, &mut self.rng).await;
            }
        }
    }
}

/// Checks that every deleted session is still dead.
pub(crate) async fn all_dead(world: &World, rng: &mut Rng) {
    let dead = world.dead.lock().clone();
    for some in dead.chunks(AT_ONCE) {
        let checks = some.iter().map(|dead| {
            let mut rng = rng.fork();
            async move { ends::must_be_dead(world, dead, &mut rng).await }
        });
        join_all(checks.collect::<Vec<_>>()).await;
    }
}
