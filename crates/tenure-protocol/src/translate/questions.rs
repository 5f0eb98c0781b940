//! Translates the questions of a server to its client.
//!
//! A modern server answers `input_required`, and the client sends the same request again with the answers. A
//! session's server sends its own requests and waits. For clients in a session this file reads `input_required`,
//! builds the retry, and builds the answer to a call whose question got none. For modern clients it turns the
//! requests of the server and the error -32042 into questions, and answers requests for which there is no client, or
//! no answer in time. `elicitation` rewrites a question for the revision of the client.
//!
//! Each question has a key: the server's own in a modern result, ours (`q1`, `q2` …) for a session's server, unless
//! the server names one in the question's `_meta` as `dev.tenure/inputKey`.

use std::collections::HashSet;

use crate::error::{Reason, RpcError};
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::keys::{INPUT_KEY, RELATED_TASK, TOKEN};
use crate::message::Reply;
use crate::method::{Method, may_ask};
use crate::revision::Revision;
use crate::translate::codes::{self, URL_ELICITATION_REQUIRED, fault_of_server};
use crate::translate::features::Feature;

/// A question of a server to its client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// The key of the answer.
    pub key: String,
    /// `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: Method,
    /// Its params, not parsed.
    pub params: Option<RawJson>,
}

/// The content of an `input_required` result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputWanted {
    /// The questions. If the list is empty, the client only has to send the request again later.
    pub questions: Vec<Question>,
    /// The server's state, a JSON string that the retry must return unchanged.
    pub state: Option<RawJson>,
}

/// Reads an `input_required` result.
///
/// # Errors
/// When it has neither questions nor a state, or a question that no client answers.
pub fn wanted(result: &RawJson) -> Result<InputWanted, RpcError> {
    let broken = |what: &str| fault_of_server(format!("The server's wish for input cannot be read: {what}"));
    let object = Object::read(object::text(result)).ok_or_else(|| broken("it is not an object"))?;
    let questions = match object.get("inputRequests") {
        None => Vec::new(),
        Some(map) => asked(result, map).ok_or_else(|| broken("inputRequests"))?,
    };
    let state = object.get("requestState");
    if state.is_some_and(|state| !state.starts_with('"')) {
        return Err(broken("requestState"));
    }
    if questions.is_empty() && state.is_none() {
        return Err(broken("it has neither questions nor a state"));
    }
    Ok(InputWanted { questions, state: state.map(|state| object::part(result, state)) })
}

/// The questions in an `inputRequests` object; `None` if an entry is not a question, or two have the same key.
pub(crate) fn asked(within: &RawJson, map: &str) -> Option<Vec<Question>> {
    let map = Object::read(map)?;
    let read = |(key, request): (&str, _)| {
        let request = Object::read(request)?;
        let method = Method::new(&request.get("method").and_then(object::unquoted)?);
        let params = request.get("params").map(|params| object::part(within, params));
        let known =
            is_question(&method) && params.as_ref().is_none_or(|it| object::is_object(object::text(it)));
        known.then(|| Question { key: key.to_owned(), method, params })
    };
    let questions: Vec<Question> = map.members().map(read).collect::<Option<_>>()?;
    let keys: HashSet<_> = questions.iter().map(|question| &question.key).collect();
    (keys.len() == questions.len()).then_some(questions)
}

/// The params of the retry of a modern request, with the answers to the last questions and the state that came with
/// them. Answers and states of earlier attempts are removed.
///
/// # Errors
/// When the params are not an object.
pub fn retry(
    params: &RawJson,
    answers: &[(String, RawJson)],
    state: Option<&RawJson>,
) -> Result<RawJson, RpcError> {
    let mut object = Object::read(object::text(params))
        .ok_or_else(|| RpcError::of(Reason::InvalidParams, "The params are not an object"))?;
    match answers {
        [] => object.remove("inputResponses"),
        answers => object.set("inputResponses", object::text(&map_of(answers)).to_owned()),
    }
    match state {
        Some(state) => object.set("requestState", object::text(state)),
        None => object.remove("requestState"),
    }
    Ok(object::kept(params, object.write()))
}

/// The answer to a request that cannot go on, because its client could not be asked or answered with an error. The
/// modern protocol has no place for such an error in a retry, and the bridge never invents an answer. A tool call
/// gets a result with `isError` that the model can read; other requests fail.
///
/// # Errors
/// For everything but calls of tools.
pub fn abandoned(method: &Method, question: &Question, why: &str) -> Reply {
    let words = format!("The server needed an answer to {} and got none: {why}", question.method);
    match method {
        Method::ToolsCall => Ok(RawJson::trusted(format!(
            r#"{{"content":[{{"type":"text","text":{}}}],"isError":true}}"#,
            object::quoted(&words),
        ))),
        _ => Err(RpcError::of(Reason::Internal, words)),
    }
}

/// The question for a modern client in a request of a session's server, and who chose its key. `None` for requests that
/// are not questions. `number` counts the questions of a call.
///
/// Members that only a session can use are removed: the id of an elicitation by URL, progress tokens, and tasks.
pub fn of_server(method: &Method, params: Option<&RawJson>, number: usize) -> Option<(Question, KeyedBy)> {
    if !is_question(method) {
        return None;
    }
    let mut question = Question { key: own_key(number), method: method.clone(), params: params.cloned() };
    let mut keyed = KeyedBy::Us;
    let Some((params, mut object)) = params.and_then(|it| Some((it, Object::read(object::text(it))?))) else {
        return Some((question, keyed));
    };
    object.within("_meta", |meta| {
        if let Some(key) = meta.get(INPUT_KEY).and_then(object::unquoted).filter(|key| !key.is_empty()) {
            question.key = key.into_owned();
            keyed = KeyedBy::Server;
        }
        for name in [INPUT_KEY, TOKEN, RELATED_TASK] {
            meta.remove(name);
        }
    });
    object.remove("task");
    if *method == Method::ElicitationCreate {
        object.remove("elicitationId");
    }
    question.params = Some(object::kept(params, object.write()));
    Some((question, keyed))
}

/// Whether a modern client may be asked during a request of this method.
pub fn may_be_asked(during: &Method) -> bool {
    may_ask(during)
}

/// Who chose the key of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyedBy {
    /// We did; it is valid only together with the state that it was sent with.
    Us,
    /// The server did; an answer with this key is valid in every attempt.
    Server,
}

/// The questions in an error -32042, with which a server asks that the user visits URLs and the client then sends the
/// request again. `None` for any other error, or if it has no valid URLs.
pub fn url_elicitations(error: &RpcError) -> Option<Vec<Question>> {
    if codes::code(error) != Some(URL_ELICITATION_REQUIRED) {
        return None;
    }
    let elicitations = codes::data(error)?.get("elicitations").and_then(object::elements)?;
    let read = |(number, elicitation): (usize, &&str)| {
        let params = object::part(error.raw(), elicitation);
        let (question, _) = of_server(&Method::ElicitationCreate, Some(&params), number + 1)?;
        is_url(&question).then_some(question)
    };
    let questions: Vec<_> = elicitations.iter().enumerate().map(read).collect::<Option<_>>()?;
    (!questions.is_empty()).then_some(questions)
}

/// The first of these questions that the params of a retry decline or cancel. To ask it again could loop for ever.
pub fn declined<'a>(asked: &'a [Question], params: Option<&RawJson>) -> Option<&'a Question> {
    let params = Object::read(object::text(params?))?;
    let responses = Object::read(params.get("inputResponses")?)?;
    asked.iter().find(|question| {
        let action =
            responses.get(&question.key).and_then(Object::read).and_then(|answer| answer.get("action"));
        matches!(action, Some(r#""decline""# | r#""cancel""#))
    })
}

/// Writes an `input_required` result.
pub fn input_required(questions: &[Question], state: Option<&str>) -> RawJson {
    let mut result = r#"{"resultType":"input_required""#.to_owned();
    if !questions.is_empty() {
        result += &format!(r#","inputRequests":{}"#, object::text(&requests(questions)));
    }
    if let Some(state) = state {
        result += &format!(r#","requestState":{}"#, object::quoted(state));
    }
    result.push('}');
    RawJson::trusted(result)
}

/// The answer with this key in a retry. A value that is not an object does not count, and the question is asked again.
pub fn answer(responses: &RawJson, key: &str) -> Option<RawJson> {
    let answer = Object::read(object::text(responses))?.get(key)?;
    object::is_object(answer).then(|| object::part(responses, answer))
}

/// A modern client's answer, rewritten for a session's server of a revision. If the revision has no lists in a sampled
/// message, a list of one block becomes that block.
pub fn answer_for(question: &Method, answer: &RawJson, revision: Revision) -> RawJson {
    if *question != Method::SamplingCreateMessage || Feature::SamplingTools.is_in(revision) {
        return answer.clone();
    }
    let Some(mut object) = Object::read(object::text(answer)) else {
        return answer.clone();
    };
    if let Some([block]) = object.get("content").and_then(object::elements).as_deref() {
        object.set("content", *block);
    }
    object::kept(answer, object.write())
}

/// The answer to a server's request for which there is no client to ask: it belongs to no call, or the method of the
/// call does not allow questions.
///
/// # Errors
/// For everything that cannot be declined.
pub fn refusal(method: &Method) -> Reply {
    match method {
        Method::Ping => Ok(RawJson::EMPTY_OBJECT),
        Method::ElicitationCreate => Ok(RawJson::trusted(r#"{"action":"decline"}"#)),
        _ => Err(RpcError::of(Reason::MethodNotFound, "There is no client to ask here")),
    }
}

/// The answer to a server's request that the client did not answer in time.
///
/// # Errors
/// For everything that cannot be cancelled.
pub fn expiry(method: &Method) -> Reply {
    match method {
        Method::ElicitationCreate => Ok(RawJson::trusted(r#"{"action":"cancel"}"#)),
        _ => Err(RpcError::of(Reason::TimedOut, "The client did not answer in time")),
    }
}

/// Whether it is an elicitation by URL.
pub(crate) fn is_url(question: &Question) -> bool {
    let params = question.params.as_ref().and_then(|params| Object::read(object::text(params)));
    question.method == Method::ElicitationCreate
        && params.is_some_and(|params| params.get("mode") == Some(r#""url""#))
}

/// The `inputRequests` object of these questions.
pub fn requests(questions: &[Question]) -> RawJson {
    let written = questions.iter().map(|question| {
        let (key, method) = (object::quoted(&question.key), object::quoted(question.method.as_str()));
        let params = question.params.as_ref().map_or("{}", object::text);
        format!(r#"{key}:{{"method":{method},"params":{params}}}"#)
    });
    RawJson::trusted(format!("{{{}}}", written.collect::<Vec<_>>().join(",")))
}

/// The `inputResponses` object of these answers.
fn map_of(answers: &[(String, RawJson)]) -> RawJson {
    let written =
        answers.iter().map(|(key, answer)| format!("{}:{}", object::quoted(key), object::text(answer)));
    RawJson::trusted(format!("{{{}}}", written.collect::<Vec<_>>().join(",")))
}

fn is_question(method: &Method) -> bool {
    matches!(method, Method::ElicitationCreate | Method::SamplingCreateMessage | Method::RootsList)
}

fn own_key(number: usize) -> String {
    format!("q{number}")
}

#[cfg(test)]
mod tests;
