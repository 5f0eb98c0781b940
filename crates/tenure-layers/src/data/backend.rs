//! A session in front of a backend with data sessions: the view of a session for the path of a request (`path`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::Deserialize;
use tenure_protocol::data_session::Dialect;
use tenure_protocol::{Era, Method, Notification, RawJson, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tenure_session::state::{State, States};

use crate::data::advertise;
use crate::data::cookie_cache::{KnownCookie, LastCookie};
use crate::data::dialect::unreadable;
use crate::data::handle_kinds::KindOfState;
use crate::data::path::{self, Adapter, DataShared, Use};
use crate::data::policy::Policy;
use crate::data::request::DataRequest;
use crate::data::responder::DataResponder;

/// Data sessions and handles in front of a backend.
pub struct DataLayer {
    inner: Arc<dyn Backend>,
    /// Serves requests without a session, in place of the backend's own responder.
    responder: Option<Arc<dyn Responder>>,
    shared: Arc<DataShared>,
}

impl DataLayer {
    /// Puts data sessions in front of a backend. A data session holds a state of the first kind. The tools that use a
    /// kind cannot be called without a state.
    pub fn new(inner: Arc<dyn Backend>, states: States, policy: Policy, kinds: Vec<KindOfState>) -> Self {
        Self { inner, responder: None, shared: Arc::new(DataShared::new(states, policy, kinds)) }
    }

    /// Sets the responder for requests without a session, for a backend that has none of its own.
    #[must_use]
    pub fn with_responder(mut self, responder: Arc<dyn Responder>) -> Self {
        self.responder = Some(responder);
        self
    }
}

impl Backend for DataLayer {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let shared = Arc::clone(&self.shared);
        let spoken = Spoken::from_initialize(&open.params);
        let opened = self.inner.open(open);
        Box::pin(async move {
            let Opened { link, result } = opened.await?;
            if advertise::keeps_its_own(Era::Legacy, &result) {
                return Ok(Opened { link, result });
            }
            // The layer guards a server whose answer cannot be read, too.
            let result = shared.advertise(Era::Legacy, result);
            let link =
                DataLink(Arc::new(LayeredLink { inner: link, shared, spoken, last: LastCookie::default() }));
            Ok(Opened { link: Box::new(link), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = self.responder.clone().or_else(|| Arc::clone(&self.inner).responder())?;
        Some(Arc::new(DataResponder::new(inner, Arc::clone(&self.shared))))
    }
}

/// The dialect that a client used last, if it has used any.
#[derive(Default)]
struct Spoken(AtomicU8);

impl Spoken {
    fn from_initialize(params: &RawJson) -> Self {
        #[derive(Deserialize, Default)]
        struct InitializeParams {
            #[serde(default)]
            capabilities: InitializeCapabilities,
        }
        #[derive(Deserialize, Default)]
        struct InitializeCapabilities {
            #[serde(default)]
            experimental: Experimental,
        }
        #[derive(Deserialize, Default)]
        struct Experimental {
            #[serde(default)]
            session: Option<serde::de::IgnoredAny>,
            #[serde(rename = "experimental/sessions", default)]
            sessions: Option<serde::de::IgnoredAny>,
        }
        let Experimental { session, sessions } =
            params.read::<InitializeParams>().unwrap_or_default().capabilities.experimental;
        let spoken = Self::default();
        match (session, sessions) {
            (_, Some(_)) => spoken.heard(Dialect::Draft),
            (Some(_), None) => spoken.heard(Dialect::Strawman),
            (None, None) => {}
        }
        spoken
    }

    fn heard(&self, dialect: Dialect) {
        self.0.store(dialect as u8 + 1, Ordering::Relaxed);
    }

    fn get(&self) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| *dialect as u8 + 1 == self.0.load(Ordering::Relaxed))
    }
}

struct DataLink(Arc<LayeredLink>);

/// A session's link with the layer around it.
struct LayeredLink {
    inner: Box<dyn Link>,
    shared: Arc<DataShared>,
    spoken: Spoken,
    last: LastCookie,
}

impl Adapter for LayeredLink {
    fn shared(&self) -> &DataShared {
        &self.shared
    }

    /// Passes a call on to the server. A ping is answered here: it only comes for its cookie.
    fn pass(&self, call: Call) -> BoxFuture<Reply> {
        match call.request.method {
            Method::Ping => Box::pin(std::future::ready(Ok(RawJson::EMPTY_OBJECT))),
            _ => self.inner.call(call),
        }
    }

    fn dialect(&self) -> Dialect {
        self.spoken.get().unwrap_or(Dialect::Strawman)
    }

    fn knows_data_sessions(&self, _: &CallContext) -> bool {
        self.spoken.get().is_some()
    }
}

impl Link for DataLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let layered = &self.0;
        if let Some((dialect, verb)) = path::own_method(Era::Legacy, &call.request.method) {
            layered.spoken.heard(dialect);
            let shared = Arc::clone(&layered.shared);
            return Box::pin(async move {
                shared.answer(dialect, verb, &call.request, call.context.caller()).await
            });
        }
        let principal = &call.context.caller().principal;
        let max_bytes = layered.shared.policy.max_cookie_bytes;
        let read = DataRequest::read(call.request.params.as_ref()).and_then(|data_request| {
            layered.last.read(&data_request, principal, max_bytes).map(|known| (known, data_request))
        });
        let Some((known, data_request)) = read else {
            return match call.request.method {
                // The tool is unknown, and with it whether it needs a state.
                Method::ToolsCall => Box::pin(std::future::ready(Err(unreadable()))),
                _ => layered.pass(call),
            };
        };
        let known = match known {
            Ok(known) => known,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let use_of = layered.shared.use_of(&call.request.method, &data_request);
        if known.is_none() && matches!(use_of, Use::None) && !path::may_need_a_state(&call.request.method) {
            return layered.pass(call);
        }
        let Some(known) = known else { return Box::pin(Arc::clone(layered).go(call, None, use_of)) };
        layered.spoken.heard(known.cookie.dialect);
        let (now, fetched) = (layered.shared.states.now(), layered.shared.fetch(&known));
        if call.request.method != Method::ToolsList
            && let Some(state) = layered.shared.at_hand(&known, &fetched, now)
        {
            if layered.shared.stands_on(&use_of, &state) {
                // Fast path of nearly every call with a cookie: no more work on states until the answer.
                let mut call = call;
                call.context.set_state(state.clone());
                return Box::pin(Arc::clone(layered).finish(layered.pass(call), known, state, now));
            }
            known.last.give_back(state);
        }
        Box::pin(Arc::clone(layered).go(call, Some((known, fetched, now)), use_of))
    }

    fn notify(&self, notification: Notification) {
        self.0.inner.notify(notification);
    }

    fn close(&self) -> BoxFuture<()> {
        self.0.inner.close()
    }

    fn echoes_cookies(&self) -> bool {
        true
    }
}

impl LayeredLink {
    async fn go(self: Arc<Self>, call: Call, named: Option<path::NamedCookie>, use_of: Use) -> Reply {
        path::go(&*self, call, named, use_of).await
    }

    /// Puts the cookie into the answer to a call that used its state. This runs with every call, so the clock is read
    /// again only if the reply had to be waited for.
    async fn finish(
        self: Arc<Self>,
        reply: BoxFuture<Reply>,
        known: Arc<KnownCookie>,
        state: State,
        now: Time,
    ) -> Reply {
        let mut now = Some(now);
        let reply = match path::answer(reply, &mut now).await {
            Ok(result) => Ok(self.shared.with_cookie(result, &known, &state, now).await),
            Err(error) => Err(path::in_dialect(&*self, error, None, None)),
        };
        known.last.give_back(state);
        reply
    }
}

impl std::fmt::Debug for DataLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataLayer").field("kinds", &self.shared.kinds).finish_non_exhaustive()
    }
}
