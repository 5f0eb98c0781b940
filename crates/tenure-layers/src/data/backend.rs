//! The way of a request through the layer: find the state it names, hold it against the policy, ask the backend,
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
use tenure_session::state::{Fault, Fetched, Kind, Lost, State, States};

use crate::data::cookie_cache::{CameLast, Known};
use crate::data::dialect::{Dialect, invalid};
use crate::data::handle_kinds::KindOfState;
use crate::data::handle_tools::{self, Deed, Role};
use crate::data::policy::{Policy, Required};
use crate::data::request::{Asked, Cookie};
use crate::data::resolve::Footing;
use crate::data::responder::DataResponder;
use crate::data::{cookie_out, scan, splice};

/// Data sessions and handles in front of a backend.
pub struct DataLayer {
    inner: Arc<dyn Backend>,
    /// The same server for requests without a session, if it is not the backend's own.
    responder: Option<Arc<dyn Responder>>,
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) states: States,
    pub(super) policy: Policy,
    /// What handles there are; the first is what a data session holds.
    pub(super) kinds: Vec<KindOfState>,
    pub(super) roles: HashMap<Box<str>, Role, RandomState>,
    plain: KindOfState,
}

impl DataLayer {
    /// Puts data sessions in front of a backend. The first kind is what a data session holds; the tools that use
    /// a kind need one.
    ///
    /// # Panics
    /// Never: the name of the kind that is there without any is a name.
    pub fn new(inner: Arc<dyn Backend>, states: States, policy: Policy, kinds: Vec<KindOfState>) -> Self {
        let plain = KindOfState::new(Kind::new("session").expect("a kind"), "a session");
        let roles = handle_tools::roles(&kinds);
        Self { inner, responder: None, shared: Arc::new(Shared { states, policy, kinds, roles, plain }) }
    }

    /// The same with this for requests without a session, in front of a backend that has no responder of its own.
    #[must_use]
    pub fn with_responder(mut self, responder: Arc<dyn Responder>) -> Self {
        self.responder = Some(responder);
        self
    }
}

impl Shared {
    /// What a data session holds.
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

    /// What the capability says of who needs a data session.
    pub(super) fn demand(&self) -> &'static str {
        let used = self.kinds.iter().any(|kind| !kind.tools.is_empty());
        match &self.policy.required {
            Required::None if used => "some",
            required => required.word(),
        }
    }

    /// The answer to `initialize` with what we add, as far as it makes sense.
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

/// Whether a server says that it keeps data sessions itself.
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
            // A server whose answer makes no sense is guarded all the same.
            let result = shared.introduce(text).unwrap_or(result);
            let link = DataLink(Arc::new(Way { inner: link, shared, spoken, last: CameLast::default() }));
            Ok(Opened { link: Box::new(link), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = self.responder.clone().or_else(|| Arc::clone(&self.inner).responder())?;
        Some(Arc::new(DataResponder::new(inner, Arc::clone(&self.shared))))
    }
}

/// Which dialect a client has been heard to speak.
#[derive(Default)]
struct Spoken(AtomicU8);

impl Spoken {
    fn from_initialize(params: &RawJson) -> Self {
        #[derive(Deserialize, Default)]
        struct Params {
            #[serde(default)]
            capabilities: Capabilities,
        }
        #[derive(Deserialize, Default)]
        struct Capabilities {
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
            params.read::<Params>().unwrap_or_default().capabilities.experimental;
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

struct DataLink(Arc<Way>);

/// The way of a session's requests through the layer.
struct Way {
    inner: Box<dyn Link>,
    shared: Arc<Shared>,
    spoken: Spoken,
    last: CameLast,
}

impl Link for DataLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        let way = &self.0;
        if let Method::Other(name) = &call.request.method
            && let Some((dialect, verb)) = Dialect::of_method(name)
        {
            way.spoken.heard(dialect);
            let shared = Arc::clone(&way.shared);
            return Box::pin(async move {
                shared.answer(dialect, verb, &call.request, call.context.caller()).await
            });
        }
        let principal = &call.context.caller().principal;
        let max_bytes = way.shared.policy.max_cookie_bytes;
        let read = Asked::read(call.request.params.as_ref())
            .and_then(|asked| way.last.read(&asked, principal, max_bytes).map(|known| (known, asked)));
        let Some((known, asked)) = read else {
            return match call.request.method {
                // What tool it means, and whether that needs a session, is anybody's guess.
                Method::ToolsCall => Box::pin(std::future::ready(Err(invalid("the params make no sense")))),
                _ => way.pass(call),
            };
        };
        let known = match known {
            Ok(known) => known,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let tool = match call.request.method {
            Method::ToolsCall => asked.name.as_deref(),
            _ => None,
        };
        let use_of = tool.map_or(Use::None, |tool| way.shared.use_of(tool, asked.arguments));
        // A tool that needs a state says so to us; of these only the handler knows.
        let may_need = matches!(call.request.method, Method::ResourcesRead | Method::PromptsGet);
        let is_list = call.request.method == Method::ToolsList;
        if known.is_none() && matches!(use_of, Use::None) && !may_need && !is_list {
            return way.pass(call);
        }
        let Some(known) = known else { return Box::pin(Arc::clone(way).go(call, None, use_of)) };
        way.spoken.heard(known.cookie.dialect);
        let (now, fetched) = (way.shared.states.now(), way.shared.fetch(&known));
        if !is_list && let Some(state) = way.shared.at_hand(&known, &fetched, now) {
            if way.shared.stands_on(&use_of, &state) {
                // Nearly every call with a cookie. It has no more to do with states until it is answered.
                let mut call = call;
                call.context.set_state(state.clone());
                return Box::pin(Arc::clone(way).finish(way.pass(call), known, state, now));
            }
            known.last.give_back(state);
        }
        Box::pin(Arc::clone(way).go(call, Some((known, fetched, now)), use_of))
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

/// An answer. What does not come on the spot takes time, and what was the time is forgotten.
async fn answer(mut reply: BoxFuture<Reply>, now: &mut Option<Time>) -> Reply {
    std::future::poll_fn(|cx| {
        let reply = reply.as_mut().poll(cx);
        *now = now.filter(|_| reply.is_ready());
        reply
    })
    .await
}

/// What a call has to do with states.
pub(super) enum Use {
    /// Nothing that we know of.
    None,
    /// It needs one, whichever.
    Any,
    /// It works on one of a kind, which it may name by a handle.
    Of { kind: usize, handle: Option<String> },
    /// It is answered here.
    Ours { kind: usize, deed: Deed },
    /// It names a handle that is none.
    Wrong(RpcError),
}

impl Shared {
    pub(super) fn use_of(&self, tool: &str, arguments: Option<&[u8]>) -> Use {
        match self.roles.get(tool) {
            None if self.policy.required.of(tool) => Use::Any,
            None => Use::None,
            Some(Role::Does(kind, deed)) => Use::Ours { kind: *kind, deed: *deed },
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

impl Way {
    /// Passes a call on to the server. It has nothing to do with a ping that only comes for its cookie.
    fn pass(&self, call: Call) -> BoxFuture<Reply> {
        match call.request.method {
            Method::Ping => Box::pin(std::future::ready(Ok(RawJson::EMPTY_OBJECT))),
            _ => self.inner.call(call),
        }
    }

    /// Puts the cookie into the answer to a call that was made with its state. The clock is not asked again, unless
    /// time has passed since: this happens with every call.
    async fn finish(
        self: Arc<Self>,
        reply: BoxFuture<Reply>,
        known: Arc<Known>,
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

    /// The result with the cookie of the state that it was made with. If it took no time, that stands as it was found
    /// or left.
    async fn with_cookie(&self, result: RawJson, known: &Known, state: &State, now: Option<Time>) -> RawJson {
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
        named: Option<(Arc<Known>, Fetched, Time)>,
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
        let reply = match self.shared.footing(&call, use_of, lost, state.clone(), without).await {
            Footing::Answered(reply) => {
                now = None;
                reply
            }
            Footing::Firm(working_on) => {
                let list = call.request.method == Method::ToolsList;
                if let Some(state) = working_on {
                    call.context.set_state(state);
                }
                let reply = answer(self.pass(call), &mut now).await;
                let reply = if list { self.shared.listed(reply) } else { reply };
                reply.map_err(|error| self.in_dialect(error, lost))
            }
        };
        // A cookie that leads nowhere is taken back with the answer to a request that did not need it.
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

    /// A handler that wants a state and has none says so in no dialect.
    fn in_dialect(&self, error: RpcError, lost: Option<(&Cookie, Lost)>) -> RpcError {
        if !error.is(Reason::SessionRequired) {
            return error;
        }
        match lost {
            Some((cookie, lost)) => cookie.dialect.lost(&self.shared.policy, &cookie.id, lost),
            None => self.spoken.get().unwrap_or(Dialect::Strawman).required(&self.shared.policy, None),
        }
    }

    /// What a tool that needs a state is answered with when the call names none. A client that has shown no sign of
    /// knowing data sessions gets words for its model, if there is something a model can do.
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

impl Shared {
    /// Begins to read the record of the state that a cookie names.
    pub(super) fn fetch(&self, known: &Known) -> Fetched {
        known.place.map_or(Fetched::Now(Ok(None)), |(_, key)| self.states.fetch(key))
    }

    /// The state that a cookie names, if nothing has to be done or waited for to have it.
    fn at_hand(&self, known: &Known, fetched: &Fetched, now: Time) -> Option<State> {
        match fetched {
            Fetched::Now(Ok(Some(kept))) => {
                self.states.at_hand(&known.owner, known.place?, kept, now, &known.last)
            }
            Fetched::Now(_) | Fetched::Later(_) => None,
        }
    }

    /// The state that a cookie names. One that the store knows nothing of may be carried by the cookie itself; then it
    /// takes the share of this peer.
    pub(super) async fn by_cookie(
        &self,
        known: &Known,
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
            // A server without tools: ours are there all the same.
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
