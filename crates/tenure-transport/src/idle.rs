//! Ends an idle HTTP/2 connection, as an idle HTTP/1.1 connection ends between two requests.
//!
//! HTTP/2 keep-alive finds peers that are gone, but a peer that sends no request answers it for ever. So this file
//! counts the open streams: hyper runs each stream through an executor, from its request to the last byte of its
//! response.

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
pub(crate) struct Http2Streams(Arc<OpenStreams>);

#[derive(Debug, Default)]
struct OpenStreams {
    count: AtomicUsize,
    /// Woken when the last stream ends.
    idle: AtomicWaker,
}

/// Counts one stream as long as it runs.
struct StreamGuard(Arc<OpenStreams>);

impl<F: Future + Send + 'static> Executor<F> for Http2Streams {
    fn execute(&self, stream: F) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        let guard = StreamGuard(Arc::clone(&self.0));
        TokioExecutor::new().execute(async move {
            stream.await;
            drop(guard);
        });
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.wake();
        }
    }
}

/// Knows when a connection has been idle for too long.
#[derive(Debug)]
pub(crate) struct Idle {
    streams: Http2Streams,
    limit: Duration,
    /// Runs while there is no stream.
    timer: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl Idle {
    pub(crate) fn new(streams: Http2Streams, limit: Duration) -> Self {
        Self { streams, limit, timer: None, is_over: false }
    }

    /// Ready once, when there was no stream for the whole limit. To be polled after the connection, because polling the
    /// connection begins streams.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Pending;
        }
        let running = &self.streams.0;
        // Registered before the count is read, because the last stream may end in between.
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
        let streams = Http2Streams::default();
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
        assert!(timeout(LIMIT * 2, poll_fn(|cx| idle.poll(cx))).await.is_err(), "it is ready once");
    }
}
