//! Servers that only some callers may use: requests that need more scopes are refused, and lists show the tools that the
//! caller may call.
//!
//! In: the scopes of the caller, which the transport has verified. The rules are asked about names as the server says them,
//! so this layer belongs right in front of the server that the rules name. The transport refuses requests too, earlier and
//! with a challenge by which a client gets more scopes; it cannot know, for example, which of several
//! servers a resource belongs to, so such requests are refused here.

use std::fmt;
use std::sync::Arc;

use tenure_protocol::json::object::{self, Object};
use tenure_protocol::json::{members, scan};
use tenure_protocol::{Method, Notification, RawJson, Reason, Reply, RpcError, params};
use tenure_session::backend::{Backend, Call, Link, Open, Opened, Responder};
use tenure_session::call::{Granted, Scopes};
use tenure_session::port::BoxFuture;
use tenure_session::{Route, forward_link, forward_responder};

/// The longest name of a tool or method that an error repeats.
const MAX_NAME: usize = 128;

/// Says what a caller may use.
pub trait ToolRules: Send + Sync + 'static {
    /// The scopes that a call of this tool at this endpoint needs, if these scopes are not enough.
    fn missing(&self, scopes: &Scopes, route: &Route, tool: &str) -> Option<Vec<String>>;

    /// The scopes that every other request at this endpoint needs, if these scopes are not enough.
    fn missing_otherwise(&self, scopes: &Scopes, route: &Route) -> Option<Vec<String>>;
}

/// A server whose tools are restricted.
#[derive(Clone)]
pub struct Restricted<S: ?Sized> {
    rules: Arc<dyn ToolRules>,
    inner: Arc<S>,
}

impl<S: ?Sized> Restricted<S> {
    /// Restricts a server by these rules.
    pub fn new(inner: Arc<S>, rules: Arc<dyn ToolRules>) -> Self {
        Self { rules, inner }
    }
}

impl<S: ?Sized> fmt::Debug for Restricted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Restricted")
    }
}

impl Backend for Restricted<dyn Backend> {
    fn open(&self, open: Open) -> BoxFuture<Result<Opened, RpcError>> {
        let (opening, rules) = (self.inner.open(open), Arc::clone(&self.rules));
        Box::pin(async move {
            let Opened { link, result } = opening.await?;
            Ok(Opened { link: Box::new(RestrictedLink { rules, inner: link }), result })
        })
    }

    fn responder(self: Arc<Self>) -> Option<Arc<dyn Responder>> {
        let inner = Arc::clone(&self.inner).responder()?;
        Some(Arc::new(Restricted { rules: Arc::clone(&self.rules), inner }))
    }
}

struct RestrictedLink {
    rules: Arc<dyn ToolRules>,
    inner: Box<dyn Link>,
}

impl Link for RestrictedLink {
    fn call(&self, call: Call) -> BoxFuture<Reply> {
        restricted(&self.rules, call, |call| self.inner.call(call))
    }

    fn notify(&self, notification: Notification) {
        self.inner.notify(notification);
    }

    forward_link!(inner);
}

impl Responder for Restricted<dyn Responder> {
    fn respond(&self, call: Call) -> BoxFuture<Reply> {
        restricted(&self.rules, call, |call| self.inner.respond(call))
    }

    forward_responder!(inner);
}

fn restricted(
    rules: &Arc<dyn ToolRules>,
    call: Call,
    pass: impl FnOnce(Call) -> BoxFuture<Reply>,
) -> BoxFuture<Reply> {
    let scopes = match &call.context.caller().scopes {
        Granted::Ours => return pass(call),
        Granted::Scopes(scopes) => Arc::clone(scopes),
        // The transport verifies every caller of a server with rules, so a request that comes here without has lost them.
        Granted::Unasked => Scopes::from([]),
    };
    let caller = RestrictedCaller { rules: Arc::clone(rules), scopes, route: call.context.route().clone() };
    let refused = match &call.request.method {
        // A client begins with these, to learn what there is to ask for. A list of tools is filtered instead.
        Method::Initialize | Method::Ping | Method::ToolsList => None,
        Method::ToolsCall => caller.refuse_tool(call.request.params.as_ref()),
        method => caller.refuse(method),
    };
    match (refused, &call.request.method) {
        (Some(error), _) => Box::pin(std::future::ready(Err(error))),
        (None, Method::ToolsList) => {
            let reply = pass(call);
            Box::pin(async move { caller.visible(&reply.await?) })
        }
        (None, _) => pass(call),
    }
}

/// The caller of a request, as the rules see it.
struct RestrictedCaller {
    rules: Arc<dyn ToolRules>,
    scopes: Scopes,
    route: Route,
}

impl RestrictedCaller {
    fn refuse_tool(&self, request: Option<&RawJson>) -> Option<RpcError> {
        let Some(tool) = params::tool_name(request) else {
            return Some(RpcError::of(Reason::InvalidParams, "The call does not name one tool"));
        };
        let needed = self.rules.missing(&self.scopes, &self.route, &tool)?;
        Some(forbidden(&format!("tools/call {}", short(&tool)), needed))
    }

    fn refuse(&self, method: &Method) -> Option<RpcError> {
        let needed = self.rules.missing_otherwise(&self.scopes, &self.route)?;
        Some(forbidden(&short(method.as_str()), needed))
    }

    /// The result of `tools/list` with the tools that the caller may call.
    fn visible(&self, result: &RawJson) -> Reply {
        // A list that can be read in two ways could show one client what another reader did not see.
        let unreadable =
            || RpcError::of(Reason::BackendUnavailable, "The server's list of tools cannot be read");
        let mut list = Object::read(object::text(result)).ok_or_else(unreadable)?;
        if list.members().filter(|(name, _)| *name == "tools").count() > 1 {
            return Err(unreadable());
        }
        let Some(tools) = list.get("tools") else { return Ok(result.clone()) };
        let tools = object::elements(tools).ok_or_else(unreadable)?;
        let count = tools.len();
        let may_call = |tool: &&str| {
            let name = members::find(tool.as_bytes(), "name").value();
            let name = name.and_then(|name| scan::unquoted(name.get()));
            name.is_some_and(|name| self.rules.missing(&self.scopes, &self.route, &name).is_none())
        };
        let visible: Vec<&str> = tools.into_iter().filter(may_call).collect();
        if visible.len() == count {
            return Ok(result.clone());
        }
        list.set("tools", format!("[{}]", visible.join(",")));
        Ok(RawJson::trusted(list.write().into_owned()))
    }
}

fn forbidden(operation: &str, needed: Vec<String>) -> RpcError {
    let text = format!("{operation} needs the scope {}", needed.join(" "));
    tenure_protocol::Error::new(Reason::Forbidden, text).with("requiredScopes", needed).to_rpc()
}

/// A name for an error: clients can choose names of megabytes.
fn short(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OneTool;

    impl ToolRules for OneTool {
        fn missing(&self, scopes: &Scopes, _: &Route, tool: &str) -> Option<Vec<String>> {
            let needed = tool.split_once('_').map_or("", |(scope, _)| scope);
            let has = needed.is_empty() || scopes.iter().any(|scope| **scope == *needed);
            (!has).then(|| vec![needed.to_owned()])
        }

        fn missing_otherwise(&self, scopes: &Scopes, route: &Route) -> Option<Vec<String>> {
            self.missing(scopes, route, "use_")
        }
    }

    fn caller(names: &[&str]) -> RestrictedCaller {
        let scopes = names.iter().map(|name| Box::from(*name)).collect();
        RestrictedCaller { rules: Arc::new(OneTool), scopes, route: Route::MAIN }
    }

    #[test]
    fn a_list_shows_what_may_be_called_and_keeps_the_rest_as_it_was() {
        let list = r#"{"nextCursor":"x","tools":[{"name":"read_file","n":1e2}, {"name":"write_file"},{"name":"echo"}],"_meta":{}}"#;
        let list = RawJson::trusted(list);
        let seen = |names: &[&str]| object::text(&caller(names).visible(&list).unwrap()).to_owned();
        assert_eq!(seen(&["read", "write"]), object::text(&list));
        let expected =
            r#"{"nextCursor":"x","tools":[{"name":"read_file","n":1e2},{"name":"echo"}],"_meta":{}}"#;
        assert_eq!(seen(&["read"]), expected);
    }

    #[test]
    fn a_list_that_can_be_read_in_two_ways_is_refused_and_a_tool_without_one_name_is_not_shown() {
        let twice = RawJson::trusted(r#"{"tools":[{"name":"write_a"}],"tools":[]}"#);
        assert!(caller(&[]).visible(&twice).is_err());
        let odd = RawJson::trusted(r#"{"tools":[{"name":"echo","name":"write_a"},{"title":"x"}]}"#);
        assert_eq!(object::text(&caller(&[]).visible(&odd).unwrap()), r#"{"tools":[]}"#);
    }

    #[test]
    fn a_call_is_refused_with_all_that_it_needs() {
        let call = |text: &str| caller(&["read"]).refuse_tool(Some(&RawJson::trusted(text.to_owned())));
        assert!(call(r#"{"name":"read_file"}"#).is_none());
        let error = call(r#"{"name":"write_file"}"#).unwrap();
        assert_eq!(error.code(), -31003);
        assert!(call(r#"{"name":"read_file","name":"write_file"}"#).is_some(), "two names");
        assert!(call("{}").is_some());
        let long = call(&format!(r#"{{"name":"write_{}"}}"#, "ä".repeat(100_000))).unwrap();
        assert!(long.raw().bytes().len() < 1000, "{long:?}");
        assert!(caller(&["use"]).refuse(&Method::ResourcesRead).is_none());
        assert_eq!(caller(&["read"]).refuse(&Method::ResourcesRead).unwrap().code(), -31003);
    }
}
