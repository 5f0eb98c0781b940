//! The list of running calls for operators: the caller of each, and the party that it waits for.
//!
//! A call that is answered at once is in no table (see `attempt`), so it does not appear here: every listed
//! call has waited at least once.

use std::sync::Arc;

use tenure_protocol::{Method, params};

use crate::call::Client;
use crate::exchange::call::{ActiveCall, ActiveCallState, ForcedEnd};
use crate::exchange::exchanges::Exchanges;
use crate::id::{Principal, Route};
use crate::port::clock::Time;
use crate::port::store::StoreError;

/// A running call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExchangeInfo {
    /// Its name in logs.
    pub label: String,
    /// The caller.
    pub principal: Principal,
    /// The endpoint it came to.
    pub route: Route,
    /// The method of the request.
    pub method: Method,
    /// The tool, if it is a tool call.
    pub tool: Option<String>,
    /// When its first attempt came.
    pub started: Time,
    /// The number of attempts of its client so far.
    pub attempts: u64,
    /// Its state towards its client.
    pub standing: CallStanding,
    /// What it waits for.
    pub waits_for: WaitsFor,
}

/// The state of a call towards its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallStanding {
    /// An attempt waits for its answer.
    Running,
    /// The last attempt was answered with questions, and the next one has not come yet.
    Parked,
    /// It is a task: its client polls for the outcome.
    Task,
    /// It is a listen: it reports changes until one side ends it.
    Listening,
}

/// What a call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitsFor {
    /// The server.
    Server,
    /// Its client, to answer questions.
    Client {
        /// The number of questions.
        questions: usize,
    },
    /// Its client, to read messages: the queue is full.
    Reader,
    /// News.
    News,
    /// The next process: its client has to come back.
    NextProcess,
}

impl Exchanges {
    /// All running calls of all endpoints that had to wait, the oldest first.
    pub fn list(&self) -> Vec<ExchangeInfo> {
        let mut works = self.0.listed();
        works.extend(self.0.parked.lock().values().cloned());
        // A call is listed several times while its client is back with answers, or while it becomes a task.
        works.sort_by_key(|work| work.number);
        works.dedup_by_key(|work| work.number);
        works.iter().filter_map(info).collect()
    }
}

impl Exchanges {
    /// Ends all calls of a principal, listens and tasks among them, and frees what its server holds for its next ones.
    /// Returns how many calls there were.
    ///
    /// Calls that have not waited yet are answered in this moment, and end by themselves.
    pub fn revoke(&self, owner: &Principal) -> usize {
        let mut works = self.0.listed();
        let parked = {
            let mut parked = self.0.parked.lock();
            let names: Vec<u128> = parked
                .iter()
                .filter(|(_, work)| work.caller.principal == *owner)
                .map(|(name, _)| *name)
                .collect();
            names.iter().filter_map(|name| parked.remove(name)).collect::<Vec<_>>()
        };
        works.extend(parked.iter().cloned());
        works.retain(|work| work.caller.principal == *owner);
        // A call is listed several times while its client is back with answers, or while it becomes a task.
        works.sort_by_key(|work| work.number);
        works.dedup_by_key(|work| work.number);
        let ended = works.iter().filter(|work| work.end(ForcedEnd::Revoke)).count();
        for work in parked {
            // No attempt waits for it, so nothing else would end it.
            if work.state.lock().parked_until.is_some() {
                work.close();
            }
        }
        self.0.responder.forget(owner);
        ended
    }

    /// Cancels a call by its name in logs. Its client gets an error, or finds its task cancelled, and its server is told. Returns
    /// whether there was one.
    pub fn cancel(&self, label: &str) -> bool {
        let parked = {
            let mut parked = self.0.parked.lock();
            let name = parked.iter().find(|(_, work)| work.label() == label).map(|(name, _)| *name);
            name.and_then(|name| parked.remove(&name))
        };
        let work = parked.clone().or_else(|| self.0.listed().into_iter().find(|work| work.label() == label));
        let Some(work) = work else { return false };
        let was_running = work.end(ForcedEnd::Cancel);
        // No attempt waits for a parked one, so nothing else would end it.
        if let Some(parked) = parked
            && parked.state.lock().parked_until.is_some()
        {
            parked.close();
        }
        if was_running {
            tracing::info!(exchange = label, "an operator cancelled a request");
        }
        was_running
    }

    /// Cancels the tasks of a principal that an earlier process left, which would be started again when it comes back.
    /// Returns how many there were.
    ///
    /// # Errors
    /// When the store fails.
    ///
    /// # Cancel safety
    /// Those that were reached are cancelled.
    pub async fn cancel_tasks_left(&self, owner: &Principal) -> Result<usize, StoreError> {
        match self.0.tasks() {
            Some(tasks) => tasks.cancel_left(owner).await,
            None => Ok(0),
        }
    }
}

fn info(work: &Arc<ActiveCall>) -> Option<ExchangeInfo> {
    let (standing, waits_for, attempts) = {
        let state = work.state.lock();
        // A call that has become a task goes on when its attempts are over.
        if state.is_over && state.task.is_none() {
            return None;
        }
        let (standing, waits_for) = stands(work, &state);
        (standing, waits_for, state.generation)
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

fn stands(work: &ActiveCall, state: &ActiveCallState) -> (CallStanding, WaitsFor) {
    if let Some(task) = &state.task {
        let waits_for = match task.live.questions() {
            0 => WaitsFor::Server,
            questions => WaitsFor::Client { questions },
        };
        return (CallStanding::Task, waits_for);
    }
    if state.parked_until.is_some() {
        return (CallStanding::Parked, WaitsFor::Client { questions: state.asked.len() });
    }
    let has_no_room =
        state.queue.len() >= work.limits.max_waiting || state.queue_bytes >= work.limits.max_waiting_bytes;
    let waits_for = if work.is_held {
        WaitsFor::NextProcess
    } else if has_no_room {
        WaitsFor::Reader
    } else if work.is_listen() && state.is_acknowledged {
        WaitsFor::News
    } else {
        WaitsFor::Server
    };
    (if work.is_listen() { CallStanding::Listening } else { CallStanding::Running }, waits_for)
}
