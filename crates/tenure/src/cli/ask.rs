//! Forms that a server asks its user to fill in, on a terminal: one field after the other, each checked.
//!
//! `ElicitationForm` has the fields and checks the answers, without a terminal; `Asker` reads and writes. If standard
//! input is not a terminal, the user cannot be asked, so the server is told that the user declines.

use std::io::{BufRead, IsTerminal};
use std::sync::Arc;

use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};

use super::{note, schema};
use crate::escape::plain;

/// Asks the user. Clones share the terminal, so that two questions do not mix.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    /// One permit: one question at a time.
    terminal: Arc<Semaphore>,
    asking: watch::Sender<bool>,
}

/// One form.
struct ElicitationForm {
    message: String,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    schema: Value,
    is_required: bool,
}

impl Asker {
    pub(super) fn new() -> Self {
        Self { terminal: Arc::new(Semaphore::new(1)), asking: watch::channel(false).0 }
    }

    /// True while the user is asked.
    pub(super) fn asking(&self) -> watch::Receiver<bool> {
        self.asking.subscribe()
    }

    /// Asks the user to fill in a server's form.
    pub(super) async fn ask(&self, params: ElicitRequestParams) -> ElicitResult {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = params else {
            note("the server wants to be answered on a web page, which is not supported: declined");
            return ElicitResult::new(ElicitationAction::Decline);
        };
        let order = requested_schema.property_order.clone();
        let form = ElicitationForm::read(
            &message,
            &serde_json::to_value(&requested_schema).unwrap_or_default(),
            order,
        );
        let _permit = self.terminal.acquire().await;
        if !std::io::stdin().is_terminal() {
            note(&form.declined());
            return ElicitResult::new(ElicitationAction::Decline);
        }
        self.asking.send_replace(true);
        // Reading blocks until the user answers, so it runs on a blocking thread.
        let filled = tokio::task::spawn_blocking(move || form.fill(&mut std::io::stdin().lock())).await;
        self.asking.send_replace(false);
        match filled {
            Ok(Some(content)) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(content))
            }
            Ok(None) | Err(_) => ElicitResult::new(ElicitationAction::Decline),
        }
    }
}

impl ElicitationForm {
    fn read(message: &str, schema: &Value, order: Option<Vec<String>>) -> Self {
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let names = order.unwrap_or_else(|| properties.keys().cloned().collect());
        let required: Vec<_> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let field = |name: String| {
            let schema = properties.get(&name)?.clone();
            let is_required = required.contains(&name.as_str());
            Some(Field { name, schema, is_required })
        };
        Self { message: plain(message.trim()), fields: names.into_iter().filter_map(field).collect() }
    }

    /// The note that is printed when the user cannot be asked.
    fn declined(&self) -> String {
        let names: Vec<_> = self.fields.iter().map(|field| plain(&field.name)).collect();
        let wanted =
            if names.is_empty() { String::new() } else { format!(" (it wants: {})", names.join(", ")) };
        format!(
            "the server asks: {}{wanted}\ndeclined, because standard input is not a terminal; run the command in one to answer",
            self.message
        )
    }

    /// Asks for every field; `None` if the input ends, which declines.
    fn fill(&self, input: &mut impl BufRead) -> Option<Map<String, Value>> {
        note(&format!("the server asks: {}", self.message));
        note("(an empty line takes the value in brackets or leaves the field out; Ctrl-D declines)");
        let mut content = Map::new();
        for field in &self.fields {
            if let Some(value) = field.fill(input)? {
                content.insert(field.name.clone(), value);
            }
        }
        if self.fields.is_empty() {
            note("press Enter to accept");
            line(input)?;
        }
        Some(content)
    }
}

impl Field {
    /// Asks until the answer is of the right type; the outer `None` means that the input ended.
    #[expect(clippy::option_option, reason = "a field that is left out is not the end of the form")]
    fn fill(&self, input: &mut impl BufRead) -> Option<Option<Value>> {
        loop {
            note(&self.prompt());
            match self.value_of(&line(input)?) {
                Ok(value) => return Some(value),
                Err(why) => note(&format!("  {why}")),
            }
        }
    }

    fn prompt(&self) -> String {
        let described = self.schema["description"].as_str().or(self.schema["title"].as_str());
        let mut prompt = match described {
            Some(about) => format!("{}: {}", plain(&self.name), plain(about.trim())),
            None => plain(&self.name),
        };
        let choices = self.choices();
        if choices.is_empty() {
            prompt.push_str(&format!(" ({})", plain(&schema::in_words(&self.schema))));
        } else {
            for (index, (_, words)) in choices.iter().enumerate() {
                prompt.push_str(&format!("\n  {} {}", index + 1, plain(words)));
            }
            prompt.push_str(match self.is_list() {
                true => "\n  (numbers with commas between them)",
                false => "\n  (a number)",
            });
        }
        match self.schema.get("default") {
            Some(default) => prompt.push_str(&format!(" [{}]", plain(&schema::written(default)))),
            None if !self.is_required => prompt.push_str(" []"),
            None => {}
        }
        prompt
    }

    fn value_of(&self, line: &str) -> Result<Option<Value>, String> {
        let text = line.trim();
        if text.is_empty() {
            return match self.schema.get("default") {
                Some(default) => Ok(Some(default.clone())),
                None if self.is_required => Err("an answer is needed; Ctrl-D declines".to_owned()),
                None => Ok(None),
            };
        }
        let choices = self.choices();
        if choices.is_empty() {
            return schema::value_of(text, &self.schema).map(Some);
        }
        let chosen = |text: &str| {
            let by_number = text.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
            let by_name =
                || choices.iter().find(|(value, words)| schema::written(value) == text || words == text);
            let found = by_number.or_else(by_name).map(|(value, _)| value.clone());
            found.ok_or_else(|| format!("expected a number from 1 to {}", choices.len()))
        };
        if self.is_list() {
            let values = text.split(',').map(|part| chosen(part.trim())).collect::<Result<Vec<_>, _>>()?;
            return Ok(Some(Value::Array(values)));
        }
        chosen(text).map(Some)
    }

    fn is_list(&self) -> bool {
        schema::types(&self.schema).contains(&"array")
    }

    fn choices(&self) -> Vec<(Value, String)> {
        schema::choices(if self.is_list() { &self.schema["items"] } else { &self.schema })
    }
}

/// The next line; `None` at the end of the input.
fn line(input: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    match input.read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn form() -> ElicitationForm {
        let schema = json!({ "type": "object", "required": ["name", "colour"], "properties": {
            "name": { "type": "string", "description": "Who you are" },
            "age": { "type": "integer", "minimum": 0 },
            "colour": { "type": "string", "oneOf": [{ "const": "r", "title": "Red" }, { "const": "b", "title": "Blue" }] },
            "days": { "type": "array", "items": { "type": "string", "enum": ["mon", "tue"] } },
            "agree": { "type": "boolean", "default": true },
        } });
        let order = ["name", "age", "colour", "days", "agree"].map(str::to_owned).to_vec();
        ElicitationForm::read("Tell me\x1b[31m about you", &schema, Some(order))
    }

    #[test]
    fn every_kind_of_field_is_asked_for_in_words() {
        let all: Vec<_> = form().fields.iter().map(Field::prompt).collect();
        expect_test::expect![[r"
            name: Who you are (text)
            age (whole number, at least 0) []
            colour
              1 Red
              2 Blue
              (a number)
            days
              1 mon
              2 tue
              (numbers with commas between them) []
            agree (true or false) [true]"]]
        .assert_eq(&all.join("\n"));
    }

    #[test]
    fn a_form_takes_answers_of_the_right_type_and_asks_again_for_others() {
        let fill = |typed: &str| form().fill(&mut typed.as_bytes()).map(Value::Object);
        let filled = fill("\nAda\nold\n-1\n36\n3\nBlue\n1, tue\n\n");
        assert_eq!(
            filled,
            Some(json!({ "name": "Ada", "age": 36, "colour": "b", "days": ["mon", "tue"], "agree": true }))
        );
        let short = fill("Ada\n\n1\n\nno\n");
        assert_eq!(short, Some(json!({ "name": "Ada", "colour": "r", "agree": false })));
        assert_eq!(fill("Ada\n36\n"), None, "the end of the input declines");
    }

    #[test]
    fn without_a_terminal_the_form_is_named() {
        expect_test::expect![[r"
            the server asks: Tell me\u001b[31m about you (it wants: name, age, colour, days, agree)
            declined, because standard input is not a terminal; run the command in one to answer"]]
        .assert_eq(&form().declined());
    }
}
