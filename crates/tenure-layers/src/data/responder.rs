//! The path of a request without a session through the layer.
//!
//! It is the same as for a session's request (`backend`), but nothing is remembered between requests: each request says
//! whether its client knows data sessions, and which one it means.

use std::sync::Arc;

use tenure_protocol::json::object::{self, Object};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{Caller, Fanout};
use tenure_session::id::Route;
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tenure_session::state::{Fault, Lost, State, StateCache, StateId};

use crate::data::advertise::Servers;
use crate::data::backend::{DataShared, Use};
use crate::data::cookie_out::{self, CookieEcho};
use crate::data::dialect::{Dialect, Verb, invalid};
use crate::data::handle_kinds::KindOfState;
use crate::data::handle_tools;
use crate::data::request::RequestCookie;
use crate::data::request_modern::{self, ModernDataRequest};
use crate::data::resolve::Resolution;

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

impl Responder for DataResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let layered = &self.0;
        match &call.request.method {
            // A listen uses no state, and may last for days.
            Method::Listen => return layered.inner.respond(call),
            Method::Other(name) => {
                if let Some(verb) = Dialect::own_method(name) {
                    return Box::pin(Arc::clone(layered).method(verb, call));
                }
            }
            _ => {}
        }
        let Some(data_request) = ModernDataRequest::read(call.request.params.as_ref()) else {
            return Box::pin(Arc::clone(layered).unreadable(call));
        };
        let cookie = data_request.cookie(layered.shared.policy.max_cookie_bytes);
        let tool = match call.request.method {
            Method::ToolsCall => data_request.name.as_deref(),
            _ => None,
        };
        let use_of = tool.map_or(Use::None, |tool| layered.shared.use_of(tool, data_request.arguments));
        // The policy says which tools need a state; of the methods below, only the handler knows.
        let matters = matches!(
            call.request.method,
            Method::Discover | Method::ToolsList | Method::ResourcesRead | Method::PromptsGet
        );
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
        Err(invalid("the params make no sense"))
    }

    /// Answers a method of the layer.
    async fn method(self: Arc<Self>, verb: Verb, call: Call) -> Reply {
        if self.is_left_alone(&call).await {
            return self.inner.respond(call).await;
        }
        request_modern::require(&call.context).map_err(|error| error.to_rpc())?;
        let params = request_modern::params(&call.request)?;
        let data_request = ModernDataRequest::read(call.request.params.as_ref());
        let data_request = data_request.ok_or_else(|| invalid("the params make no sense"))?;
        let cookie = data_request.cookie(self.shared.policy.max_cookie_bytes)?;
        let caller = call.context.caller();
        if let Some(cookie) = &cookie {
            // Restores the state that the cookie carries, if it must; `carry_out` reports a failure.
            drop(self.shared.by_own_cookie(cookie, caller, self.shared.states.now()).await);
        }
        self.shared.carry_out(Dialect::Own, verb, params, cookie.map(|cookie| cookie.id), caller).await
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
            return if is_left_alone { reply } else { reply.map(|found| self.shared.advertise(found)) };
        }
        if self.is_left_alone(&call).await {
            return self.inner.respond(call).await;
        }
        let cookie = cookie?;
        let method = call.request.method.clone();
        let found = match &cookie {
            Some(cookie) => {
                let (caller, now) = (call.context.caller(), self.shared.states.now());
                Some(self.shared.by_own_cookie(cookie, caller, now).await)
            }
            None => None,
        };
        let (state, lost) = match found {
            None => (None, None),
            Some(Ok(state)) => (Some(state), None),
            Some(Err(Fault::Lost(lost))) => (None, Some(lost)),
            Some(Err(fault)) => return Err(fault.to_error().to_rpc()),
        };
        let reply = self.answer(call, use_of, cookie.as_ref().zip(lost), state.clone()).await;
        // If the cookie's state is gone and the request did not need it, the answer takes the cookie back.
        match (reply, &cookie, state) {
            (Ok(result), Some(cookie), Some(state)) => {
                let now = self.shared.states.now();
                state.look_again(now).await;
                let result = not_shared(&method, result);
                Ok(self.shared.echoed(
                    result,
                    (Dialect::Own, &cookie.id),
                    &state,
                    now,
                    &CookieEcho::default(),
                ))
            }
            (Ok(result), Some(_), None) => {
                let result = not_shared(&method, result);
                Ok(cookie_out::without(Dialect::Own, &result))
            }
            (reply, ..) => reply,
        }
    }

    async fn answer(
        &self,
        mut call: Call,
        use_of: Use,
        lost: Option<(&RequestCookie, Lost)>,
        state: Option<State>,
    ) -> Reply {
        let without = |kind: Option<&KindOfState>| self.without(&call, kind);
        let working_on = match self.shared.resolve(&call, use_of, lost, state, without).await {
            Resolution::Answered(reply) => return reply,
            Resolution::WorksOn(working_on) => working_on,
        };
        let list = call.request.method == Method::ToolsList;
        if let Some(state) = &working_on {
            call.context.set_state(state.clone());
        }
        let reply = self.inner.respond(call).await;
        let reply = if list { self.shared.listed(reply) } else { reply };
        reply.map_err(|error| self.in_own_words(error, lost, working_on.as_ref()))
    }

    /// The answer to a call that names no state for a tool that needs one. A client that does not declare data sessions
    /// gets a text for its model, if a tool can make such a state.
    fn without(&self, call: &Call, kind: Option<&KindOfState>) -> Reply {
        match kind {
            Some(kind) if request_modern::require(&call.context).is_err() => {
                let (name, create, argument) = (kind.kind().as_str(), kind.create_tool(), kind.argument());
                Ok(handle_tools::complaint(&format!(
                    "This tool works on a {name}. Call {create} first, and pass the {argument} that it returns."
                )))
            }
            kind => {
                let hint = kind
                    .map(|kind| format!("Or call {} and pass its {}.", kind.create_tool(), kind.argument()));
                Err(Dialect::Own.required(&self.shared.policy, hint.as_deref()))
            }
        }
    }

    /// Translates a handler's error that a state is missing or has ended, which has no dialect, into our own dialect.
    fn in_own_words(
        &self,
        error: RpcError,
        lost: Option<(&RequestCookie, Lost)>,
        state: Option<&State>,
    ) -> RpcError {
        let policy = &self.shared.policy;
        if error.is(Reason::SessionRequired) {
            return match lost {
                Some((cookie, lost)) => Dialect::Own.lost(policy, &cookie.id, lost),
                None => Dialect::Own.required(policy, None),
            };
        }
        let Some(state) = state else { return error };
        let ends = [Lost::NotFound, Lost::Expired, Lost::Deleted, Lost::Revoked];
        match ends.into_iter().find(|lost| error.is(lost.reason())) {
            Some(lost) => Dialect::Own.lost(policy, &state.id().cookie(), lost),
            None => error,
        }
    }
}

impl DataShared {
    /// The state that a cookie names. If the store does not know it, the cookie itself may carry it.
    async fn by_own_cookie(
        &self,
        cookie: &RequestCookie,
        caller: &Caller,
        now: Time,
    ) -> Result<State, Fault> {
        let owner = &caller.principal;
        let id = StateId::from_cookie(&cookie.id).ok_or(Fault::Lost(Lost::NotFound))?;
        let key = id.key(owner);
        let fetched = self.states.fetch(key);
        let found = self.states.find_at(owner, (id, key), fetched, now, &StateCache::default()).await;
        match (found, &cookie.state, &self.policy.seal) {
            (Err(Fault::Lost(Lost::NotFound)), Some(carried), Some(seal)) => {
                Box::pin(self.states.restore(owner, id, carried, seal.as_ref(), caller.peer())).await
            }
            (found, _, _) => found,
        }
    }
}

/// Marks a result that will carry a cookie as private, and the content of a resource as stale at once: no cache may
/// give it to another client, nor to the same client with another state.
fn not_shared(method: &Method, result: RawJson) -> RawJson {
    if !tenure_protocol::method::is_cacheable(method) {
        return result;
    }
    let Some(mut members) = Object::read(object::text(&result)) else { return result };
    if members.get("cacheScope").is_some() {
        members.set("cacheScope", r#""private""#);
    }
    if *method == Method::ResourcesRead && members.get("ttlMs").is_some() {
        members.set("ttlMs", "0");
    }
    let written = members.write().into_owned();
    RawJson::trusted(written)
}
