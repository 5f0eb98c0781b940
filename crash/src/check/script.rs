//! What may come on the stream of each request: its own messages in their order, and one right answer.

use std::collections::HashSet;

use serde_json::Value;

use super::{CheckFault, Circumstances, FaultKind};

/// The code of the error with the reason `interrupted`.
const INTERRUPTED: i64 = -31010;

/// What a request does, as its client can see it.
#[derive(Clone, Debug)]
pub(crate) enum Script {
    /// Answers with this text; safe to repeat.
    Echo { text: String },
    /// Any answer is right; not safe to repeat.
    Once,
    /// Like `Once`, but the server may also answer that the state is gone.
    Note,
    /// Sends a message per number; not safe to repeat.
    Count { tag: String, to: u64, said: u64, reported: u64 },
    /// Reports progress; safe to repeat.
    Work { token: String, steps: u64, text: String, reported: Option<u64> },
    /// Asks for a name; safe to repeat.
    Ask { name: String, questions: HashSet<String> },
    /// The standalone stream of a session that watches this resource.
    News { uri: String },
}

/// What an event means.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum EventMeaning {
    /// Only an id to resume after.
    Prime,
    /// The server is about to close the connection, but the stream continues.
    Retry,
    /// A message of the request.
    Message,
    /// A question, which the client must answer under this id.
    Question(Value),
    /// The final response.
    Answer(Ending),
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// With its result.
    Result,
    /// With the error for a request that a crash interrupted.
    Interrupted,
    /// With the error for a state that does not exist.
    StateGone,
}

impl Script {
    pub(crate) fn count(tag: &str, to: u64) -> Script {
        Script::Count { tag: tag.to_owned(), to, said: 0, reported: 0 }
    }

    pub(crate) fn work(token: &str, steps: u64, text: &str) -> Script {
        Script::Work { token: token.to_owned(), steps, text: text.to_owned(), reported: None }
    }

    pub(crate) fn ask(name: &str) -> Script {
        Script::Ask { name: name.to_owned(), questions: HashSet::new() }
    }

    /// Whether a crash may end it with an error. Requests that are safe to repeat are repeated instead.
    fn may_be_interrupted(&self) -> bool {
        matches!(self, Script::Once | Script::Note | Script::Count { .. })
    }

    /// Checks a notification or a question.
    pub(crate) fn hear(&mut self, message: &Value, now: Circumstances) -> Result<EventMeaning, CheckFault> {
        let params = &message["params"];
        match (message["method"].as_str().unwrap_or_default(), self) {
            ("notifications/message", Script::Count { tag, said, .. }) => {
                own(message, &params["data"]["tag"], tag)?;
                *said = next(message, number(&params["data"]["n"]), *said)?;
            }
            ("notifications/progress", Script::Count { tag, said, reported, .. }) => {
                own(message, &params["progressToken"], tag)?;
                *reported = next(message, number(&params["progress"]), *reported)?;
                if reported != said {
                    let kind = if reported > said { FaultKind::Lost } else { FaultKind::WrongOrder };
                    let detail = format!("{said} were said, but {reported} are reported: {message}");
                    return Err(CheckFault::new(kind, detail));
                }
            }
            ("notifications/progress", Script::Work { token, steps, reported, .. }) => {
                own(message, &params["progressToken"], token)?;
                let progress = number(&params["progress"]);
                grows(message, progress, *reported, now)?;
                if progress.is_none_or(|progress| progress > *steps) {
                    let detail = format!("more than {steps} steps: {message}");
                    return Err(CheckFault::new(FaultKind::Unexpected, detail));
                }
                *reported = progress;
            }
            ("elicitation/create", Script::Ask { questions, .. }) => {
                questions.insert(message["id"].to_string());
                return Ok(EventMeaning::Question(message["id"].clone()));
            }
            // The server may cancel a question that it asked here.
            ("notifications/cancelled", Script::Ask { questions, .. })
                if questions.contains(&params["requestId"].to_string()) => {}
            ("notifications/resources/updated", Script::News { uri }) => own(message, &params["uri"], uri)?,
            (_, script) => {
                let detail = format!("{} hears {message}", script.name());
                return Err(CheckFault::new(FaultKind::WrongStream, detail));
            }
        }
        Ok(EventMeaning::Message)
    }

    /// Checks the final response, whose id is already known to be right.
    pub(crate) fn answer(&self, message: &Value, now: Circumstances) -> Result<Ending, CheckFault> {
        let error = &message["error"];
        if error["data"]["reason"] == "interrupted" && error["code"] == INTERRUPTED {
            return match (self.may_be_interrupted() || now.moved, now.crashed) {
                (true, true) => Ok(Ending::Interrupted),
                (true, false) => Err(CheckFault::new(
                    FaultKind::WrongAnswer,
                    format!("interrupted without a crash: {message}"),
                )),
                (false, _) => {
                    let detail = format!("{} is safe to repeat, but: {message}", self.name());
                    Err(CheckFault::new(FaultKind::WrongAnswer, detail))
                }
            };
        }
        let reason = error["data"]["reason"].as_str().unwrap_or_default();
        if matches!(self, Script::Note) && reason.starts_with("session_") {
            return Ok(Ending::StateGone);
        }
        let text = message["result"]["content"][0]["text"].as_str();
        let right = match self {
            Script::Once => message.get("result").is_some(),
            Script::Note => message.get("result").is_some() && message["result"]["isError"] != true,
            Script::Echo { text: expected } | Script::Work { text: expected, .. } => {
                text == Some(expected.as_str())
            }
            Script::Ask { name, .. } => text == Some(format!("Hello, {name}!").as_str()),
            Script::Count { tag, to, .. } => text == Some(format!("{tag}: counted to {to}").as_str()),
            Script::News { .. } => false,
        };
        if !right {
            return Err(CheckFault::new(FaultKind::WrongAnswer, format!("{}: {message}", self.name())));
        }
        self.is_complete(message, now)?;
        Ok(Ending::Result)
    }

    /// Checks that all messages came before the result.
    fn is_complete(&self, message: &Value, now: Circumstances) -> Result<(), CheckFault> {
        let missing = match self {
            Script::Count { to, said, reported, .. } => said != to || reported != to,
            Script::Work { steps, reported, .. } => *reported != Some(*steps) && !now.torn,
            _ => false,
        };
        if missing {
            return Err(CheckFault::new(
                FaultKind::Lost,
                format!("{self:?} is answered too early: {message}"),
            ));
        }
        Ok(())
    }

    fn name(&self) -> &'static str {
        match self {
            Script::Echo { .. } => "public_echo",
            Script::Once => "a request",
            Script::Note => "a note",
            Script::Count { .. } => "count_slowly",
            Script::Work { .. } => "long_task",
            Script::Ask { .. } => "ask_name",
            Script::News { .. } => "the standalone stream",
        }
    }
}

fn own(message: &Value, found: &Value, expected: &str) -> Result<(), CheckFault> {
    if found.as_str() == Some(expected) {
        return Ok(());
    }
    Err(CheckFault::new(FaultKind::WrongStream, format!("{expected} hears {message}")))
}

/// A whole number, also if it is written as a float.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..1e9).contains(number))?;
        Some(number as u64)
    })
}

/// Checks that a number is the successor of the last one.
fn next(message: &Value, found: Option<u64>, last: u64) -> Result<u64, CheckFault> {
    let kind = match found {
        Some(found) if found == last + 1 => return Ok(found),
        Some(found) if found > last => FaultKind::Lost,
        Some(_) => FaultKind::Repeated,
        None => FaultKind::Unexpected,
    };
    Err(CheckFault::new(kind, format!("after {last} comes {message}")))
}

/// Checks that progress grows: one by one without a crash; after a crash, steps may be missing.
fn grows(
    message: &Value,
    found: Option<u64>,
    last: Option<u64>,
    now: Circumstances,
) -> Result<(), CheckFault> {
    let first = last.map_or(0, |last| last + 1);
    let kind = match found {
        None => FaultKind::Unexpected,
        Some(found) if found == first => return Ok(()),
        Some(found) if found > first && now.crashed => return Ok(()),
        Some(found) if found > first => FaultKind::Lost,
        // A received event may be gone from the log, so the server may send it again.
        Some(_) if now.torn => return Ok(()),
        Some(_) => FaultKind::Repeated,
    };
    Err(CheckFault::new(kind, format!("after progress {last:?} comes {message}")))
}
