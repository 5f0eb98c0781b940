//! One tool for people: its description, its hints, its arguments and its result.

use serde_json::Value;

use crate::cli::paint::{Paint, Tone};
use crate::cli::schema;
use crate::cli::table::{Cell, left, table};
use crate::escape::plain;

pub(super) fn render(tool: &Value, paint: Paint) -> String {
    let text = |key: &str| tool[key].as_str().map(str::trim).filter(|text| !text.is_empty());
    let mut out = paint.tint(Tone::Title, &plain(text("name").unwrap_or_default()));
    if let Some(title) = text("title") {
        out.push_str(&format!("  {}", plain(title)));
    }
    out.push('\n');
    if let Some(about) = text("description") {
        for line in about.lines() {
            out.push_str(&format!("  {}\n", plain(line.trim_end())));
        }
    }
    let hints = hints(tool);
    if !hints.is_empty() {
        out.push_str(&format!("\nThe server says that it {}.\n", hints.join(", ")));
    }
    out.push_str(&section("Arguments", &tool["inputSchema"], paint));
    if tool.get("outputSchema").is_some() {
        out.push_str(&section("Structured result", &tool["outputSchema"], paint));
    }
    out
}

fn section(title: &str, object: &Value, paint: Paint) -> String {
    let properties = object["properties"].as_object().filter(|properties| !properties.is_empty());
    let Some(properties) = properties else { return format!("\n{title}: none\n") };
    let required =
        |name: &str| object["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
    let about = |schema: &Value| {
        let mut about = schema["description"].as_str().unwrap_or_default().trim().replace('\n', " ");
        if let Some(default) = schema.get("default") {
            let space = if about.is_empty() { "" } else { " " };
            about.push_str(&format!("{space}[default: {}]", schema::written(default)));
        }
        about
    };
    type Property<'a> = (&'a String, &'a Value);
    let columns = [
        left("NAME", |row: &Property<'_>| Cell::new(row.0).tone(Tone::Title)),
        left("TYPE", |row: &Property<'_>| schema::in_words(row.1)),
        left("NEEDED", |row: &Property<'_>| if required(row.0) { "required" } else { "-" }),
        left("DESCRIPTION", |row: &Property<'_>| about(row.1)),
    ];
    let mut properties: Vec<_> = properties.iter().collect();
    properties.sort_by_key(|(name, _)| !required(name));
    let rows = table(&columns, &properties, paint);
    let rows: String = rows.lines().map(|line| format!("  {line}\n")).collect();
    format!("\n{title}:\n{rows}")
}

/// The annotations that matter to a caller, in words.
fn hints(tool: &Value) -> Vec<&'static str> {
    let is = |key: &str| tool["annotations"][key].as_bool();
    let said = [
        (is("readOnlyHint") == Some(true), "changes nothing"),
        (is("destructiveHint") == Some(true) && is("readOnlyHint") != Some(true), "may destroy something"),
        (is("idempotentHint") == Some(true), "may be called twice without harm"),
        (is("openWorldHint") == Some(true), "reaches other systems"),
        (tool["_meta"]["sessionRequired"] == true, "needs a data session"),
    ];
    said.into_iter().filter(|(is_so, _)| *is_so).map(|(_, words)| words).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_shown_with_all_that_it_takes() {
        let tool = json!({
            "name": "search", "title": "Search", "description": "Searches.\nQuickly.",
            "annotations": { "readOnlyHint": true, "openWorldHint": true },
            "inputSchema": { "type": "object", "required": ["query"], "properties": {
                "query": { "type": "string", "description": "What to look for" },
                "limit": { "type": "integer", "minimum": 1, "maximum": 100, "default": 10 },
                "order": { "enum": ["new", "old"] },
                "tags": { "type": "array", "items": { "type": "string" } },
            } },
            "outputSchema": { "type": "object", "properties": { "hits": { "type": "array" } } },
        });
        expect_test::expect![[r"
            search  Search
              Searches.
              Quickly.

            The server says that it changes nothing, reaches other systems.

            Arguments:
              NAME   TYPE                    NEEDED    DESCRIPTION
              query  text                    required  What to look for
              limit  whole number, 1 to 100  -         [default: 10]
              order  new | old               -
              tags   list of text            -

            Structured result:
              NAME  TYPE  NEEDED  DESCRIPTION
              hits  list  -
        "]]
        .assert_eq(&render(&tool, Paint::of(false)));
        let bare = json!({ "name": "ping", "inputSchema": { "type": "object" } });
        assert_eq!(render(&bare, Paint::of(false)), "ping\n\nArguments: none\n");
    }
}
