//! A tool's arguments as they are typed: JSON, a file, standard input, or pairs.

use std::io::Read;

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::cli::Failure;

/// Reads the words after the tool's name. None at all are no arguments.
pub(super) fn read(words: &[String]) -> Result<JsonObject, Failure> {
    match words {
        [] => Ok(JsonObject::new()),
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
        pairs => pairs.iter().map(|word| pair(word)).collect(),
    }
}

fn object(text: &str, whence: &str) -> Result<JsonObject, Failure> {
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(Failure::new(format!("{whence}: not a JSON object")).hint(example())),
        Err(error) => Err(Failure::new(format!("{whence}: not JSON")).caused_by(error).hint(example())),
    }
}

fn pair(word: &str) -> Result<(String, Value), Failure> {
    let Some((key, value)) = word.split_once('=').filter(|(key, _)| !key.is_empty()) else {
        return Err(Failure::new(format!("`{word}` is no argument")).hint(example()));
    };
    match key.strip_suffix(':') {
        Some(key) => {
            let value = serde_json::from_str(value).map_err(|error| {
                Failure::new(format!("the value of `{key}` is not JSON"))
                    .caused_by(error)
                    .hint(format!("a text is written `{key}={value}`"))
            })?;
            Ok((key.to_owned(), value))
        }
        None => Ok((key.to_owned(), Value::from(value))),
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
        read(&words).map(Value::Object).map_err(|failure| failure.to_string())
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
            error: `hello` is no argument

            hint: write arguments as '{"text":"hello"}', as text=hello, as count:=3, or as @file.json

            ## =hello
            error: `=hello` is no argument

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
