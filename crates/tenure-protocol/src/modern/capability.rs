//! The capabilities that a client declares, and those that a request or a question needs.
//!
//! Every modern request declares its capabilities; nothing is kept from one request to the next.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::error::{Error, Reason};
use crate::json::RawJson;
use crate::json::members::{self, MemberLookup, RawMember};
use crate::json::object::is_object;
use crate::message::Request;
use crate::method::Method;

/// One capability of a client.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Capability {
    /// `sampling`: it can ask its model.
    Sampling,
    /// `sampling.tools`: that model can use tools.
    SamplingTools,
    /// `elicitation.form`: it can show a form to its user.
    ElicitationForm,
    /// `elicitation.url`: it can open a page for its user.
    ElicitationUrl,
    /// `roots`: it can list its folders.
    Roots,
    /// An extension, by name.
    Extension(Cow<'static, str>),
}

impl Capability {
    /// Tasks: the result comes later.
    pub const TASKS: Self = Self::Extension(Cow::Borrowed("io.modelcontextprotocol/tasks"));

    /// Its path in the object of capabilities.
    fn path(&self) -> (&str, Option<&str>) {
        match self {
            Self::Sampling => ("sampling", None),
            Self::SamplingTools => ("sampling", Some("tools")),
            Self::ElicitationForm => ("elicitation", Some("form")),
            Self::ElicitationUrl => ("elicitation", Some("url")),
            Self::Roots => ("roots", None),
            Self::Extension(name) => ("extensions", Some(name)),
        }
    }
}

impl std::fmt::Display for Capability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.path() {
            (name, None) => f.write_str(name),
            (name, Some(part)) => write!(f, "{name}.{part}"),
        }
    }
}

/// The object in which a client declares these capabilities.
pub fn declaration(capabilities: &[Capability]) -> Map<String, Value> {
    let mut declared = Map::new();
    for capability in capabilities {
        let (name, part) = capability.path();
        let whole = declared.entry(name).or_insert_with(|| Value::Object(Map::new()));
        if let (Some(part), Value::Object(whole)) = (part, whole) {
            whole.insert(part.to_owned(), Value::Object(Map::new()));
        }
    }
    declared
}

/// The error for a client that did not declare the needed capabilities.
pub fn missing(needed: &[Capability]) -> Error {
    let names: Vec<_> = needed.iter().map(Capability::to_string).collect();
    let detail = format!("The client did not declare a capability that this needs: {}", names.join(", "));
    Error::new(Reason::MissingCapability, detail).with("requiredCapabilities", declaration(needed))
}

/// The capabilities that one request declares.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    raw: RawJson,
    declared: Vec<Capability>,
}

impl Capabilities {
    /// Reads a declaration. A member of the wrong type counts as not declared. `None` if the value is not an object,
    /// or a member is repeated.
    pub fn parse(raw: RawJson) -> Option<Self> {
        let all = once(raw.bytes())?;
        let mut declared = Vec::new();
        for (name, value) in &all {
            if !is_object(value.get()) {
                continue;
            }
            let parts = once(value.get().as_bytes())?;
            let part = |name: &str| parts.iter().any(|(part, value)| part == name && is_object(value.get()));
            match &**name {
                "sampling" => {
                    declared.push(Capability::Sampling);
                    declared.extend(part("tools").then_some(Capability::SamplingTools));
                }
                "elicitation" => {
                    let url = part("url");
                    // Without any mode, forms are meant: they are older than modes.
                    let form = part("form") || !url;
                    declared.extend(form.then_some(Capability::ElicitationForm));
                    declared.extend(url.then_some(Capability::ElicitationUrl));
                }
                "roots" => declared.push(Capability::Roots),
                "extensions" => declared.extend(
                    parts
                        .iter()
                        .filter(|(_, value)| is_object(value.get()))
                        .map(|(name, _)| Capability::Extension(name.to_string().into())),
                ),
                _ => {}
            }
        }
        drop(all);
        Some(Self { raw, declared })
    }

    /// The declaration as it was written.
    pub fn raw(&self) -> &RawJson {
        &self.raw
    }

    /// Whether the capability is declared.
    pub fn has(&self, capability: &Capability) -> bool {
        self.declared.contains(capability)
    }

    /// Checks that all of these are declared.
    ///
    /// # Errors
    /// [`Reason::MissingCapability`], with the missing ones.
    pub fn require(&self, needed: &[Capability]) -> Result<(), Error> {
        let lacking: Vec<_> = needed.iter().filter(|needed| !self.has(needed)).cloned().collect();
        if lacking.is_empty() { Ok(()) } else { Err(missing(&lacking)) }
    }
}

/// The capabilities that a question to the client needs.
///
/// # Errors
/// [`Reason::MethodNotFound`] for a method that no client answers.
pub fn of_question(method: &Method, params: Option<&RawJson>) -> Result<Vec<Capability>, Error> {
    let member = |name: &str| params.and_then(|params| members::find(params.bytes(), name).value());
    match method {
        Method::SamplingCreateMessage => {
            let tools = member("tools").is_some() || member("toolChoice").is_some();
            Ok([Capability::Sampling].into_iter().chain(tools.then_some(Capability::SamplingTools)).collect())
        }
        Method::RootsList => Ok(vec![Capability::Roots]),
        Method::ElicitationCreate => match member("mode").map(|mode| mode.get()) {
            None | Some(r#""form""#) => Ok(vec![Capability::ElicitationForm]),
            Some(r#""url""#) => Ok(vec![Capability::ElicitationUrl]),
            Some(_) => Err(Error::new(Reason::MethodNotFound, "No client knows this mode of elicitation")),
        },
        method => Err(Error::new(Reason::MethodNotFound, format!("No client can be asked for {method}"))),
    }
}

/// The capability that a request needs with every server. Tools declare their needs themselves.
pub fn of_request(request: &Request) -> Option<Capability> {
    match request.method {
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => Some(Capability::TASKS),
        Method::Listen => {
            let params = request.params.as_ref()?;
            let filter = members::find(params.bytes(), "notifications").value()?;
            let tasks = members::find(filter.get().as_bytes(), "taskIds");
            (!matches!(tasks, MemberLookup::Absent)).then_some(Capability::TASKS)
        }
        _ => None,
    }
}

/// The members of an object, if no name is repeated.
fn once(object: &[u8]) -> Option<Vec<RawMember<'_>>> {
    members::read(object).filter(|members| !members::repeat(members))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_id::RequestId;

    fn declared(text: &'static str) -> String {
        match Capabilities::parse(RawJson::trusted(text)) {
            Some(found) => found.declared.iter().map(Capability::to_string).collect::<Vec<_>>().join(" "),
            None => "refused".to_owned(),
        }
    }

    #[test]
    fn declarations() {
        let table = [
            ("{}", ""),
            (r#"{"sampling":{}}"#, "sampling"),
            (r#"{"sampling":{"tools":{},"context":{}}}"#, "sampling sampling.tools"),
            (r#"{"elicitation":{}}"#, "elicitation.form"),
            (r#"{"elicitation":{"form":{}}}"#, "elicitation.form"),
            (r#"{"elicitation":{"url":{}}}"#, "elicitation.url"),
            (r#"{"elicitation":{"form":{},"url":{}}}"#, "elicitation.form elicitation.url"),
            (r#"{"roots":{"listChanged":true}}"#, "roots"),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":null}}"#,
                "extensions.io.modelcontextprotocol/tasks",
            ),
            (r#"{"tasks":{"list":{}},"experimental":{"x":{}}}"#, ""),
            (r#"{"sampling":null,"roots":true,"elicitation":[]}"#, ""),
            (r#"{"sampling":{"tools":null}}"#, "sampling"),
            (r#"{"sampling":{},"sampling":null}"#, "refused"),
            (r#"{"sampling":{"tools":null,"tools":{}}}"#, "refused"),
            ("[]", "refused"),
            ("true", "refused"),
        ];
        for (text, expected) in table {
            assert_eq!(declared(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_said_as_an_object_of_capabilities() {
        let client = Capabilities::parse(RawJson::trusted(r#"{"sampling":{}}"#)).unwrap();
        let needed = [
            Capability::Sampling,
            Capability::SamplingTools,
            Capability::ElicitationForm,
            Capability::ElicitationUrl,
            Capability::TASKS,
        ];
        let error = client.require(&needed).unwrap_err();
        let data: Value = error.to_rpc().raw().read().unwrap();
        expect_test::expect![[r#"
            {
              "code": -32021,
              "data": {
                "reason": "missing_client_capability",
                "requiredCapabilities": {
                  "elicitation": {
                    "form": {},
                    "url": {}
                  },
                  "extensions": {
                    "io.modelcontextprotocol/tasks": {}
                  },
                  "sampling": {
                    "tools": {}
                  }
                }
              },
              "message": "The client did not declare a capability that this needs: sampling.tools, elicitation.form, elicitation.url, extensions.io.modelcontextprotocol/tasks"
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&data).unwrap());
        assert!(client.require(&needed[..1]).is_ok());
        // `parse` reads the output of `declaration`.
        let again = Capabilities::parse(RawJson::of(&declaration(&needed))).unwrap();
        assert!(again.require(&needed).is_ok());
    }

    #[test]
    fn questions_and_what_they_need() {
        let table = [
            ("sampling/createMessage", "{}", "sampling"),
            ("sampling/createMessage", r#"{"tools":[]}"#, "sampling sampling.tools"),
            ("sampling/createMessage", r#"{"toolChoice":{}}"#, "sampling sampling.tools"),
            ("sampling/createMessage", r#"{"tools":null}"#, "sampling"),
            ("elicitation/create", "{}", "elicitation.form"),
            ("elicitation/create", r#"{"mode":"form"}"#, "elicitation.form"),
            ("elicitation/create", r#"{"mode":"url"}"#, "elicitation.url"),
            ("elicitation/create", r#"{"mode":"voice"}"#, "method_not_found"),
            ("roots/list", "{}", "roots"),
            ("ping", "{}", "method_not_found"),
        ];
        for (method, params, expected) in table {
            let needed = of_question(&Method::new(method), Some(&RawJson::trusted(params)));
            let words = match needed {
                Ok(needed) => needed.iter().map(Capability::to_string).collect::<Vec<_>>().join(" "),
                Err(error) => error.reason().as_str().to_owned(),
            };
            assert_eq!(words, expected, "{method} {params}");
        }
    }

    #[test]
    fn tasks_need_the_extension() {
        let table = [
            ("tasks/get", "{}", true),
            ("tasks/update", "{}", true),
            ("tasks/cancel", "{}", true),
            ("subscriptions/listen", r#"{"notifications":{"taskIds":["t"]}}"#, true),
            ("subscriptions/listen", r#"{"notifications":{"toolsListChanged":true}}"#, false),
            ("subscriptions/listen", "{}", false),
            ("tools/call", r#"{"notifications":{"taskIds":[]}}"#, false),
        ];
        for (method, params, needs) in table {
            let params = Some(RawJson::trusted(params));
            let request = Request { id: RequestId::from_number(1), method: Method::new(method), params };
            assert_eq!(of_request(&request), needs.then_some(Capability::TASKS), "{method}");
        }
    }
}
