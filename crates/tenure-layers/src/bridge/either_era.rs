//! A server that may be of either era, or of both, for clients of either.
//!
//! A client gets the half of its own era if the server has one, and otherwise the bridge over the other half.
//! `translate::evidence` reads from the server's answers which halves there are. The verdict is cached, and every
//! answer that contradicts it counts at once. So a server of both eras is never bridged, and when a server of the
//! other era replaces it, the next request notices.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_protocol::translate::evidence::{self, ServerTransport, Verdict};
use tenure_session::backend::probe::Probe;

use crate::bridge::session_client::SessionsOnExchanges;

use crate::bridge::era_cache::EraCache;
use crate::bridge::era_observer::{ObservedBackend, ObservedResponder};
use tenure_protocol::Era;
use tenure_protocol::Method;
use tenure_protocol::Reply;
use tenure_protocol::RpcError;
use tenure_protocol::modern::meta;
use tenure_protocol::revision::MODERN;
use tenure_protocol::{RawJson, Request};
use tenure_session::backend::Responder;
use tenure_session::backend::{Backend, Call, Open, Opened};
use tenure_session::call::{Fanout, Outlet};
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Clock;

/// How long a verdict on a server's era is cached.
pub const ERA_TTL: Duration = Duration::from_secs(60 * 60);

/// A server's two halves, and bridges over each.
pub struct EitherEra(Arc<Both>);

struct Both {
    legacy: Arc<ObservedBackend>,
    modern: Arc<ObservedResponder>,
    /// Sessions over the modern half.
    sessions: SessionsOnExchanges,
    /// Exchanges over the legacy half.
    exchanges: Arc<dyn Responder>,
    era_cache: Arc<EraCache>,
    over: ServerTransport,
    /// The only era that we speak with the server, if one is set.
    only: Option<Era>,
}

/// A server's halves.
pub struct Halves {
    /// The half with sessions.
    pub legacy: Arc<dyn Backend>,
    /// The half without sessions.
    pub modern: Arc<dyn Probe>,
    /// How both halves are reached.
    pub over: ServerTransport,
    /// The one era to speak with the server, if it is known.
    pub only: Option<Era>,
    /// How long a verdict on the server's era is cached.
    pub ttl: Duration,
}

impl EitherEra {
    /// A server with these halves. `bridge` makes a responder over the legacy half.
    pub fn new(
        halves: Halves,
        clock: Arc<dyn Clock>,
        bridge: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Responder>,
    ) -> Self {
        let Halves { legacy, modern, over, only, ttl } = halves;
        let era_cache = Arc::new(EraCache::new(Arc::clone(&clock), ttl));
        let legacy = Arc::new(ObservedBackend::new(legacy, over, Arc::clone(&era_cache)));
        let modern = Arc::new(ObservedResponder::new(modern, Arc::clone(&era_cache)));
        Self(Arc::new(Both {
            sessions: SessionsOnExchanges::new(Arc::clone(&modern) as _, clock),
            exchanges: bridge(Arc::clone(&legacy) as _),
            legacy,
            modern,
            era_cache,
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

impl std::fmt::Debug for EitherEra {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |era| self.0.era_cache.of(era);
        f.debug_struct("EitherEra")
            .field("legacy", &of(Era::Legacy))
            .field("modern", &of(Era::Modern))
            .finish_non_exhaustive()
    }
}

impl Backend for EitherEra {
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
        Some(Arc::new(EitherEraResponder(Arc::clone(&self.0))))
    }
}

impl Both {
    async fn open(&self, open: Open) -> Result<Opened, RpcError> {
        let permit = self.era_cache.probe_permit(Era::Legacy).await;
        if self.era_cache.of(Era::Legacy) != Verdict::No {
            return self.open_legacy(open, Afterwards::Bridge).await;
        }
        drop(permit);
        let again = copy(&open);
        match self.sessions.open(open).await {
            // The server was modern only and no longer is, so both verdicts are void: try the legacy half.
            Err(_) if self.era_cache.of(Era::Legacy) == Verdict::Unknown => {
                self.open_legacy(again, Afterwards::Nothing).await
            }
            opened => opened,
        }
    }

    async fn open_legacy(&self, open: Open, afterwards: Afterwards) -> Result<Opened, RpcError> {
        let again = copy(&open);
        let attempt = OpenAttempt::new(open.outlet.clone());
        let outlet = OpenAttempt::outlet(&attempt);
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
            // The answer does not tell the era. Try the other half, and keep this error if that fails too.
            Verdict::Unknown if evidence::may_not_know_initialize(way, said) => {
                self.sessions.open(again).await.map_err(|_| error)
            }
            Verdict::Unknown | Verdict::Yes => Err(error),
        }
    }
}

/// The next step when the legacy half does not open.
#[derive(Clone, Copy)]
enum Afterwards {
    Bridge,
    Nothing,
}

/// One attempt to open the legacy half. If it fails, the session is not told that the link was lost.
struct OpenAttempt {
    outlet: Outlet,
    state: Mutex<AttemptState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptState {
    Open,
    Lost,
    Succeeded,
}

impl OpenAttempt {
    fn new(outlet: Outlet) -> Arc<Self> {
        Arc::new(Self { outlet, state: Mutex::new(AttemptState::Open) })
    }

    fn outlet(attempt: &Arc<Self>) -> Outlet {
        let lost = Arc::clone(attempt);
        attempt.outlet.of_part(move || lost.is_lost())
    }

    fn is_lost(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), AttemptState::Lost);
        if before == AttemptState::Succeeded {
            self.outlet.link_lost();
        }
    }

    fn succeeds(&self) {
        let before = {
            let mut state = self.state.lock();
            let before = *state;
            *state = AttemptState::Succeeded;
            before
        };
        if before == AttemptState::Lost {
            self.outlet.link_lost();
        }
    }
}

/// The responder of the same server, for exchanges.
struct EitherEraResponder(Arc<Both>);

impl EitherEraResponder {
    /// The half that answers exchanges, as far as is known.
    fn likely(&self) -> &dyn Responder {
        let both = &self.0;
        match both.only {
            Some(Era::Legacy) => both.exchanges.as_ref(),
            None if both.era_cache.of(Era::Modern) == Verdict::No => both.exchanges.as_ref(),
            Some(Era::Modern) | None => both.modern.as_ref(),
        }
    }
}

impl Responder for EitherEraResponder {
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

    fn forget(&self, principal: &Principal) {
        self.0.modern.forget(principal);
        self.0.exchanges.forget(principal);
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
        let permit = self.era_cache.probe_permit(Era::Modern).await;
        let known = self.era_cache.of(Era::Modern);
        if known == Verdict::No {
            return self.exchanges.respond(call).await;
        }
        let is_discovery = call.request.method == Method::Discover;
        // Only a discovery is sent as a probe: a legacy server could act on any other request.
        if known == Verdict::Unknown && !is_discovery {
            let (found, verdict) = self.modern.ask(discovery(&call)).await;
            match (verdict, found) {
                (Verdict::No, _) => {
                    drop(permit);
                    return self.exchanges.respond(call).await;
                }
                // The server cannot be reached, or refuses us.
                (Verdict::Unknown, Err(error)) => return Err(error.not_taken()),
                _ => {}
            }
        }
        // Other callers wait for a discovery, which probes; they need not wait for any other request.
        let permit = permit.filter(|_| is_discovery);
        let again = Call { request: call.request.clone(), context: call.context.clone() };
        let (reply, mut verdict) = self.modern.ask(call).await;
        drop(permit);
        if let Err(error) = &reply
            && !is_discovery
            && evidence::casts_doubt(error)
        {
            // The server may have been replaced. Silence is not evidence here: the server may just have ended.
            let found = self.modern.ask(discovery(&again)).await.0;
            verdict = evidence::of_reply(&found, MODERN);
        }
        match verdict {
            // The modern half did not take the request.
            Verdict::No => self.exchanges.respond(again).await,
            Verdict::Yes | Verdict::Unknown => reply,
        }
    }
}

/// A discovery on behalf of a request's client: it carries the client's `_meta` and nothing else.
pub(crate) fn discovery(call: &Call) -> Call {
    let meta = call.request.params.as_ref().and_then(meta::of_client);
    let params =
        meta.map_or(RawJson::EMPTY_OBJECT, |meta| RawJson::of(&serde_json::json!({ "_meta": meta })));
    let request = Request { id: call.request.id.clone(), method: Method::Discover, params: Some(params) };
    Call { request, context: call.context.clone() }
}

/// A copy, to open the same link through the other half.
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
