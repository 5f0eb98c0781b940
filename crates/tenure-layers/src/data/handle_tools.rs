//! The tools that come with a kind of state, and the error texts about handles.
//!
//! An error for a model is a text in the result of its call: a protocol error would not reach the model.

use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tenure_protocol::json::{object, scan};
use tenure_protocol::{RawJson, RpcError};
use tenure_session::call::Caller;
use tenure_session::id::Principal;
use tenure_session::state::{About, Fault, Lost, NewState, State, StateId, date};

use crate::data::handle_kinds::KindOfState;
use crate::data::path::DataShared;

/// How many states are listed at most; a model has no use for more.
const MAX_LISTED: usize = 100;

/// The action of one of these tools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandleAction {
    Create,
    Destroy,
    List,
}

/// How a tool relates to a kind of state. Looked up with every call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// It works on a state of the kind with this number.
    Uses(usize),
    /// It came with the kind, and does this.
    Does(usize, HandleAction),
}

/// The role of each tool; a role names its kind by number.
pub(super) fn roles(kinds: &[KindOfState]) -> HashMap<Box<str>, Role, RandomState> {
    let mut roles = HashMap::default();
    for (number, kind) in kinds.iter().enumerate() {
        for tool in &kind.tools {
            roles.insert(tool.as_str().into(), Role::Uses(number));
        }
        let actions = [
            (kind.create_tool(), HandleAction::Create),
            (kind.destroy_tool(), HandleAction::Destroy),
            (kind.list_tool(), HandleAction::List),
        ];
        let makers = kind.makers.iter().map(|tool| (tool.clone(), HandleAction::Create));
        for (tool, action) in actions.into_iter().chain(makers) {
            roles.insert(tool.into(), Role::Does(number, action));
        }
    }
    roles
}

impl DataShared {
    /// Carries out the action of a tool.
    pub(super) async fn act(
        &self,
        kind: &KindOfState,
        action: HandleAction,
        arguments: Option<&[u8]>,
        caller: &Caller,
        proven: Option<&State>,
    ) -> Result<RawJson, RpcError> {
        let principal = &caller.principal;
        let arguments = arguments.unwrap_or(b"{}");
        let Ok(arguments) = serde_json::from_slice::<Map<String, Value>>(arguments) else {
            return Ok(complaint("The arguments are not an object."));
        };
        match action {
            HandleAction::Create => self.create_by_tool(kind, &arguments, caller).await,
            HandleAction::Destroy => self.destroy_by_tool(kind, &arguments, principal).await,
            HandleAction::List => self.list_by_tool(kind, principal, proven).await,
        }
    }

    async fn create_by_tool(
        &self,
        kind: &KindOfState,
        arguments: &Map<String, Value>,
        caller: &Caller,
    ) -> Result<RawJson, RpcError> {
        let data = match (kind.begin)(arguments) {
            Ok(data) => data,
            Err(refusal) => return Ok(complaint(&refusal)),
        };
        let new = NewState {
            kind: kind.kind.clone(),
            about: About::default(),
            data,
            idle_ttl: kind.idle_ttl,
            max_lifetime: kind.max_lifetime,
            peer: caller.peer(),
        };
        match self.states.create(&caller.principal, new).await {
            Ok(state) => {
                let (name, handle) = (kind.kind.as_str(), state.id().handle(&kind.kind));
                let words = format!(
                    "Created {name} {handle}. Pass it as {} to the tools that need one.",
                    kind.argument()
                );
                Ok(told(&words, &self.shown(kind, &handle, state.expiry().map(date))))
            }
            Err(fault @ (Fault::Full(_) | Fault::TooLarge { .. })) => {
                Ok(complaint(&fault.to_error().to_string()))
            }
            Err(fault) => Err(fault.to_error().to_rpc()),
        }
    }

    async fn destroy_by_tool(
        &self,
        kind: &KindOfState,
        arguments: &Map<String, Value>,
        principal: &Principal,
    ) -> Result<RawJson, RpcError> {
        let name = kind.kind.as_str();
        let Some(handle) = arguments.get(kind.argument()).and_then(Value::as_str) else {
            return Ok(complaint(&format!("Say which {name} to destroy: pass its {}.", kind.argument())));
        };
        match self.by_handle(kind, handle, principal).await {
            Ok(state) => match state.delete().await {
                Ok(()) => {
                    let shown = json!({ kind.argument(): handle, "destroyed": true });
                    Ok(told(&format!("Destroyed {name} {handle}."), &shown))
                }
                Err(Fault::Lost(lost)) => Ok(missing(kind, handle, lost)),
                Err(fault) => Err(fault.to_error().to_rpc()),
            },
            Err(Fault::Lost(lost)) => Ok(missing(kind, handle, lost)),
            Err(fault) => Err(fault.to_error().to_rpc()),
        }
    }

    async fn list_by_tool(
        &self,
        kind: &KindOfState,
        principal: &Principal,
        proven: Option<&State>,
    ) -> Result<RawJson, RpcError> {
        let name = kind.kind.as_str();
        let page = self.states.list_kind(principal, &kind.kind, MAX_LISTED).await;
        let page = page.map_err(|fault| fault.to_error().to_rpc())?;
        let mut found: Vec<Value> = page
            .states
            .iter()
            .filter_map(|listed| {
                let handle = listed.id?.handle(&kind.kind);
                Some(self.shown(kind, &handle, listed.expiry.map(date)))
            })
            .collect();
        if let (None, Some(state)) = (principal.name(), proven)
            && state.is_of(&kind.kind)
        {
            found.push(self.shown(kind, &state.id().handle(&kind.kind), state.expiry().map(date)));
        }
        let words = match (found.len(), principal.name()) {
            (0, None) => format!(
                "Without signing in, only the {name} of your own session is listed, and this session has no {name}."
            ),
            (0, Some(_)) => format!("You have no {name}. Create one with {}.", kind.create_tool()),
            (count, _) => format!("You have {count}."),
        };
        Ok(told(&words, &json!({ format!("{name}s"): found })))
    }

    fn shown(&self, kind: &KindOfState, handle: &str, expires: Option<String>) -> Value {
        match expires {
            Some(expires) => json!({ kind.argument(): handle, "expires": expires }),
            None => json!({ kind.argument(): handle }),
        }
    }

    /// Finds the state that a handle names.
    pub(super) async fn by_handle(
        &self,
        kind: &KindOfState,
        handle: &str,
        principal: &Principal,
    ) -> Result<State, Fault> {
        let id = StateId::from_handle(&kind.kind, handle).ok_or(Fault::Lost(Lost::NotFound))?;
        let state = self.states.find(principal, id).await?;
        if state.is_of(&kind.kind) { Ok(state) } else { Err(Fault::Lost(Lost::NotFound)) }
    }

    /// The tools of all kinds, as `tools/list` shows them.
    pub(super) fn tools(&self) -> impl Iterator<Item = Value> {
        self.kinds.iter().flat_map(|kind| self.tools_of(kind))
    }

    fn tools_of(&self, kind: &KindOfState) -> [Value; 3] {
        let name = kind.kind.as_str();
        let fate = fate(
            kind.idle_ttl.or(self.states.limits().idle_ttl),
            kind.max_lifetime.or(self.states.limits().max_lifetime),
        );
        let shown = json!({
            "type": "object",
            "properties": { kind.argument(): { "type": "string" }, "expires": { "type": "string", "format": "date-time" } },
            "required": [kind.argument()],
        });
        [
            json!({
                "name": kind.create_tool(),
                "description": format!("Creates {}, for the tools that take {}. {fate}", kind.about, kind.argument()),
                "inputSchema": kind.params,
                "outputSchema": shown,
                "annotations": { "readOnlyHint": false, "destructiveHint": false, "idempotentHint": false },
            }),
            json!({
                "name": kind.destroy_tool(),
                "description": format!("Destroys a {name} and everything in it."),
                "inputSchema": {
                    "type": "object",
                    "properties": { kind.argument(): kind.argument_schema() },
                    "required": [kind.argument()],
                },
                "outputSchema": {
                    "type": "object",
                    "properties": { kind.argument(): { "type": "string" }, "destroyed": { "type": "boolean" } },
                    "required": [kind.argument(), "destroyed"],
                },
                "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false },
            }),
            json!({
                "name": kind.list_tool(),
                "description": format!("Lists every {name} of yours, for when you have lost track. {fate}"),
                "inputSchema": { "type": "object", "properties": {}, "additionalProperties": false },
                "outputSchema": {
                    "type": "object",
                    "properties": { format!("{name}s"): { "type": "array", "items": shown } },
                    "required": [format!("{name}s")],
                },
                "annotations": { "readOnlyHint": true },
            }),
        ]
    }

    /// A `tools/list` result in which tools that need a state are marked, with our tools on its last page.
    pub(super) fn list_tools(&self, result: &RawJson) -> Option<RawJson> {
        let text = std::str::from_utf8(result.bytes()).ok()?;
        let listed: Vec<&RawValue> = serde_json::from_str(scan::member(text, "tools")?).ok()?;
        let mut tools = Vec::with_capacity(listed.len());
        let mut names = Vec::with_capacity(listed.len());
        for tool in listed {
            let name = scan::member(tool.get(), "name").and_then(scan::unquoted);
            let name = name.unwrap_or_default().into_owned();
            tools.push(self.marked(&name, tool.get()).unwrap_or_else(|| tool.get().to_owned()));
            names.push(name);
        }
        if scan::member(text, "nextCursor").is_none_or(|next| next == "null") {
            // Our tool replaces a tool of the server that has the same name, as it does in calls.
            for tool in self.tools() {
                let at = names.iter().position(|name| tool["name"] == name.as_str());
                match at {
                    Some(at) => tools[at] = tool.to_string(),
                    None => tools.push(tool.to_string()),
                }
            }
        }
        let tools = format!("[{}]", tools.join(","));
        Some(RawJson::trusted(object::set_at(text, &["tools"], &tools)?.into_owned()))
    }
}

impl DataShared {
    /// A tool marked with `sessionRequired`, and with the argument that takes a handle. `None` if it needs no state.
    fn marked(&self, name: &str, tool: &str) -> Option<String> {
        if !self.needs(name) {
            return None;
        }
        let tool = object::set_at(tool, &["_meta", "sessionRequired"], "true")?;
        let argument = self
            .kind_of(name)
            .map(|kind| (["inputSchema", "properties", kind.argument()], kind.argument_schema().to_string()));
        // The server's own description of the argument stays.
        match argument.filter(|(place, _)| scan::at(&tool, place).is_none()) {
            Some((place, schema)) => Some(object::set_at(&tool, &place, &schema)?.into_owned()),
            None => Some(tool.into_owned()),
        }
    }
}

/// A sentence for the model about how long a state lives.
fn fate(idle: Option<Duration>, life: Option<Duration>) -> String {
    match (idle, life) {
        (Some(idle), Some(life)) => {
            format!("It expires after {} without use, and {} after it was made.", span(idle), span(life))
        }
        (Some(idle), None) => format!("It expires after {} without use.", span(idle)),
        (None, Some(life)) => format!("It expires {} after it was made.", span(life)),
        (None, None) => "It does not expire.".to_owned(),
    }
}

fn span(duration: Duration) -> String {
    let seconds = duration.as_secs().max(1);
    let (count, unit) = match seconds {
        _ if seconds.is_multiple_of(86_400) => (seconds / 86_400, "day"),
        _ if seconds.is_multiple_of(3600) => (seconds / 3600, "hour"),
        _ if seconds.is_multiple_of(60) => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// The tool result for a handle whose state does not exist.
pub(super) fn missing(kind: &KindOfState, handle: &str, lost: Lost) -> RawJson {
    let name = kind.kind.as_str();
    let what = match lost {
        Lost::NotFound => format!("There is no {name} `{handle}`."),
        Lost::Expired => format!("The {name} `{handle}` has expired."),
        Lost::Deleted => format!("The {name} `{handle}` was destroyed."),
        Lost::Revoked => format!("The {name} `{handle}` was revoked."),
    };
    complaint(&format!("{what} Create another with {}.", kind.create_tool()))
}

/// A result that tells the model what went wrong.
pub(super) fn complaint(words: &str) -> RawJson {
    RawJson::of(&json!({ "content": [{ "type": "text", "text": words }], "isError": true }))
}

fn told(words: &str, structured: &Value) -> RawJson {
    RawJson::of(&json!({ "content": [{ "type": "text", "text": words }], "structuredContent": structured }))
}
