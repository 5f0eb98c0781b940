//! News is held back while it may come twice, so that duplicates can be dropped.
//!
//! While one listen replaces another, both report the same changes. News is held until both have reported, and passed
//! on once. Nothing is lost; news only comes a little later.

use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson};
use tokio::time::Instant;

/// How long two listens may report the same news after the second was acknowledged.
const OVERLAP: Duration = Duration::from_millis(50);
/// How long news is held back at most while listens are replaced again and again.
const LONGEST: Duration = Duration::from_secs(1);
/// How much news is held back at most; the rest is passed on at once.
const MAX_NEWS: usize = 1024;

/// One piece of news.
pub(super) type NewsMessage = (Method, Option<RawJson>);

/// News that is held back, if any is.
#[derive(Default)]
pub(super) struct HeldNews(Mutex<Option<Hold>>);

struct Hold {
    began: Instant,
    /// When the news is passed on; `None` while a listen waits for its acknowledgement.
    until: Option<Instant>,
    news: Vec<NewsMessage>,
}

impl HeldNews {
    /// Starts to hold news back.
    pub(super) fn begin(&self) {
        let mut hold = self.0.lock();
        let hold = hold.get_or_insert_with(|| Hold { began: Instant::now(), until: None, news: Vec::new() });
        hold.until = None;
    }

    /// Ends the hold soon: from now on only news already on its way can come twice.
    pub(super) fn end_soon(&self) {
        if let Some(hold) = self.0.lock().as_mut() {
            hold.until = Some(Instant::now() + OVERLAP);
        }
    }

    /// When the held news is due.
    pub(super) fn until(&self) -> Option<Instant> {
        self.0.lock().as_ref().and_then(|hold| hold.until)
    }

    /// Holds a piece of news, or returns it to be passed on at once.
    pub(super) fn keep(&self, told: NewsMessage) -> Option<NewsMessage> {
        let mut hold = self.0.lock();
        let Some(hold) = hold.as_mut().filter(|hold| hold.news.len() < MAX_NEWS) else { return Some(told) };
        if !hold.news.contains(&told) {
            hold.news.push(told);
        }
        None
    }

    /// Takes the held news, if it is due.
    pub(super) fn due(&self) -> Vec<NewsMessage> {
        let now = Instant::now();
        let mut hold = self.0.lock();
        let is_due = hold
            .as_ref()
            .is_some_and(|hold| hold.until.is_some_and(|until| until <= now || hold.began + LONGEST <= now));
        if is_due { hold.take().map(|hold| hold.news).unwrap_or_default() } else { Vec::new() }
    }
}
