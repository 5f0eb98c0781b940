//! Completes a server's reply for a client of the modern era: checks it, seals its state, adds common members.

use std::borrow::Cow;
use std::sync::LazyLock;

use tenure_protocol::json::members;
use tenure_protocol::json::object::{self, Object};
use tenure_protocol::json::prefilter::Prefilter;
use tenure_protocol::modern::capability::{self, Capability};
use tenure_protocol::modern::result::{self, ResultType};
use tenure_protocol::translate::codes::{self, RESOURCE_NOT_FOUND};
use tenure_protocol::translate::questions::{self, Question};
use tenure_protocol::{Error, Method, RawJson, Reason, Reply, Request, RpcError, era};

use crate::exchange::call::ActiveCall;
use crate::exchange::exchanges::ExchangesInner;
use crate::exchange::request_state::{self, Bound, Brought, SealedContent};
use crate::exchange::task_requests;
use crate::id::Route;
use crate::port::clock::Time;

impl ExchangesInner {
    /// Checks the reply with what is known of the call.
    pub(super) fn judge(&self, work: &ActiveCall, request: &Request, reply: Reply) -> Reply {
        let lacking = std::mem::take(&mut work.state.lock().lacking);
        let reply = match reply {
            // The server most probably failed because a question could not be asked.
            Err(_) if !lacking.is_empty() => return Err(capability::missing(&lacking).to_rpc()),
            Ok(result) if !lacking.is_empty() && is_error(&result) => {
                return Err(capability::missing(&lacking).to_rpc());
            }
            Err(error) => return Err(said_in_this_era(request, error)),
            Ok(result) => result,
        };
        match ResultType::of(&reply) {
            ResultType::InputRequired => self.wanted(work, request, &reply),
            ResultType::Complete => {
                if request.method == Method::ToolsList {
                    self.catalog.learn(request, work.fanout.route(), &work.caller.principal, &reply);
                }
                Ok(reply)
            }
            ResultType::Task => Ok(self.with_task_name(work, reply)),
            ResultType::Unknown => {
                Err(RpcError::of(Reason::Internal, "The server answered with an unknown resultType"))
            }
        }
    }

    /// An `input_required` result from the server: checks that the client can answer the questions, and seals the
    /// state.
    fn wanted(&self, work: &ActiveCall, request: &Request, result: &RawJson) -> Reply {
        if !ActiveCall::may_ask(&request.method) {
            let message = "The server asked for input where none can be given";
            return Err(RpcError::of(Reason::Internal, message));
        }
        let wanted = questions::wanted(result)?;
        work.can_be_asked(&wanted.questions)?;
        // A server that seals its states itself mostly takes all callers for one: then its seal does not tell them apart.
        let is_sealed = self.responder.keeps_request_states();
        let is_for_all = is_sealed && work.caller.principal.name().is_none();
        let Some(state) = wanted.state.filter(|_| !is_for_all) else {
            return Ok(result.clone());
        };
        let state: String =
            state.read().map_err(|_| RpcError::of(Reason::Internal, "The state is not a text"))?;
        let bound = Bound::new(request, work.fanout.route(), &work.caller.principal);
        // How long its own state is good is up to such a server.
        let expires =
            if is_sealed { Time(u64::MAX) } else { self.clock.now().after(self.limits.ask_timeout) };
        let sealed =
            bound.seal(&*self.seal, &SealedContent::Text(state), expires).map_err(|error| error.to_rpc())?;
        Ok(set(result, "requestState", &object::quoted(&sealed)))
    }

    /// Adds the members that every answer has.
    pub(super) fn complete(&self, route: &Route, request: &Request, reply: Reply) -> Reply {
        let mut result = reply?;
        let method = &request.method;
        if *method == Method::Discover {
            result = set(&result, "supportedVersions", object::text(&RawJson::of(&era::served(self.eras))));
        }
        if *method == Method::Discover && self.may_keep_tasks(route) {
            result = task_requests::advertised(&result);
        }
        let mut caching = self.caching;
        if tenure_protocol::method::is_cacheable(method) {
            caching = caching.of_request(request.params.as_ref());
        }
        Ok(result::complete(method, &result, self.responder.server_info().as_ref(), caching))
    }
}

impl ActiveCall {
    /// Checks that the client declares what it needs to answer questions that the server put into a result.
    pub(super) fn can_be_asked(&self, questions: &[Question]) -> Result<(), RpcError> {
        let mut needed: Vec<Capability> = Vec::new();
        for question in questions {
            let needs = capability::of_question(&question.method, question.params.as_ref());
            // An unknown question is an error of the server, so the client must not get "method not found".
            let odd = |error: Error| RpcError::of(Reason::Internal, error.to_string());
            needed.extend(needs.map_err(odd)?);
        }
        let declared = &self.state.lock().attempt.meta.capabilities;
        declared.require(&needed).map_err(|error| error.to_rpc())
    }
}

/// The object with this member set to another value.
pub(super) fn set(object: &RawJson, name: &'static str, value: &str) -> RawJson {
    let Some(mut members) = Object::read(object::text(object)) else { return object.clone() };
    members.set(name, Cow::Borrowed(value));
    let written = members.write().into_owned();
    RawJson::trusted(written)
}

fn is_error(result: &RawJson) -> bool {
    members::find(result.bytes(), "isError").value().is_some_and(|value| value.get() == "true")
}

/// Translates error codes that only the legacy era has.
fn said_in_this_era(request: &Request, error: RpcError) -> RpcError {
    match error.code() {
        RESOURCE_NOT_FOUND | -32099..=-32023 => codes::to_modern(request.params.as_ref(), &error),
        _ => error,
    }
}

/// The params with the state that the handler wrote in place of the sealed one.
pub(super) fn with_state(params: &RawJson, text: &str) -> RawJson {
    set(params, "requestState", &object::quoted(text))
}

/// The state and the answers in the params of an attempt.
pub(super) fn brought(params: Option<&RawJson>) -> Brought {
    let state = request_state::brought(params).ok().flatten();
    Brought { state, responses: responses(params).map(|answers| object::text(&answers).to_owned()) }
}

/// The params of an attempt with the state and the answers of an earlier attempt. Answers of its own take precedence.
pub(super) fn with_brought(params: Option<&RawJson>, brought: &Brought) -> Option<RawJson> {
    let Some(mut members) = Object::read(object::text(params?)) else { return params.cloned() };
    match &brought.state {
        Some(state) => members.set("requestState", object::quoted(state)),
        None => members.remove("requestState"),
    }
    let own = members.get("inputResponses").and_then(Object::read);
    if let Some(responses) = brought.responses.as_deref()
        && own.is_none_or(|own| own.is_empty())
    {
        members.set("inputResponses", responses);
    }
    let written = members.write().into_owned();
    Some(RawJson::trusted(written))
}

/// The answers in a request's params, if they are an object.
pub(super) fn responses(params: Option<&RawJson>) -> Option<RawJson> {
    let params = params?;
    static MENTIONED: LazyLock<Prefilter> = LazyLock::new(|| Prefilter::of("inputResponses"));
    if !MENTIONED.may_be_in(params.bytes()) {
        return None;
    }
    let value = members::find(params.bytes(), "inputResponses").value()?;
    object::is_object(value.get()).then(|| object::part(params, value.get()))
}

/// The error for a request during a drain.
pub(super) fn draining() -> Error {
    Error::new(Reason::Draining, "The server is shutting down")
}
