//! A responder with data sessions: the view of a request without a session for the path of a request (`path`).
//!
//! Nothing is remembered between requests: each request says whether its client knows data sessions, and which one it
//! means.

use std::sync::Arc;

use tenure_protocol::data_session::{Dialect, Verb};
use tenure_protocol::modern::{Capabilities, Capability, capability};
use tenure_protocol::{Era, Error, Method, RawJson, Reply, RpcError};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{CallContext, Fanout};
use tenure_session::id::{Principal, Route};
use tenure_session::port::BoxFuture;

use crate::data::advertise::{EXTENSION, Servers};
use crate::data::cookie_cache::KnownCookie;
use crate::data::dialect::unreadable;
use crate::data::path::{self, Adapter, DataShared, Use};
use crate::data::request::{DataRequest, RequestCookie};

/// Data sessions and handles in front of a responder.
pub(super) struct DataResponder(Arc<LayeredResponder>);

struct LayeredResponder {
    inner: Arc<dyn Responder>,
    shared: Arc<DataShared>,
    servers: Servers,
}

impl DataResponder {
    pub(super) fn new(inner: Arc<dyn Responder>, shared: Arc<DataShared>) -> Self {
        Self(Arc::new(LayeredResponder { inner, shared, servers: Servers::default() }))
    }
}

impl Adapter for LayeredResponder {
    fn shared(&self) -> &DataShared {
        &self.shared
    }

    fn pass(&self, call: Call) -> BoxFuture<Reply> {
        self.inner.respond(call)
    }

    fn dialect(&self) -> Dialect {
        Dialect::Extension
    }

    fn knows_data_sessions(&self, context: &CallContext) -> bool {
        require(context).is_ok()
    }
}

impl Responder for DataResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let layered = &self.0;
        // A listen uses no state, and may last for days.
        if call.request.method == Method::Listen {
            return layered.inner.respond(call);
        }
        if let Some((_, verb)) = path::own_method(Era::Modern, &call.request.method) {
            return Box::pin(Arc::clone(layered).method(verb, call));
        }
        let data_request = DataRequest::read(call.request.params.as_ref());
        let read = data_request.and_then(|read| Some((read.cookies(Era::Modern)?, read)));
        let Some((cookies, data_request)) = read else {
            return Box::pin(Arc::clone(layered).unreadable(call));
        };
        let cookie = cookies.read(layered.shared.policy.max_cookie_bytes);
        let use_of = layered.shared.use_of(&call.request.method, &data_request);
        let method = &call.request.method;
        let matters = path::may_need_a_state(method) || *method == Method::Discover;
        if matches!(cookie, Ok(None)) && matches!(use_of, Use::None) && !matters {
            return layered.inner.respond(call);
        }
        Box::pin(Arc::clone(layered).go(call, cookie, use_of))
    }

    fn keeps_request_states(&self) -> bool {
        self.0.inner.keeps_request_states()
    }

    fn keeps_tasks(&self, route: &Route) -> bool {
        self.0.inner.keeps_tasks(route)
    }

    fn server_info(&self) -> Option<RawJson> {
        self.0.inner.server_info()
    }

    fn forget(&self, principal: &Principal) {
        self.0.inner.forget(principal);
    }

    fn close(&self) -> BoxFuture<()> {
        self.0.inner.close()
    }

    fn begin(&self, fanout: Fanout) {
        self.0.inner.begin(fanout);
    }
}

impl LayeredResponder {
    async fn is_left_alone(&self, call: &Call) -> bool {
        self.servers.keep_their_own(&*self.inner, call).await
    }

    /// Handles a request whose params cannot be read: a tool call is refused, unless the server keeps data sessions
    /// itself.
    async fn unreadable(self: Arc<Self>, call: Call) -> Reply {
        if call.request.method != Method::ToolsCall || self.is_left_alone(&call).await {
            return self.inner.respond(call).await;
        }
        Err(unreadable())
    }

    /// Answers a method of the layer.
    async fn method(self: Arc<Self>, verb: Verb, call: Call) -> Reply {
        if self.is_left_alone(&call).await {
            return self.inner.respond(call).await;
        }
        require(&call.context).map_err(|error| error.to_rpc())?;
        self.shared.answer(Dialect::Extension, verb, &call.request, call.context.caller()).await
    }

    async fn go(
        self: Arc<Self>,
        call: Call,
        cookie: Result<Option<RequestCookie>, RpcError>,
        use_of: Use,
    ) -> Reply {
        let route = call.context.route().clone();
        if call.request.method == Method::Discover {
            // The answer says whether the server or the layer keeps data sessions.
            let reply = self.inner.respond(call).await;
            let is_left_alone = self.servers.learn(&route, &reply).unwrap_or(false);
            return if is_left_alone {
                reply
            } else {
                reply.map(|found| self.shared.advertise(Era::Modern, found))
            };
        }
        if self.is_left_alone(&call).await {
            return self.inner.respond(call).await;
        }
        let named = cookie?.map(|cookie| {
            let known = Arc::new(KnownCookie::new(cookie, &call.context.caller().principal));
            let (now, fetched) = (self.shared.states.now(), self.shared.fetch(&known));
            (known, fetched, now)
        });
        path::go(&*self, call, named, use_of).await
    }
}

/// Checks that the client of a request declares the extension for data sessions.
fn require(context: &CallContext) -> Result<(), Error> {
    let needed = [Capability::Extension(EXTENSION.into())];
    match Capabilities::parse(context.capabilities()) {
        Some(declared) => declared.require(&needed),
        None => Err(capability::missing(&needed)),
    }
}
