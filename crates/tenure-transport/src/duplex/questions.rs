//! The server's requests to the client that have no answer yet. When the client can answer no more, each gets an
//! error, so that the server does not wait for ever.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_protocol::{Reason, RequestId, Response, RpcError};
use tenure_session::Session;

/// The questions that went to the client and have no answer yet. The session bounds their number.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<OpenQuestions>);

#[derive(Debug, Default)]
struct OpenQuestions {
    asked: HashSet<RequestId>,
    /// The client sends nothing more.
    silent: bool,
}

impl Questions {
    /// For a client that cannot be asked: every question gets its error at once.
    pub(crate) fn unanswerable() -> Self {
        Self(Mutex::new(OpenQuestions { silent: true, ..OpenQuestions::default() }))
    }

    /// Notes a question that is about to go to the client. If the client sends nothing more, it gets its error at once.
    pub(crate) fn ask(&self, id: RequestId, session: &Arc<Session>) {
        let mut open = self.open();
        if open.silent {
            drop(open);
            unanswered(id, session);
        } else {
            open.asked.insert(id);
        }
    }

    /// The question has its answer, or was cancelled.
    pub(crate) fn settle(&self, id: &RequestId) {
        self.open().asked.remove(id);
    }

    /// The client sends nothing more: all open questions get their error.
    pub(crate) fn close(&self, session: Option<&Arc<Session>>) {
        let asked = {
            let mut open = self.open();
            open.silent = true;
            std::mem::take(&mut open.asked)
        };
        let Some(session) = session else { return };
        for id in asked {
            unanswered(id, session);
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenQuestions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unanswered(id: RequestId, session: &Arc<Session>) {
    let error = RpcError::of(Reason::ClientGone, "The client closed its connection before it answered");
    // A session that is over has answered all its questions itself.
    drop(session.response(Response { id, outcome: Err(error) }));
}
