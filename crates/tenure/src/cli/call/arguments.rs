//! Arguments as they are typed: JSON, a file, standard input, or pairs, whose values get the types of the tool's
//! schema.

use std::io::Read;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::cli::{Failure, schema};

/// The arguments as they were typed.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::cli) enum Given {
    Object(JsonObject),
    Pairs(Vec<ArgumentPair>),
}

/// `key=text`, or `key:=json`.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::cli) enum ArgumentPair {
    Text(String, String),
    Json(String, Value),
}

impl Given {
    /// Whether a value has to be converted to the type of the tool's schema.
    pub(in crate::cli) fn has_pairs(&self) -> bool {
        matches!(self, Self::Pairs(pairs) if pairs.iter().any(|pair| matches!(pair, ArgumentPair::Text(..))))
    }

    /// The arguments, with texts as they are.
    pub(in crate::cli) fn into_object(self) -> JsonObject {
        self.typed(&Value::Null).unwrap_or_default()
    }

    /// The arguments, with texts in the types that a tool's schema asks for.
    pub(in crate::cli) fn typed(self, tool: &Value) -> Result<JsonObject, Failure> {
        let typed = |pair| match pair {
            ArgumentPair::Json(key, value) => Ok((key, value)),
            ArgumentPair::Text(key, text) => {
                let value = schema::value_of(&text, &tool["properties"][&key])
                    .map_err(|why| Failure::new(format!("`{key}` cannot be `{text}`: {why}")))?;
                Ok((key, value))
            }
        };
        match self {
            Self::Object(arguments) => Ok(arguments),
            Self::Pairs(pairs) => pairs.into_iter().map(typed).collect(),
        }
    }
}

/// Reads the words after the tool's name. Without words there are no arguments.
pub(in crate::cli) fn read(words: &[String]) -> Result<Given, Failure> {
    match words {
        [] => Ok(Given::Object(JsonObject::new())),
        [word] if word == "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::new("cannot read standard input").caused_by(error))?;
            object(&text, "standard input")
        }
        [word] if word.starts_with('@') => {
            let path = &word[1..];
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::new(format!("cannot read `{path}`")).caused_by(error))?;
            object(&text, &format!("`{path}`"))
        }
        [word] if word.trim_start().starts_with(['{', '[', '"']) => object(word, "the tool's arguments"),
        pairs => Ok(Given::Pairs(pairs.iter().map(|word| pair(word)).collect::<Result<_, _>>()?)),
    }
}

fn object(text: &str, whence: &str) -> Result<Given, Failure> {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(Given::Object(arguments)),
        Ok(_) => Err(Failure::new(format!("{whence}: not a JSON object")).hint(example())),
        Err(error) => Err(Failure::new(format!("{whence}: not JSON")).caused_by(error).hint(example())),
    }
}

fn pair(word: &str) -> Result<ArgumentPair, Failure> {
    let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
        return Err(Failure::new(format!("`{word}` is not an argument")).hint(example()));
    };
    match key.strip_suffix(':') {
        Some(key) => {
            let value = serde_json::from_str(value).map_err(|error| {
                Failure::new(format!("the value of `{key}` is not JSON"))
                    .caused_by(error)
                    .hint(format!("a text is written `{key}={value}`"))
            })?;
            Ok(ArgumentPair::Json(key.to_owned(), value))
        }
        None => Ok(ArgumentPair::Text(key.to_owned(), value.to_owned())),
    }
}

fn example() -> &'static str {
    "write arguments as '{\"text\":\"hello\"}', as text=hello, as count:=3, or as @file.json"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str]) -> Result<Value, String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        read(&words).map(|given| Value::Object(given.into_object())).map_err(|failure| failure.to_string())
    }

    #[test]
    fn arguments_are_json_or_pairs() {
        use serde_json::json;
        let table: [(&[&str], Value); 6] = [
            (&[], json!({})),
            (&[r#"{"text":"a b"}"#], json!({ "text": "a b" })),
            (&["text=a b"], json!({ "text": "a b" })),
            (
                &["text=a=b", "n:=3", "deep:={\"x\":[1]}"],
                json!({ "text": "a=b", "n": 3, "deep": { "x": [1] } }),
            ),
            (&["text="], json!({ "text": "" })),
            (&["number=3"], json!({ "number": "3" })),
        ];
        for (words, arguments) in table {
            assert_eq!(given(words), Ok(arguments), "{words:?}");
        }
    }

    #[test]
    fn values_get_the_type_that_the_tool_asks_for() {
        use serde_json::json;
        let tool = json!({ "properties": { "n": { "type": "integer" }, "on": { "type": "boolean" } } });
        let typed = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            read(&words).unwrap().typed(&tool).map(Value::Object).map_err(|failure| failure.to_string())
        };
        assert_eq!(
            typed(&["n=3", "on=true", "text=4", "deep:=[1]"]),
            Ok(json!({ "n": 3, "on": true, "text": "4", "deep": [1] }))
        );
        assert_eq!(typed(&[r#"{"n":"3"}"#]), Ok(json!({ "n": "3" })), "JSON is taken as it is");
        expect_test::expect![[r"
            error: `n` cannot be `three`: expected whole number
        "]]
        .assert_eq(&typed(&["n=three"]).unwrap_err());
    }

    #[test]
    fn what_is_neither_is_explained() {
        let cases: [&[&str]; 6] =
            [&["{\"text\":}"], &["[1]"], &["hello"], &["=hello"], &["n:=three"], &["@no/such/file"]];
        let all: String =
            cases.iter().map(|words| format!("## {}\n{}\n", words[0], given(words).unwrap_err())).collect();
        expect_test::expect![[r###"
            ## {"text":}
            error: the tool's arguments: not JSON
              caused by: expected value at line 1 column 9

            hint: write arguments as '{"text":"hello"}', as text=hello, as count:=3, or as @file.json

            ## [1]
            error: the tool's arguments: not a JSON object

            hint: write arguments as '{"text":"hello"}', as text=hello, as count:=3, or as @file.json

            ## hello
            error: `hello` is not an argument

            hint: write arguments as '{"text":"hello"}', as text=hello, as count:=3, or as @file.json

            ## =hello
            error: `=hello` is not an argument

            hint: write arguments as '{"text":"hello"}', as text=hello, as count:=3, or as @file.json

            ## n:=three
            error: the value of `n` is not JSON
              caused by: expected ident at line 1 column 2

            hint: a text is written `n=three`

            ## @no/such/file
            error: cannot read `no/such/file`
              caused by: no such file or directory

        "###]]
        .assert_eq(&all);
    }
}
