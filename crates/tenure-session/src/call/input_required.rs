//! Asks a session's client for the input that a modern server wants before it answers.
//!
//! A modern server answers `input_required`, and gets the same request again with the answers. A session's client is
//! asked by separate requests, all questions of a round at once. [`drive`] repeats this until the server answers, the
//! client cannot or will not answer, or the server has asked too often. It works for any server that answers this way,
//! also for handlers in our own process.

use std::time::Duration;

use crate::call::CallContext;
use crate::port::BoxFuture;
use futures_util::future::try_join_all;
use tenure_protocol::modern::ResultType;
use tenure_protocol::translate::capabilities::Relayed;
use tenure_protocol::translate::elicitation;
use tenure_protocol::translate::questions::{self, InputWanted, Question};
use tenure_protocol::translate::result::{self, ResultKind};
use tenure_protocol::{RawJson, Reason, Reply, Request, RpcError};

/// How often a server may ask for input during one request.
const MAX_ROUNDS: u32 = 10;
/// The first and the longest pause before a request is sent again without answers. The pause doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Answers a session's request with a server that may ask for input, and asks the session's client for it.
///
/// `respond` is called for every attempt, with the same request except for answers and state. The result is the
/// server's, unchanged; its type is `complete` or missing.
///
/// # Errors
/// The server's error, or ours if the request cannot be answered.
///
/// # Cancel safety
/// Dropping the future drops the current attempt, and withdraws the open questions.
pub async fn drive(
    context: &CallContext,
    request: Request,
    respond: impl Fn(Request) -> BoxFuture<Reply> + Send + Sync,
) -> Reply {
    let first = respond(request.clone()).await?;
    go_on(context, request, first, respond).await
}

/// The same, beginning with the result of the first attempt, for servers that rarely ask for input.
///
/// # Errors
/// As [`drive`].
///
/// # Cancel safety
/// As [`drive`].
pub async fn go_on(
    context: &CallContext,
    request: Request,
    first: RawJson,
    respond: impl Fn(Request) -> BoxFuture<Reply> + Send + Sync,
) -> Reply {
    let method = request.method.clone();
    let mut result = first;
    for round in 1.. {
        // Almost every result ends here, without being parsed.
        if ResultType::of(&result) == ResultType::Complete && is_object(&result) {
            return Ok(result);
        }
        match result::kind(&method, &result)? {
            ResultKind::Complete => return Ok(result),
            ResultKind::InputRequired => {}
            ResultKind::Task => {
                return Err(RpcError::of(Reason::Internal, "The server answered with a task, unasked"));
            }
        }
        if round > MAX_ROUNDS {
            break;
        }
        let InputWanted { questions, state } = questions::wanted(&result)?;
        let answers = match ask_all(context, &questions).await {
            Ok(answers) => answers,
            Err((question, why)) => return questions::abandoned(&method, question, &why),
        };
        if questions.is_empty() {
            tokio::time::sleep(pause(round)).await;
        }
        let params = request.params.clone().unwrap_or(RawJson::EMPTY_OBJECT);
        let params = questions::retry(&params, &answers, state.as_ref())?;
        let attempt = Request { id: request.id.clone(), method: method.clone(), params: Some(params) };
        result = respond(attempt).await?;
    }
    Err(RpcError::of(Reason::Internal, format!("The server wanted input more than {MAX_ROUNDS} times")))
}

/// The client's answers to all questions, or the first question without an answer, and the reason.
async fn ask_all<'a>(
    context: &CallContext,
    questions: &'a [Question],
) -> Result<Vec<(String, RawJson)>, (&'a Question, String)> {
    if questions.is_empty() {
        return Ok(Vec::new());
    }
    // Asks nothing unless all questions can be asked: otherwise a user would answer in vain.
    let put = |question: &'a Question| match put(context, question) {
        Ok(params) => Ok((question, params)),
        Err(why) => Err((question, why)),
    };
    let put: Vec<_> = questions.iter().map(put).collect::<Result<_, _>>()?;
    let asking =
        put.into_iter().map(async |(question, params)| match ask(context, question, params.as_ref()).await {
            Ok(answer) => Ok((question.key.clone(), answer)),
            Err(why) => Err((question, why)),
        });
    try_join_all(asking).await
}

/// The params of a question for the client, or the reason why it cannot be asked.
pub fn put(context: &CallContext, question: &Question) -> Result<Option<RawJson>, String> {
    let revision = context.revision();
    let relayed = Relayed::of_session(&context.capabilities(), revision);
    elicitation::params_for(question, relayed, revision, &fresh_id()).map_err(str::to_owned)
}

/// The client's answer to a question, or the reason why it has no answer.
pub async fn ask(
    context: &CallContext,
    question: &Question,
    params: Option<&RawJson>,
) -> Result<RawJson, String> {
    match context.ask(&question.method, params).await {
        Ok(answer) if is_object(&answer) => Ok(answer),
        Ok(_) => Err("the client's answer makes no sense".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn is_object(json: &RawJson) -> bool {
    json.bytes().trim_ascii_start().starts_with(b"{")
}

fn pause(round: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << round.saturating_sub(1).min(8)).min(LONGEST_PAUSE)
}

/// An id for an elicitation by URL. Only the client uses it.
fn fresh_id() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system provides randomness");
    format!("{:032x}", u128::from_be_bytes(bytes))
}
