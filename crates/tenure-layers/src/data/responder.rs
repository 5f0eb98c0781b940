//! The way of a request without a session through the layer.
//!
//! It is that of a session's request, but nothing is remembered from one to the next: a request alone says whether its
//! client knows data sessions, and which one it means.

use std::sync::Arc;

use tenure_protocol::json::object::{self, Object};
use tenure_protocol::{Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Call, Responder};
use tenure_session::call::{Caller, Fanout};
use tenure_session::id::Route;
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tenure_session::state::{Fault, Last, Lost, State, StateId};

use crate::data::advertise::Servers;
use crate::data::backend::{Shared, Use};
use crate::data::cookie_out::{self, Echo};
use crate::data::dialect::{Dialect, Verb, invalid};
use crate::data::handle_kinds::KindOfState;
use crate::data::handle_tools;
use crate::data::request::Cookie;
use crate::data::request_modern::{self, Said};
use crate::data::resolve::Footing;

/// Data sessions and handles in front of a responder.
pub(super) struct DataResponder(Arc<Way>);

struct Way {
    inner: Arc<dyn Responder>,
    shared: Arc<Shared>,
    servers: Servers,
}

impl DataResponder {
    pub(super) fn new(inner: Arc<dyn Responder>, shared: Arc<Shared>) -> Self {
        Self(Arc::new(Way { inner, shared, servers: Servers::default() }))
    }
}

impl Responder for DataResponder {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        let way = &self.0;
        match &call.request.method {
            // It works on nothing, and may last for days.
            Method::Listen => return way.inner.respond(call),
            Method::Other(name) => {
                if let Some(verb) = Dialect::own_method(name) {
                    return Box::pin(Arc::clone(way).method(verb, call));
                }
            }
            _ => {}
        }
        let Some(said) = Said::read(call.request.params.as_ref()) else {
            return Box::pin(Arc::clone(way).unreadable(call));
        };
        let cookie = said.cookie(way.shared.policy.max_cookie_bytes);
        let tool = match call.request.method {
            Method::ToolsCall => said.name.as_deref(),
            _ => None,
        };
        let use_of = tool.map_or(Use::None, |tool| way.shared.use_of(tool, said.arguments));
        // A tool that needs a state says so to us; of these only the handler knows.
        let matters = matches!(
            call.request.method,
            Method::Discover | Method::ToolsList | Method::ResourcesRead | Method::PromptsGet
        );
        if matches!(cookie, Ok(None)) && matches!(use_of, Use::None) && !matters {
            return way.inner.respond(call);
        }
        Box::pin(Arc::clone(way).go(call, cookie, use_of))
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

impl Way {
    async fn is_left_alone(&self, call: &Call) -> bool {
        self.servers.keep_their_own(&*self.inner, call).await
    }

    /// A request of which nobody can tell what a server will make.
    async fn unreadable(self: Arc<Self>, call: Call) -> Reply {
        if call.request.method != Method::ToolsCall || self.is_left_alone(&call).await {
            return self.inner.respond(call).await;
        }
        Err(invalid("the params make no sense"))
    }

    /// A method of ours.
    async fn method(self: Arc<Self>, verb: Verb, call: Call) -> Reply {
        if self.is_left_alone(&call).await {
            return self.inner.respond(call).await;
        }
        request_modern::require(&call.context).map_err(|error| error.to_rpc())?;
        let params = request_modern::params(&call.request)?;
        let said = Said::read(call.request.params.as_ref());
        let said = said.ok_or_else(|| invalid("the params make no sense"))?;
        let cookie = said.cookie(self.shared.policy.max_cookie_bytes)?;
        let caller = call.context.caller();
        if let Some(cookie) = &cookie {
            // What it carries may have to be put back first; if it cannot be, that is said below.
            drop(self.shared.by_own_cookie(cookie, caller, self.shared.states.now()).await);
        }
        self.shared.carry_out(Dialect::Own, verb, params, cookie.map(|cookie| cookie.id), caller).await
    }

    async fn go(self: Arc<Self>, call: Call, cookie: Result<Option<Cookie>, RpcError>, use_of: Use) -> Reply {
        let route = call.context.route().clone();
        if call.request.method == Method::Discover {
            // Its answer says whose affair the cookie is.
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
        // A cookie that leads nowhere is taken back with the answer to a request that did not need it.
        match (reply, &cookie, state) {
            (Ok(result), Some(cookie), Some(state)) => {
                let now = self.shared.states.now();
                state.look_again(now).await;
                let result = kept_by_nobody_else(&method, result);
                Ok(self.shared.echoed(result, (Dialect::Own, &cookie.id), &state, now, &Echo::default()))
            }
            (Ok(result), Some(_), None) => {
                let result = kept_by_nobody_else(&method, result);
                Ok(cookie_out::without(Dialect::Own, &result))
            }
            (reply, ..) => reply,
        }
    }

    async fn answer(
        &self,
        mut call: Call,
        use_of: Use,
        lost: Option<(&Cookie, Lost)>,
        state: Option<State>,
    ) -> Reply {
        let without = |kind: Option<&KindOfState>| self.without(&call, kind);
        let working_on = match self.shared.footing(&call, use_of, lost, state, without).await {
            Footing::Answered(reply) => return reply,
            Footing::Firm(working_on) => working_on,
        };
        let list = call.request.method == Method::ToolsList;
        if let Some(state) = &working_on {
            call.context.set_state(state.clone());
        }
        let reply = self.inner.respond(call).await;
        let reply = if list { self.shared.listed(reply) } else { reply };
        reply.map_err(|error| self.in_own_words(error, lost, working_on.as_ref()))
    }

    /// What a tool that needs a state is answered with when the call names none. A client that shows no sign of
    /// knowing data sessions gets words for its model, if there is something a model can do.
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

    /// A handler says in no dialect that it wants a state and has none, or that the state has ended meanwhile.
    fn in_own_words(
        &self,
        error: RpcError,
        lost: Option<(&Cookie, Lost)>,
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

impl Shared {
    /// The state that a cookie names. One that the store knows nothing of may be carried by the cookie itself.
    async fn by_own_cookie(&self, cookie: &Cookie, caller: &Caller, now: Time) -> Result<State, Fault> {
        let owner = &caller.principal;
        let id = StateId::from_cookie(&cookie.id).ok_or(Fault::Lost(Lost::NotFound))?;
        let key = id.key(owner);
        let fetched = self.states.fetch(key);
        let found = self.states.find_at(owner, (id, key), fetched, now, &Last::default()).await;
        match (found, &cookie.state, &self.policy.seal) {
            (Err(Fault::Lost(Lost::NotFound)), Some(carried), Some(seal)) => {
                Box::pin(self.states.restore(owner, id, carried, seal.as_ref(), caller.peer())).await
            }
            (found, _, _) => found,
        }
    }
}

/// A result that will carry a cookie: no cache may give it to another, nor what was read from one state to whoever
/// comes with another.
fn kept_by_nobody_else(method: &Method, result: RawJson) -> RawJson {
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
