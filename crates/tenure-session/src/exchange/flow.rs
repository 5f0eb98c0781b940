//! The stream of an answer: its messages, its event id, and its response.
//!
//! In: an attempt ([`Run`]) or fixed items. Out: [`FlowItem`]s for the client. Notes the response in the store before
//! the client gets it.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;

use crate::exchange::attempt::{AttemptStep, Run};
use crate::port::BoxFuture;

/// How long an answer waits until the store has noted it. After that the client gets it without a note.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// One item of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowItem {
    /// If the connection breaks, the client can come back with this id, after the time `retry`.
    Resumable {
        /// The event id. The event has no message.
        id: String,
        /// How long the client should wait.
        retry: Duration,
    },
    /// A message; the response is the last one.
    Message(Bytes),
    /// The connection ends without the response. The client has to come back for it after this time.
    ComeBack(Duration),
}

/// An answer in several messages; the last one is the response. Dropping it before the response cancels the call.
#[derive(Debug)]
pub struct Flow {
    run: Option<Run>,
    items: VecDeque<FlowItem>,
    noting: Option<Noting>,
}

/// A response that is being noted in the store.
struct Noting {
    noted: BoxFuture<()>,
    response: Option<Bytes>,
}

impl Flow {
    /// The rest of an attempt, after these items.
    pub(super) fn new(run: Run, items: impl IntoIterator<Item = FlowItem>) -> Self {
        Self { run: Some(run), items: items.into_iter().collect(), noting: None }
    }

    /// These items and nothing else.
    pub(crate) fn of(items: impl IntoIterator<Item = FlowItem>) -> Self {
        Self { run: None, items: items.into_iter().collect(), noting: None }
    }

    /// Whether it is a listen, which has no answer to wait for.
    pub fn is_listen(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.work.is_listen())
    }

    /// The next item; `None` after the last one.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<FlowItem>> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Poll::Ready(Some(item));
            }
            if let Some(noting) = &mut self.noting {
                ready!(noting.noted.as_mut().poll(cx));
                let response = noting.response.take();
                self.noting = None;
                return Poll::Ready(response.map(FlowItem::Message));
            }
            let Some(run) = self.run.as_mut().filter(|run| !run.is_over) else {
                return Poll::Ready(None);
            };
            match ready!(run.poll(cx)) {
                AttemptStep::Message(message) => return Poll::Ready(Some(FlowItem::Message(message))),
                AttemptStep::Done { body, .. } => match run.kept.clone() {
                    None => return Poll::Ready(Some(FlowItem::Message(body))),
                    Some(kept) => {
                        let outcome = body.clone();
                        // In its own task, so that the response is noted even if the client disconnects now.
                        let noted = run.inner.tasks.spawn(async move {
                            drop(tokio::time::timeout(ANSWER_WITHIN, kept.answered(outcome)).await);
                        });
                        let noted = Box::pin(async move { drop(noted.await) });
                        self.noting = Some(Noting { noted, response: Some(body) });
                    }
                },
                AttemptStep::SentAway => return Poll::Ready(run.come_back_later()),
                AttemptStep::Overtaken => return Poll::Ready(None),
                // The client already has a stream.
                AttemptStep::Quiet => {}
            }
        }
    }

    /// The next message; `None` after the response.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match std::future::poll_fn(|cx| self.poll_next(cx)).await? {
                FlowItem::Message(message) => return Some(message),
                FlowItem::Resumable { .. } | FlowItem::ComeBack(_) => {}
            }
        }
    }
}

impl std::fmt::Debug for Noting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Noting")
    }
}
