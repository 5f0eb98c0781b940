//! Questions of a server to its client, between the eras.
//!
//! A modern server answers that it needs more input, and is sent the same request again with the answers; a
//! session's server sends requests of its own and waits. Towards clients in sessions this serves the rows on
//! results that want input, on states without questions, and on errors and refusals of clients; towards modern
//! clients the rows on requests of the server, on those that nobody can be asked, on limits of waiting, on -32042
//! and on task-augmented questions. How a question is put to a client of a revision is said in `forms`.
//!
//! Each question has a key: the server's own in a modern result, ours (`q1`, `q2` …) for a session's server, unless
//! it names one in the question's `_meta` as `dev.tenure/inputKey`.

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

/// Something that a server wants to know of its client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// What the answer is to be called.
    pub key: String,
    /// What is asked: `elicitation/create`, `sampling/createMessage` or `roots/list`.
    pub method: Method,
    /// Its params, unread.
    pub params: Option<RawJson>,
}

/// What a modern server wants before it goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// What it wants to know; nothing: the request is only to be sent again, later.
    pub questions: Vec<Question>,
    /// Its state, a JSON string, which is to come back exactly as it is.
    pub state: Option<RawJson>,
}

/// Reads an `input_required` result.
///
/// # Errors
/// When it wants nothing at all, or something that cannot be asked.
pub fn wanted(result: &RawJson) -> Result<Wanted, RpcError> {
    let broken = |what: &str| fault_of_server(format!("The server's wish for input cannot be read: {what}"));
    let object = Object::read(object::text(result)).ok_or_else(|| broken("it is no object"))?;
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
    Ok(Wanted { questions, state: state.map(|state| object::part(result, state)) })
}

/// The questions in a map of them; `None` if one of them is none, or two have one key.
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

/// The params of a modern request that is sent once more, with the answers to the last questions and the state
/// that came with them. Answers and states of earlier attempts go.
///
/// # Errors
/// When the params are no object.
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

/// The answer to a request that cannot go on, since its client could not be asked or answered with an error. A
/// modern server has no place for such an error, and is never told something that the client did not say. A model
/// is told with words; other requests fail.
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

/// A session's server's request as a question for a modern client, and whether the server named its key. `None`
/// for requests that are no questions. `number` counts the questions of a call.
///
/// What only a session could use goes: the id of an elicitation by URL, tokens of progress, and tasks.
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

/// Whether a modern client may be asked something during a request of that method.
pub fn may_be_asked(during: &Method) -> bool {
    may_ask(during)
}

/// Who chose the key of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyedBy {
    /// We did; it means something only together with the state that it was sent with.
    Us,
    /// The server did; an answer of that name is an answer in any attempt.
    Server,
}

/// What a server wants that answers with -32042: that its user visits URLs and sends the request again. `None` for
/// any other error, and if it does not say which.
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

/// The first of these questions that the params of a retry decline, or cancel. Whoever asks once more would ask
/// without end.
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

/// The answer of that key among a retry's answers. What is no object is no answer, and is asked for again.
pub fn answer(responses: &RawJson, key: &str) -> Option<RawJson> {
    let answer = Object::read(object::text(responses))?.get(key)?;
    object::is_object(answer).then(|| object::part(responses, answer))
}

/// A modern client's answer for a session's server of a revision. Where a sampled message is not yet a list, a list
/// of one becomes the one.
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

/// The answer to a server's request that nobody can be asked: because no call is there that it belongs to, or one
/// of a method during which nobody is asked.
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

/// The answer to a server's request that nobody answered in time.
///
/// # Errors
/// For everything that cannot be cancelled.
pub fn expiry(method: &Method) -> Reply {
    match method {
        Method::ElicitationCreate => Ok(RawJson::trusted(r#"{"action":"cancel"}"#)),
        _ => Err(RpcError::of(Reason::TimedOut, "The client did not answer in time")),
    }
}

/// Whether a question wants a URL to be visited.
pub(crate) fn is_url(question: &Question) -> bool {
    let params = question.params.as_ref().and_then(|params| Object::read(object::text(params)));
    question.method == Method::ElicitationCreate
        && params.is_some_and(|params| params.get("mode") == Some(r#""url""#))
}

/// Questions by their keys.
pub fn requests(questions: &[Question]) -> RawJson {
    let written = questions.iter().map(|question| {
        let (key, method) = (object::quoted(&question.key), object::quoted(question.method.as_str()));
        let params = question.params.as_ref().map_or("{}", object::text);
        format!(r#"{key}:{{"method":{method},"params":{params}}}"#)
    });
    RawJson::trusted(format!("{{{}}}", written.collect::<Vec<_>>().join(",")))
}

/// Answers by their keys.
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
