//! The messages of an exchange as the body of a response: polls its flow, writes Server-Sent Events.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tenure_session::exchange::{Flow, FlowItem};
use tokio::time::{Instant, Sleep};

use crate::http::body::FRAME_BYTES;
use crate::http::sse;

/// The messages of an exchange, with keep-alive comments in quiet times.
#[derive(Debug)]
pub(super) struct ExchangeBody {
    flow: Flow,
    opened: bool,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
}

impl ExchangeBody {
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
                Poll::Ready(Some(item)) => write(&item, &mut out),
                Poll::Ready(None) if out.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if out.is_empty() {
            std::task::ready!(self.timer.as_mut().poll(cx));
            out.extend_from_slice(sse::KEEP_ALIVE);
        }
        self.timer.as_mut().reset(Instant::now() + self.keep_alive);
        // Polled once after the reset, even if a message was written, because only a polled timer wakes this task.
        let _ = self.timer.as_mut().poll(cx);
        Poll::Ready(Some(out.freeze()))
    }
}

fn write(item: &FlowItem, out: &mut BytesMut) {
    match item {
        FlowItem::Resumable { id, retry } => sse::write_prime(id, *retry, out),
        FlowItem::Message(message) => sse::write_message(message, out),
        FlowItem::ComeBack(retry) => sse::write_close(*retry, out),
    }
}
