//! The path of a session's request through the layer: find the state that it names, check the policy, call the backend,
//! put the cookie into the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use serde::Deserialize;
use serde_json::json;
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, RpcError};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::budget::Peer;
use tenure_session::port::BoxFuture;
use tenure_session::port::clock::Time;
use tenure_session::state::{Fault, Fetched, Lost, State, StateKind, States};

use crate::data::cookie_cache::{KnownCookie, LastCookie};
use crate::data::dialect::{Dialect, invalid};
use crate::data::handle_kinds::KindOfState;
use crate::data::handle_tools::{self, HandleAction, Role};
use crate::data::policy::{Policy, Required};
use crate::data::request::{DataRequest, RequestCookie};
use crate::data::resolve::Resolution;
use crate::data::responder::DataResponder;
use crate::data::{cookie_out, scan, splice};

/// Data sessions and handles in front of a backend.
pub struct DataLayer {
    inner: Arc<dyn Backend>,
    /// Serves requests without a session, in place of the backend's own responder.
    responder: Option<Arc<dyn Responder>>,
    shared: Arc<DataShared>,
}

pub(super) struct DataShared {
    pub(super) states: States,
    pub(super) policy: Policy,
    /// The kinds of state that handles can name; a data session holds the first.
    pub(super) kinds: Vec<KindOfState>,
    pub(super) roles: HashMap<Box<str>, Role, RandomState>,
    plain: KindOfState,
}

impl DataLayer {
    /// Puts data sessions in front of a backend. A data session holds a state of the first kind. The tools that use a
    /// kind cannot be called without a state.
    ///
    /// # Panics
    /// Never: the name of the built-in kind is valid.
    pub fn new(inner: Arc<dyn Backend>, states: States, policy: Policy, kinds: Vec<KindOfState>) -> Self {
        let plain = KindOfState::new(StateKind::new("session").expect("a kind"), "a session");
        let roles = handle_tools::roles(&kinds);
        Self { inner, responder: None, shared: Arc::new(DataShared { states, policy, kinds, roles, plain }) }
    }

    /// Sets the responder for requests without a session, for a backend that has none of its own.
    #[must_use]
    pub fn with_responder(mut self, responder: Arc<dyn Responder>) -> Self {
        self.responder = Some(responder);
        self
    }
}

impl DataShared {
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

    /// The `initialize` result with our capabilities added; `None` if it cannot be read.
    fn introduce(&self, text: &str) -> Option<RawJson> {
        let mut session = json!({ "features": self.policy.features, "required": self.demand() });
        if let Some(version) = self.policy.version {
            session["version"] = version.into();
        }
        let mut text = splice::set(text, &["capabilities", "experimental", "session"], &session.to_string())?;
        text = splice::set(&text, &["capabilities", "sessions"], "{}")?;
        if !self.kinds.is_empty() && scan::member(scan::member(&text, "capabilities")?, "tools").is_none() {
            text = splice::set(&text, &["capabilities", "tools"], "{}")?;
        }
        Some(RawJson::trusted(text))
    }
}

/// Whether a server declares that it keeps data sessions itself.
fn keeps_its_own(text: &str) -> bool {
    let set = |value: Option<&str>| value.is_some_and(|value| value != "null");
    let capabilities = scan::member(text, "capabilities").unwrap_or_default();
    let experimental = scan::member(capabilities, "experimental").unwrap_or_default();
    set(scan::member(capabilities, "sessions")) || set(scan::member(experimental, "session"))
}

impl Backend for DataLayer {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let shared = Arc::clone(&self.shared);
        let spoken = Spoken::from_initialize(&open.params);
        let opened = self.inner.open(open);
        Box::pin(async move {
            let Opened { link, result } = opened.await?;
            let text = std::str::from_utf8(result.bytes()).unwrap_or_default();
            if keeps_its_own(text) {
                return Ok(Opened { link, result });
            }
            // The layer guards a server whose answer cannot be read, too.
            let result = shared.introduce(text).unwrap_or(result);
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
        [Dialect::Strawman, Dialect::Draft]
            .into_iter()
            .find(|dialect| *dialect as u8 + 1 == self.0.load(Ordering::Relaxed))
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

impl Link for DataLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let layered = &self.0;
        if let Method::Other(name) = &call.request.method
            && let Some((dialect, verb)) = Dialect::of_method(name)
        {
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
                Method::ToolsCall => Box::pin(std::future::ready(Err(invalid("the params make no sense")))),
                _ => layered.pass(call),
            };
        };
        let known = match known {
            Ok(known) => known,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let tool = match call.request.method {
            Method::ToolsCall => data_request.name.as_deref(),
            _ => None,
        };
        let use_of = tool.map_or(Use::None, |tool| layered.shared.use_of(tool, data_request.arguments));
        // The policy says which tools need a state; for these methods only the handler knows.
        let may_need = matches!(call.request.method, Method::ResourcesRead | Method::PromptsGet);
        let is_list = call.request.method == Method::ToolsList;
        if known.is_none() && matches!(use_of, Use::None) && !may_need && !is_list {
            return layered.pass(call);
        }
        let Some(known) = known else { return Box::pin(Arc::clone(layered).go(call, None, use_of)) };
        layered.spoken.heard(known.cookie.dialect);
        let (now, fetched) = (layered.shared.states.now(), layered.shared.fetch(&known));
        if !is_list && let Some(state) = layered.shared.at_hand(&known, &fetched, now) {
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

/// Awaits a reply. Forgets `now` if the reply was not ready at once, so that the clock is read again.
async fn answer(mut reply: BoxFuture<Reply>, now: &mut Option<Time>) -> Reply {
    std::future::poll_fn(|cx| {
        let reply = reply.as_mut().poll(cx);
        *now = now.filter(|_| reply.is_ready());
        reply
    })
    .await
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

impl DataShared {
    pub(super) fn use_of(&self, tool: &str, arguments: Option<&[u8]>) -> Use {
        match self.roles.get(tool) {
            None if self.policy.required.of(tool) => Use::Any,
            None => Use::None,
            Some(Role::Does(kind, action)) => Use::Ours { kind: *kind, action: *action },
            Some(Role::Uses(kind)) => {
                let argument = self.kinds[*kind].argument();
                let arguments = arguments.and_then(|arguments| std::str::from_utf8(arguments).ok());
                let handle = arguments.and_then(|arguments| scan::member(arguments, argument));
                match handle.filter(|handle| *handle != "null") {
                    None => Use::Of { kind: *kind, handle: None },
                    Some(handle) => match serde_json::from_str(handle) {
                        Ok(handle) => Use::Of { kind: *kind, handle: Some(handle) },
                        Err(_) => Use::Wrong(invalid(format!("{argument} is not a string"))),
                    },
                }
            }
        }
    }
}

impl LayeredLink {
    /// Passes a call on to the server. A ping is answered here: it only comes for its cookie.
    fn pass(&self, call: Call) -> BoxFuture<Reply> {
        match call.request.method {
            Method::Ping => Box::pin(std::future::ready(Ok(RawJson::EMPTY_OBJECT))),
            _ => self.inner.call(call),
        }
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
        let reply = match answer(reply, &mut now).await {
            Ok(result) => Ok(self.with_cookie(result, &known, &state, now).await),
            Err(error) => Err(self.in_dialect(error, None)),
        };
        known.last.give_back(state);
        reply
    }

    /// The result with the cookie of its state. `now` is `None` if the reply took time: then the state is read again.
    async fn with_cookie(
        &self,
        result: RawJson,
        known: &KnownCookie,
        state: &State,
        now: Option<Time>,
    ) -> RawJson {
        let now = match now {
            Some(now) => now,
            None => {
                let now = self.shared.states.now();
                state.look_again(now).await;
                now
            }
        };
        self.shared.echoed(result, (known.cookie.dialect, &known.cookie.id), state, now, &known.echo)
    }

    async fn go(
        self: Arc<Self>,
        mut call: Call,
        named: Option<(Arc<KnownCookie>, Fetched, Time)>,
        use_of: Use,
    ) -> Reply {
        let (known, found, mut now) = match named {
            Some((known, fetched, now)) => {
                let peer = call.context.caller().peer();
                let found = self.shared.by_cookie(&known, fetched, now, peer).await;
                (Some(known), Some(found), Some(now))
            }
            None => (None, None, None),
        };
        let cookie = known.as_ref().map(|known| &known.cookie);
        let (state, lost) = match found {
            None => (None, None),
            Some(Ok(state)) => (Some(state), None),
            Some(Err(Fault::Lost(lost))) => (None, Some(lost)),
            Some(Err(fault)) => return Err(fault.to_error().to_rpc()),
        };
        let lost = cookie.zip(lost);
        let without = |kind: Option<&KindOfState>| self.without(kind);
        let reply = match self.shared.resolve(&call, use_of, lost, state.clone(), without).await {
            Resolution::Answered(reply) => {
                now = None;
                reply
            }
            Resolution::WorksOn(working_on) => {
                let list = call.request.method == Method::ToolsList;
                if let Some(state) = working_on {
                    call.context.set_state(state);
                }
                let reply = answer(self.pass(call), &mut now).await;
                let reply = if list { self.shared.listed(reply) } else { reply };
                reply.map_err(|error| self.in_dialect(error, lost))
            }
        };
        // If the cookie's state is gone and the request did not need it, the answer takes the cookie back.
        match (reply, known.as_ref(), state) {
            (Ok(result), Some(known), Some(state)) => {
                let result = self.with_cookie(result, known, &state, now).await;
                known.last.give_back(state);
                Ok(result)
            }
            (Ok(result), Some(known), None) => Ok(cookie_out::without(known.cookie.dialect, &result)),
            (reply, ..) => reply,
        }
    }

    /// Translates a handler's "session required" error, which has no dialect, into the client's dialect.
    fn in_dialect(&self, error: RpcError, lost: Option<(&RequestCookie, Lost)>) -> RpcError {
        if !error.is(Reason::SessionRequired) {
            return error;
        }
        match lost {
            Some((cookie, lost)) => cookie.dialect.lost(&self.shared.policy, &cookie.id, lost),
            None => self.spoken.get().unwrap_or(Dialect::Strawman).required(&self.shared.policy, None),
        }
    }

    /// The answer to a call that names no state for a tool that needs one. A client that has shown no sign of knowing
    /// data sessions gets a text for its model, if a tool can make such a state.
    fn without(&self, kind: Option<&KindOfState>) -> Reply {
        let hint =
            kind.map(|kind| format!("Or call {} and pass its {}.", kind.create_tool(), kind.argument()));
        match (self.spoken.get(), &hint) {
            (None, Some(hint)) => Ok(handle_tools::complaint(&format!(
                "Session required. Call session/create or session/resume first. {hint}"
            ))),
            (spoken, _) => {
                Err(spoken.unwrap_or(Dialect::Strawman).required(&self.shared.policy, hint.as_deref()))
            }
        }
    }
}

impl DataShared {
    /// Begins to read the record of the state that a cookie names.
    pub(super) fn fetch(&self, known: &KnownCookie) -> Fetched {
        known.place.map_or(Fetched::Now(Ok(None)), |(_, key)| self.states.fetch(key))
    }

    /// The state that a cookie names, if it is available without waiting.
    fn at_hand(&self, known: &KnownCookie, fetched: &Fetched, now: Time) -> Option<State> {
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

    pub(super) fn listed(&self, reply: Reply) -> Reply {
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

impl std::fmt::Debug for DataLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataLayer").field("kinds", &self.shared.kinds).finish_non_exhaustive()
    }
}
