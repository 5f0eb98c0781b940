//! News that may come twice, held back until it has had time to.
//!
//! While one listen takes the place of another, both tell what happens. Held back, the same news is one, and what
//! is told afterwards is told after it happened: nothing is lost, at most it comes a little later.

use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson};
use tokio::time::Instant;

/// For how long two listens may tell the same, after the second was acknowledged.
const OVERLAP: Duration = Duration::from_millis(50);
/// For how long news is held back at most while listens are changed over and over.
const LONGEST: Duration = Duration::from_secs(1);
/// How much news is held back at most; the rest is told at once.
const MAX_NEWS: usize = 1024;

/// One piece of news.
pub(super) type Told = (Method, Option<RawJson>);

/// News that is held back, if any is.
#[derive(Default)]
pub(super) struct Held(Mutex<Option<Hold>>);

struct Hold {
    began: Instant,
    /// When it is told; `None` while a listen waits to be acknowledged.
    until: Option<Instant>,
    news: Vec<Told>,
}

impl Held {
    /// From now on news is held back.
    pub(super) fn begin(&self) {
        let mut hold = self.0.lock();
        let hold = hold.get_or_insert_with(|| Hold { began: Instant::now(), until: None, news: Vec::new() });
        hold.until = None;
    }

    /// From now on only what is on its way already can come twice.
    pub(super) fn end_soon(&self) {
        if let Some(hold) = self.0.lock().as_mut() {
            hold.until = Some(Instant::now() + OVERLAP);
        }
    }

    /// When it is to be told.
    pub(super) fn until(&self) -> Option<Instant> {
        self.0.lock().as_ref().and_then(|hold| hold.until)
    }

    /// Keeps a piece of news, or gives it back to be told at once.
    pub(super) fn keep(&self, told: Told) -> Option<Told> {
        let mut hold = self.0.lock();
        let Some(hold) = hold.as_mut().filter(|hold| hold.news.len() < MAX_NEWS) else { return Some(told) };
        if !hold.news.contains(&told) {
            hold.news.push(told);
        }
        None
    }

    /// What is to be told now, if it is time.
    pub(super) fn due(&self) -> Vec<Told> {
        let now = Instant::now();
        let mut hold = self.0.lock();
        let is_due = hold
            .as_ref()
            .is_some_and(|hold| hold.until.is_some_and(|until| until <= now || hold.began + LONGEST <= now));
        if is_due { hold.take().map(|hold| hold.news).unwrap_or_default() } else { Vec::new() }
    }
}
