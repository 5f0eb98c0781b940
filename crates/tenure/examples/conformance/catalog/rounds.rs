//! The fixtures that ask the client before they answer, and what they make of its answers.
//!
//! They are the same in both eras; only the way differs that a question takes. In the modern era a call ends with its
//! questions and comes again with the answers, so the state between two calls is the client's to carry; [`step`] says
//! what such a call comes to. In a session a call waits for the answers to the questions of each round in turn.

use serde_json::{Map, Value, json};
use tenure_protocol::modern::capability::{Capabilities, Capability};

/// Whom a question goes to: the user, the model, or the client itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Elicitation,
    Sampling,
    Roots,
}

impl Kind {
    pub(crate) fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    fn capability(self) -> Capability {
        match self {
            Self::Elicitation => Capability::ElicitationForm,
            Self::Sampling => Capability::Sampling,
            Self::Roots => Capability::Roots,
        }
    }

    /// Whether a value can be an answer at all. Anything else counts as no answer.
    pub(crate) fn is_answered_by(self, answer: &Value) -> bool {
        match self {
            Self::Elicitation => answer["action"].is_string(),
            Self::Sampling => answer["content"].is_object() || answer["content"].is_array(),
            Self::Roots => answer["roots"].is_array(),
        }
    }
}

/// A question to the client, under a name of ours.
pub(crate) struct Question {
    pub(crate) key: &'static str,
    pub(crate) kind: Kind,
    pub(crate) params: Value,
}

/// Questions that are asked at once.
pub(crate) struct Round {
    pub(crate) questions: Vec<Question>,
    /// What the client brings back with its answers, if the round is known by that.
    pub(crate) state: Option<&'static str>,
}

impl Round {
    fn is_answered_by(&self, answers: &Value) -> bool {
        self.questions.iter().all(|question| question.kind.is_answered_by(&answers[question.key]))
    }

    /// The result that asks these questions.
    pub(crate) fn to_result(&self) -> Value {
        let requests: Map<String, Value> = self
            .questions
            .iter()
            .map(|Question { key, kind, params }| {
                ((*key).to_owned(), json!({ "method": kind.method(), "params": params }))
            })
            .collect();
        let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
        if let Some(state) = self.state {
            result["requestState"] = state.into();
        }
        result
    }
}

/// What a call comes to.
pub(crate) enum Step {
    /// These questions are to be asked.
    Ask(Round),
    /// All is known; this is the result.
    Done(Value),
    /// The client declared too little for the questions.
    Lacking(Vec<Capability>),
    /// The state is not ours.
    BadState,
}

/// The rounds of a tool or a prompt, for a client that can do so much. `None`: it asks nothing, or is not ours.
pub(crate) fn rounds(name: &str, client: &Capabilities) -> Option<Vec<Round>> {
    let (stateless, state) = (None, |state| Some(state));
    let round = |questions, state| Round { questions, state };
    let confirm = || elicit("confirm", "Please confirm", &json!({ "ok": { "type": "boolean" } }));
    Some(match name {
        "test_input_required_result_elicitation" => vec![round(vec![user_name()], stateless)],
        "test_input_required_result_sampling" => vec![round(vec![capital_question()], stateless)],
        "test_input_required_result_list_roots" => vec![round(vec![client_roots()], stateless)],
        "test_input_required_result_request_state" => vec![round(vec![confirm()], state("to-be-confirmed"))],
        "test_input_required_result_tampered_state" => vec![round(vec![confirm()], state("untouched"))],
        "test_input_required_result_multiple_inputs" => {
            let questions = vec![user_name(), sample("greeting", "Generate a greeting", 50), client_roots()];
            vec![round(questions, state("all-at-once"))]
        }
        "test_input_required_result_multi_round" => {
            let step = |key, message| elicit(key, message, &json!({ "name": { "type": "string" } }));
            vec![
                round(vec![step("step1", "Step 1: What is your name?")], state("after-step-1")),
                round(vec![step("step2", "Step 2: What is your favourite colour?")], state("after-step-2")),
            ]
        }
        "test_input_required_result_capabilities" => {
            let all = vec![user_name(), capital_question(), client_roots()];
            let can = |question: &Question| client.has(&question.kind.capability());
            let some: Vec<_> = all.into_iter().filter(can).collect();
            vec![round(if some.is_empty() { vec![user_name()] } else { some }, stateless)]
        }
        "test_streaming_elicitation" => {
            let schema = json!({ "approved": { "type": "boolean" } });
            vec![round(vec![elicit("approval", "May this go on?", &schema)], stateless)]
        }
        "test_input_required_result_prompt" => {
            let schema = json!({ "context": { "type": "string" } });
            vec![round(
                vec![elicit("user_context", "What context should the prompt use?", &schema)],
                stateless,
            )]
        }
        _ => return None,
    })
}

/// What a tool asks that asks in the midst of its work, wherever that is possible. `None`: it asks nothing.
pub(crate) fn question(tool: &str, arguments: &Map<String, Value>) -> Option<Question> {
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let form = |message: &str| {
        let params =
            json!({ "mode": "form", "message": message, "requestedSchema": super::elicitation_schema(tool) });
        Question { key: "answer", kind: Kind::Elicitation, params }
    };
    match tool {
        "test_sampling" => Some(sample("answer", argument("prompt"), 100)),
        "test_elicitation" => Some(form(argument("message"))),
        "test_elicitation_sep1034_defaults" | "test_elicitation_sep1330_enums" => {
            Some(form("Please fill in the form"))
        }
        _ => None,
    }
}

/// What it makes of the answer.
pub(crate) fn answered(tool: &str, answer: &Value) -> String {
    match tool {
        "test_sampling" => {
            format!("LLM response: {}", answer["content"]["text"].as_str().unwrap_or_default())
        }
        "test_elicitation" => format!("User response: {answer}"),
        _ => {
            let (action, content) = (answer["action"].as_str().unwrap_or_default(), &answer["content"]);
            format!("Elicitation completed: action={action}, content={content}")
        }
    }
}

/// What a call with these answers and this state comes to. `None`: it asks nothing.
pub(crate) fn step(name: &str, client: &Capabilities, answers: &Value, state: Option<&str>) -> Option<Step> {
    let mut rounds = rounds(name, client)?.into_iter().peekable();
    let mut at_hand = rounds.next()?;
    // A state says which round was asked; without a state, no round was.
    while at_hand.state.is_some() && at_hand.state != state {
        if state.is_none() {
            return Some(asked(at_hand, client));
        }
        match rounds.next() {
            Some(next) => at_hand = next,
            None => return Some(Step::BadState),
        }
    }
    if !at_hand.is_answered_by(answers) {
        return Some(asked(at_hand, client));
    }
    Some(match rounds.next() {
        Some(next) => asked(next, client),
        None => Step::Done(done(name, answers)),
    })
}

fn asked(round: Round, client: &Capabilities) -> Step {
    let needed = round.questions.iter().map(|question| question.kind.capability());
    let lacking: Vec<_> = needed.filter(|capability| !client.has(capability)).collect();
    if lacking.is_empty() { Step::Ask(round) } else { Step::Lacking(lacking) }
}

/// The result, once the last round is answered.
pub(crate) fn done(name: &str, answers: &Value) -> Value {
    let said =
        |key: &str, member: &str| answers[key]["content"][member].as_str().unwrap_or("nobody").to_owned();
    let text = match name {
        "test_input_required_result_elicitation" => format!("Hello, {}!", said("user_name", "name")),
        "test_input_required_result_sampling" => {
            format!("The model says: {}", said("capital_question", "text"))
        }
        "test_input_required_result_list_roots" => {
            format!("The client's roots: {}", answers["client_roots"]["roots"])
        }
        "test_input_required_result_request_state" => "state-ok".to_owned(),
        "test_input_required_result_prompt" => {
            let text = format!("Use this context: {}", said("user_context", "context"));
            return json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] });
        }
        _ => format!("Answered: {answers}"),
    };
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn user_name() -> Question {
    elicit("user_name", "What is your name?", &json!({ "name": { "type": "string" } }))
}

fn capital_question() -> Question {
    sample("capital_question", "What is the capital of France?", 100)
}

fn client_roots() -> Question {
    Question { key: "client_roots", kind: Kind::Roots, params: json!({}) }
}

/// Asks the user for everything in `properties`.
fn elicit(key: &'static str, message: &str, properties: &Value) -> Question {
    let required: Vec<_> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    Question { key, kind: Kind::Elicitation, params }
}

fn sample(key: &'static str, prompt: &str, max_tokens: u32) -> Question {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    let params = json!({ "messages": [message], "maxTokens": max_tokens });
    Question { key, kind: Kind::Sampling, params }
}
