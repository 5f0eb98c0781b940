//! What the server asks of the client: so many questions at once, and a few answers posted side by side.
//!
//! A server can ask as fast as it can write, and need not take an answer. Without bounds each question would cost a task
//! and each answer a connection, until there are none left for others.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{RawJson, Reason, Reply, RequestId, RpcError, message, params};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::link::Remote;

/// Questions that may be under way at once. Beyond that they are refused.
const QUESTIONS: usize = 128;
/// Answers that may wait to be posted; questions whose answer finds no room stay under way.
const WAITING: usize = 64;
/// Answers that are posted at once. More than one: a server may be slow to take one, and wait for another.
const AT_ONCE: usize = 4;

pub(super) struct Questions {
    answers: mpsc::Sender<Bytes>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the server's id for them; dropping one withdraws it.
    asking: HashMap<RequestId, AbortOnDropHandle<()>>,
    /// The server has been refused some, which is said once.
    asks_too_much: bool,
    /// The link has ended. Whatever is asked now has nobody who would withdraw it.
    is_over: bool,
}

impl Questions {
    pub(super) fn new() -> (Arc<Self>, mpsc::Receiver<Bytes>) {
        let (answers, waiting) = mpsc::channel(WAITING);
        (Arc::new(Self { answers, state: Mutex::default() }), waiting)
    }

    /// Takes a question, which `ask` finds the answer to.
    pub(super) fn take(self: &Arc<Self>, id: RequestId, ask: impl Future<Output = Reply> + Send + 'static) {
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        if state.asking.len() >= QUESTIONS && !state.asking.contains_key(&id) {
            let is_first = !std::mem::replace(&mut state.asks_too_much, true);
            drop(state);
            return self.refuse(&id, is_first);
        }
        let (questions, own) = (Arc::clone(self), id.clone());
        #[expect(clippy::disallowed_methods, reason = "held, and aborted when the link ends")]
        let asking = tokio::spawn(async move {
            let answer = message::write_response(&own, &ask.await);
            let Ok(room) = questions.answers.reserve().await else { return };
            // First, since the server may use the id again as soon as it has the answer. This aborts the task that it
            // is in, so nothing may be awaited after it.
            questions.state.lock().asking.remove(&own);
            room.send(answer);
        });
        state.asking.insert(id, AbortOnDropHandle::new(asking));
    }

    /// The server has asked too much already. If it does not take answers either, it gets none.
    fn refuse(&self, id: &RequestId, is_first: bool) {
        if is_first {
            tracing::warn!(limit = QUESTIONS, "the server upstream asks more than may be under way");
        }
        let error = RpcError::of(Reason::TooManyRequests, "As many questions are under way as may be");
        let _ = self.answers.try_send(message::write_error(Some(id), &error));
    }

    /// The server takes a question back.
    pub(super) fn withdrawn(&self, params: Option<&RawJson>) {
        if let Some(id) = params::cancelled_id(params) {
            self.state.lock().asking.remove(&id);
        }
    }

    /// The link ends: nobody wants to know any more. The questions hold what holds them.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.asking.clear();
    }
}

/// Posts answers, a few at once.
pub(super) async fn answer(remote: Arc<Remote>, mut waiting: mpsc::Receiver<Bytes>) {
    let answers = stream::poll_fn(|context| waiting.poll_recv(context));
    answers.for_each_concurrent(AT_ONCE, |answer| remote.say(answer)).await;
}
