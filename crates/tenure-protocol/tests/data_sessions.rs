//! The types of data sessions, the schema file, and real messages of servers and clients agree (A16.51).
//!
//! The file is generated from the types. The messages come from the transcripts of the server's own tests: every
//! message fits the schema, and the types read it and write it back without loss.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tenure_protocol::data_session::{ErrorResponse, draft, extension, schema, strawman};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The schema file.
fn file() -> Value {
    serde_json::from_str(&std::fs::read_to_string(root().join("docs/data-sessions.schema.json")).unwrap())
        .unwrap()
}

/// The same value with sorted lists of names.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(mut values) => {
            if values.iter().all(Value::is_string) {
                values.sort_by_key(Value::to_string);
            }
            values.into_iter().map(sorted).collect()
        }
        Value::Object(members) => members.into_iter().map(|(name, value)| (name, sorted(value))).collect(),
        value => value,
    }
}

#[test]
fn the_file_is_made_from_the_types() {
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let made = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        std::fs::write(root().join("docs/data-sessions.schema.json"), made).unwrap();
    }
    // Compared as values: the order of members depends on the features of the build.
    assert_eq!(sorted(file()), sorted(schema()), "`UPDATE_EXPECT=1` writes it anew");
}

#[test]
fn every_method_has_its_four_definitions() {
    let file = file();
    let all = ["Create", "Resume", "Delete", "List", "Recover", "Fork"];
    for (dialect, methods) in [("strawman", &all[..]), ("draft", &["Create", "Delete"]), ("extension", &all)]
    {
        for method in methods {
            for of in ["Request", "RequestParams", "Result", "ResultResponse"] {
                let name = format!("{dialect}.{method}{of}");
                assert!(file["$defs"][&name].is_object(), "{name} is not in the file");
            }
        }
        for union in ["ClientRequest", "ServerResult"] {
            let of = file["$defs"][format!("{dialect}.{union}")]["anyOf"].as_array().unwrap();
            assert!(of.len() >= 2, "{dialect}.{union}");
        }
    }
    // Every reference leads to a definition.
    let text = file.to_string();
    for (at, _) in text.match_indices("#/$defs/") {
        let name = text[at + 8..].split('"').next().unwrap();
        assert!(file["$defs"][name].is_object(), "{name} is not in the file");
    }
}

/// Describes how a value does not fit a schema. Supports the keywords that the file uses, and fails on others.
fn misfit(file: &Value, schema: &Value, value: &Value) -> Option<String> {
    let schema = match schema {
        Value::Bool(true) => return None,
        Value::Object(schema) => schema,
        _ => return Some(format!("the schema {schema} allows nothing")),
    };
    let number = |value: &Value| value.as_f64();
    for (keyword, wants) in schema {
        let fits = match keyword.as_str() {
            "$ref" => {
                let name = wants.as_str().and_then(|to| to.strip_prefix("#/$defs/")).unwrap();
                if let Some(why) = misfit(file, &file["$defs"][name], value) {
                    return Some(why);
                }
                true
            }
            "type" => match wants {
                Value::Array(types) => types.iter().any(|of| is_of(of, value)),
                of => is_of(of, value),
            },
            "const" => value == wants,
            "enum" => wants.as_array().unwrap().contains(value),
            "minimum" => number(value).is_none_or(|value| value >= number(wants).unwrap()),
            "anyOf" | "oneOf" => {
                let ways = wants.as_array().unwrap();
                let misfits: Vec<_> = ways.iter().map_while(|way| misfit(file, way, value)).collect();
                if misfits.len() == ways.len() {
                    return Some(misfits.join(" | "));
                }
                true
            }
            "properties" => {
                for (name, schema) in wants.as_object().unwrap() {
                    if let Some(why) = value.get(name).and_then(|value| misfit(file, schema, value)) {
                        return Some(format!("{name}: {why}"));
                    }
                }
                true
            }
            "required" => {
                wants.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "additionalProperties" => *wants == json!(true),
            "items" => match value.as_array() {
                Some(items) => items.iter().all(|item| misfit(file, wants, item).is_none()),
                None => true,
            },
            "description" | "title" | "format" | "default" => true,
            other => panic!("the file says `{other}`, which this test does not know"),
        };
        if !fits {
            return Some(format!("{value} does not fit {keyword}: {wants}"));
        }
    }
    None
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the file says `{other}`, which this test does not know"),
    }
}

#[test]
fn the_check_finds_what_does_not_fit() {
    let file = file();
    let request =
        |params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "session/resume", "params": params });
    let of = |value: &Value| misfit(&file, &file["$defs"]["strawman.ResumeRequest"], value);
    assert_eq!(of(&request(json!({ "id": "sess-1" }))), None);
    assert!(of(&request(json!({ "id": 1 }))).is_some());
    assert!(of(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/create" })).is_some());
    assert!(of(&json!({ "jsonrpc": "1.0", "id": 1, "method": "session/resume" })).is_some());
    assert!(of(&json!({ "jsonrpc": "2.0", "method": "session/resume" })).is_some());
}

/// Checks a message against a definition, and that its type reads and writes all of it.
fn held<T: Serialize + DeserializeOwned>(file: &Value, name: &str, message: &Value) {
    if let Some(why) = misfit(file, &file["$defs"][name], message) {
        panic!("{message} is no {name}: {why}");
    }
    let read: T =
        serde_json::from_value(message.clone()).unwrap_or_else(|error| panic!("{message}: {error}"));
    assert_eq!(serde_json::to_value(&read).unwrap(), *message, "{name} does not keep all of it");
}

/// The requests of a transcript of the server's tests, each with its answer.
fn transcript(name: &str) -> Vec<(Value, Value)> {
    let text =
        std::fs::read_to_string(root().join("crates/tenure/tests/it/data/snapshots").join(name)).unwrap();
    let mut said: Vec<(Value, Value)> = Vec::new();
    for line in text.lines() {
        if let Some(request) = line.strip_prefix("→ ") {
            said.push((serde_json::from_str(request).unwrap(), Value::Null));
        } else if let Some(answer) = line.strip_prefix("← ") {
            said.last_mut().unwrap().1 = serde_json::from_str(answer).unwrap();
        }
    }
    assert!(said.len() > 2, "{name}");
    said
}

/// The name of a dialect's method among the types, such as `Create`.
fn method(dialect: &str, request: &Value) -> Option<String> {
    let prefix = match dialect {
        "strawman" => "session/",
        "draft" => "sessions/",
        _ => "dev.tenure/session/",
    };
    let verb = request["method"].as_str()?.strip_prefix(prefix)?;
    let known = ["create", "resume", "delete", "list", "recover", "fork"].contains(&verb);
    known.then(|| verb[..1].to_uppercase() + &verb[1..])
}

#[test]
fn what_servers_and_clients_say_fits_the_file_and_the_types() {
    let file = file();
    let mut seen = std::collections::BTreeSet::new();
    for (name, dialect) in [
        ("strawman.txt", "strawman"),
        ("draft.txt", "draft"),
        ("draft_always.txt", "draft"),
        ("own.txt", "extension"),
        ("required.txt", "strawman"),
    ] {
        for (request, answer) in transcript(name) {
            let is_error = answer.get("error").is_some();
            let reason = answer["error"]["data"]["reason"].as_str().unwrap_or_default();
            if reason.contains("session") {
                held::<ErrorResponse>(&file, "ErrorResponse", &answer);
            }
            metadata(&file, dialect, &request, &answer, reason);
            capability(&file, dialect, &answer);
            let Some(method) = method(dialect, &request) else { continue };
            // Invalid requests are refused, and need not fit.
            if reason == "invalid_params" {
                continue;
            }
            let of = |what: &str| format!("{dialect}.{method}{what}");
            match dialect {
                "strawman" => held::<strawman::ClientRequest>(&file, &of("Request"), &request),
                "draft" => held::<draft::ClientRequest>(&file, &of("Request"), &request),
                _ => held::<extension::ClientRequest>(&file, &of("Request"), &request),
            }
            if !is_error {
                held::<Value>(&file, &of("ResultResponse"), &answer);
                match dialect {
                    "strawman" => held::<strawman::ServerResult>(&file, &of("Result"), &answer["result"]),
                    "draft" => held::<draft::ServerResult>(&file, &of("Result"), &answer["result"]),
                    _ => held::<extension::ServerResult>(&file, &of("Result"), &answer["result"]),
                }
                seen.insert(of(""));
            }
        }
    }
    assert_eq!(seen.len(), 14, "every method of every dialect was answered once: {seen:?}");
}

/// Checks the metadata that any request and any result may carry.
fn metadata(file: &Value, dialect: &str, request: &Value, answer: &Value, reason: &str) {
    let key = match dialect {
        "strawman" => strawman::KEY,
        "draft" => draft::KEY,
        _ => extension::KEY,
    };
    let name = format!("{dialect}.Meta");
    for meta in [&request["params"]["_meta"], &answer["result"]["_meta"]] {
        if meta.get(key).is_none() || reason == "invalid_params" {
            continue;
        }
        match dialect {
            "strawman" => held::<strawman::Meta>(file, &name, meta),
            "draft" => held::<draft::Meta>(file, &name, meta),
            _ => held::<extension::Meta>(file, &name, meta),
        }
    }
}

/// Checks the capability that a server offers.
fn capability(file: &Value, dialect: &str, answer: &Value) {
    let offered = &answer["result"]["capabilities"];
    if !offered.is_object() {
        return;
    }
    match dialect {
        "extension" => {
            let offered = &offered["extensions"][extension::EXTENSION];
            held::<extension::Capability>(file, "extension.Capability", offered);
        }
        _ => {
            held::<strawman::Capability>(file, "strawman.Capability", &offered["experimental"]["session"]);
            held::<draft::Capability>(file, "draft.Capability", &offered["sessions"]);
        }
    }
}

#[test]
fn a_secret_is_not_shown() {
    let cookie = json!({ "mcp/session": { "id": "sess-geheim" }, "progressToken": 5 });
    let meta: strawman::Meta = serde_json::from_value(cookie).unwrap();
    assert!(!format!("{meta:?}").contains("geheim"));
    assert_eq!(meta.other, Map::from_iter([("progressToken".to_owned(), json!(5))]));
}
