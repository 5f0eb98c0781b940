//! The one way down: take nothing new, let clients come back elsewhere, wait for what is in flight,
//! settle the rest, stop.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::sessions::Sessions;
use crate::error::{Reason, RpcError};

impl Sessions {
    /// Takes nothing new and asks listening clients to come back later. Requests in flight go on.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
        for session in self.0.live.all() {
            session.close_news();
        }
    }

    /// Waits until nothing is in flight, or the deadline; then answers what is left with an error and
    /// closes every link. Returns how many requests had to be interrupted.
    ///
    /// # Cancel safety
    /// Can be called again.
    pub async fn shut_down(&self, deadline: Duration) -> usize {
        self.drain();
        let idle = async {
            loop {
                let idle = self.0.idle.notified();
                tokio::pin!(idle);
                // Registered before the count is read, so that the last request's end is not missed.
                idle.as_mut().enable();
                if self.0.running.load(Ordering::Relaxed) == 0 {
                    return;
                }
                idle.await;
            }
        };
        // In time or not: a request may have slipped in just before the door closed.
        drop(tokio::time::timeout(deadline, idle).await);
        let interrupted = self.interrupt();
        self.note_deliveries().await;
        let mut links = Vec::new();
        for session in self.0.live.all() {
            links.extend(session.state.lock().link.take());
        }
        // All at once: each may take its time.
        let closing: Vec<_> = links.iter().map(|link| link.close()).collect();
        let close = async {
            for closed in closing {
                closed.await;
            }
        };
        // A link that does not close is left to the end of the process.
        drop(tokio::time::timeout(Duration::from_secs(5), close).await);
        self.0.stop.cancel();
        self.0.tasks.close();
        if tokio::time::timeout(Duration::from_secs(5), self.0.tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.0.tasks.len(), "tasks were still running at shutdown");
        }
        interrupted
    }

    /// Writes down what listening clients were given, so that nothing is repeated to them in the next process.
    async fn note_deliveries(&self) {
        let live = self.0.live.all();
        for session in &live {
            let mut state = session.state.lock();
            if state.end.is_none() && state.delivered() != session.saved_delivery.load(Ordering::Relaxed) {
                session.save(&mut state);
            }
        }
        let saved = async {
            for session in &live {
                session.saved().await;
            }
        };
        // A store that does not answer is left to the end of the process.
        drop(tokio::time::timeout(Duration::from_secs(5), saved).await);
    }

    fn interrupt(&self) -> usize {
        let error = RpcError::of(Reason::Interrupted, "The server shut down before the answer came");
        let mut interrupted = 0;
        for session in self.0.live.all() {
            let mut state = session.state.lock();
            if !state.calls.is_empty() {
                tracing::warn!(session = %session.label(), requests = state.calls.len(), "interrupted by shutdown");
            }
            interrupted += state.calls.len();
            session.settle(&mut state, &error);
            session.catch_log_up(&mut state);
            drop(state);
            session.flush();
        }
        interrupted
    }
}
