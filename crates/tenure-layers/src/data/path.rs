//! The path of a request through the layer, in both eras: find the state that it names, check the policy, call the
//! server, put the cookie into the answer.
//!
//! An [`Adapter`] says what differs between a session's request (`backend`) and a request without a session
//! (`responder`): the dialects, and what is remembered of the client between two requests.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tenure_protocol::data_session::{Dialect, Verb};
use tenure_protocol::json::object::{self, Object};
use tenure_protocol::json::scan;
use tenure_protocol::{Era, Method, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::Call;
use tenure_session::budget::Peer;
use tenure_session::call::CallContext;
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tenure_session::state::{Fault, Fetched, Lost, State, StateKind, States};

use crate::data::cookie_cache::KnownCookie;
use crate::data::cookie_out;
use crate::data::dialect::{self, invalid};
use crate::data::handle_kinds::KindOfState;
use crate::data::handle_tools::{self, HandleAction, Role};
use crate::data::policy::{Policy, Required};
use crate::data::request::{DataRequest, RequestCookie};
use crate::data::resolve::Resolution;

/// What the path needs to know of a client, and of the server behind the layer.
pub(super) trait Adapter: Send + Sync {
    fn shared(&self) -> &DataShared;
    /// Passes a call on to the server.
    fn pass(&self, call: Call) -> BoxFuture<Reply>;
    /// The dialect for the client of a request without a cookie.
    fn dialect(&self) -> Dialect;
    /// Whether the client of a call has shown that it knows data sessions.
    fn knows_data_sessions(&self, context: &CallContext) -> bool;
}

/// The cookie of a call, its state as far as it was read, and when that began.
pub(super) type NamedCookie = (Arc<KnownCookie>, Fetched, Time);

pub(super) struct DataShared {
    pub(super) states: States,
    pub(super) policy: Policy,
    /// The kinds of state that handles can name; a data session holds the first.
    pub(super) kinds: Vec<KindOfState>,
    pub(super) roles: HashMap<Box<str>, Role, RandomState>,
    plain: KindOfState,
}

/// How a call uses states.
pub(super) enum Use {
    /// It uses none, as far as we know.
    None,
    /// It needs a state of any kind.
    Any,
    /// It works on a state of this kind, which it may name by a handle.
    Of { kind: usize, handle: Option<String> },
    /// It is a tool of the layer, which answers it.
    Ours { kind: usize, action: HandleAction },
    /// Its handle is malformed.
    Wrong(RpcError),
}

/// The operation that a method of the layer asks for, and its dialect.
pub(super) fn own_method(era: Era, method: &Method) -> Option<(Dialect, Verb)> {
    let Method::Other(name) = method else { return None };
    Dialect::of_method(name).filter(|(dialect, _)| dialect.era() == era)
}

/// Whether a call may need a state although it names none. The policy says which tools do; of some methods only the
/// handler knows, and the list of tools is changed in any case.
pub(super) fn may_need_a_state(method: &Method) -> bool {
    matches!(method, Method::ToolsList | Method::ResourcesRead | Method::PromptsGet)
}

/// Makes a call, with the state of its cookie if it has one.
pub(super) async fn go(
    adapter: &impl Adapter,
    mut call: Call,
    named: Option<NamedCookie>,
    use_of: Use,
) -> Reply {
    let shared = adapter.shared();
    let (known, found, mut now) = match named {
        Some((known, fetched, now)) => {
            let peer = call.context.caller().peer();
            let found = shared.by_cookie(&known, fetched, now, peer).await;
            (Some(known), Some(found), Some(now))
        }
        None => (None, None, None),
    };
    let (state, lost) = match found {
        None => (None, None),
        Some(Ok(state)) => (Some(state), None),
        Some(Err(Fault::Lost(lost))) => (None, Some(lost)),
        Some(Err(fault)) => return Err(fault.to_error().to_rpc()),
    };
    let lost = known.as_ref().map(|known| &known.cookie).zip(lost);
    let without = |kind: Option<&KindOfState>| without(adapter, &call.context, kind);
    let method = call.request.method.clone();
    let reply = match shared.resolve(&call, use_of, lost, state.clone(), without).await {
        Resolution::Answered(reply) => {
            now = None;
            reply
        }
        Resolution::WorksOn(working_on) => {
            if let Some(state) = &working_on {
                call.context.set_state(state.clone());
            }
            let reply = answer(adapter.pass(call), &mut now).await;
            let reply = if method == Method::ToolsList { shared.listed(reply) } else { reply };
            reply.map_err(|error| in_dialect(adapter, error, lost, working_on.as_ref()))
        }
    };
    let (result, known) = match (reply, known) {
        (Ok(result), Some(known)) => (not_shared(&known.cookie, &method, result), known),
        (reply, _) => return reply,
    };
    Ok(match state {
        Some(state) => {
            let result = shared.with_cookie(result, &known, &state, now).await;
            known.last.give_back(state);
            result
        }
        // The cookie's state is gone and the request did not need it: the answer takes the cookie back.
        None => cookie_out::without(known.cookie.dialect, &result),
    })
}

/// Awaits a reply. Forgets `now` if the reply was not ready at once, so that the clock is read again.
pub(super) async fn answer(mut reply: BoxFuture<Reply>, now: &mut Option<Time>) -> Reply {
    std::future::poll_fn(|cx| {
        let reply = reply.as_mut().poll(cx);
        *now = now.filter(|_| reply.is_ready());
        reply
    })
    .await
}

/// Translates a handler's error that a state is missing or has ended, which has no dialect, into the client's dialect.
pub(super) fn in_dialect(
    adapter: &impl Adapter,
    error: RpcError,
    lost: Option<(&RequestCookie, Lost)>,
    working_on: Option<&State>,
) -> RpcError {
    let policy = &adapter.shared().policy;
    if error.is(Reason::SessionRequired) {
        return match lost {
            Some((cookie, lost)) => dialect::lost(cookie.dialect, policy, &cookie.id, lost),
            None => dialect::required(adapter.dialect(), policy, None),
        };
    }
    // The extension has reasons of its own for a state that has ended.
    let Some(state) = working_on.filter(|_| adapter.dialect() == Dialect::Extension) else { return error };
    let ends = [Lost::NotFound, Lost::Expired, Lost::Deleted, Lost::Revoked];
    match ends.into_iter().find(|lost| error.is(lost.reason())) {
        Some(lost) => dialect::lost(Dialect::Extension, policy, &state.id().cookie(), lost),
        None => error,
    }
}

/// The answer to a call that names no state for a tool that needs one. A client that has shown no sign of knowing data
/// sessions gets a text for its model, if a tool can make such a state.
fn without(adapter: &impl Adapter, context: &CallContext, kind: Option<&KindOfState>) -> Reply {
    let dialect = adapter.dialect();
    match kind {
        Some(kind) if !adapter.knows_data_sessions(context) => {
            Ok(handle_tools::complaint(&dialect::advice(dialect, kind)))
        }
        kind => {
            let hint = kind.map(dialect::hint);
            Err(dialect::required(dialect, &adapter.shared().policy, hint.as_deref()))
        }
    }
}

/// Marks a modern result that will carry a cookie as private, and the content of a resource as stale at once: no cache
/// may give it to another client, nor to the same client with another state.
fn not_shared(cookie: &RequestCookie, method: &Method, result: RawJson) -> RawJson {
    if cookie.dialect != Dialect::Extension || !tenure_protocol::method::is_cacheable(method) {
        return result;
    }
    let Some(mut members) = Object::read(object::text(&result)) else { return result };
    if members.get("cacheScope").is_some() {
        members.set("cacheScope", r#""private""#);
    }
    if *method == Method::ResourcesRead && members.get("ttlMs").is_some() {
        members.set("ttlMs", "0");
    }
    object::kept(&result, members.write())
}

impl DataShared {
    pub(super) fn new(states: States, policy: Policy, kinds: Vec<KindOfState>) -> Self {
        let plain = KindOfState::new(StateKind::new("session").expect("the name is valid"), "a session");
        let roles = handle_tools::roles(&kinds);
        Self { states, policy, kinds, roles, plain }
    }

    /// The kind of state that a data session holds.
    pub(super) fn main_kind(&self) -> &KindOfState {
        self.kinds.first().unwrap_or(&self.plain)
    }

    /// The kind that a tool works on.
    pub(super) fn kind_of(&self, tool: &str) -> Option<&KindOfState> {
        match self.roles.get(tool)? {
            Role::Uses(number) => Some(&self.kinds[*number]),
            Role::Does(..) => None,
        }
    }

    /// Whether a tool cannot be called without a state.
    pub(super) fn needs(&self, tool: &str) -> bool {
        match self.roles.get(tool) {
            Some(Role::Uses(_)) => true,
            Some(Role::Does(..)) => false,
            None => self.policy.required.of(tool),
        }
    }

    /// The capability's word for how many tools need a data session.
    pub(super) fn demand(&self) -> &'static str {
        let used = self.kinds.iter().any(|kind| !kind.tools.is_empty());
        match &self.policy.required {
            Required::None if used => "some",
            required => required.word(),
        }
    }

    /// How a call uses states.
    pub(super) fn use_of(&self, method: &Method, data_request: &DataRequest<'_>) -> Use {
        let Some(tool) = data_request.name.as_deref().filter(|_| *method == Method::ToolsCall) else {
            return Use::None;
        };
        match self.roles.get(tool) {
            None if self.policy.required.of(tool) => Use::Any,
            None => Use::None,
            Some(Role::Does(kind, action)) => Use::Ours { kind: *kind, action: *action },
            Some(Role::Uses(kind)) => {
                let argument = self.kinds[*kind].argument();
                let arguments = data_request.arguments.and_then(|text| std::str::from_utf8(text).ok());
                let handle = arguments.and_then(|arguments| scan::member(arguments, argument));
                match handle.filter(|handle| *handle != "null") {
                    None => Use::Of { kind: *kind, handle: None },
                    Some(handle) => match scan::unquoted(handle) {
                        Some(handle) => Use::Of { kind: *kind, handle: Some(handle.into_owned()) },
                        None => Use::Wrong(invalid(format!("{argument} is not a string"))),
                    },
                }
            }
        }
    }

    /// Begins to read the record of the state that a cookie names.
    pub(super) fn fetch(&self, known: &KnownCookie) -> Fetched {
        known.place.map_or(Fetched::Now(Ok(None)), |(_, key)| self.states.fetch(key))
    }

    /// The state that a cookie names, if it is available without waiting.
    pub(super) fn at_hand(&self, known: &KnownCookie, fetched: &Fetched, now: Time) -> Option<State> {
        match fetched {
            Fetched::Now(Ok(Some(kept))) => {
                self.states.at_hand(&known.owner, known.place?, kept, now, &known.last)
            }
            Fetched::Now(_) | Fetched::Later(_) => None,
        }
    }

    /// The state that a cookie names. If the store does not know it, the cookie itself may carry it; then it is
    /// restored and counts against this peer's share.
    pub(super) async fn by_cookie(
        &self,
        known: &KnownCookie,
        fetched: Fetched,
        now: Time,
        peer: Peer,
    ) -> Result<State, Fault> {
        let (id, key) = known.place.ok_or(Fault::Lost(Lost::NotFound))?;
        let owner = &known.owner;
        let found = self.states.find_at(owner, (id, key), fetched, now, &known.last).await;
        match (found, &known.cookie.state, &self.policy.seal) {
            (Err(Fault::Lost(Lost::NotFound)), Some(carried), Some(seal)) => {
                Box::pin(self.states.restore(owner, id, carried, seal.as_ref(), peer)).await
            }
            (found, _, _) => found,
        }
    }

    /// The result with the cookie of its state. `now` is `None` if the reply took time: then the state is read again.
    pub(super) async fn with_cookie(
        &self,
        result: RawJson,
        known: &KnownCookie,
        state: &State,
        now: Option<Time>,
    ) -> RawJson {
        let now = match now {
            Some(now) => now,
            None => {
                let now = self.states.now();
                state.look_again(now).await;
                now
            }
        };
        self.echoed(result, (known.cookie.dialect, &known.cookie.id), state, now, &known.echo)
    }

    fn listed(&self, reply: Reply) -> Reply {
        match reply {
            Ok(result) => Ok(self.list_tools(&result).unwrap_or(result)),
            // The server has no tools, but ours are listed all the same.
            Err(error)
                if error.code() == i64::from(Reason::MethodNotFound.code()) && !self.kinds.is_empty() =>
            {
                let empty = RawJson::trusted(r#"{"tools":[]}"#);
                Ok(self.list_tools(&empty).unwrap_or(empty))
            }
            Err(error) => Err(error),
        }
    }
}
