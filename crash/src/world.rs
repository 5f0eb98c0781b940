//! The state that all clients and the killer share: the addresses of the nodes, what was done to them, the counters, and
//! the promises that were found broken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::balancer::Balancer;
use crate::check::{CheckFault, Circumstances, FaultKind};
use crate::http::SessionName;
use crate::life::{Life, Moment};
use crate::progress::ProgressLine;
use crate::times::{ClusterTimes, Times};

/// How long a request may go unanswered by a server that runs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The run ends after this many violations, because more of them show nothing new.
pub(crate) const MAX_VIOLATIONS: usize = 500;

/// Further violations are counted but not printed: the first ones show the problem.
const MAX_PRINTED: usize = 40;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) balancer: Balancer,
    pub(crate) seed: u64,
    pub(crate) tally: RunTally,
    pub(crate) progress: ProgressLine,
    /// Whether the run is meant to find a loss; then only the first violation is printed.
    pub(crate) expects_loss: bool,
    /// Cancelled when clients must begin nothing new.
    pub(crate) stop: CancellationToken,
    /// Cancelled when listeners must end too.
    pub(crate) end: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// The readers of what is measured.
    pub(crate) probes: TaskTracker,
    /// Sessions that were deleted, to check that they stay dead.
    pub(crate) dead: Mutex<Vec<Arc<DeletedSession>>>,
    started: Instant,
    life: Mutex<Life>,
    violations: Mutex<Vec<Violation>>,
}

/// A session that was deleted.
#[derive(Debug)]
pub(crate) struct DeletedSession {
    pub(crate) name: SessionName,
    pub(crate) label: String,
    pub(crate) opened: Instant,
    pub(crate) deleted: Instant,
}

/// The counters of the run.
#[derive(Debug, Default)]
pub(crate) struct RunTally {
    pub(crate) restarts: AtomicU64,
    pub(crate) torn: AtomicU64,
    pub(crate) powerless: AtomicU64,
    pub(crate) repaired: AtomicU64,
    pub(crate) sessions: AtomicU64,
    pub(crate) deleted: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) streamed: AtomicU64,
    pub(crate) unanswered: AtomicU64,
    pub(crate) hang_ups: AtomicU64,
    pub(crate) resumes: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) replayed: AtomicU64,
    pub(crate) questions: AtomicU64,
    pub(crate) news: AtomicU64,
    pub(crate) states: AtomicU64,
    pub(crate) interrupted: AtomicU64,
    pub(crate) rerun: AtomicU64,
    pub(crate) dead_checked: AtomicU64,
    pub(crate) vanished: AtomicU64,
    /// Requests that a node refused to serve for a good reason.
    pub(crate) refused: AtomicU64,
    /// Answers of counters.
    pub(crate) counters: AtomicU64,
    /// From the start of a process until it serves.
    pub(crate) readies: Times,
    /// From the start of a process to its first answer.
    pub(crate) first_answers: Times,
    /// From a request, or an event, to the next sign of life of a node.
    pub(crate) waits: Times,
    pub(crate) cluster: ClusterTimes,
}

/// What clients have felt of what was done to the nodes, at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Felt {
    refused: u64,
    unanswered: u64,
    interrupted: u64,
}

impl RunTally {
    pub(crate) fn felt(&self) -> Felt {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Felt {
            refused: get(&self.refused),
            unanswered: get(&self.unanswered),
            interrupted: get(&self.interrupted),
        }
    }
}

impl Felt {
    /// Whether nothing was felt.
    pub(crate) fn is_nothing(self) -> bool {
        let Felt { refused, unanswered, interrupted } = self;
        refused + unanswered + interrupted == 0
    }

    /// What was felt since then.
    pub(crate) fn since(self, then: Felt) -> Felt {
        Felt {
            refused: self.refused - then.refused,
            unanswered: self.unanswered - then.unanswered,
            interrupted: self.interrupted - then.interrupted,
        }
    }
}

impl fmt::Display for Felt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Felt { refused, unanswered, interrupted } = self;
        write!(f, "{refused} refusals, {unanswered} broken calls, {interrupted} interruptions")
    }
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A promise that was broken, and where.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) kind: FaultKind,
    detail: String,
    who: String,
    after: Duration,
    kills: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, kills) = (self.after.as_secs_f32(), self.kills);
        write!(f, "{}: {} (at {seconds:.2} s, after {kills} kills): {}", self.kind, self.who, self.detail)
    }
}

impl World {
    pub(crate) fn new(balancer: Balancer, seed: u64, progress: ProgressLine, expects_loss: bool) -> World {
        let nodes = balancer.nodes.len();
        World {
            balancer,
            seed,
            tally: RunTally::default(),
            progress,
            expects_loss,
            stop: CancellationToken::new(),
            end: CancellationToken::new(),
            tasks: TaskTracker::new(),
            probes: TaskTracker::new(),
            dead: Mutex::new(Vec::new()),
            started: Instant::now(),
            life: Mutex::new(Life::new(nodes)),
            violations: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// A node is about to be killed. Called before the kill, so that a client whose connection breaks finds the reason here.
    pub(crate) fn killing(&self, node: usize) -> usize {
        let mut life = self.life.lock();
        life.kills += 1;
        life.breaks(node);
        life.down(node);
        life.trouble()
    }

    /// Something else is about to be done. From now on nothing can be expected of the nodes named: they stand still, or end.
    /// Returns its number, to say when it was undone.
    pub(crate) fn troubling(&self, nodes: &[usize]) -> usize {
        let mut life = self.life.lock();
        for node in nodes {
            life.breaks(*node);
            life.down(*node);
        }
        life.trouble()
    }

    /// A node is about to be ended in good order. Returns the number of the trouble.
    pub(crate) fn ending(&self, node: usize) -> usize {
        let mut life = self.life.lock();
        life.breaks(node);
        life.down(node);
        life.orderly_trouble()
    }

    /// Whether nothing can show but nodes that were ended in good order.
    pub(crate) fn is_orderly(&self) -> bool {
        self.life.lock().is_orderly()
    }

    /// A node that stood still goes on.
    pub(crate) fn goes_on(&self, node: usize) {
        self.life.lock().goes_on(node);
    }

    /// What was done before was undone.
    pub(crate) fn relieved(&self, trouble: usize) {
        self.life.lock().relieve(trouble);
    }

    /// A client has received an event.
    pub(crate) fn heard(&self) {
        count(&self.tally.events);
        self.life.lock().heard();
    }

    /// A node has said that it is ready.
    pub(crate) fn ready(&self, node: usize) {
        self.life.lock().ready(node);
    }

    /// The end of the journal was cut off.
    pub(crate) fn torn(&self) {
        self.life.lock().torn();
        count(&self.tally.torn);
    }

    /// The store was repaired after the last cut.
    pub(crate) fn repaired(&self) {
        self.life.lock().repaired();
        count(&self.tally.repaired);
    }

    /// Whether there are several nodes.
    pub(crate) fn is_cluster(&self) -> bool {
        self.balancer.nodes.len() > 1
    }

    /// How many troubles may show in what was begun then.
    pub(crate) fn troubles_since(&self, then: Instant) -> usize {
        self.life.lock().troubles_since(then)
    }

    pub(crate) fn kills(&self) -> u64 {
        self.life.lock().kills
    }

    /// How often the harness has done anything to the nodes, kills included.
    pub(crate) fn troubles(&self) -> u64 {
        self.life.lock().troubles()
    }

    pub(crate) fn moment(&self) -> Moment {
        self.life.lock().moment()
    }

    /// Whether a node ran all the time since then.
    pub(crate) fn lived_since(&self, then: Moment, node: usize) -> bool {
        self.life.lock().lived_since(then, node)
    }

    /// Whether nothing was done since then, and nothing before can still show.
    pub(crate) fn was_calm_since(&self, then: Moment) -> bool {
        self.life.lock().troubles_since(then.at) == 0
    }

    /// What has happened since a stream began.
    pub(crate) fn circumstances(&self, then: Moment) -> Circumstances {
        self.life.lock().circumstances(then)
    }

    /// Whether a write acknowledged at that time may be lost, because the journal was cut after it.
    pub(crate) fn could_lose(&self, acknowledged: Instant) -> bool {
        self.life.lock().could_lose(acknowledged)
    }

    /// Whether the journal was ever cut.
    pub(crate) fn was_torn(&self) -> bool {
        self.life.lock().was_torn()
    }

    /// Resolves when a request sent at this time is overdue: a server has run for the whole deadline.
    pub(crate) async fn overdue(&self, sent: Instant) {
        loop {
            let (up, ready) = self.life.lock().serving();
            let limit = ready.max(sent) + DEADLINE;
            if up && Instant::now() >= limit {
                return;
            }
            tokio::time::sleep_until(limit.max(Instant::now() + Duration::from_millis(200))).await;
        }
    }

    /// Records and prints a broken promise.
    pub(crate) fn violation(&self, who: &str, fault: CheckFault) {
        let CheckFault { kind, detail } = fault;
        let (after, kills) = (self.started.elapsed(), self.kills());
        let violation = Violation { kind, detail, who: who.to_owned(), after, kills };
        let mut violations = self.violations.lock();
        if violations.len() < if self.expects_loss { 1 } else { MAX_PRINTED } {
            self.progress.warn(&format!("violation (seed {}): {violation}", self.seed));
        }
        violations.push(violation);
    }

    /// Whether a loss of acknowledged data was found.
    pub(crate) fn noticed_loss(&self) -> bool {
        self.violations.lock().iter().any(|violation| violation.kind.is_loss())
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.violations.lock().clone()
    }
}
