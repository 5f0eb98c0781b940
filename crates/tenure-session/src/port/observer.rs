//! Events of sessions, tasks and questions, for audit logs and metrics: a port that an embedder may implement.
//!
//! Events borrow everything, so telling one allocates nothing. Without an observer an event costs one load of a pointer.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use tenure_session::port::observer::{Happened, SessionEvent, SessionObserver};
//!
//! /// Counts sessions that wake, and events that clients got on coming back.
//! #[derive(Default)]
//! struct Wakes {
//!     woken: AtomicU64,
//!     replayed: AtomicU64,
//! }
//!
//! impl SessionObserver for Wakes {
//!     fn happened(&self, event: &SessionEvent<'_>) {
//!         match event.what {
//!             Happened::Woken { .. } => _ = self.woken.fetch_add(1, Ordering::Relaxed),
//!             Happened::Replayed { events } => _ = self.replayed.fetch_add(events as u64, Ordering::Relaxed),
//!             _ => {}
//!         }
//!     }
//! }
//! ```
//!
//! `Sessions::observed_by` takes it, or `NodeBuilder::with_observer` for a whole node.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tenure_protocol::{Method, Reason, Reply, params};
use tokio::time::Instant;

use crate::id::{Principal, SessionKey, StreamId};

/// Something that happened.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SessionEvent<'a> {
    /// The session, task or call that it happened to, by its name in logs.
    pub label: &'a str,
    /// The session, if it happened to one.
    pub session: Option<&'a SessionKey>,
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
    /// A dormant session was woken.
    Woken {
        /// From the request that found it dormant.
        took: Duration,
    },
    /// A dormant session could not be woken. It stays as it was.
    NotWoken {
        /// Why.
        reason: Reason,
        /// From the request that found it dormant.
        took: Duration,
    },
    /// A session that was not used left the memory.
    Slept,
    /// In a cluster: a session goes on at this node, which did not have it.
    Moved {
        /// How it came to this node.
        how: SessionMove,
    },
    /// A node of a cluster gave a session up, because another one has it or may have it.
    GivenUp,
    /// A session ended.
    Ended {
        /// How: `deleted`, `expired` or `revoked`.
        how: &'static str,
        /// From its begin, if it was in memory.
        lived: Option<Duration>,
        /// Its client's name for itself, if it was in memory.
        client: Option<&'a str>,
        /// Requests of it that were counted; 0 if it was not in memory.
        requests: u64,
        /// Those of them that ended with an error.
        errors: u64,
    },
    /// A request of a client was admitted.
    CallBegun,
    /// A request that was admitted is over, however it ended.
    CallEnded {
        /// From its admission.
        took: Duration,
    },
    /// A client came back with the id of an event.
    Resumed {
        /// What it got.
        how: Resumption,
    },
    /// Events were read from the log for a client that came back.
    Replayed {
        /// How many.
        events: usize,
    },
    /// A connection began to read a stream.
    ReaderAttached {
        /// The stream.
        stream: StreamId,
        /// Whether it took the place of another connection.
        replaces: bool,
    },
    /// A connection reads a stream no more.
    ReaderDetached {
        /// The stream.
        stream: StreamId,
        /// Whether it broke: the stream goes on, and this process had not asked the client to come back later.
        is_broken: bool,
    },
    /// A request that was open when the process ended was answered with an error.
    Interrupted {
        /// What was asked.
        method: &'a Method,
    },
    /// A request that was open when the process ended is run again.
    RunAgain {
        /// What was asked.
        method: &'a Method,
    },
    /// Events were written to the log, or could not be written.
    Appended {
        /// How many.
        events: usize,
        /// How long it took.
        took: Duration,
        /// Whether they are in the log.
        is_logged: bool,
    },
    /// A link to a server was opened for a session.
    LinkOpened {
        /// How long it took.
        took: Duration,
    },
    /// A link to a server could not be opened for a session.
    LinkFailed {
        /// How long it took.
        took: Duration,
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
    /// Nothing waits for the answer to a question any more; the client was told.
    QuestionWithdrawn {
        /// What it asked for.
        method: &'a Method,
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

/// The result of a resume with the id of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resumption {
    /// All events after it.
    Replayed,
    /// Some events after it are no longer kept.
    Gap,
    /// The id is not of this session, and the client was refused.
    Foreign,
    /// The id is not of this session, and the client got a fresh stream.
    Fresh,
}

impl Resumption {
    /// The word for it in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Replayed => "replayed",
            Self::Gap => "gap",
            Self::Foreign => "foreign",
            Self::Fresh => "fresh",
        }
    }
}

/// How a session came from one node of a cluster to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionMove {
    /// The node that had it is gone.
    TakenOver,
    /// The node that had it gave it back.
    GivenBack,
}

/// Hears of what happens.
///
/// 1. `happened` is called from the task in which it happens, without a lock held. It must not wait.
/// 2. Each thing is told once by the process in which it happens; one that a kill of the process cuts short is not told.
/// 3. What is told of one call, one stream or one session comes in its order: begun before ended, attached before detached.
pub trait SessionObserver: Send + Sync + 'static {
    /// Something happened.
    fn happened(&self, event: &SessionEvent<'_>);
}

/// Several observers as one, told in this order.
pub fn all_of(
    observers: impl IntoIterator<Item = Arc<dyn SessionObserver>>,
) -> Option<Arc<dyn SessionObserver>> {
    let mut all: Vec<_> = observers.into_iter().collect();
    match all.len() {
        0 | 1 => all.pop(),
        _ => Some(Arc::new(AllOf(all))),
    }
}

struct AllOf(Vec<Arc<dyn SessionObserver>>);

impl SessionObserver for AllOf {
    fn happened(&self, event: &SessionEvent<'_>) {
        for observer in &self.0 {
            observer.happened(event);
        }
    }
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

    /// Whether there is one.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Tells it of a task or a call.
    pub(crate) fn tell(&self, label: &str, owner: &Principal, endpoint: Option<&str>, what: Happened<'_>) {
        if let Some(observer) = self.0.get() {
            observer.happened(&SessionEvent { label, session: None, owner, endpoint, what });
        }
    }

    /// Tells it of a session.
    pub(crate) fn tell_of(
        &self,
        (label, session): (&str, &SessionKey),
        owner: &Principal,
        endpoint: Option<&str>,
        what: Happened<'_>,
    ) {
        if let Some(observer) = self.0.get() {
            observer.happened(&SessionEvent { label, session: Some(session), owner, endpoint, what });
        }
    }

    /// The time, if there is an observer that wants to know how long something takes.
    pub(crate) fn stopwatch(&self) -> Option<Instant> {
        self.is_set().then(Instant::now)
    }
}
