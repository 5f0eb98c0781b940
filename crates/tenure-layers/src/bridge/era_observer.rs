//! The halves of a server, whose every answer is read for what it says about the server's era.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::evidence::{self, Over, Verdict};
use tenure_protocol::{Method, RawJson, Reply, RpcError};
use tenure_session::backend::probe::{self, Probe};
use tenure_session::backend::{Backend, Call, Open, Opened, Responder};
use tenure_session::call::Fanout;
use tenure_session::id::Route;
use tenure_session::port::BoxFuture;

use crate::bridge::era_cache::{Era, Verdicts};

/// The half with sessions.
pub(super) struct WatchedBackend {
    inner: Arc<dyn Backend>,
    over: Over,
    verdicts: Arc<Verdicts>,
}

impl WatchedBackend {
    pub(super) fn new(inner: Arc<dyn Backend>, over: Over, verdicts: Arc<Verdicts>) -> Self {
        Self { inner, over, verdicts }
    }
}

impl Backend for WatchedBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (opening, over, verdicts) = (self.inner.open(open), self.over, Arc::clone(&self.verdicts));
        Box::pin(async move {
            let opened = opening.await;
            verdicts.note(Era::Legacy, probe::opening(&opened));
            if let Err(error) = &opened {
                let (way, said) = evidence::heard(over, error);
                if evidence::may_not_know_initialize(way, said) {
                    // Then it may be modern after all, and was only away when it was asked.
                    verdicts.doubt(Era::Modern);
                }
            }
            opened
        })
    }
}

/// The half without.
pub(super) struct WatchedResponder {
    inner: Arc<dyn Probe>,
    verdicts: Arc<Verdicts>,
    begun: AtomicBool,
}

impl WatchedResponder {
    pub(super) fn new(inner: Arc<dyn Probe>, verdicts: Arc<Verdicts>) -> Self {
        Self { inner, verdicts, begun: AtomicBool::new(false) }
    }

    /// Answers a request, and says what the answer tells about the server's era.
    pub(super) fn ask(&self, call: Call) -> BoxFuture<(Reply, Verdict)> {
        let verdicts = Arc::clone(&self.verdicts);
        if call.request.method == Method::Discover {
            let probing = self.inner.probe(call);
            return Box::pin(async move {
                let attempt = probing.await;
                let verdict = attempt.verdict(MODERN);
                verdicts.note(Era::Modern, verdict);
                (attempt.into_reply(), verdict)
            });
        }
        let reply = self.inner.respond(call);
        Box::pin(async move {
            let reply = reply.await;
            let verdict = match &reply {
                Ok(_) => Verdict::Unknown,
                Err(error) => evidence::of_exchange(error, MODERN),
            };
            verdicts.note(Era::Modern, verdict);
            (reply, verdict)
        })
    }
}

impl Responder for WatchedResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let asking = self.ask(call);
        Box::pin(async move { asking.await.0 })
    }

    fn keeps_request_states(&self) -> bool {
        self.inner.keeps_request_states()
    }

    fn keeps_tasks(&self, route: &Route) -> bool {
        self.inner.keeps_tasks(route)
    }

    fn server_info(&self) -> Option<RawJson> {
        self.inner.server_info()
    }

    fn close(&self) -> BoxFuture<()> {
        self.inner.close()
    }

    fn begin(&self, fanout: Fanout) {
        // Both runtimes say so, and it is one server.
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.inner.begin(fanout);
        }
    }
}
