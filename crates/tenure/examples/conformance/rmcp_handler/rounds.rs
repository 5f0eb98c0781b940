//! The fixtures that ask first: with a result in the modern era, with requests in a session.

#![expect(deprecated, reason = "sampling and roots belong to the revisions that sessions speak")]

use futures_util::future::join_all;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, GetPromptResponse, GetPromptResult, InputRequiredResult, InputResponses,
};
use serde_json::{Map, Value, json};
use tenure_protocol::RawJson;
use tenure_protocol::modern::capability::{self, Capabilities};

use super::tools::tool_error;
use super::{Context, failed, is_modern, result, text, typed};
use crate::catalog::{self, Kind, Question, Round, Step};

/// Under which name a gateway shows the question to a client of the modern era, in its `_meta`.
const INPUT_KEY: &str = "dev.tenure/inputKey";

/// What a call brings that comes again.
pub(super) struct Retry {
    pub(super) answers: Option<InputResponses>,
    pub(super) state: Option<String>,
}

/// What a fixture says.
pub(super) enum Answer {
    Asks(InputRequiredResult),
    Is(Value),
}

impl Answer {
    pub(super) fn into_tool(self, context: &Context) -> Result<CallToolResponse, ErrorData> {
        match self {
            Self::Asks(questions) => Ok(questions.into()),
            Self::Is(answer) => Ok(result::<CallToolResult>(context, answer)?.into()),
        }
    }

    pub(super) fn into_prompt(self, context: &Context) -> Result<GetPromptResponse, ErrorData> {
        match self {
            Self::Asks(questions) => Ok(questions.into()),
            Self::Is(answer) => Ok(result::<GetPromptResult>(context, answer)?.into()),
        }
    }
}

/// The answer of a fixture that asks. `None`: it does not ask, or is not ours.
pub(super) async fn answer(context: &Context, name: &str, retry: Retry) -> Option<Result<Answer, ErrorData>> {
    let client = capabilities(context);
    if !is_modern(context) {
        let rounds = catalog::rounds(name, &client)?;
        let mut answers = Map::new();
        for questions in
            rounds.iter().map(|round| join_all(round.questions.iter().map(|it| ask(context, it))))
        {
            for answered in questions.await {
                match answered {
                    Ok((key, answer)) => drop(answers.insert(key.to_owned(), answer)),
                    Err(error) => return Some(Ok(Answer::Is(unanswered(&error)))),
                }
            }
        }
        return Some(Ok(Answer::Is(catalog::done(name, &answers.into()))));
    }
    let answers = json!(retry.answers);
    Some(match catalog::step(name, &client, &answers, retry.state.as_deref())? {
        Step::Ask(round) => typed(round.to_result()).map(Answer::Asks),
        Step::Done(result) => Ok(Answer::Is(result)),
        Step::Lacking(lacking) => typed(capability::declaration(&lacking).into())
            .and_then(|needed| Err(ErrorData::missing_required_client_capability(needed))),
        Step::BadState => Err(ErrorData::invalid_params("The state is not of this tool", None)),
    })
}

/// The answer of a tool that asks in the midst of its work, where rmcp lets none ask: it asks first. `None`: it does
/// not ask.
pub(super) fn instead(
    tool: &str,
    arguments: &Map<String, Value>,
    retry: &Retry,
) -> Option<Result<Answer, ErrorData>> {
    let question = catalog::question(tool, arguments)?;
    let answer = retry.answers.as_ref().and_then(|answers| answers.get(question.key));
    Some(match answer.filter(|answer| question.kind.is_answered_by(answer)) {
        Some(answer) => Ok(Answer::Is(text(&catalog::answered(tool, answer)))),
        None => typed(Round { questions: vec![question], state: None }.to_result()).map(Answer::Asks),
    })
}

fn capabilities(context: &Context) -> Capabilities {
    let nothing = || Capabilities::parse(RawJson::EMPTY_OBJECT).expect("an empty object declares nothing");
    Capabilities::parse(RawJson::of(&context.client_capabilities().unwrap_or_default()))
        .unwrap_or_else(nothing)
}

pub(super) async fn ask(context: &Context, question: &Question) -> Result<(&'static str, Value), ErrorData> {
    let mut params = question.params.clone();
    params["_meta"][INPUT_KEY] = question.key.into();
    let answer = match question.kind {
        Kind::Elicitation => json!(context.peer.create_elicitation(typed(params)?).await.map_err(failed)?),
        Kind::Sampling => json!(context.peer.create_message(typed(params)?).await.map_err(failed)?),
        // rmcp has no params for it, so it goes without a name.
        Kind::Roots => json!(context.peer.list_roots().await.map_err(failed)?),
    };
    match question.kind.is_answered_by(&answer) {
        true => Ok((question.key, answer)),
        false => Err(ErrorData::invalid_params("The client's answer does not fit the question", None)),
    }
}

fn unanswered(error: &ErrorData) -> Value {
    tool_error(&format!("The client gave no answer: {}", error.message))
}
