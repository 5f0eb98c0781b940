//! Generates one JSON Schema of all messages from the types.

use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::{ErrorResponse, ToolMeta, draft, extension, strawman};

/// The schema of every message about data sessions. The name of a definition is its dialect and its type, such as
/// `strawman.CreateRequest`; definitions that all dialects share have no dialect in their name.
pub fn schema() -> Value {
    let mut all = Map::new();
    add(&mut all, "", |generator| {
        define::<ErrorResponse>(generator);
        define::<ToolMeta>(generator);
    });
    let shared: Vec<String> = all.keys().cloned().chain(["Hints", "Need"].map(str::to_owned)).collect();
    // A macro, because each dialect has its own types with the same names.
    macro_rules! dialect {
        ($dialect:ident: $($of:ident),*) => {
            let prefix = concat!(stringify!($dialect), ".");
            let mut own = Map::new();
            add(&mut own, prefix, |generator| { $(define::<$dialect::$of>(generator);)* });
            for (name, definition) in own {
                let shared = name.strip_prefix(prefix).filter(|name| shared.iter().any(|shared| shared == name));
                let name = shared.map_or_else(|| name.clone(), str::to_owned);
                all.insert(name, definition);
            }
        };
    }
    dialect!(strawman: Capability, Meta, ClientRequest, ServerResult, CreateResultResponse, ResumeResultResponse,
        DeleteResultResponse, ListResultResponse, RecoverResultResponse, ForkResultResponse);
    dialect!(draft: Capability, Meta, ClientRequest, ServerResult, CreateResultResponse, DeleteResultResponse);
    dialect!(extension: Capability, Meta, ClientRequest, ServerResult, CreateResultResponse, ResumeResultResponse,
        DeleteResultResponse, ListResultResponse, RecoverResultResponse, ForkResultResponse);
    for dialect in ["strawman", "extension"] {
        for (of, methods) in [
            ("NamedRequestParams", &["Resume", "Delete", "Recover", "Fork"][..]),
            ("SessionResult", &["Create", "Resume", "Recover", "Fork"]),
        ] {
            let what = of.trim_start_matches("Named").trim_start_matches("Session");
            for method in methods {
                all.insert(
                    format!("{dialect}.{method}{what}"),
                    json!({ "$ref": format!("#/$defs/{dialect}.{of}") }),
                );
            }
        }
    }
    let mut text = Value::Object(all).to_string();
    for dialect in ["strawman", "draft", "extension"] {
        for shared in &shared {
            text = text.replace(&format!("\"#/$defs/{dialect}.{shared}\""), &format!("\"#/$defs/{shared}\""));
        }
    }
    let all: Value = serde_json::from_str(&text).expect("it was JSON");
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Data sessions",
        "description": "Every message about data sessions, in all dialects. Made from the types of the crate tenure-protocol.",
        "$defs": all,
    })
}

fn define<T: JsonSchema>(generator: &mut SchemaGenerator) {
    generator.subschema_for::<T>();
}

/// Adds definitions under names with a prefix.
fn add(to: &mut Map<String, Value>, prefix: &str, define: impl FnOnce(&mut SchemaGenerator)) {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    define(&mut generator);
    let definitions = Value::Object(generator.take_definitions(true)).to_string();
    let definitions = definitions.replace("\"#/$defs/", &format!("\"#/$defs/{prefix}"));
    let definitions: Map<String, Value> = serde_json::from_str(&definitions).expect("it was JSON");
    to.extend(definitions.into_iter().map(|(name, definition)| (format!("{prefix}{name}"), definition)));
}
