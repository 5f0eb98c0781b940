//! The state that all clients and the killer share: the connection to the server, its kills, the counters, and the
//! promises that were found broken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::check::{CheckFault, Circumstances, FaultKind};
use crate::http::{ServerHttp, SessionName};
use crate::progress::ProgressLine;

/// How long a request may go unanswered by a server that runs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// How far back a torn journal can lose writes: the operating system writes them within a second.
const TORN_BACK: Duration = Duration::from_secs(1);

/// The same if the store noticed a larger loss and was repaired.
const REPAIRED_BACK: Duration = Duration::from_secs(10);

/// How much later than the server sent it a busy client may receive an event.
const LATE: Duration = Duration::from_millis(500);

/// Further violations are counted but not printed: the first ones show the problem.
const MAX_PRINTED: usize = 40;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) http: ServerHttp,
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
    /// Sessions that were deleted, to check that they stay dead.
    pub(crate) dead: Mutex<Vec<Arc<DeletedSession>>>,
    started: Instant,
    life: Mutex<Life>,
    violations: Mutex<Vec<Violation>>,
}

/// The server's life so far.
#[derive(Debug)]
struct Life {
    kills: u64,
    up: bool,
    /// When it was last ready.
    ready: Instant,
    /// When any client last received an event. A server that stalls does not sync either.
    heard: Instant,
    tears: Vec<Tear>,
}

/// A cut of the journal.
#[derive(Clone, Copy, Debug)]
struct Tear {
    at: Instant,
    /// Writes acknowledged before this are on the disk, so the cut cannot have removed them unnoticed.
    safe_before: Instant,
    /// Events received after this come from the next process; before it, an event of the old one may arrive late.
    over: Option<Instant>,
}

/// A session that was deleted.
#[derive(Debug)]
pub(crate) struct DeletedSession {
    pub(crate) name: SessionName,
    pub(crate) label: String,
    pub(crate) opened: Instant,
    pub(crate) deleted: Instant,
}

/// A moment in the server's life, to compare with a later one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    kills: u64,
    up: bool,
    at: Instant,
}

impl Moment {
    pub(crate) fn kills(self) -> u64 {
        self.kills
    }
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
    /// Milliseconds from the start of a process until it serves.
    pub(crate) readies: Mutex<Vec<u64>>,
    /// Milliseconds from the start of a process to its first answer.
    pub(crate) first_answers: Mutex<Vec<u64>>,
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
    pub(crate) fn new(http: ServerHttp, seed: u64, progress: ProgressLine, expects_loss: bool) -> World {
        let now = Instant::now();
        World {
            http,
            seed,
            tally: RunTally::default(),
            progress,
            expects_loss,
            stop: CancellationToken::new(),
            end: CancellationToken::new(),
            tasks: TaskTracker::new(),
            dead: Mutex::new(Vec::new()),
            started: now,
            life: Mutex::new(Life { kills: 0, up: false, ready: now, heard: now, tears: Vec::new() }),
            violations: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// The server is about to be killed. Called before the kill, so that a client whose connection breaks finds the
    /// reason here.
    pub(crate) fn killing(&self) {
        let mut life = self.life.lock();
        life.kills += 1;
        life.up = false;
    }

    /// A client has received an event.
    pub(crate) fn heard(&self) {
        count(&self.tally.events);
        self.life.lock().heard = Instant::now();
    }

    /// The server has said that it is ready.
    pub(crate) fn ready(&self) {
        let mut life = self.life.lock();
        life.up = true;
        life.ready = Instant::now();
        let over = life.ready + LATE;
        for tear in life.tears.iter_mut().rev().take_while(|tear| tear.over.is_none()) {
            tear.over = Some(over);
        }
    }

    /// The end of the journal was cut off.
    pub(crate) fn torn(&self) {
        let mut life = self.life.lock();
        let at = Instant::now();
        let mut safe_before = back(life.heard.min(at), TORN_BACK);
        // A server that was killed soon after its start may have synced nothing, not even older writes it found.
        if life.ready > safe_before
            && let Some(last) = life.tears.last()
        {
            safe_before = safe_before.min(last.safe_before);
        }
        life.tears.push(Tear { at, safe_before, over: None });
        count(&self.tally.torn);
    }

    /// The store was repaired after the last cut.
    pub(crate) fn repaired(&self) {
        if let Some(last) = self.life.lock().tears.last_mut() {
            last.safe_before = last.safe_before.min(back(last.at, REPAIRED_BACK));
        }
        count(&self.tally.repaired);
    }

    pub(crate) fn kills(&self) -> u64 {
        self.life.lock().kills
    }

    pub(crate) fn moment(&self) -> Moment {
        let life = self.life.lock();
        Moment { kills: life.kills, up: life.up, at: Instant::now() }
    }

    /// Whether the server ran all the time since then.
    pub(crate) fn lived_since(&self, then: Moment) -> bool {
        then.up && self.kills() == then.kills
    }

    /// What has happened to the server since a stream began.
    pub(crate) fn circumstances(&self, then: Moment) -> Circumstances {
        let life = self.life.lock();
        let torn = life.tears.iter().any(|tear| tear.at >= then.at);
        Circumstances { crashed: life.kills != then.kills, torn }
    }

    /// Whether a write acknowledged at that time may be lost, because the journal was cut after it.
    pub(crate) fn could_lose(&self, acknowledged: Instant) -> bool {
        let life = self.life.lock();
        life.tears
            .iter()
            .any(|tear| tear.safe_before <= acknowledged && tear.over.is_none_or(|over| acknowledged <= over))
    }

    /// Whether the journal was ever cut.
    pub(crate) fn was_torn(&self) -> bool {
        !self.life.lock().tears.is_empty()
    }

    /// Resolves when a request sent at this time is overdue: the server has run for the whole deadline.
    pub(crate) async fn overdue(&self, sent: Instant) {
        loop {
            let (up, limit) = {
                let life = self.life.lock();
                (life.up, life.ready.max(sent) + DEADLINE)
            };
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

fn back(from: Instant, by: Duration) -> Instant {
    from.checked_sub(by).unwrap_or(from)
}
