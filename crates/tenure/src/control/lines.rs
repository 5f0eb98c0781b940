//! A response body of JSON lines about the progress of some work.
//!
//! The body polls the work that makes the lines, so that no task is left when the connection is gone. The queue is
//! short: lines that do not fit are dropped, except the last one.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde::Serialize;
use tenure_session::port::BoxFuture;
use tokio::sync::mpsc;

/// Lines that wait to be written.
const QUEUE: usize = 16;

/// The body; ends with the work.
pub(super) struct LineBody {
    lines: mpsc::Receiver<Bytes>,
    work: Option<BoxFuture<()>>,
}

/// Puts lines into the queue.
#[derive(Clone)]
pub(super) struct LineSender(mpsc::Sender<Bytes>);

impl LineBody {
    /// The lines that some work makes.
    pub(super) fn of<F: Future<Output = ()> + Send + 'static>(work: impl FnOnce(LineSender) -> F) -> Self {
        let (sender, lines) = mpsc::channel(QUEUE);
        Self { lines, work: Some(Box::pin(work(LineSender(sender)))) }
    }
}

impl LineSender {
    /// Sends a line unless too many are waiting already.
    pub(super) fn offer(&self, line: &impl Serialize) {
        // Only progress is lost, and the next line is newer.
        drop(self.0.try_send(encode(line)));
    }

    /// Sends a line, and waits for room in the queue. If the reader is gone, the line is dropped.
    pub(super) async fn send(&self, line: &impl Serialize) {
        drop(self.0.send(encode(line)).await);
    }
}

fn encode(line: &impl Serialize) -> Bytes {
    let mut bytes = serde_json::to_vec(line).expect("a line has a JSON form");
    bytes.push(b'\n');
    bytes.into()
}

impl Body for LineBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
            self.work = None;
        }
        self.lines.poll_recv(cx).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
