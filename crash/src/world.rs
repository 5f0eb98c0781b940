//! What all clients and the killer share: the way to the server, how often it was killed, what was
//! counted, and which promises were found broken.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::check::{Circumstances, Fault, Kind};
use crate::http::Http;
use crate::progress::Progress;
use crate::session::Dead;

/// How long a request may go unanswered by a server that runs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// What the operating system had not yet written when power went: at most the last second.
const TORN_BACK: Duration = Duration::from_secs(1);

/// The same when the store noticed that more was lost, and was repaired.
const REPAIRED_BACK: Duration = Duration::from_secs(10);

/// How much later than the server a busy client may get to see what the server has sent.
const LATE: Duration = Duration::from_millis(500);

/// More than this many are counted and not printed: the first ones tell.
const MAX_PRINTED: usize = 40;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) http: Http,
    pub(crate) seed: u64,
    pub(crate) tally: Tally,
    pub(crate) progress: Progress,
    /// Whether a loss is what the run is for; then the first one is told, and the others that come with it are not.
    pub(crate) expects_loss: bool,
    /// Clients begin nothing new.
    pub(crate) stop: CancellationToken,
    /// Listeners leave too.
    pub(crate) end: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) dead: Mutex<Vec<Arc<Dead>>>,
    started: Instant,
    life: Mutex<Life>,
    violations: Mutex<Vec<Violation>>,
}

/// The server's life so far.
#[derive(Debug)]
struct Life {
    kills: u64,
    up: bool,
    /// When it was last found ready.
    ready: Instant,
    /// When any client last received an event. A server that stalls does not sync either.
    heard: Instant,
    tears: Vec<Tear>,
}

/// A cut of the journal.
#[derive(Clone, Copy, Debug)]
struct Tear {
    at: Instant,
    /// What was acknowledged before this is on the disk, so the cut cannot have taken it unnoticed.
    safe_before: Instant,
    /// What is received after this is of the next process; before it, the network may have held it back.
    over: Option<Instant>,
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

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Tally {
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
    /// From the start of a process until it serves, in milliseconds.
    pub(crate) readies: Mutex<Vec<u64>>,
    /// From the start of a process to its first answer, in milliseconds.
    pub(crate) first_answers: Mutex<Vec<u64>>,
}

/// Adds one.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A promise that was broken, and where.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) kind: Kind,
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
    pub(crate) fn new(http: Http, seed: u64, progress: Progress, expects_loss: bool) -> World {
        let now = Instant::now();
        World {
            http,
            seed,
            tally: Tally::default(),
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

    /// The server is about to be killed. Said before it is, so that whoever sees a connection break
    /// finds the reason here.
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
        // A server that was killed soon after its start may have synced nothing, not even what it found.
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

    /// What a stream has to expect that began then.
    pub(crate) fn circumstances(&self, then: Moment) -> Circumstances {
        let life = self.life.lock();
        let torn = life.tears.iter().any(|tear| tear.at >= then.at);
        Circumstances { crashed: life.kills != then.kills, torn }
    }

    /// Whether what was acknowledged at that time may be gone because the journal was cut after it.
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

    /// Resolves when the server has run for as long as a request may take that was sent then.
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

    /// Notes and prints a broken promise.
    pub(crate) fn violation(&self, who: &str, fault: Fault) {
        let Fault { kind, detail } = fault;
        let (after, kills) = (self.started.elapsed(), self.kills());
        let violation = Violation { kind, detail, who: who.to_owned(), after, kills };
        let mut violations = self.violations.lock();
        if violations.len() < if self.expects_loss { 1 } else { MAX_PRINTED } {
            self.progress.warn(&format!("violation (seed {}): {violation}", self.seed));
        }
        violations.push(violation);
    }

    /// Whether something that was acknowledged was found to be gone.
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
