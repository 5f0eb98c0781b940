//! The capabilities of a client that a bridge can relay.
//!
//! In: the capabilities that a client declared in `initialize` or in a modern request. Out: a [`Relayed`] set, which
//! the bridge declares to the server. The set is also the key of the pooled sessions of modern clients. Capabilities
//! that the client's revision does not have (elicitation, elicitation by URL, sampling with tools) are left out.
//!
//! Relayed are roots, sampling and elicitation, with the parts that decide which questions are allowed. Not relayed
//! are `roots.listChanged` (modern servers get no such notification, and modern clients send none), `tasks` (they
//! differ between the eras, and the gateway creates tasks itself), `extensions` and `experimental` (the gateway cannot
//! know whether their messages would pass the bridge).

use std::fmt;

use crate::json::RawJson;
use crate::json::object::{self, Object, is_object};
use crate::method::Method;
use crate::revision::Revision;
use crate::translate::features::Feature;
use crate::translate::questions::Question;

/// A set of capabilities that can be relayed. Equal sets are equal keys, however they were written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Relayed(u8);

impl Relayed {
    const ROOTS: u8 = 1;
    const SAMPLING: u8 = 2;
    const SAMPLING_CONTEXT: u8 = 4;
    const SAMPLING_TOOLS: u8 = 8;
    const FORM: u8 = 16;
    const URL: u8 = 32;

    /// The set that a client declared in `initialize`. Capabilities that the session's revision does not have are
    /// ignored.
    pub fn of_session(capabilities: &RawJson, revision: Revision) -> Self {
        let mut set = Self::of_exchange(capabilities);
        if !Feature::SamplingTools.is_in(revision) {
            set.0 &= !(Self::SAMPLING_CONTEXT | Self::SAMPLING_TOOLS);
        }
        if !Feature::UrlElicitation.is_in(revision) {
            // Older revisions have no modes: every elicitation is a form.
            set.0 |= if set.has(Self::URL) { Self::FORM } else { 0 };
            set.0 &= !Self::URL;
        }
        if !Feature::Elicitation.is_in(revision) {
            set.0 &= !(Self::FORM | Self::URL);
        }
        set
    }

    /// The set that a modern request declares.
    pub fn of_exchange(capabilities: &RawJson) -> Self {
        let Some(declared) = Object::read(object::text(capabilities)) else {
            return Self::default();
        };
        let part = |name: &str| declared.get(name).and_then(Object::read);
        let has = |object: &Object<'_>, name: &str| object.get(name).is_some_and(is_object);
        let mut set = 0;
        if part("roots").is_some() {
            set |= Self::ROOTS;
        }
        if let Some(sampling) = part("sampling") {
            set |= Self::SAMPLING;
            set |= if has(&sampling, "context") { Self::SAMPLING_CONTEXT } else { 0 };
            set |= if has(&sampling, "tools") { Self::SAMPLING_TOOLS } else { 0 };
        }
        if let Some(elicitation) = part("elicitation") {
            let url = has(&elicitation, "url");
            // Elicitation without a mode means forms.
            set |= if has(&elicitation, "form") || !url { Self::FORM } else { 0 };
            set |= if url { Self::URL } else { 0 };
        }
        Self(set)
    }

    /// The capabilities as an object; equal sets give equal bytes. If only forms are in the set, no mode is written,
    /// because servers of every revision understand that.
    pub fn object(self) -> RawJson {
        let mut members = Vec::new();
        if self.has(Self::ROOTS) {
            members.push(r#""roots":{}"#);
        }
        if self.has(Self::SAMPLING) {
            members.push(match (self.has(Self::SAMPLING_CONTEXT), self.has(Self::SAMPLING_TOOLS)) {
                (false, false) => r#""sampling":{}"#,
                (true, false) => r#""sampling":{"context":{}}"#,
                (false, true) => r#""sampling":{"tools":{}}"#,
                (true, true) => r#""sampling":{"context":{},"tools":{}}"#,
            });
        }
        match (self.has(Self::FORM), self.has(Self::URL)) {
            (false, false) => {}
            (true, false) => members.push(r#""elicitation":{}"#),
            (false, true) => members.push(r#""elicitation":{"url":{}}"#),
            (true, true) => members.push(r#""elicitation":{"form":{},"url":{}}"#),
        }
        RawJson::trusted(format!("{{{}}}", members.join(",")))
    }

    /// Whether the question may be put to a client that declared this set.
    pub fn allows(self, question: &Question) -> bool {
        let wanted = Self::needed_by(question);
        wanted.0 != 0 && self.0 & wanted.0 == wanted.0
    }

    /// The capabilities that a client must declare for this question; empty for a method that is not a question.
    pub fn needed_by(question: &Question) -> Self {
        let params = question.params.as_ref().and_then(|params| Object::read(object::text(params)));
        let has = |name: &str| params.as_ref().is_some_and(|params| params.get(name).is_some());
        Self(match question.method {
            Method::RootsList => Self::ROOTS,
            Method::SamplingCreateMessage if has("tools") || has("toolChoice") => {
                Self::SAMPLING | Self::SAMPLING_TOOLS
            }
            Method::SamplingCreateMessage => Self::SAMPLING,
            Method::ElicitationCreate if crate::translate::questions::is_url(question) => Self::URL,
            Method::ElicitationCreate => Self::FORM,
            _ => 0,
        })
    }

    fn has(self, part: u8) -> bool {
        self.0 & part == part
    }
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relayed({:?})", self.object())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &'static str) -> RawJson {
        RawJson::trusted(text)
    }

    #[test]
    fn what_a_modern_client_declares_reaches_a_session() {
        let table = [
            ("{}", "{}"),
            ("7", "{}"),
            (r#"{"roots":{"listChanged":true}}"#, r#"{"roots":{}}"#),
            (r#"{"roots":null,"sampling":true}"#, "{}"),
            (r#"{"sampling":{}}"#, r#"{"sampling":{}}"#),
            (r#"{"sampling":{"tools":{"x":1},"context":{}}}"#, r#"{"sampling":{"context":{},"tools":{}}}"#),
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{}}"#),
            (r#"{"elicitation":{"form":{}}}"#, r#"{"elicitation":{}}"#),
            (r#"{"elicitation":{"url":{}}}"#, r#"{"elicitation":{"url":{}}}"#),
            (r#"{"elicitation":{"url":{},"form":{}}}"#, r#"{"elicitation":{"form":{},"url":{}}}"#),
            (
                r#"{"tasks":{"list":{}},"experimental":{"x":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
                "{}",
            ),
        ];
        for (declared, relayed) in table {
            assert_eq!(Relayed::of_exchange(&json(declared)).object(), json(relayed), "{declared}");
        }
    }

    #[test]
    fn what_a_session_declared_counts_as_far_as_its_revision_has_it() {
        let all = r#"{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},"tasks":{}}"#;
        let expected = [
            r#"{"roots":{},"sampling":{}}"#,
            r#"{"roots":{},"sampling":{}}"#,
            r#"{"roots":{},"sampling":{},"elicitation":{}}"#,
            r#"{"roots":{},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}}}"#,
        ];
        for (revision, expected) in Revision::ALL.into_iter().zip(expected) {
            assert_eq!(Relayed::of_session(&json(all), revision).object(), json(expected), "{revision}");
        }
    }

    #[test]
    fn equal_sets_are_equal_keys() {
        let one = Relayed::of_exchange(&json(r#"{"sampling":{},"roots":{}}"#));
        let other = Relayed::of_exchange(&json(r#"{ "roots" : {"listChanged":false}, "sampling":{} }"#));
        assert_eq!(one, other);
        assert_ne!(one, Relayed::of_exchange(&json(r#"{"roots":{}}"#)));
    }

    #[test]
    fn who_may_be_asked_what() {
        let form = (Method::ElicitationCreate, r#"{"message":"m","requestedSchema":{}}"#);
        let url = (Method::ElicitationCreate, r#"{"mode":"url","message":"m","url":"u"}"#);
        let sampling = (Method::SamplingCreateMessage, r#"{"messages":[]}"#);
        let tools = (Method::SamplingCreateMessage, r#"{"messages":[],"tools":[]}"#);
        let roots = (Method::RootsList, "{}");
        let other = (Method::Ping, "{}");
        let table = [
            (r#"{"elicitation":{}}"#, [true, false, false, false, false, false]),
            (r#"{"elicitation":{"url":{}}}"#, [false, true, false, false, false, false]),
            (r#"{"sampling":{}}"#, [false, false, true, false, false, false]),
            (r#"{"sampling":{"tools":{}}}"#, [false, false, true, true, false, false]),
            (r#"{"roots":{}}"#, [false, false, false, false, true, false]),
            ("{}", [false; 6]),
        ];
        for (declared, expected) in table {
            let relayed = Relayed::of_exchange(&json(declared));
            let allowed = [&form, &url, &sampling, &tools, &roots, &other].map(|(method, params)| {
                relayed.allows(&Question {
                    key: "k".to_owned(),
                    method: method.clone(),
                    params: Some(json(params)),
                })
            });
            assert_eq!(allowed, expected, "{declared}");
        }
    }
}
