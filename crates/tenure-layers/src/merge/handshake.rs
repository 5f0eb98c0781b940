//! Merges the `initialize` results of several servers into one.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure_protocol::{RawJson, Revision};

/// The capabilities that can be merged.
const KNOWN: [&str; 5] = ["tools", "prompts", "resources", "logging", "completions"];

/// The members of a server's `initialize` result that matter here.
#[derive(Deserialize, Clone, Debug, Default)]
pub(super) struct MemberHandshake {
    #[serde(default)]
    pub(super) capabilities: Map<String, Value>,
    #[serde(default)]
    instructions: Option<String>,
}

impl MemberHandshake {
    pub(super) fn read(result: &RawJson) -> Self {
        result.read().unwrap_or_default()
    }

    pub(super) fn has(&self, capability: &str) -> bool {
        self.capabilities.contains_key(capability)
    }
}

/// Composes the merged result. `None` is a server that has not started yet: it may have any capability.
pub(super) fn compose(revision: Revision, members: &[(&str, Option<MemberHandshake>)]) -> RawJson {
    let mut capabilities = Map::new();
    let mut instructions = Vec::new();
    for (name, handshake) in members {
        let Some(handshake) = handshake else {
            let anything = json!({
                "tools": {}, "prompts": {}, "resources": { "subscribe": true }, "logging": {}, "completions": {}
            });
            if let Value::Object(anything) = anything {
                unite(&mut capabilities, &anything);
            }
            continue;
        };
        // Other capabilities would need more than passing messages on, so they are not offered.
        let known = handshake.capabilities.iter().filter(|(name, _)| KNOWN.contains(&name.as_str()));
        unite(&mut capabilities, &known.map(|(name, value)| (name.clone(), value.clone())).collect());
        if let Some(text) = handshake.instructions.as_deref().filter(|text| !text.trim().is_empty()) {
            instructions.push(format!("# {name}\n\n{}", text.trim()));
        }
    }
    // Lists change whenever a server comes or goes.
    for list in ["tools", "prompts", "resources"] {
        if let Some(Value::Object(list)) = capabilities.get_mut(list) {
            list.insert("listChanged".to_owned(), Value::Bool(true));
        }
    }
    let mut result = json!({
        "protocolVersion": revision.as_str(),
        "capabilities": capabilities,
        "serverInfo": { "name": "tenure", "version": env!("CARGO_PKG_VERSION") },
    });
    if !instructions.is_empty() {
        result["instructions"] = instructions.join("\n\n").into();
    }
    RawJson::of(&result)
}

/// Adds the capabilities of one server to those of all.
fn unite(all: &mut Map<String, Value>, one: &Map<String, Value>) {
    for (name, value) in one {
        match (all.get_mut(name), value) {
            (Some(Value::Object(all)), Value::Object(one)) => unite(all, one),
            (Some(Value::Bool(all)), Value::Bool(one)) => *all |= one,
            (Some(_), _) => {}
            (None, value) => {
                all.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_any_can_do_all_can_do() {
        let handshake = |text: &str| Some(MemberHandshake::read(&RawJson::trusted(text.to_owned())));
        let one = handshake(
            r#"{"capabilities":{"tools":{"listChanged":false},"resources":{"subscribe":false}},"instructions":" Ask first.\n"}"#,
        );
        let other = handshake(
            r#"{"capabilities":{"resources":{"subscribe":true},"experimental":{"x":{}},"tasks":{},"logging":{}}}"#,
        );
        let composed = compose(Revision::LATEST, &[("one", one.clone()), ("other", other)]);
        let composed: Value = composed.read().unwrap();
        assert_eq!(
            composed["capabilities"],
            json!({
                "tools": { "listChanged": true },
                "resources": { "subscribe": true, "listChanged": true },
                "logging": {},
            })
        );
        assert_eq!(composed["instructions"], "# one\n\nAsk first.");
        let composed: Value = compose(Revision::LATEST, &[("one", one), ("away", None)]).read().unwrap();
        assert_eq!(composed["capabilities"]["prompts"], json!({ "listChanged": true }));
        assert_eq!(composed["capabilities"]["completions"], json!({}));
    }
}
