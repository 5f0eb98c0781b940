//! The demo server: an echo, counters, a notebook, a hash store, a long task, a slow count, resources that change, a
//! prompt and completion. It keeps its data in workspaces, which a client names by a data session and a model by a
//! handle.

mod tools;
mod kept;
mod link_counter;
mod resources;
mod catalog;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_backend::native::{Handler, Introduction, Made, Native};
use tenure_layers::data::KindOfState;
use tenure_protocol::Reply;
use tenure_protocol::{Method, RawJson, Reason, RpcError};
use tenure_session::backend::{Backend, Call};
use tenure_session::call::Outlet;
use tenure_session::call::ToolCall;

/// The kind of state that the demo's tools work on.
pub fn workspace() -> KindOfState {
    kept::workspace()
}

/// The demo server, for all its sessions.
pub fn backend() -> impl Backend {
    let visitors = Arc::new(AtomicU64::new(0));
    Native::new(move |made: &Made<'_>| {
        // Requests without a session do not count as visitors.
        if made.outlet().is_some() {
            visitors.fetch_add(1, Ordering::Relaxed);
            made.fanout().resource_updated(resources::VISITORS);
        }
        let counter = link_counter::LinkCounter::new();
        Demo { outlet: made.outlet().cloned(), visitors: Arc::clone(&visitors), counter }
    })
}

/// The demo server of one session.
#[derive(Debug)]
struct Demo {
    outlet: Option<Outlet>,
    visitors: Arc<AtomicU64>,
    counter: link_counter::LinkCounter,
}

impl Demo {
    async fn answer(&self, call: &Call) -> Result<Value, RpcError> {
        let params = &call.request.params;
        match &call.request.method {
            Method::ToolsList => Ok(catalog::tools()),
            Method::ToolsCall => {
                let tool = ToolCall::read(params.as_ref())?;
                tools::call(self.outlet.as_ref(), &self.counter, &call.context, &tool).await
            }
            Method::ResourcesList => Ok(resources::list()),
            Method::ResourcesTemplatesList => Ok(resources::templates()),
            Method::ResourcesRead => {
                let visitors = self.visitors.load(Ordering::Relaxed);
                resources::read(&call.context, visitors, &read::<Uri>(params.as_ref())?.uri)
            }
            Method::ResourcesSubscribe | Method::ResourcesUnsubscribe => {
                resources::check(&read::<Uri>(params.as_ref())?.uri).map(|()| json!({}))
            }
            Method::PromptsList => Ok(catalog::prompts()),
            Method::PromptsGet => catalog::prompt(&read(params.as_ref())?),
            Method::CompletionComplete => Ok(catalog::complete(&read(params.as_ref())?)),
            Method::LoggingSetLevel => match tenure_protocol::params::log_level(params.as_ref()) {
                Some(_) => Ok(json!({})),
                None => Err(RpcError::of(Reason::InvalidParams, "no such log level")),
            },
            method => Err(RpcError::of(Reason::MethodNotFound, format!("Method not found: {method}"))),
        }
    }
}

#[derive(Deserialize)]
struct Uri {
    uri: String,
}

fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawJson>) -> Result<T, RpcError> {
    let params = params.ok_or_else(|| RpcError::of(Reason::InvalidParams, "params are missing"))?;
    params.read().map_err(|error| RpcError::of(Reason::InvalidParams, format!("params: {error}")))
}

impl Handler for Demo {
    fn introduction(&self) -> Introduction {
        Introduction {
            name: "tenure-demo",
            version: env!("CARGO_PKG_VERSION"),
            capabilities: json!({
                "tools": { "listChanged": false },
                "resources": { "subscribe": true, "listChanged": false },
                "prompts": { "listChanged": false },
                "completions": {},
                "logging": {},
            }),
            instructions: Some(
                "A demo: what you store lies in a workspace. Clients that know data sessions have one; otherwise create one with create_workspace and pass its workspace_id.",
            ),
        }
    }

    async fn call(self: Arc<Self>, call: Call) -> Reply {
        self.answer(&call).await.map(|result| RawJson::of(&result))
    }
}
