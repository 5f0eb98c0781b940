//! Ends a connection of HTTP/2 on which nothing is asked, as one of HTTP/1.1 ends between two requests.
//!
//! Its keep-alive finds peers that are gone, and a peer that is there and does nothing answers it for ever. So streams are
//! counted: hyper runs each of them through an executor, from its request to the last byte of its response.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use hyper::rt::Executor;
use hyper_util::rt::TokioExecutor;
use tokio::time::Sleep;

/// Runs the streams of one connection, and counts them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams(Arc<Running>);

#[derive(Debug, Default)]
struct Running {
    count: AtomicUsize,
    /// Woken when the last of them ends.
    idle: AtomicWaker,
}

/// One stream that runs.
struct One(Arc<Running>);

impl<F: Future + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        let one = One(Arc::clone(&self.0));
        TokioExecutor::new().execute(async move {
            stream.await;
            drop(one);
        });
    }
}

impl Drop for One {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.wake();
        }
    }
}

/// Knows when a connection has been idle for too long.
#[derive(Debug)]
pub(crate) struct Idle {
    streams: Streams,
    limit: Duration,
    /// Runs while there is no stream.
    timer: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl Idle {
    pub(crate) fn new(streams: Streams, limit: Duration) -> Self {
        Self { streams, limit, timer: None, is_over: false }
    }

    /// Ready once, when there was no stream for as long as there may be none. To be polled after the connection, which begins
    /// streams.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Pending;
        }
        let running = &self.streams.0;
        // Before the count is looked at: the last stream may end in between.
        running.idle.register(cx.waker());
        if running.count.load(Ordering::Acquire) > 0 {
            self.timer = None;
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.limit)));
        std::task::ready!(timer.as_mut().poll(cx));
        self.is_over = true;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::sync::oneshot;
    use tokio::time::{Instant, timeout};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_from_its_beginning_or_from_the_end_of_its_last_stream() {
        let streams = Streams::default();
        let mut idle = Idle::new(streams.clone(), LIMIT);
        let half = timeout(LIMIT / 2, poll_fn(|cx| idle.poll(cx))).await;
        assert!(half.is_err(), "it has just begun");
        let (end, ended) = oneshot::channel::<()>();
        streams.execute(ended);
        let long = timeout(LIMIT * 10, poll_fn(|cx| idle.poll(cx))).await;
        assert!(long.is_err(), "a stream may take as long as it likes");
        let begun = Instant::now();
        drop(end);
        poll_fn(|cx| idle.poll(cx)).await;
        assert_eq!(begun.elapsed().as_secs(), LIMIT.as_secs());
        assert!(timeout(LIMIT * 2, poll_fn(|cx| idle.poll(cx))).await.is_err(), "it is told once");
    }
}
