//! What happens to sessions, tasks and questions, for audit logs and metrics: a port that an embedder may implement.

use std::sync::{Arc, OnceLock};

use tenure_protocol::{Method, Reply, params};

use crate::id::Principal;

/// Something that happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SessionEvent<'a> {
    /// The session, task or call that it happened to, by its name in logs.
    pub label: &'a str,
    /// Whose it is.
    pub owner: &'a Principal,
    /// The endpoint, if it has a name.
    pub endpoint: Option<&'a str>,
    /// What happened.
    pub what: Happened<'a>,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Happened<'a> {
    /// A session was created, by a client that calls itself so.
    Created {
        /// The client's name for itself.
        client: Option<&'a str>,
    },
    /// A session ended.
    Ended {
        /// How: `deleted`, `expired` or `revoked`.
        how: &'static str,
    },
    /// A question went to the client.
    Asked {
        /// What it asks for.
        method: &'a Method,
    },
    /// A question has an answer, or will get none.
    Answered {
        /// What it asked for.
        method: &'a Method,
        /// `accept`, `decline` or `cancel` as the user chose, `answered` where there is no such choice, or `error`.
        how: &'static str,
    },
    /// A call became a task.
    TaskBegun {
        /// Its tool.
        tool: &'a str,
    },
    /// A task ended.
    TaskEnded {
        /// Its tool.
        tool: &'a str,
        /// `completed`, `failed` or `cancelled`.
        how: &'static str,
    },
}

/// Hears of what happens.
///
/// 1. `happened` is called from the task in which it happens, without a lock held. It must not wait.
/// 2. Each thing is told once by the process in which it happens; one that a kill of the process cuts short is not told.
pub trait SessionObserver: Send + Sync + 'static {
    /// Something happened.
    fn happened(&self, event: &SessionEvent<'_>);
}

/// The word for the answer to a question.
pub(crate) fn answer_word(reply: &Reply) -> &'static str {
    let Ok(result) = reply else { return "error" };
    match params::text_member(Some(result), "action").as_deref() {
        Some("accept") => "accept",
        Some("decline") => "decline",
        Some("cancel") => "cancel",
        _ => "answered",
    }
}

/// The place of an observer, which is set once or never.
#[derive(Clone, Default)]
pub(crate) struct ObserverPlace(Arc<OnceLock<Arc<dyn SessionObserver>>>);

impl ObserverPlace {
    /// Sets it. A second one is dropped.
    pub(crate) fn set(&self, observer: Arc<dyn SessionObserver>) {
        drop(self.0.set(observer));
    }

    /// Tells it.
    pub(crate) fn tell(&self, label: &str, owner: &Principal, endpoint: Option<&str>, what: Happened<'_>) {
        if let Some(observer) = self.0.get() {
            observer.happened(&SessionEvent { label, owner, endpoint, what });
        }
    }
}
