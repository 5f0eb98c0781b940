//! The messages of an exchange on their way to its client.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tenure_session::exchange::Flow;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::task::TaskTracker;

use super::body::FRAME_BYTES;
use super::sse;

/// The messages of an exchange, with comments where nothing is said.
#[derive(Debug)]
pub(super) struct Flowing {
    flow: Flow,
    opened: bool,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Flowing {
    pub(super) fn new(flow: Flow, keep_alive: Duration) -> Self {
        let timer = Box::pin(tokio::time::sleep(keep_alive));
        Self { flow, opened: false, keep_alive, timer }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut out = BytesMut::new();
        if !self.opened {
            self.opened = true;
            out.extend_from_slice(sse::OPENING);
        }
        while out.len() < FRAME_BYTES {
            match self.flow.poll_next(cx) {
                Poll::Ready(Some(message)) => sse::write_message(&message, &mut out),
                Poll::Ready(None) if out.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if out.is_empty() {
            std::task::ready!(self.timer.as_mut().poll(cx));
            out.extend_from_slice(sse::KEEP_ALIVE);
        }
        self.timer.as_mut().reset(Instant::now() + self.keep_alive);
        // The timer has to be polled once to wake us, also when there was something to say.
        let _ = self.timer.as_mut().poll(cx);
        Poll::Ready(Some(out.freeze()))
    }

    /// Reads it in a task of its own, and gives it up when the client makes no room for what there is for `stall`.
    ///
    /// For HTTP/2, where a stream can be stuck while its connection is in good order. Nobody polls the body of such a
    /// stream, so without this its call would have all the time in the world.
    pub(super) fn pumped(mut self, tasks: &TaskTracker, stall: Duration) -> mpsc::Receiver<Bytes> {
        let (sender, frames) = mpsc::channel(1);
        tasks.spawn(async move {
            loop {
                let frame = tokio::select! {
                    frame = std::future::poll_fn(|cx| self.poll(cx)) => frame,
                    () = sender.closed() => return,
                };
                let Some(frame) = frame else { return };
                match tokio::time::timeout(stall, sender.send(frame)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return,
                    Err(_) => return tracing::debug!("the client stopped reading a stream"),
                }
            }
        });
        frames
    }
}
