//! The JSON schema of one value: its type in words, and conversion of text to that type.
//!
//! Used for arguments typed as `key=value`, for forms of a server, and to show the arguments of a tool.

use serde_json::Value;

/// The types that a schema allows, by their JSON Schema names; empty if it names none.
pub(super) fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one.as_str()],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => ["anyOf", "oneOf"]
            .into_iter()
            .filter_map(|key| schema[key].as_array())
            .flatten()
            .flat_map(types)
            .collect(),
    }
}

/// The values that a schema lists, each with the words for it.
pub(super) fn choices(schema: &Value) -> Vec<(Value, String)> {
    if let Some(values) = schema["enum"].as_array() {
        let names = schema["enumNames"].as_array();
        let name = |index: usize| names.and_then(|names| names.get(index)?.as_str()).map(str::to_owned);
        let choice =
            |(index, value): (usize, &Value)| (value.clone(), name(index).unwrap_or_else(|| written(value)));
        return values.iter().enumerate().map(choice).collect();
    }
    let listed = ["oneOf", "anyOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten();
    let choice = |one: &Value| {
        let value = one.get("const")?.clone();
        let words = one["title"].as_str().map_or_else(|| written(&value), str::to_owned);
        Some((value, words))
    };
    listed.filter_map(choice).collect()
}

/// The type in words, such as `whole number, 0 to 10`.
pub(super) fn in_words(schema: &Value) -> String {
    let choices = choices(schema);
    if !choices.is_empty() {
        return choices.iter().map(|(value, _)| written(value)).collect::<Vec<_>>().join(" | ");
    }
    let word = |name: &&str| match *name {
        "string" => match schema["format"].as_str() {
            Some(format) => format!("text ({format})"),
            None => "text".to_owned(),
        },
        "integer" => "whole number".to_owned(),
        "number" => "number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => match schema.get("items") {
            Some(items) if !types(items).is_empty() => format!("list of {}", in_words(items)),
            _ => "list".to_owned(),
        },
        "object" => "object".to_owned(),
        other => other.to_owned(),
    };
    let names = types(schema);
    let words: Vec<_> = names.iter().filter(|name| **name != "null").map(word).collect();
    let words = if words.is_empty() { "anything".to_owned() } else { words.join(" or ") };
    match bounds(schema) {
        Some(bounds) => format!("{words}, {bounds}"),
        None => words,
    }
}

fn bounds(schema: &Value) -> Option<String> {
    let get = |key: &str| schema.get(key).filter(|bound| bound.is_number());
    let said = |least: Option<&Value>, most: Option<&Value>, unit: &str| match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    };
    said(get("minimum"), get("maximum"), "")
        .or_else(|| said(get("minLength"), get("maxLength"), " letters"))
        .or_else(|| said(get("minItems"), get("maxItems"), " items"))
}

/// Turns text into the value that a schema asks for. The error says what it should have been.
pub(super) fn value_of(text: &str, schema: &Value) -> Result<Value, String> {
    let choices = choices(schema);
    if !choices.is_empty() {
        let found = choices.iter().find(|(value, _)| written(value) == text);
        return found.map(|(value, _)| value.clone()).ok_or_else(|| expected(schema));
    }
    let types = types(schema);
    let is = |name: &str| types.contains(&name);
    // The input is text, so it is not converted if the schema allows text.
    let value = if types.is_empty() || is("string") {
        Value::from(text)
    } else if is("null") && text == "null" {
        Value::Null
    } else {
        let json = || serde_json::from_str::<Value>(text).ok();
        let read = match text.trim() {
            "yes" | "true" if is("boolean") => Some(Value::Bool(true)),
            "no" | "false" if is("boolean") => Some(Value::Bool(false)),
            number if is("integer") || is("number") => {
                let number = serde_json::from_str::<Value>(number).ok().filter(Value::is_number);
                number.filter(|number| is("number") || number.is_i64() || number.is_u64())
            }
            _ if is("array") => json().filter(Value::is_array).or_else(|| items(text, schema)),
            _ if is("object") => json().filter(Value::is_object),
            _ => None,
        };
        read.ok_or_else(|| expected(schema))?
    };
    within(&value, schema).then_some(value).ok_or_else(|| expected(schema))
}

fn expected(schema: &Value) -> String {
    format!("expected {}", in_words(schema))
}

/// `a,b,c` for a list of plain values.
fn items(text: &str, schema: &Value) -> Option<Value> {
    let items = schema.get("items")?;
    if text.trim().is_empty() {
        return Some(Value::Array(Vec::new()));
    }
    let values = text.split(',').map(|item| value_of(item.trim(), items).ok());
    values.collect::<Option<Vec<_>>>().map(Value::Array)
}

fn within(value: &Value, schema: &Value) -> bool {
    let bound = |key: &str| schema[key].as_f64();
    let size = match value {
        Value::Number(number) => number.as_f64().map(|size| (size, "minimum", "maximum")),
        Value::String(text) => Some((text.chars().count() as f64, "minLength", "maxLength")),
        Value::Array(items) => Some((items.len() as f64, "minItems", "maxItems")),
        _ => None,
    };
    size.is_none_or(|(size, least, most)| {
        bound(least).is_none_or(|least| size >= least) && bound(most).is_none_or(|most| size <= most)
    })
}

/// A value as people write it: a text without quotes.
pub(super) fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_becomes_the_type_that_is_asked_for() {
        let whole = json!({ "type": "integer", "minimum": 0, "maximum": 10 });
        let words = json!({ "type": "array", "items": { "type": "string" } });
        let table = [
            (json!({}), "3", Ok(json!("3"))),
            (json!({ "type": "string" }), "3", Ok(json!("3"))),
            (json!({ "type": ["string", "number"] }), "3", Ok(json!("3"))),
            (json!({ "type": "string", "maxLength": 2 }), "abc", Err("expected text, at most 2 letters")),
            (whole.clone(), "3", Ok(json!(3))),
            (whole.clone(), "3.5", Err("expected whole number, 0 to 10")),
            (whole.clone(), "11", Err("expected whole number, 0 to 10")),
            (whole, "three", Err("expected whole number, 0 to 10")),
            (json!({ "type": "number" }), "3.5", Ok(json!(3.5))),
            (json!({ "type": ["integer", "null"] }), "null", Ok(Value::Null)),
            (json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }), "4", Ok(json!(4))),
            (json!({ "type": "boolean" }), "yes", Ok(json!(true))),
            (json!({ "type": "boolean" }), "false", Ok(json!(false))),
            (json!({ "type": "boolean" }), "1", Err("expected true or false")),
            (words.clone(), "a, b", Ok(json!(["a", "b"]))),
            (words.clone(), r#"["a,b"]"#, Ok(json!(["a,b"]))),
            (words, "", Ok(json!([]))),
            (
                json!({ "type": "array", "items": { "type": "integer" } }),
                "1,x",
                Err("expected list of whole number"),
            ),
            (json!({ "type": "object" }), r#"{"a":1}"#, Ok(json!({ "a": 1 }))),
            (json!({ "type": "object" }), "a", Err("expected object")),
            (json!({ "type": "string", "enum": ["red", "blue"] }), "red", Ok(json!("red"))),
            (json!({ "enum": [1, 2] }), "2", Ok(json!(2))),
            (json!({ "enum": ["red", "blue"] }), "green", Err("expected red | blue")),
            (json!({ "oneOf": [{ "const": "r", "title": "Red" }] }), "r", Ok(json!("r"))),
        ];
        for (schema, text, expected) in table {
            assert_eq!(value_of(text, &schema), expected.map_err(str::to_owned), "{schema} {text}");
        }
    }
}
