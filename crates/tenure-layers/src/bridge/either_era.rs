//! A server that may be of either era, or of both, for clients of either.
//!
//! A client gets the half of its own era if the server has one, and otherwise the bridge over the other half. Which
//! halves there are is read from the server's answers, by `rules::evidence`, and kept for a while; every
//! answer that says otherwise counts at once. So a server of both eras is never bridged, and one that is replaced by
//! another of the other era is found out with the next request.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::translate::evidence::{self, Over, Verdict};
use tenure_session::backend::probe::Probe;

use crate::bridge::session_client::SessionsOnExchanges;

pub use crate::bridge::era_cache::Era;
use crate::bridge::era_cache::Verdicts;
use crate::bridge::era_observer::{WatchedBackend, WatchedResponder};
use tenure_protocol::Method;
use tenure_protocol::Reply;
use tenure_protocol::RpcError;
use tenure_protocol::modern::meta;
use tenure_protocol::revision::MODERN;
use tenure_protocol::{RawJson, Request};
use tenure_session::backend::Responder;
use tenure_session::backend::{Backend, Call, Open, Opened};
use tenure_session::call::{Fanout, Outlet};
use tenure_session::id::Route;
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Clock;

/// How long it is believed that a server is of an era, or not.
pub const ERA_TTL: Duration = Duration::from_secs(60 * 60);

/// A server's two halves, and bridges over each.
pub struct Eras(Arc<Both>);

struct Both {
    legacy: Arc<WatchedBackend>,
    modern: Arc<WatchedResponder>,
    /// Sessions over the modern half.
    sessions: SessionsOnExchanges,
    /// Exchanges over the legacy half.
    exchanges: Arc<dyn Responder>,
    verdicts: Arc<Verdicts>,
    over: Over,
    /// The only era that is spoken with the server.
    only: Option<Era>,
}

/// A server's halves.
pub struct Halves {
    /// The one with sessions.
    pub legacy: Arc<dyn Backend>,
    /// The one without.
    pub modern: Arc<dyn Probe>,
    /// How both are reached.
    pub over: Over,
    /// The one era that is to be spoken with the server, if that is known.
    pub only: Option<Era>,
    /// How long it is believed that the server is of an era, or not.
    pub ttl: Duration,
}

impl Eras {
    /// A server of these halves. `bridge` makes exchanges over the legacy half, as it is given.
    pub fn new(
        halves: Halves,
        clock: Arc<dyn Clock>,
        bridge: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Responder>,
    ) -> Self {
        let Halves { legacy, modern, over, only, ttl } = halves;
        let verdicts = Arc::new(Verdicts::new(Arc::clone(&clock), ttl));
        let legacy = Arc::new(WatchedBackend::new(legacy, over, Arc::clone(&verdicts)));
        let modern = Arc::new(WatchedResponder::new(modern, Arc::clone(&verdicts)));
        Self(Arc::new(Both {
            sessions: SessionsOnExchanges::new(Arc::clone(&modern) as _, clock),
            exchanges: bridge(Arc::clone(&legacy) as _),
            legacy,
            modern,
            verdicts,
            over,
            only,
        }))
    }
}

impl std::fmt::Debug for Halves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { over, only, ttl, .. } = self;
        f.debug_struct("Halves")
            .field("over", over)
            .field("only", only)
            .field("ttl", ttl)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Eras {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |era| self.0.verdicts.of(era);
        f.debug_struct("Eras")
            .field("legacy", &of(Era::Legacy))
            .field("modern", &of(Era::Modern))
            .finish_non_exhaustive()
    }
}

impl Backend for Eras {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let both = Arc::clone(&self.0);
        Box::pin(async move {
            match both.only {
                Some(Era::Legacy) => both.legacy.open(open).await,
                Some(Era::Modern) => both.sessions.open(open).await,
                None => both.open(open).await,
            }
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        Some(Arc::new(EitherEra(Arc::clone(&self.0))))
    }
}

impl Both {
    async fn open(&self, open: Open) -> Result<Opened, RpcError> {
        let turn = self.verdicts.turn(Era::Legacy).await;
        if self.verdicts.of(Era::Legacy) != Verdict::No {
            return self.open_legacy(open, Afterwards::Bridge).await;
        }
        drop(turn);
        let again = copy(&open);
        match self.sessions.open(open).await {
            // It was of the other era only, and is not even that any more: what was known is worth nothing.
            Err(_) if self.verdicts.of(Era::Legacy) == Verdict::Unknown => {
                self.open_legacy(again, Afterwards::Nothing).await
            }
            opened => opened,
        }
    }

    async fn open_legacy(&self, open: Open, afterwards: Afterwards) -> Result<Opened, RpcError> {
        let again = copy(&open);
        let attempt = Attempt::new(open.outlet.clone());
        let outlet = Attempt::outlet(&attempt);
        let error = match self.legacy.open(Open { outlet, ..open }).await {
            Ok(opened) => {
                attempt.succeeds();
                return Ok(opened);
            }
            Err(error) if matches!(afterwards, Afterwards::Nothing) => return Err(error),
            Err(error) => error,
        };
        let (way, said) = evidence::heard(self.over, &error);
        match evidence::of_initialize(said) {
            Verdict::No => self.sessions.open(again).await,
            // An answer, but none that says what the server is: perhaps it can be told in the other words.
            Verdict::Unknown if evidence::may_not_know_initialize(way, said) => {
                self.sessions.open(again).await.map_err(|_| error)
            }
            Verdict::Unknown | Verdict::Yes => Err(error),
        }
    }
}

/// What is done when the legacy half does not open.
#[derive(Clone, Copy)]
enum Afterwards {
    Bridge,
    Nothing,
}

/// An opening that may come to nothing: then the loss of its link is none to the session.
struct Attempt {
    outlet: Outlet,
    fate: Mutex<Fate>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Lost,
    Succeeded,
}

impl Attempt {
    fn new(outlet: Outlet) -> Arc<Self> {
        Arc::new(Self { outlet, fate: Mutex::new(Fate::Open) })
    }

    fn outlet(attempt: &Arc<Self>) -> Outlet {
        let lost = Arc::clone(attempt);
        attempt.outlet.of_part(move || lost.is_lost())
    }

    fn is_lost(&self) {
        let before = std::mem::replace(&mut *self.fate.lock(), Fate::Lost);
        if before == Fate::Succeeded {
            self.outlet.link_lost();
        }
    }

    fn succeeds(&self) {
        let before = {
            let mut fate = self.fate.lock();
            let before = *fate;
            *fate = Fate::Succeeded;
            before
        };
        if before == Fate::Lost {
            self.outlet.link_lost();
        }
    }
}

/// The same server for exchanges.
struct EitherEra(Arc<Both>);

impl EitherEra {
    /// The half that answers exchanges, as far as is known.
    fn likely(&self) -> &dyn Responder {
        let both = &self.0;
        match both.only {
            Some(Era::Legacy) => both.exchanges.as_ref(),
            None if both.verdicts.of(Era::Modern) == Verdict::No => both.exchanges.as_ref(),
            Some(Era::Modern) | None => both.modern.as_ref(),
        }
    }
}

impl Responder for EitherEra {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let both = Arc::clone(&self.0);
        match both.only {
            Some(Era::Legacy) => both.exchanges.respond(call),
            Some(Era::Modern) => both.modern.respond(call),
            None => Box::pin(async move { both.respond(call).await }),
        }
    }

    fn keeps_request_states(&self) -> bool {
        self.likely().keeps_request_states()
    }

    fn keeps_tasks(&self, route: &Route) -> bool {
        self.likely().keeps_tasks(route)
    }

    fn server_info(&self) -> Option<RawJson> {
        self.likely().server_info()
    }

    fn close(&self) -> BoxFuture<()> {
        let (modern, exchanges) = (self.0.modern.close(), self.0.exchanges.close());
        Box::pin(async move {
            tokio::join!(modern, exchanges);
        })
    }

    fn begin(&self, fanout: Fanout) {
        self.0.modern.begin(fanout.clone());
        self.0.exchanges.begin(fanout);
    }
}

impl Both {
    async fn respond(&self, call: Call) -> Reply {
        let turn = self.verdicts.turn(Era::Modern).await;
        let known = self.verdicts.of(Era::Modern);
        if known == Verdict::No {
            return self.exchanges.respond(call).await;
        }
        let is_discovery = call.request.method == Method::Discover;
        // Only what asks for nothing is sent to find out: a server of the other era could take it for something.
        if known == Verdict::Unknown && !is_discovery {
            let (found, verdict) = self.modern.ask(discovery(&call)).await;
            match (verdict, found) {
                (Verdict::No, _) => {
                    drop(turn);
                    return self.exchanges.respond(call).await;
                }
                // It cannot be reached, or does not want us.
                (Verdict::Unknown, Err(error)) => return Err(error.not_taken()),
                _ => {}
            }
        }
        // A discovery is what finds out; for anything else the others need not wait.
        let turn = turn.filter(|_| is_discovery);
        let again = Call { request: call.request.clone(), context: call.context.clone() };
        let (reply, mut verdict) = self.modern.ask(call).await;
        drop(turn);
        if let Err(error) = &reply
            && !is_discovery
            && evidence::casts_doubt(error)
        {
            // Perhaps it is not what it was. Silence is no answer here: it may have ended meanwhile.
            let found = self.modern.ask(discovery(&again)).await.0;
            verdict = evidence::of_reply(&found, MODERN);
        }
        match verdict {
            // It did not take the request.
            Verdict::No => self.exchanges.respond(again).await,
            Verdict::Yes | Verdict::Unknown => reply,
        }
    }
}

/// A discovery on behalf of whoever sends a request: with what that says of its client, and nothing else.
pub(crate) fn discovery(call: &Call) -> Call {
    let meta = call.request.params.as_ref().and_then(meta::of_client);
    let params =
        meta.map_or(RawJson::EMPTY_OBJECT, |meta| RawJson::of(&serde_json::json!({ "_meta": meta })));
    let request = Request { id: call.request.id.clone(), method: Method::Discover, params: Some(params) };
    Call { request, context: call.context.clone() }
}

/// What is needed to open the same link by another half.
fn copy(open: &Open) -> Open {
    Open {
        params: open.params.clone(),
        revision: open.revision,
        opening: open.opening,
        route: open.route.clone(),
        outlet: open.outlet.clone(),
        fanout: open.fanout.clone(),
    }
}
