//! Prints the result of a tool: its text, its structured content, or all of it.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::process::ExitCode;

use serde_json::Value;
use tenure_client::Dialect;

use crate::cli::{Failure, note, say};
use crate::escape::plain_lines;

/// Which part of a result is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PrintedPart {
    Text,
    Structured,
    Whole,
}

/// Prints a result on standard output. A tool's error goes to standard error, unless the whole result is printed.
pub(super) fn print(result: &Value, form: PrintedPart) -> Result<ExitCode, Failure> {
    let is_error = result["isError"] == true;
    let printed = match form {
        PrintedPart::Text => text(result),
        PrintedPart::Structured => pretty(result.get("structuredContent").unwrap_or(&result["content"])),
        PrintedPart::Whole => pretty(&without_cookie(result)),
    };
    if is_error && form != PrintedPart::Whole {
        note(for_terminal(&printed, std::io::stderr().is_terminal()).trim_end());
    } else if !printed.is_empty() {
        say(&for_stdout(&printed))?;
    }
    Ok(if is_error { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Removes the cookie: it is a secret, and the jar already has it.
fn without_cookie(result: &Value) -> Value {
    let mut result = result.clone();
    if let Some(meta) = result.get_mut("_meta").and_then(Value::as_object_mut) {
        for dialect in Dialect::ALL {
            meta.remove(dialect.key());
        }
        if meta.is_empty()
            && let Some(result) = result.as_object_mut()
        {
            result.remove("_meta");
        }
    }
    result
}

/// All texts, each with a line break at its end. Other contents are named.
fn text(result: &Value) -> String {
    let contents = result["content"].as_array().into_iter().flatten();
    contents.map(|content| format!("{}\n", part(content).trim_end_matches('\n'))).collect()
}

/// One piece of content as text. Other types are named.
pub(in crate::cli) fn part(content: &Value) -> String {
    let field = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    match content["type"].as_str() {
        Some("text") => field(content, "text"),
        Some("resource") => match content["resource"]["text"].as_str() {
            Some(text) => text.to_owned(),
            None => format!("[resource {}]", field(&content["resource"], "uri")),
        },
        Some("resource_link") => format!("[resource {}]", field(content, "uri")),
        Some(kind) => format!("[{kind} {}; `--raw` shows it]", field(content, "mimeType")),
        None => String::new(),
    }
}

/// The text as it is printed on standard output.
pub(in crate::cli) fn for_stdout(text: &str) -> Cow<'_, str> {
    for_terminal(text, std::io::stdout().is_terminal())
}

/// On a terminal, control characters are escaped; a file gets the tool's text unchanged.
fn for_terminal(text: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal { plain_lines(text) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_of_content_is_told() {
        let result = json!({ "content": [
            { "type": "text", "text": "one\n" },
            { "type": "text", "text": "two" },
            { "type": "resource", "resource": { "uri": "demo://a", "text": "three" } },
            { "type": "resource", "resource": { "uri": "demo://b", "blob": "AAAA" } },
            { "type": "resource_link", "uri": "demo://c", "name": "c" },
            { "type": "image", "data": "AAAA", "mimeType": "image/png" },
        ] });
        expect_test::expect![[r"
            one
            two
            three
            [resource demo://b]
            [resource demo://c]
            [image image/png; `--raw` shows it]
        "]]
        .assert_eq(&text(&result));
        assert_eq!(text(&json!({})), "");
    }

    #[test]
    fn the_whole_result_holds_no_cookie() {
        let result =
            json!({ "content": [], "_meta": { "mcp/session": { "id": "sess-geheim" }, "other": 1 } });
        assert_eq!(without_cookie(&result), json!({ "content": [], "_meta": { "other": 1 } }));
        let result = json!({ "content": [], "_meta": { "io.modelcontextprotocol/session": { "sessionId": "sess-geheim" } } });
        assert_eq!(without_cookie(&result), json!({ "content": [] }));
    }

    #[test]
    fn a_terminal_is_not_steered_and_a_file_is_not_edited() {
        assert_eq!(for_terminal("a\x1b[31m\tb\u{202e}\n", true), "a\\u001b[31m\tb\\u202e\n");
        assert_eq!(for_terminal("a\x1b[31m\tb\n", false), "a\x1b[31m\tb\n");
    }
}
