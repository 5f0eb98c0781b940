//! The data sessions that a server offers, read from the capabilities in its answer to `initialize` or
//! `server/discover`.

use serde_json::Value;

use super::{Dialect, EXTENSION};
use crate::cookie::Object;

/// The `session/*` methods that a server of the strawman or of the extension lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Features {
    /// The server sent no list: every method may be tried.
    Unnamed,
    /// Only these.
    Named(Vec<String>),
}

/// The dialects that a server offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    strawman: Option<Features>,
    sep: bool,
    extension: Option<Features>,
}

/// The dialect that is used with a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The dialect.
    pub dialect: Dialect,
    features: Features,
}

impl Offers {
    /// Reads the `capabilities` object of the answer to `initialize` or `server/discover`.
    pub fn read(capabilities: &Value) -> Self {
        Self {
            strawman: capabilities.pointer("/experimental/session").and_then(strawman),
            sep: capabilities.get("sessions").is_some_and(Value::is_object),
            extension: capabilities.get("extensions").and_then(|all| all.get(EXTENSION)).and_then(named),
        }
    }

    /// Chooses one of the offered dialects. `None` if we speak none of them: the server is used without sessions.
    pub fn choose(&self, preferred: Dialect) -> Option<Offer> {
        let strawman = || Some(Offer { dialect: Dialect::Strawman, features: self.strawman.clone()? });
        let sep = || self.sep.then(|| Offer::of(Dialect::Draft));
        match preferred {
            Dialect::Strawman => strawman().or_else(sep),
            Dialect::Draft | Dialect::Extension => sep().or_else(strawman),
        }
    }

    /// The offer to clients without a transport session, which can only be the extension.
    pub fn without_transport_session(&self) -> Option<Offer> {
        Some(Offer { dialect: Dialect::Extension, features: self.extension.clone()? })
    }
}

impl Offer {
    /// An assumed offer of all methods of a dialect.
    pub fn of(dialect: Dialect) -> Self {
        Self { dialect, features: Features::Unnamed }
    }

    /// Whether a method (`create`, `resume`, …) may be tried.
    pub fn includes(&self, feature: &str) -> bool {
        match (self.dialect, &self.features) {
            (Dialect::Draft, _) => ["create", "delete"].contains(&feature),
            (Dialect::Strawman | Dialect::Extension, Features::Unnamed) => true,
            (Dialect::Strawman | Dialect::Extension, Features::Named(named)) => {
                named.iter().any(|name| name == feature)
            }
        }
    }
}

fn strawman(capability: &Value) -> Option<Features> {
    let capability = capability.as_object()?;
    // The source code says 1, released software sends 2 or no version, and the messages are the same. An unknown
    // version may differ, so such a server is used without sessions.
    if !matches!(capability.get("version"), None | Some(Value::Null))
        && !capability.get("version").and_then(Value::as_i64).is_some_and(|version| [1, 2].contains(&version))
    {
        return None;
    }
    Some(features(capability))
}

fn named(capability: &Value) -> Option<Features> {
    capability.as_object().map(features)
}

fn features(capability: &Object) -> Features {
    let names = |list: &Vec<Value>| list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let listed = capability.get("features").and_then(Value::as_array);
    listed.map_or(Features::Unnamed, |list| Features::Named(names(list)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Dialect, Offers};

    fn chosen(capabilities: &Value, preferred: Dialect) -> Option<Dialect> {
        Offers::read(capabilities).choose(preferred).map(|offer| offer.dialect)
    }

    #[test]
    fn which_dialect_is_spoken() {
        use Dialect::{Draft, Strawman};
        let both = json!({"experimental": {"session": {"features": ["create"]}}, "sessions": {}});
        for (capabilities, preferred, expected) in [
            (json!({}), Draft, None),
            (json!({"tools": {}, "experimental": {"other": {}}}), Draft, None),
            (
                json!({"experimental": {"session": {"version": 1, "features": ["create"]}}}),
                Draft,
                Some(Strawman),
            ),
            (json!({"experimental": {"session": {"version": 2}}}), Draft, Some(Strawman)),
            (json!({"experimental": {"session": {}}}), Draft, Some(Strawman)),
            (json!({"experimental": {"session": {"version": 3}}}), Draft, None),
            (json!({"experimental": {"session": {"version": "1"}}}), Draft, None),
            (json!({"experimental": {"session": true}}), Draft, None),
            (json!({"sessions": {}}), Strawman, Some(Draft)),
            (json!({"sessions": true}), Draft, None),
            (both.clone(), Draft, Some(Draft)),
            (both, Strawman, Some(Strawman)),
            (json!({"experimental": {"session": {"version": 9}}, "sessions": {}}), Strawman, Some(Draft)),
            (json!("nonsense"), Draft, None),
        ] {
            assert_eq!(chosen(&capabilities, preferred), expected, "{capabilities}");
        }
    }

    #[test]
    fn without_a_transport_session_only_the_extension_counts() {
        let offered = |capabilities: Value| Offers::read(&capabilities).without_transport_session();
        let both = json!({"sessions": {}, "extensions": {"dev.tenure/sessions": {"features": ["create"]}}});
        let offer = offered(both.clone()).unwrap();
        assert_eq!(offer.dialect, Dialect::Extension);
        assert!(offer.includes("create") && !offer.includes("list"));
        assert_eq!(chosen(&both, Dialect::Extension), Some(Dialect::Draft), "in a transport session");
        assert!(offered(json!({"extensions": {"dev.tenure/sessions": {}}})).unwrap().includes("list"));
        assert_eq!(offered(json!({"sessions": {}, "experimental": {"session": {}}})), None);
        assert_eq!(offered(json!({"extensions": {"dev.tenure/sessions": null}})), None);
    }

    #[test]
    fn only_named_methods_are_tried_if_any_are_named() {
        let offer = |capabilities| Offers::read(&capabilities).choose(Dialect::Draft).unwrap();
        let some = offer(json!({"experimental": {"session": {"features": ["create", "list", 3]}}}));
        assert!(some.includes("create") && some.includes("list") && !some.includes("resume"));
        let unnamed = offer(json!({"experimental": {"session": {}}}));
        assert!(unnamed.includes("create") && unnamed.includes("recover"));
        let sep = offer(json!({"sessions": {}}));
        assert!(sep.includes("create") && sep.includes("delete"));
        assert!(!sep.includes("resume") && !sep.includes("list") && !sep.includes("recover"));
    }
}
