//! How much the sessions want to hear of the server's log: the server says the most that any of them wants.
//!
//! A session that has not said what it wants hears everything, as long as nobody has. When one has, the others count
//! as wanting `info`: what the server would have said to them by itself nobody knows.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::params::LogLevel;
use tenure_protocol::{Method, RawJson, Reply};
use tokio::sync::Semaphore;

use super::traffic::Traffic;
use crate::pending::gone;

/// What a session counts as wanting that has not said.
const USUAL: LogLevel = LogLevel::Info;

pub(super) struct Levels {
    traffic: Arc<Traffic>,
    /// Held by whoever talks to the server about it.
    turn: Semaphore,
    /// Somebody waits for a turn to settle it; whoever wants that too need not wait as well.
    is_settling: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What each session wants, if it has said.
    wanted: HashMap<u64, Option<LogLevel>>,
    /// What the server was told last.
    told: Option<LogLevel>,
}

impl Levels {
    pub(super) fn new(traffic: Arc<Traffic>) -> Self {
        Self {
            traffic,
            turn: Semaphore::new(1),
            is_settling: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Whether a session wants a message of this level.
    pub(super) fn lets_pass(&self, member: u64, level: Option<LogLevel>) -> bool {
        let Some(level) = level else { return true };
        let state = self.state.lock();
        match (state.wanted.get(&member), state.told) {
            (Some(Some(wanted)), _) => level >= *wanted,
            (_, Some(_)) => level >= USUAL,
            (_, None) => true,
        }
    }

    /// A session says what it wants. Returns what to tell it.
    pub(super) async fn set(&self, member: u64, level: LogLevel) -> Reply {
        let _turn = self.turn.acquire().await;
        let (most, told) = {
            let state = self.state.lock();
            // It has left while it waited.
            if !state.wanted.contains_key(&member) {
                return Err(gone());
            }
            let others = state.wanted.iter().filter(|(number, _)| **number != member);
            let most = others.map(|(_, wanted)| wanted.unwrap_or(USUAL)).fold(level, Ord::min);
            (most, state.told)
        };
        let reply = self.tell(most, told).await?;
        // Not if it has left meanwhile; then somebody waits to settle it without that session.
        if let Some(wanted) = self.state.lock().wanted.get_mut(&member) {
            *wanted = Some(level);
        }
        Ok(reply)
    }

    pub(super) fn join(&self, member: u64) {
        self.state.lock().wanted.insert(member, None);
    }

    pub(super) fn leave(&self, member: u64) {
        self.state.lock().wanted.remove(&member);
    }

    /// Tells the server what is wanted now, if somebody has ever said.
    pub(super) async fn settle(&self) {
        if self.is_settling.swap(true, Ordering::AcqRel) {
            return;
        }
        let _turn = self.turn.acquire().await;
        // Before we look at what is wanted: whoever changes that from here on sees to it themselves.
        self.is_settling.store(false, Ordering::Release);
        let (most, told) = {
            let state = self.state.lock();
            let most = state.wanted.values().map(|wanted| wanted.unwrap_or(USUAL)).min();
            (most, state.told)
        };
        if let (Some(most), Some(_)) = (most, told)
            && let Err(error) = self.tell(most, told).await
        {
            tracing::debug!(%error, "the server did not take a log level");
        }
    }

    async fn tell(&self, most: LogLevel, told: Option<LogLevel>) -> Reply {
        if told == Some(most) {
            return Ok(RawJson::EMPTY_OBJECT);
        }
        let params = RawJson::of(&serde_json::json!({ "level": most.as_str() }));
        let reply = self.traffic.ask(&Method::LoggingSetLevel, &params).await?;
        self.state.lock().told = Some(most);
        Ok(reply)
    }
}
