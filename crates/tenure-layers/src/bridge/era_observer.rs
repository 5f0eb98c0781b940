//! Wrappers around the two halves of a server that read every answer for evidence of the server's era, and store the
//! verdict in the era cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_protocol::revision::MODERN;
use tenure_protocol::translate::evidence::{self, ServerTransport, Verdict};
use tenure_protocol::{Era, Method, RawJson, Reply, RpcError};
use tenure_session::backend::probe::{self, Probe};
use tenure_session::backend::{Backend, Call, Open, Opened, Responder};
use tenure_session::call::Fanout;
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;

use crate::bridge::era_cache::EraCache;

/// The half with sessions.
pub(super) struct ObservedBackend {
    inner: Arc<dyn Backend>,
    over: ServerTransport,
    era_cache: Arc<EraCache>,
}

impl ObservedBackend {
    pub(super) fn new(inner: Arc<dyn Backend>, over: ServerTransport, era_cache: Arc<EraCache>) -> Self {
        Self { inner, over, era_cache }
    }
}

impl Backend for ObservedBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (opening, over, era_cache) = (self.inner.open(open), self.over, Arc::clone(&self.era_cache));
        Box::pin(async move {
            let opened = opening.await;
            era_cache.note(Era::Legacy, probe::opening(&opened));
            if let Err(error) = &opened {
                let (way, said) = evidence::heard(over, error);
                if evidence::may_not_know_initialize(way, said) {
                    // The server may be modern after all, and was only unreachable when it was probed.
                    era_cache.doubt(Era::Modern);
                }
            }
            opened
        })
    }
}

/// The half without sessions.
pub(super) struct ObservedResponder {
    inner: Arc<dyn Probe>,
    era_cache: Arc<EraCache>,
    begun: AtomicBool,
}

impl ObservedResponder {
    pub(super) fn new(inner: Arc<dyn Probe>, era_cache: Arc<EraCache>) -> Self {
        Self { inner, era_cache, begun: AtomicBool::new(false) }
    }

    /// Answers a request, and returns the verdict on the modern era that the answer gives.
    pub(super) fn ask(&self, call: Call) -> BoxFuture<(Reply, Verdict)> {
        let era_cache = Arc::clone(&self.era_cache);
        if call.request.method == Method::Discover {
            let probing = self.inner.probe(call);
            return Box::pin(async move {
                let attempt = probing.await;
                let verdict = attempt.verdict(MODERN);
                era_cache.note(Era::Modern, verdict);
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
            era_cache.note(Era::Modern, verdict);
            (reply, verdict)
        })
    }
}

impl Responder for ObservedResponder {
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

    fn forget(&self, principal: &Principal) {
        self.inner.forget(principal);
    }

    fn close(&self) -> BoxFuture<()> {
        self.inner.close()
    }

    fn begin(&self, fanout: Fanout) {
        // Both runtimes call `begin`, but the server must begin once.
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.inner.begin(fanout);
        }
    }
}
