//! Translates the notifications that a server sends on its own: changes of lists, resources and tasks.
//!
//! In a session the server simply sends them. In the modern era a client names the notifications it wants in a
//! `subscriptions/listen`, the server acknowledges those that it will send, and each notification carries the id of the
//! listen.

use crate::error::{Reason, RpcError};
use crate::json::RawJson;
use crate::json::object::{self, Object};
use crate::keys::SUBSCRIPTION;
use crate::method::Method;
use crate::request_id::RequestId;

/// The notifications that a listen wants, or that the server has granted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Changes of the list of tools.
    pub tools: bool,
    /// Changes of the list of prompts.
    pub prompts: bool,
    /// Changes of the list of resources.
    pub resources: bool,
    /// Changes of these resources.
    pub uris: Vec<String>,
    /// Changes of these tasks.
    pub tasks: Vec<String>,
}

impl Filter {
    /// A filter for every kind of notification that a session's server can announce. Its URI stands for any.
    pub fn everything() -> Self {
        let uris = vec![String::new()];
        Self { tools: true, prompts: true, resources: true, uris, tasks: Vec::new() }
    }

    /// The notifications that everything in the filter has changed.
    pub fn all_changed(&self) -> impl Iterator<Item = (Method, Option<RawJson>)> {
        let lists = [
            (self.tools, Method::ToolsListChanged),
            (self.prompts, Method::PromptsListChanged),
            (self.resources, Method::ResourcesListChanged),
        ];
        let lists = lists.into_iter().filter(|(wanted, _)| *wanted).map(|(_, method)| (method, None));
        let uris = self.uris.iter();
        let updated = uris.map(|uri| RawJson::trusted(format!(r#"{{"uri":{}}}"#, object::quoted(uri))));
        lists.chain(updated.map(|params| (Method::ResourceUpdated, Some(params))))
    }

    /// Reads the params of a `subscriptions/listen`, or of its acknowledgement. Unknown kinds of notifications are left
    /// out, as an acknowledgement does.
    ///
    /// # Errors
    /// When `notifications` is missing, or a member of it has the wrong type.
    pub fn read(params: Option<&RawJson>) -> Result<Self, RpcError> {
        let broken = || RpcError::of(Reason::InvalidParams, "notifications is missing or cannot be read");
        let params = Object::read(params.map_or("{}", object::text)).ok_or_else(broken)?;
        let wanted = params.get("notifications").and_then(Object::read).ok_or_else(broken)?;
        let flag = |name: &str| match wanted.get(name) {
            None | Some("null" | "false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(broken()),
        };
        let list = |name: &str| match wanted.get(name) {
            None | Some("null") => Ok(Vec::new()),
            Some(list) => serde_json::from_str(list).map_err(|_| broken()),
        };
        Ok(Self {
            tools: flag("toolsListChanged")?,
            prompts: flag("promptsListChanged")?,
            resources: flag("resourcesListChanged")?,
            uris: list("resourceSubscriptions")?,
            tasks: list("taskIds")?,
        })
    }

    /// The params of a listen for this filter, without the `_meta` of the sender.
    pub fn listen(&self) -> RawJson {
        RawJson::trusted(format!(r#"{{"notifications":{}}}"#, self.object()))
    }

    /// The params of the acknowledgement that grants this filter to a listen.
    pub fn acknowledgement(&self, listen: &RequestId) -> RawJson {
        RawJson::trusted(format!(
            r#"{{"notifications":{},"_meta":{{"{SUBSCRIPTION}":{}}}}}"#,
            self.object(),
            raw(listen),
        ))
    }

    /// The part of the filter that was requested.
    #[must_use]
    pub fn within(mut self, asked: &Self) -> Self {
        self.tools &= asked.tools;
        self.prompts &= asked.prompts;
        self.resources &= asked.resources;
        self.uris.retain(|uri| asked.uris.contains(uri));
        self.tasks.retain(|task| asked.tasks.contains(task));
        self
    }

    /// The part of the filter that a session's server announces in `initialize`. The URIs stay if it announces
    /// `resources.subscribe`; whether each of them works is known after `resources/subscribe`. Changes of tasks are not
    /// sent this way in a session.
    #[must_use]
    pub fn of_session(&self, initialized: &RawJson) -> Self {
        let capabilities =
            Object::read(object::text(initialized)).and_then(|it| Object::read(it.get("capabilities")?));
        let tells = |name: &str, what: &str| {
            let capability = capabilities.as_ref().and_then(|all| Object::read(all.get(name)?));
            capability.is_some_and(|capability| capability.get(what) == Some("true"))
        };
        Self {
            tools: self.tools && tells("tools", "listChanged"),
            prompts: self.prompts && tells("prompts", "listChanged"),
            resources: self.resources && tells("resources", "listChanged"),
            uris: if tells("resources", "subscribe") { self.uris.clone() } else { Vec::new() },
            tasks: Vec::new(),
        }
    }

    /// Whether a session's notification matches the filter. A server may name a part of a subscribed resource, so a URI
    /// below a subscribed one matches too.
    pub fn hears(&self, method: &Method, params: Option<&RawJson>) -> bool {
        match method {
            Method::ToolsListChanged => self.tools,
            Method::PromptsListChanged => self.prompts,
            Method::ResourcesListChanged => self.resources,
            Method::ResourceUpdated => {
                let uri =
                    params.and_then(|params| Object::read(object::text(params))).and_then(|it| it.get("uri"));
                let under = |whole: &str, uri: &str| {
                    uri.strip_prefix(whole).is_some_and(|rest| {
                        rest.is_empty() || whole.ends_with('/') || rest.starts_with(['/', '?', '#'])
                    })
                };
                uri.and_then(object::unquoted)
                    .is_some_and(|uri| self.uris.iter().any(|whole| under(whole, &uri)))
            }
            _ => false,
        }
    }

    fn object(&self) -> String {
        let mut members = Vec::new();
        let flags = [
            ("toolsListChanged", self.tools),
            ("promptsListChanged", self.prompts),
            ("resourcesListChanged", self.resources),
        ];
        for (name, _) in flags.iter().filter(|(_, wanted)| *wanted) {
            members.push(format!(r#""{name}":true"#));
        }
        for (name, list) in [("resourceSubscriptions", &self.uris), ("taskIds", &self.tasks)] {
            if !list.is_empty() {
                members.push(format!(r#""{name}":{}"#, object::text(&RawJson::of(list))));
            }
        }
        format!("{{{}}}", members.join(","))
    }
}

/// The params of a session's notification, with the id of the listen added.
pub fn to_modern(params: Option<&RawJson>, listen: &RequestId) -> RawJson {
    let mut object = params.and_then(|it| Object::read(object::text(it))).unwrap_or_else(object::nothing);
    let mut meta = object.get("_meta").and_then(Object::read).unwrap_or_else(object::nothing);
    meta.set(SUBSCRIPTION, raw(listen));
    object.set("_meta", meta.write());
    RawJson::trusted(object.write().into_owned())
}

/// The params of a listen's notification, without the id of the listen; `None` if nothing else is in them.
pub fn to_legacy(params: Option<&RawJson>) -> Option<RawJson> {
    let params = params?;
    let Some(mut object) = Object::read(object::text(params)) else {
        return Some(params.clone());
    };
    object.within("_meta", |meta| meta.remove(SUBSCRIPTION));
    (!object.is_empty()).then(|| object::kept(params, object.write()))
}

/// The result that ends a listen. The result type is added later, as to every modern result.
pub fn end(listen: &RequestId) -> RawJson {
    RawJson::trusted(format!(r#"{{"_meta":{{"{SUBSCRIPTION}":{}}}}}"#, raw(listen)))
}

fn raw(id: &RequestId) -> String {
    String::from_utf8_lossy(id.raw()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &'static str) -> RawJson {
        RawJson::trusted(text)
    }

    fn filter(uris: &[&str]) -> Filter {
        Filter {
            tools: true,
            resources: true,
            uris: uris.iter().map(|uri| (*uri).to_owned()).collect(),
            ..Filter::default()
        }
    }

    #[test]
    fn nothing_is_honoured_that_was_not_asked_for() {
        let said = Filter { prompts: true, ..filter(&["a:b", "a:c"]) };
        let asked = Filter { resources: false, ..filter(&["a:c", "a:d"]) };
        assert_eq!(said.within(&asked), Filter { resources: false, ..filter(&["a:c"]) });
    }

    #[test]
    fn what_a_listen_wants() {
        let table = [
            (r#"{"notifications":{}}"#, Filter::default()),
            (
                r#"{"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourcesListChanged":true,"resourceSubscriptions":["a:b"],"later":true},"_meta":{}}"#,
                filter(&["a:b"]),
            ),
            (
                r#"{"notifications":{"taskIds":["t"]}}"#,
                Filter { tasks: vec!["t".to_owned()], ..Filter::default() },
            ),
        ];
        for (params, expected) in table {
            assert_eq!(Filter::read(Some(&json(params))).as_ref(), Ok(&expected));
            assert_eq!(Filter::read(Some(&expected.listen())), Ok(expected), "written and read again");
        }
        let broken = [
            "{}",
            "[]",
            r#"{"notifications":null}"#,
            r#"{"notifications":{"toolsListChanged":1}}"#,
            r#"{"notifications":{"resourceSubscriptions":"a:b"}}"#,
            r#"{"notifications":{"resourceSubscriptions":[1]}}"#,
        ];
        for params in broken {
            assert!(Filter::read(Some(&json(params))).unwrap_err().is(Reason::InvalidParams), "{params}");
        }
        assert!(Filter::read(None).unwrap_err().is(Reason::InvalidParams));
    }

    #[test]
    fn a_listen_is_told_what_will_come() {
        let wanted = Filter { prompts: true, tasks: vec!["t".to_owned()], ..filter(&["a:b"]) };
        let told = |initialized| {
            let granted = wanted.of_session(&json(initialized));
            object::text(&granted.acknowledgement(&RequestId::from_text("l"))).to_owned()
        };
        assert_eq!(
            told(
                r#"{"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":false},"resources":{"subscribe":true}}}"#
            ),
            r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]},"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}"#
        );
        assert_eq!(
            told("{}"),
            r#"{"notifications":{},"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}"#
        );
    }

    #[test]
    fn a_listen_hears_what_it_asked_for() {
        let listen = filter(&["file:///a", "x:/d/"]);
        let table = [
            (Method::ToolsListChanged, None, true),
            (Method::PromptsListChanged, None, false),
            (Method::ResourcesListChanged, None, true),
            (Method::ResourceUpdated, Some(r#"{"uri":"file:\/\/\/a"}"#), true),
            (Method::ResourceUpdated, Some(r#"{"uri":"file:///a/part"}"#), true),
            (Method::ResourceUpdated, Some(r#"{"uri":"file:///ab"}"#), false),
            (Method::ResourceUpdated, Some(r#"{"uri":"x:/d/e"}"#), true),
            (Method::ResourceUpdated, Some("{}"), false),
            (Method::ResourceUpdated, None, false),
            (Method::LogMessage, Some("{}"), false),
        ];
        for (method, params, expected) in table {
            assert_eq!(listen.hears(&method, params.map(json).as_ref()), expected, "{method} {params:?}");
        }
    }

    #[test]
    fn news_carry_the_id_of_their_listen_in_one_era_only() {
        let number = RequestId::from_number(1);
        let text = RequestId::from_text("1");
        let table = [
            (None, &number, r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#, None),
            (
                Some(r#"{ "uri": "a:b" }"#),
                &text,
                r#"{ "uri": "a:b","_meta":{"io.modelcontextprotocol/subscriptionId":"1"} }"#,
                Some(r#"{ "uri": "a:b" }"#),
            ),
            (
                Some(r#"{"_meta":{"x":1}}"#),
                &number,
                r#"{"_meta":{"x":1,"io.modelcontextprotocol/subscriptionId":1}}"#,
                Some(r#"{"_meta":{"x":1}}"#),
            ),
        ];
        for (legacy, listen, modern, back) in table {
            let tagged = to_modern(legacy.map(json).as_ref(), listen);
            assert_eq!(object::text(&tagged), modern);
            assert_eq!(to_legacy(Some(&tagged)).as_ref().map(object::text), back);
        }
        assert_eq!(to_legacy(None), None);
        assert_eq!(object::text(&end(&text)), r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":"1"}}"#);
    }
}
