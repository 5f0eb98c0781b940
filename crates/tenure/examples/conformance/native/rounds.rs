//! The fixtures that ask first: with a result in the modern era, with requests in a session.

use futures_util::future::join_all;
use serde_json::{Map, Value};
use tenure_protocol::modern::capability::{self, Capabilities};
use tenure_protocol::{Method, RawJson, Reason, RpcError};
use tenure_session::call::CallContext;

use super::tools::failed;
use super::{Named, is_modern, parse};
use crate::catalog::{self, Question, Step};

/// Under which name a gateway shows the question to a client of the modern era, in its `_meta`.
const INPUT_KEY: &str = "dev.tenure/inputKey";

/// The answer of a fixture that asks. `None`: it does not ask, or is not ours.
pub(super) async fn answer(context: &CallContext, call: &Named) -> Option<Result<Value, RpcError>> {
    let client = capabilities(context);
    if !is_modern(context) {
        let rounds = catalog::rounds(&call.name, &client)?;
        let mut answers = Map::new();
        for question in rounds.iter().map(|round| join_all(round.questions.iter().map(|it| ask(context, it))))
        {
            for answered in question.await {
                match answered {
                    Ok((key, answer)) => drop(answers.insert(key.to_owned(), answer)),
                    Err(error) => return Some(unanswered(context, error)),
                }
            }
        }
        return Some(Ok(catalog::done(&call.name, &answers.into())));
    }
    let step = catalog::step(&call.name, &client, &call.input_responses, call.request_state.as_deref())?;
    Some(match step {
        Step::Ask(round) => Ok(round.to_result()),
        Step::Done(result) => Ok(result),
        Step::Lacking(lacking) => Err(capability::missing(&lacking).to_rpc()),
        Step::BadState => Err(RpcError::of(Reason::InvalidParams, "The state is not of this tool")),
    })
}

/// What the client of the request can do.
pub(super) fn capabilities(context: &CallContext) -> Capabilities {
    let nothing = || Capabilities::parse(RawJson::EMPTY_OBJECT).expect("an empty object declares nothing");
    Capabilities::parse(context.capabilities()).unwrap_or_else(nothing)
}

async fn ask(context: &CallContext, question: &Question) -> Result<(&'static str, Value), RpcError> {
    let mut params = question.params.clone();
    params["_meta"][INPUT_KEY] = question.key.into();
    let method = Method::new(question.kind.method());
    let answer = parse(&context.ask(&method, Some(&RawJson::of(&params))).await?)?;
    match question.kind.is_answered_by(&answer) {
        true => Ok((question.key, answer)),
        false => Err(RpcError::of(Reason::InvalidParams, "The client's answer does not fit the question")),
    }
}

/// A tool tells the model what went wrong; a prompt has only errors.
fn unanswered(context: &CallContext, error: RpcError) -> Result<Value, RpcError> {
    match context.method() {
        Method::ToolsCall => Ok(failed(&format!("The client gave no answer: {}", error.message()))),
        _ => Err(error),
    }
}
