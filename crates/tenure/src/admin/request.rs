//! What was asked: the members of a query or of a body, checked against the table of routes.
//!
//! Unknown members fail, so that a mistyped filter never selects more than was meant.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tenure_session::SessionKey;

use super::error::AdminError;
use super::routes::{Member, MemberKind};
use crate::operator::parse_key;

/// How long the reason of a change may be, in characters.
pub(super) const REASON: std::ops::RangeInclusive<usize> = 3..=500;

/// Rows of a page if the request says nothing, and at most.
const ROWS: usize = 50;
const MOST_ROWS: usize = 500;

/// A request that fits its route.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The parts of the path that are variable.
    pub(super) path: BTreeMap<&'static str, String>,
    query: BTreeMap<String, String>,
    body: Map<String, Value>,
}

impl Asked {
    pub(super) fn new(path: BTreeMap<&'static str, String>) -> Self {
        Self { path, ..Self::default() }
    }

    /// Takes the query, if each of its members is known and well formed.
    pub(super) fn take_query(&mut self, query: &str, members: &[Member]) -> Result<(), AdminError> {
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let Some(member) = members.iter().find(|member| member.name == name) else {
                return Err(unknown("the query", &name, members));
            };
            let is_good = match member.kind {
                MemberKind::Count => value.parse::<u64>().is_ok(),
                MemberKind::Flag => matches!(&*value, "true" | "false"),
                MemberKind::Word(words) => words.contains(&&*value),
                _ => true,
            };
            if !is_good {
                return Err(wrong(member));
            }
            if self.query.insert(name.to_string(), value.into_owned()).is_some() {
                return Err(AdminError::bad(format!("`{}` is there twice", member.name)));
            }
        }
        Ok(())
    }

    /// Takes the body, if each of its members is known and well formed, and none is missing.
    pub(super) fn take_body(&mut self, body: &[u8], members: &[Member]) -> Result<(), AdminError> {
        let body: Map<String, Value> = match body {
            [] => Map::new(),
            body => serde_json::from_slice(body)
                .map_err(|error| AdminError::bad(format!("The body is no JSON object: {error}")))?,
        };
        for (name, value) in &body {
            let Some(member) = members.iter().find(|member| member.name == name) else {
                return Err(unknown("the body", name, members));
            };
            let is_good = match (member.kind, value) {
                (MemberKind::Reason, Value::String(text)) => REASON.contains(&text.trim().chars().count()),
                (MemberKind::Text, Value::String(_))
                | (MemberKind::Flag, Value::Bool(_))
                | (MemberKind::Object, Value::Object(_))
                | (MemberKind::Any, _) => true,
                (MemberKind::Word(words), Value::String(word)) => words.contains(&word.as_str()),
                (MemberKind::Count, Value::Number(number)) => number.is_u64(),
                _ => false,
            };
            if !is_good {
                return Err(wrong(member));
            }
        }
        if let Some(missing) =
            members.iter().find(|member| member.is_required && !body.contains_key(member.name))
        {
            return Err(wrong(missing));
        }
        self.body = body;
        Ok(())
    }

    /// The text of a member of the query.
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.query(name) == Some("true")
    }

    pub(super) fn count(&self, name: &str) -> Option<u64> {
        self.query(name).and_then(|count| count.parse().ok())
    }

    /// The members of an object in the body, as those of a query.
    pub(super) fn as_query(&self, name: &str, members: &[Member]) -> Result<Self, AdminError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in self.body.get(name).and_then(Value::as_object).into_iter().flatten() {
            let text = match value {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            query.append_pair(name, &text);
        }
        let mut asked = Self::default();
        asked.take_query(&query.finish(), members)?;
        Ok(asked)
    }

    /// Whether its query is empty.
    pub(super) fn is_unfiltered(&self) -> bool {
        self.query.is_empty()
    }

    /// How many rows a page may have.
    pub(super) fn limit(&self) -> usize {
        let limit = self.count("limit").and_then(|limit| usize::try_from(limit).ok());
        limit.unwrap_or(ROWS).clamp(1, MOST_ROWS)
    }

    /// The key after which a page begins.
    pub(super) fn after(&self) -> Result<Option<SessionKey>, AdminError> {
        let bad = || AdminError::bad("`after` is no cursor of this list");
        self.query("after").map(|cursor| parse_key(cursor).ok_or_else(bad)).transpose()
    }

    /// The key in the path.
    pub(super) fn key(&self) -> Result<SessionKey, AdminError> {
        let bad = || AdminError::bad("The path takes a whole key, 32 hex digits");
        self.path.get("key").and_then(|key| parse_key(key)).ok_or_else(bad)
    }

    /// The text of a member of the body.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }

    /// Why, in the operator's words.
    pub(super) fn reason(&self) -> Option<&str> {
        self.text("reason").map(str::trim)
    }

    /// What it is about, as the audit log names it: never a whole key, which `label`s stand for.
    pub(super) fn subject(&self) -> String {
        if let Ok(key) = self.key() {
            return key.label();
        }
        let named = self.path.values().next().map(String::as_str);
        named.or_else(|| self.text("principal")).unwrap_or_default().to_owned()
    }

    /// A member of the body as another type.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, AdminError> {
        let read = |value: &Value| serde_json::from_value(value.clone());
        let bad = |error| AdminError::bad(format!("`{name}` cannot be read: {error}"));
        self.body.get(name).map(read).transpose().map_err(bad)
    }
}

fn unknown(place: &str, name: &str, members: &[Member]) -> AdminError {
    let error = AdminError::bad(format!("`{name}` is no member of {place}"));
    if members.is_empty() {
        return error.hint("it takes none");
    }
    let known: Vec<_> = members.iter().map(|member| format!("`{}`", member.name)).collect();
    error.hint(format!("it takes {}", known.join(", ")))
}

fn wrong(member: &Member) -> AdminError {
    let expected = match member.kind {
        MemberKind::Text => "a text".to_owned(),
        MemberKind::Reason => {
            format!("why you do this, in {} to {} characters", REASON.start(), REASON.end())
        }
        MemberKind::Count => "a whole number".to_owned(),
        MemberKind::Flag => "true or false".to_owned(),
        MemberKind::Word(words) => format!("one of {}", words.join(", ")),
        MemberKind::Object => "an object".to_owned(),
        MemberKind::Any => "a value".to_owned(),
    };
    AdminError::bad(format!("`{}` has to be {expected}", member.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::routes::{count, reason, text, word};

    const QUERY: [Member; 3] = [count("limit", ""), text("principal", ""), word("state", &["awake"], "")];
    const BODY: [Member; 2] = [reason(), text("level", "").required()];

    fn query(text: &str) -> Result<Asked, String> {
        let mut asked = Asked::default();
        asked.take_query(text, &QUERY).map_err(|error| error.message)?;
        Ok(asked)
    }

    fn body(text: &str) -> Result<Asked, String> {
        let mut asked = Asked::default();
        asked.take_body(text.as_bytes(), &BODY).map_err(|error| error.message)?;
        Ok(asked)
    }

    #[test]
    fn a_query_has_known_members_once_each() {
        let asked = query("limit=7&principal=key%3Aci+%2B").unwrap();
        assert_eq!((asked.limit(), asked.query("principal")), (7, Some("key:ci +")));
        assert_eq!(query("").unwrap().limit(), 50);
        assert_eq!(query("limit=0").unwrap().limit(), 1);
        assert_eq!(query("limit=100000").unwrap().limit(), 500);
        for (text, error) in [
            ("limits=7", "`limits` is no member of the query"),
            ("limit=-7", "`limit` has to be a whole number"),
            ("limit=", "`limit` has to be a whole number"),
            ("state=asleep", "`state` has to be one of awake"),
            ("limit=7&limit=8", "`limit` is there twice"),
        ] {
            assert_eq!(query(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn a_body_has_known_members_of_the_right_kind_and_a_reason() {
        let asked = body(r#"{"level":"debug","reason":" it hangs "}"#).unwrap();
        assert_eq!((asked.text("level"), asked.reason()), (Some("debug"), Some("it hangs")));
        for (text, error) in [
            (r#"{"level":"debug"}"#, "`reason` has to be why you do this, in 3 to 500 characters"),
            (
                r#"{"level":"debug","reason":"  a  "}"#,
                "`reason` has to be why you do this, in 3 to 500 characters",
            ),
            (r#"{"reason":"it hangs"}"#, "`level` has to be a text"),
            (r#"{"level":1,"reason":"it hangs"}"#, "`level` has to be a text"),
            (r#"{"level":"debug","reason":"it hangs","x":1}"#, "`x` is no member of the body"),
        ] {
            assert_eq!(body(text).unwrap_err(), error, "{text}");
        }
        assert!(body("[]").unwrap_err().starts_with("The body is no JSON object"));
        let long = format!(r#"{{"level":"debug","reason":"{}"}}"#, "a".repeat(501));
        assert!(body(&long).unwrap_err().starts_with("`reason` has to be"));
    }
}
