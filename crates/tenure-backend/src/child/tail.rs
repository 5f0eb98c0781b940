//! What a child says on its standard error: into the log line by line, and the last of it at hand.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::AsyncRead;

use super::lines::{Line, Lines};

/// Lines that are kept at hand.
const KEPT: usize = 20;
/// The longest line that is logged; the rest of it is not.
const MAX_LINE: usize = 4 << 10;

#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Mutex<Inner>>, Option<Arc<str>>);

#[derive(Default)]
struct Inner {
    lines: VecDeque<String>,
    /// The session it serves, once it has one.
    session: Option<String>,
}

impl Tail {
    /// The tail of a child of the server that the log calls so.
    pub(super) fn of(backend: Option<&str>) -> Self {
        Self(Arc::default(), backend.map(Arc::from))
    }

    /// What the log calls the server, where there are several.
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

    /// Follows it to its end.
    pub(super) async fn follow(self, from: impl AsyncRead + Unpin, child: u32) {
        let mut lines = Lines::new(from, MAX_LINE);
        while let Ok(Some(line)) = lines.next().await {
            let text = match &line {
                Line::Whole(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Line::TooLong(start, _) => format!("{}…", String::from_utf8_lossy(start)),
            };
            let session = {
                let mut inner = self.0.lock();
                if inner.lines.len() == KEPT {
                    inner.lines.pop_front();
                }
                inner.lines.push_back(text.clone());
                inner.session.clone()
            };
            let backend = self.backend();
            tracing::info!(target: "tenure::child", backend, session = session.as_deref(), child, "{text}");
        }
    }
}
