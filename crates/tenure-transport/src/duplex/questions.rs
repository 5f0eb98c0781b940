//! Requests of the server that only the client can answer, so that nobody waits for an answer that cannot come.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_protocol::{Reason, RequestId, Response, RpcError};
use tenure_session::Session;

/// The questions that went to the client and have no answer yet. As many as the session allows, no more.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    asked: HashSet<RequestId>,
    /// The client says nothing more.
    silent: bool,
}

impl Questions {
    /// For a client that cannot be asked: every question has its answer at once.
    pub(crate) fn unanswerable() -> Self {
        Self(Mutex::new(Open { silent: true, ..Open::default() }))
    }

    /// A question is on its way to the client. If nobody can answer it any more, that is its answer.
    pub(crate) fn ask(&self, id: RequestId, session: &Arc<Session>) {
        let mut open = self.open();
        if open.silent {
            drop(open);
            unanswered(id, session);
        } else {
            open.asked.insert(id);
        }
    }

    /// It has its answer, or needs none.
    pub(crate) fn settle(&self, id: &RequestId) {
        self.open().asked.remove(id);
    }

    /// The client says nothing more.
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

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unanswered(id: RequestId, session: &Arc<Session>) {
    let error = RpcError::of(Reason::ClientGone, "The client closed its connection before it answered");
    // A session that is over has answered all its questions itself.
    drop(session.response(Response { id, outcome: Err(error) }));
}
