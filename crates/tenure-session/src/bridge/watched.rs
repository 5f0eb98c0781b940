//! The halves of a server, whose every answer is read for what it says about the server's era.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::probe::Probe;
use super::rules::evidence::{self, Over, Said, Verdict, Way};
use super::verdicts::{Era, Verdicts};
use crate::call::Fanout;
use crate::error::RpcError;
use crate::id::Route;
use crate::message::RawJson;
use crate::method::Method;
use crate::port::BoxFuture;
use crate::port::backend::{Backend, Call, Open, Opened, Reply};
use crate::port::responder::Responder;
use crate::protocol::MODERN;

/// The half with sessions.
pub(super) struct WatchedBackend {
    inner: Arc<dyn Backend>,
    verdicts: Arc<Verdicts>,
    over: Over,
}

impl WatchedBackend {
    pub(super) fn new(inner: Arc<dyn Backend>, verdicts: Arc<Verdicts>, over: Over) -> Self {
        Self { inner, verdicts, over }
    }
}

impl Backend for WatchedBackend {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (opening, verdicts, over) = (self.inner.open(open), Arc::clone(&self.verdicts), self.over);
        Box::pin(async move {
            let opened = opening.await;
            let verdict = match &opened {
                Ok(opened) => evidence::of_initialize(Said::Result(&opened.result)),
                Err(error) => evidence::of_initialize(evidence::heard(over, error).1),
            };
            verdicts.note(Era::Legacy, verdict);
            opened
        })
    }
}

/// The half without.
pub(super) struct WatchedResponder {
    inner: Arc<dyn Probe>,
    verdicts: Arc<Verdicts>,
    over: Over,
    begun: AtomicBool,
}

impl WatchedResponder {
    pub(super) fn new(inner: Arc<dyn Probe>, verdicts: Arc<Verdicts>, over: Over) -> Self {
        Self { inner, verdicts, over, begun: AtomicBool::new(false) }
    }
}

impl Responder for WatchedResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let (verdicts, over) = (Arc::clone(&self.verdicts), self.over);
        // Where silence is an answer, only a probe comes to an end.
        if call.request.method == Method::Discover {
            let attempt = self.inner.probe(call);
            return Box::pin(async move {
                let attempt = attempt.await;
                verdicts.note(Era::Modern, attempt.verdict(MODERN));
                attempt.into_reply()
            });
        }
        let reply = self.inner.respond(call);
        Box::pin(async move {
            let reply = reply.await;
            verdicts.note(Era::Modern, verdict_of(over, false, &reply));
            reply
        })
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

    fn begin(&self, fanout: Fanout) {
        // Both runtimes say so, and it is one server.
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.inner.begin(fanout);
        }
    }
}

/// What a reply of the modern half says about the server's era.
pub(super) fn verdict_of(over: Over, is_discovery: bool, reply: &Reply) -> Verdict {
    let way = match over {
        Over::Http => Way::Http(Some(200)),
        Over::Pipes => Way::Pipes,
    };
    match reply {
        Ok(result) if is_discovery => evidence::of_discover(way, Said::Result(result), MODERN),
        Ok(_) => Verdict::Unknown,
        Err(error) if is_discovery => {
            let (way, said) = evidence::heard(over, error);
            evidence::of_discover(way, said, MODERN)
        }
        Err(error) => evidence::of_exchange(error, MODERN),
    }
}
