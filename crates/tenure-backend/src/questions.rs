//! The server's questions to the client: a limited number in flight, and their answers in a bounded queue.
//!
//! A server can ask as fast as it can write, and need not take answers. Without limits each question would cost a task
//! and each answer memory, until none is left for other sessions.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tenure_protocol::{Method, RawJson, Reason, Reply, Request, RequestId, RpcError, message, params};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Questions that may be in flight at once. Further questions are refused.
const QUESTIONS: usize = 128;

pub(crate) struct Questions {
    /// When this queue is full, a question stays in flight until its answer has room.
    answers: mpsc::Sender<Bytes>,
    state: Mutex<QuestionsState>,
}

#[derive(Default)]
struct QuestionsState {
    /// By the server's id; dropping a handle withdraws the question.
    asking: HashMap<RequestId, AbortOnDropHandle<()>>,
    /// A question was refused before, so the log has the warning already.
    asks_too_much: bool,
    /// The link has ended. A question that is added now would never be withdrawn.
    is_over: bool,
}

impl Questions {
    pub(crate) fn new(answers: mpsc::Sender<Bytes>) -> Arc<Self> {
        Arc::new(Self { answers, state: Mutex::default() })
    }

    /// Adds a question; `ask` gets its answer. Pings are answered here.
    pub(crate) fn take<A: Future<Output = Reply> + Send + 'static>(
        self: &Arc<Self>,
        Request { id, method, params }: Request,
        ask: impl FnOnce(Method, Option<RawJson>) -> A,
    ) {
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        if state.asking.len() >= QUESTIONS && !state.asking.contains_key(&id) {
            let is_first = !std::mem::replace(&mut state.asks_too_much, true);
            drop(state);
            return self.refuse(&id, is_first);
        }
        let ask = (method != Method::Ping).then(|| ask(method, params));
        let (questions, own) = (Arc::clone(self), id.clone());
        #[expect(clippy::disallowed_methods, reason = "held, and aborted when the link ends")]
        let asking = tokio::spawn(async move {
            let reply = match ask {
                Some(ask) => ask.await,
                None => Ok(RawJson::EMPTY_OBJECT),
            };
            let answer = message::write_response(&own, &reply);
            // Fails only if the server has ended, and then it needs no answer.
            let Ok(room) = questions.answers.reserve().await else { return };
            // Before `send`, since the server may reuse the id as soon as it has the answer. This aborts our own task,
            // so there must be no await after it.
            questions.state.lock().asking.remove(&own);
            room.send(answer);
        });
        state.asking.insert(id, AbortOnDropHandle::new(asking));
    }

    /// Refuses a question beyond the limit. If the queue is full as well, the server gets no answer.
    fn refuse(&self, id: &RequestId, is_first: bool) {
        if is_first {
            tracing::warn!(limit = QUESTIONS, "a server has too many questions in flight; refused");
        }
        let error = RpcError::of(Reason::TooManyRequests, "As many questions are under way as may be");
        let _ = self.answers.try_send(message::write_error(Some(id), &error));
    }

    /// The server withdraws a question.
    pub(crate) fn withdrawn(&self, params: Option<&RawJson>) {
        if let Some(id) = params::cancelled_id(params) {
            self.state.lock().asking.remove(&id);
        }
    }

    /// The link ends: withdraws all questions. Without this they would leak, because their tasks hold an `Arc` of this.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.asking.clear();
    }
}
