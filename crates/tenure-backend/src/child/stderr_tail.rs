//! Logs a child's standard error line by line, and keeps the last lines for error reports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio::time::Instant;

use crate::child::lines::{BoundedLine, BoundedLines};

/// How many of the last lines are kept.
const KEPT: usize = 20;
/// Longer lines are cut off.
const MAX_LINE: usize = 4 << 10;
/// Lines of one child that are logged per second. Enough for the output at a start or a failure.
const MAX_LINES_PER_SECOND: u32 = 200;

#[derive(Clone, Default)]
pub(super) struct StderrTail(Arc<Mutex<TailState>>, Option<Arc<str>>);

/// How many lines of a child were logged in the present second.
#[derive(Default)]
struct Rate {
    second: Option<Instant>,
    logged: u32,
    dropped: u64,
}

/// Whether a line is logged.
#[derive(PartialEq, Eq, Debug)]
enum Admitted {
    Yes,
    Not,
    /// Logged, and this many lines before it were not.
    After(u64),
}

impl Rate {
    fn admit(&mut self, now: Instant) -> Admitted {
        if self.second.is_none_or(|second| now.duration_since(second) >= Duration::from_secs(1)) {
            (self.second, self.logged) = (Some(now), 0);
        }
        if self.logged >= MAX_LINES_PER_SECOND {
            self.dropped += 1;
            return Admitted::Not;
        }
        self.logged += 1;
        self.dropped().map_or(Admitted::Yes, Admitted::After)
    }

    /// How many lines were dropped since the last logged line.
    fn dropped(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.dropped)).filter(|dropped| *dropped > 0)
    }
}

#[derive(Default)]
struct TailState {
    lines: VecDeque<String>,
    /// The session it serves, once it has one.
    session: Option<String>,
}

impl StderrTail {
    /// The tail of a child of the server with this name.
    pub(super) fn of(backend: Option<&str>) -> Self {
        Self(Arc::default(), backend.map(Arc::from))
    }

    /// The server's name in the log, if there are several servers.
    pub(super) fn backend(&self) -> Option<&str> {
        self.1.as_deref()
    }

    pub(super) fn serve(&self, session: &str) {
        self.0.lock().session = Some(session.to_owned());
    }

    /// The session it serves, once it has one.
    pub(super) fn session(&self) -> Option<String> {
        self.0.lock().session.clone()
    }

    /// The last lines.
    pub(super) fn last(&self) -> String {
        self.0.lock().lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Reads the child's standard error to its end.
    pub(super) async fn follow(self, from: impl AsyncRead + Unpin, child: u32) {
        let mut lines = BoundedLines::new(from, MAX_LINE);
        let mut rate = Rate::default();
        while let Ok(Some(line)) = lines.next().await {
            let text = match &line {
                BoundedLine::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                BoundedLine::TooLong(start, _) => format!("{}…", String::from_utf8_lossy(start)),
            };
            let session = {
                let mut inner = self.0.lock();
                if inner.lines.len() == KEPT {
                    inner.lines.pop_front();
                }
                inner.lines.push_back(text.clone());
                inner.session.clone()
            };
            let (backend, session) = (self.backend(), session.as_deref());
            match rate.admit(Instant::now()) {
                Admitted::Not => {}
                Admitted::Yes => tracing::info!(target: "tenure::child", backend, session, child, "{text}"),
                Admitted::After(dropped) => {
                    tracing::info!(
                        target: "tenure::child", backend, session, child,
                        "dropped {dropped} more lines"
                    );
                    tracing::info!(target: "tenure::child", backend, session, child, "{text}");
                }
            }
        }
        if let Some(dropped) = rate.dropped() {
            let session = self.session();
            let (backend, session) = (self.backend(), session.as_deref());
            tracing::info!(target: "tenure::child", backend, session, child, "dropped {dropped} more lines");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_lines_is_cut_to_so_many_per_second_and_the_rest_is_counted() {
        let mut rate = Rate::default();
        let start = Instant::now();
        let admitted = (0..1000).filter(|_| rate.admit(start) == Admitted::Yes).count();
        assert_eq!(admitted, MAX_LINES_PER_SECOND as usize);
        let later = start + Duration::from_secs(1);
        assert_eq!(rate.admit(later), Admitted::After(800));
        assert_eq!(rate.admit(later), Admitted::Yes);
        assert_eq!(rate.dropped(), None);
    }
}
