//! Kinds of state. One declaration gives the tools that make, destroy and list states of a kind, and the data that a
//! new data session begins with.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tenure_session::state::{NewState, StateKind};

type Begin = dyn Fn(&Map<String, Value>) -> Result<Bytes, String> + Send + Sync;

/// A kind of state that a server offers.
#[derive(Clone)]
pub struct KindOfState {
    pub(super) kind: StateKind,
    argument: String,
    pub(super) about: String,
    pub(super) idle_ttl: Option<Duration>,
    pub(super) max_lifetime: Option<Duration>,
    /// The schema of the params with which a state is made.
    pub(super) params: Value,
    pub(super) begin: Arc<Begin>,
    /// The tools that work on a state of this kind.
    pub(super) tools: Vec<String>,
    /// Other names for the tool that makes a state.
    pub(super) makers: Vec<String>,
}

impl KindOfState {
    /// A kind of state; `about` says what it is, as in `a place for notes`.
    pub fn new(kind: StateKind, about: &str) -> Self {
        Self {
            argument: format!("{}_id", kind.as_str()),
            kind,
            about: about.to_owned(),
            idle_ttl: None,
            max_lifetime: None,
            params: json!({ "type": "object", "properties": {}, "additionalProperties": false }),
            begin: Arc::new(|_| Ok(Bytes::new())),
            tools: Vec::new(),
            makers: Vec::new(),
        }
    }

    /// How long a state of this kind may be idle, if not as long as the others.
    #[must_use]
    pub fn idle_ttl(mut self, idle_ttl: Duration) -> Self {
        self.idle_ttl = Some(idle_ttl);
        self
    }

    /// How old a state of this kind may become, if not as old as the others.
    #[must_use]
    pub fn max_lifetime(mut self, max_lifetime: Duration) -> Self {
        self.max_lifetime = Some(max_lifetime);
        self
    }

    /// The schema of the params with which a state is made, and `begin`, which makes its first data or refuses the
    /// params with a sentence.
    #[must_use]
    pub fn made_from(
        mut self,
        schema: Value,
        begin: impl Fn(&Map<String, Value>) -> Result<Bytes, String> + Send + Sync + 'static,
    ) -> Self {
        self.params = schema;
        self.begin = Arc::new(begin);
        self
    }

    /// The tools that work on a state of this kind. A call names it by a handle among the arguments, or by the cookie,
    /// and is refused without either.
    #[must_use]
    pub fn used_by<'a>(mut self, tools: impl IntoIterator<Item = &'a str>) -> Self {
        self.tools.extend(tools.into_iter().map(str::to_owned));
        self
    }

    /// Another name for the tool that makes a state. The server lists it under this name, with params of its own, which
    /// `begin` gets too.
    #[must_use]
    pub fn made_by(mut self, tool: &str) -> Self {
        self.makers.push(tool.to_owned());
        self
    }

    /// Its name.
    pub fn kind(&self) -> &StateKind {
        &self.kind
    }

    /// A new state with this data; without it, with the data that `begin` makes from empty params.
    ///
    /// # Errors
    /// The sentence with which `begin` refuses empty params.
    pub fn holding(&self, data: Option<Bytes>) -> Result<NewState, String> {
        let data = match data {
            Some(data) => data,
            None => (self.begin)(&Map::new())?,
        };
        let (idle_ttl, max_lifetime) = (self.idle_ttl, self.max_lifetime);
        Ok(NewState { data, idle_ttl, max_lifetime, ..NewState::of(self.kind.clone()) })
    }

    /// The argument that takes a handle.
    pub fn argument(&self) -> &str {
        &self.argument
    }

    /// The schema of the argument that takes a handle, for the tools that work on one.
    pub(super) fn argument_schema(&self) -> Value {
        argument_schema(&self.kind)
    }

    pub(super) fn create_tool(&self) -> String {
        format!("create_{}", self.kind.as_str())
    }

    pub(super) fn destroy_tool(&self) -> String {
        format!("destroy_{}", self.kind.as_str())
    }

    pub(super) fn list_tool(&self) -> String {
        format!("list_{}s", self.kind.as_str())
    }
}

/// The schema of a handle. Its `x-mcp-header` lets routers in front of us send all requests of one state to one place.
fn argument_schema(kind: &StateKind) -> Value {
    let name = kind.as_str();
    let header: Vec<String> = name.split('_').chain(["id"]).map(capital).collect();
    json!({
        "type": "string",
        "description": format!("The {name} to work on, as create_{name} returned it"),
        "x-mcp-header": header.join("-"),
    })
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

impl std::fmt::Debug for KindOfState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KindOfState").field(&self.kind.as_str()).finish()
    }
}
