//! What operators see of exchanges: which are under way, whose they are, and what each waits for.
//!
//! Only reads. A call that is answered at once is in no table (see `run`), and so is not seen here either: what is
//! listed has waited at least once.

use std::sync::Arc;

use tenure_protocol::{Method, params};

use crate::call::Stage;
use crate::exchange::call::{State, Work};
use crate::exchange::exchanges::Exchanges;
use crate::id::{Principal, Route};
use crate::port::clock::Time;

/// A call that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExchangeInfo {
    /// Its name in logs.
    pub label: String,
    /// Who asked.
    pub principal: Principal,
    /// The endpoint it came to.
    pub route: Route,
    /// What was asked.
    pub method: Method,
    /// The tool, if it is a call of one.
    pub tool: Option<String>,
    /// When its first attempt came.
    pub started: Time,
    /// Attempts of its client until now.
    pub attempts: u64,
    /// How it stands with its client.
    pub standing: Standing,
    /// What it waits for.
    pub waits_for: WaitsFor,
}

/// How a call stands with its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// An attempt waits for its answer.
    Running,
    /// The last attempt was answered with questions, and the next has not come.
    Parked,
    /// Its client comes back for the outcome.
    Task,
    /// It tells its client of changes until one of them has enough.
    Listening,
}

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// The server behind.
    Server,
    /// The answers of its client to so many questions.
    Client {
        /// How many.
        questions: usize,
    },
    /// Its client, to read what was said: there is no room for more.
    Reader,
    /// News.
    News,
    /// The next process: its client is to come back.
    NextProcess,
}

impl Exchanges {
    /// Every call of all endpoints that is under way and had to wait, the oldest first.
    pub fn list(&self) -> Vec<ExchangeInfo> {
        let mut works = self.0.listed();
        works.extend(self.0.parked.lock().values().cloned());
        // One stands in several places while its client is back with answers, or while it becomes a task.
        works.sort_by_key(|work| work.number);
        works.dedup_by_key(|work| work.number);
        works.iter().filter_map(info).collect()
    }
}

fn info(work: &Arc<Work>) -> Option<ExchangeInfo> {
    let (standing, waits_for, attempts) = {
        let state = work.state.lock();
        // What has become a task goes on when its attempts are over.
        if state.is_over && state.task.is_none() {
            return None;
        }
        let (standing, waits_for) = stands(work, &state);
        (standing, waits_for, state.turn)
    };
    let request = &work.request;
    Some(ExchangeInfo {
        label: work.label().to_owned(),
        principal: work.caller.principal.clone(),
        route: work.fanout.route().clone(),
        method: request.method.clone(),
        tool: match request.method {
            Method::ToolsCall => params::tool_name(request.params.as_ref()),
            _ => None,
        },
        started: work.started,
        attempts,
        standing,
        waits_for,
    })
}

fn stands(work: &Work, state: &State) -> (Standing, WaitsFor) {
    if let Some(task) = &state.task {
        let waits_for = match task.live.questions() {
            0 => WaitsFor::Server,
            questions => WaitsFor::Client { questions },
        };
        return (Standing::Task, waits_for);
    }
    if state.parked_until.is_some() {
        return (Standing::Parked, WaitsFor::Client { questions: state.asked.len() });
    }
    let has_no_room =
        state.said.len() >= work.limits.max_waiting || state.said_bytes >= work.limits.max_waiting_bytes;
    let waits_for = if work.is_held {
        WaitsFor::NextProcess
    } else if has_no_room {
        WaitsFor::Reader
    } else if work.is_listen() && state.is_acknowledged {
        WaitsFor::News
    } else {
        WaitsFor::Server
    };
    (if work.is_listen() { Standing::Listening } else { Standing::Running }, waits_for)
}
