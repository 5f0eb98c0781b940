//! The log levels of all sessions of one server. The server gets the most detailed level that any session wants.
//!
//! As long as no session has set a level, all sessions get every log message. Once one session has set a level,
//! sessions without one count as `info`, because the server's default is not known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::params::LogLevel;
use tenure_protocol::{Method, RawJson, Reply};
use tokio::sync::Semaphore;

use super::traffic::SharedTraffic;
use crate::pending::gone;

/// The level of a session that has not set one.
const USUAL: LogLevel = LogLevel::Info;

pub(super) struct Levels {
    traffic: Arc<SharedTraffic>,
    /// One permit: only one task at a time sets the server's level.
    exclusive: Semaphore,
    /// A task in `settle` waits for the permit. Others return at once, because it will read their change.
    is_settling: AtomicBool,
    state: Mutex<LevelState>,
}

#[derive(Default)]
struct LevelState {
    /// Each session's level, if it has set one.
    wanted: HashMap<u64, Option<LogLevel>>,
    /// The level that the server was told last.
    told: Option<LogLevel>,
}

impl Levels {
    pub(super) fn new(traffic: Arc<SharedTraffic>) -> Self {
        Self {
            traffic,
            exclusive: Semaphore::new(1),
            is_settling: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Whether a session gets a log message of this level.
    pub(super) fn lets_pass(&self, member: u64, level: Option<LogLevel>) -> bool {
        let Some(level) = level else { return true };
        let state = self.state.lock();
        match (state.wanted.get(&member), state.told) {
            (Some(Some(wanted)), _) => level >= *wanted,
            (_, Some(_)) => level >= USUAL,
            (_, None) => true,
        }
    }

    /// Sets a session's level. Returns the reply for the session.
    pub(super) async fn set(&self, member: u64, level: LogLevel) -> Reply {
        let _permit = self.exclusive.acquire().await;
        let (most, told) = {
            let state = self.state.lock();
            // The session left while it waited for the permit.
            if !state.wanted.contains_key(&member) {
                return Err(gone());
            }
            let others = state.wanted.iter().filter(|(number, _)| **number != member);
            let most = others.map(|(_, wanted)| wanted.unwrap_or(USUAL)).fold(level, Ord::min);
            (most, state.told)
        };
        let reply = self.tell(most, told).await?;
        // If the session has left meanwhile, a task waits to settle the level without it.
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

    /// Tells the server the current level, if any session has ever set one.
    pub(super) async fn settle(&self) {
        if self.is_settling.swap(true, Ordering::AcqRel) {
            return;
        }
        let _permit = self.exclusive.acquire().await;
        // Clear the flag before reading `wanted`: a session that changes it later tells the server itself.
        self.is_settling.store(false, Ordering::Release);
        let (most, told) = {
            let state = self.state.lock();
            let most = state.wanted.values().map(|wanted| wanted.unwrap_or(USUAL)).min();
            (most, state.told)
        };
        if let (Some(most), Some(_)) = (most, told)
            && let Err(error) = self.tell(most, told).await
        {
            tracing::debug!(%error, "the server refused a log level");
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
